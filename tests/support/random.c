#include "tests/support/random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Strings that a careless writer or reader takes for something else. */
static const char *const awkward[] = {
    "",
    " ",
    "true",
    "null",
    "~",
    "1",
    "-1",
    "1.5",
    "1e6",
    ".inf",
    "NaN",
    "0x1f",
    "yes",
    "- a",
    "a: b",
    "a:",
    "a #b",
    "#",
    "a ",
    " a",
    "\n",
    "a\nb",
    "\ta",
    "'",
    "\"",
    "\\",
    "[a]",
    "{a}",
    "&a",
    "*a",
    "!a",
    "|",
    ">",
    "%",
    "@",
    "`",
    "---",
    "...",
    "?",
    "? a",
    ",",
    "a, b",
    "\x7f",
    "\x01",
    "é",
    "😀",
    "a😀b😀",
    "\u2028",
    "\u2029 a",
    "\ufffe",
    "\xc2\x85",
    "\ufeff",
    "12:30",
    "2024-01-01",
    "1_000",
    "80GB",
    "0-7,16",
    "a/b.c",
    "<<",
    "=",
    "\\ud83d\\ude00",
};

static json_t *random_text(uint64_t *state)
{
    static const char alphabet[] = "ab:#-? ,\"'\\[]{}\n\t.0e";
    if (random_below(state, 2))
        return json_string(awkward[random_below(state, sizeof awkward / sizeof *awkward)]);
    char text[16];
    size_t length = random_below(state, sizeof text);
    for (size_t i = 0; i < length; i++)
        text[i] = alphabet[random_below(state, sizeof alphabet - 1)];
    return json_stringn(text, length);
}

static json_t *random_scalar(uint64_t *state)
{
    double real;
    uint64_t bits = random_next(state);
    switch (random_below(state, 7)) {
    case 0:
        return json_null();
    case 1:
        return json_boolean(random_below(state, 2));
    case 2:
        return json_integer((json_int_t)bits);
    case 3:
        return json_integer((json_int_t)(bits % 1000) - 500);
    case 4:
        memcpy(&real, &bits, sizeof real);
        return json_real(isfinite(real) ? real : 0.5);
    case 5:
        return json_real((double)(bits % 2000) / 100 - 10);
    default:
        return random_text(state);
    }
}

json_t *random_json(uint64_t *state, int depth)
{
    uint64_t kind = random_below(state, depth > 0 ? 3 : 1);
    if (kind == 0)
        return random_scalar(state);
    json_t *ret = kind == 1 ? json_array() : json_object();
    for (uint64_t left = random_below(state, 6); left > 0; left--) {
        json_t *value = random_json(state, depth - 1);
        if (kind == 1) {
            (void)json_array_append_new(ret, value);
            continue;
        }
        json_t *key = random_text(state);
        (void)json_object_set_new(ret, json_string_value(key), value);
        json_decref(key);
    }
    return ret;
}
