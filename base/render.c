#include "base/file.h"
#include "base/scalar.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT_KEY_BYTES = 160 };

/* Spellings that older YAML readers (1.1) take for booleans: quoted for their sake. */
static bool is_old_boolean(const char *text)
{
    static const char *const words[] = { "y", "n", "yes", "no", "on", "off" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    return false;
}

/* True for text that reads back as itself without quotes, here and in readers of YAML 1.1, which
 * also know dates, sexagesimals and numbers with underscores. Errs towards quoting. */
static bool is_plain(const char *text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    static const char inside[] = "0123456789_/(). +-*=%,;@<>$^~:#'";
    struct node resolved = { .kind = NODE_NULL };
    if (scalar_resolve(text, &resolved) < 0 || resolved.kind != NODE_TEXT || is_old_boolean(text))
        return false;
    if (!strchr(letters, text[0]) && !strchr("0123456789_/(", text[0]))
        return false;
    if (text[strspn(text, "0123456789abcdefABCDEFxo_:.+-TZ ")] == '\0' && !strchr(letters, text[0]))
        return false;
    for (size_t i = 0; text[i]; i++) {
        if (!strchr(letters, text[i]) && !strchr(inside, text[i]))
            return false;
        if (text[i] == ':' && (text[i + 1] == ' ' || text[i + 1] == '\0'))
            return false;
        if (text[i] == ' ' && (text[i + 1] == '#' || text[i + 1] == '\0'))
            return false;
    }
    return true;
}

/* One character of UTF-8 that jansson has checked. Returns its bytes. */
static size_t decode(const char *text, uint32_t *ret)
{
    static const unsigned char first_mask[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    unsigned char first = (unsigned char)text[0];
    size_t bytes = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    *ret = first & first_mask[bytes];
    for (size_t i = 1; i < bytes; i++)
        *ret = *ret << 6 | ((unsigned char)text[i] & 0x3f);
    return bytes;
}

/* Characters that YAML does not allow as such, or reads as line breaks. */
static bool needs_escape(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff ||
           c == 0xfffe || c == 0xffff;
}

static void write_quoted(FILE *out, const char *text)
{
    (void)fputc('"', out);
    while (*text) {
        uint32_t c;
        size_t bytes = decode(text, &c);
        if (c == '"' || c == '\\')
            (void)fprintf(out, "\\%c", (int)c);
        else if (c == '\n')
            (void)fputs("\\n", out);
        else if (c == '\t')
            (void)fputs("\\t", out);
        else if (needs_escape(c))
            (void)fprintf(out, "\\u%04" PRIx32, c);
        else
            (void)fwrite(text, 1, bytes, out);
        text += bytes;
    }
    (void)fputc('"', out);
}

static void write_text(FILE *out, const char *text)
{
    if (is_plain(text))
        (void)fputs(text, out);
    else
        write_quoted(out, text);
}

/* The fewest digits that read back as the same double (17 always do), with a point, without which
 * a whole real would come back as an integer. */
static void write_real(FILE *out, double value)
{
    char digits[40];
    for (int precision = 15; precision <= 17; precision++) {
        (void)snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    char *exponent = strchr(digits, 'e');
    if (strchr(digits, '.'))
        (void)fputs(digits, out);
    else if (exponent)
        (void)fprintf(out, "%.*s.0%s", (int)(exponent - digits), digits, exponent);
    else
        (void)fprintf(out, "%s.0", digits);
}

static void write_scalar(FILE *out, const json_t *value)
{
    if (json_is_string(value))
        write_text(out, json_string_value(value));
    else if (json_is_integer(value))
        (void)fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        write_real(out, json_real_value(value));
    else if (json_is_object(value))
        (void)fputs("{}", out);
    else if (json_is_array(value))
        (void)fputs("[]", out);
    else
        (void)fputs(json_is_true(value) ? "true" : json_is_false(value) ? "false" : "null", out);
}

/* A key and its colon. Readers of YAML look for the colon of a plain key within 1,024 characters
 * (YAML 1.2.2, 7.4.2), and an escape makes six of one byte. */
static void write_key(FILE *out, const char *key, int indent)
{
    bool is_long = strlen(key) > SHORT_KEY_BYTES;
    if (is_long)
        (void)fputs("? ", out);
    write_text(out, key);
    if (is_long)
        (void)fprintf(out, "\n%*s", indent, "");
    (void)fputc(':', out);
}

static void write_entries(FILE *out, const json_t *value, int indent);

/* What follows "key:" or "-": a scalar on the same line, or entries below. A list entry that is a
 * map or a list begins right behind its dash. */
static void write_value(FILE *out, const json_t *value, int indent, bool behind_dash)
{
    if (json_object_size(value) == 0 && json_array_size(value) == 0) {
        (void)fputc(' ', out);
        write_scalar(out, value);
        (void)fputc('\n', out);
        return;
    }
    if (behind_dash)
        (void)fputc(' ', out);
    else
        (void)fprintf(out, "\n%*s", indent, "");
    write_entries(out, value, indent);
}

/* The entries of a non-empty map or list; the first is already indented. */
static void write_entries(FILE *out, const json_t *value, int indent)
{
    bool first = true;
    for (size_t i = 0; i < json_array_size(value); i++) {
        (void)fprintf(out, "%*s-", first ? 0 : indent, "");
        write_value(out, json_array_get(value, i), indent + 2, true);
        first = false;
    }
    /* jansson's iterator takes a mutable object although it changes nothing. */
    json_t *map = (json_t *)(uintptr_t)value;
    for (void *at = json_object_iter(map); at; at = json_object_iter_next(map, at)) {
        (void)fprintf(out, "%*s", first ? 0 : indent, "");
        write_key(out, json_object_iter_key(at), indent);
        write_value(out, json_object_iter_value(at), indent + 2, false);
        first = false;
    }
}

char *file_render_yaml(const json_t *document)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = document ? open_memstream(&text, &bytes) : NULL;
    if (!out)
        return NULL;
    if (json_object_size(document) == 0 && json_array_size(document) == 0) {
        write_scalar(out, document);
        (void)fputc('\n', out);
    } else {
        write_entries(out, document, 0);
    }
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
