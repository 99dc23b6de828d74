#include "base/routing/routing.h"
#include "base/text.h"
#include "base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int parse_number(const char *text, size_t length, double *ret)
{
    char digits[32];
    char *end;

    if (length == 0 || length >= sizeof digits)
        return -1;
    memcpy(digits, text, length);
    digits[length] = '\0';
    *ret = strtod(digits, &end);
    return *end || !isfinite(*ret) ? -1 : 0;
}

/* "80:4": percent of hot tokens, number of hot experts. */
static int parse_hot(const char *text, const char *colon, struct pos at, struct routing *ret,
                     struct diag_list *reterr)
{
    double percent;
    int64_t experts;

    if (parse_number(text, (size_t)(colon - text), &percent) ||
        units_parse_int(colon + 1, 1, 1 << 20, &experts) || percent < 0 || percent > 100) {
        diag_error(reterr, at, "routing %s is not a profile", text);
        return diag_hint(reterr, "80:4 makes 80 %% of the tokens choose experts 0 to 3 first");
    }
    if (percent > 0 && percent < 1) {
        diag_error(reterr, at, "routing %s: the first number is a percentage", text);
        return diag_hint(reterr, "write %g:%lld for %g %%", percent * 100, (long long)experts,
                         percent * 100);
    }
    *ret = (struct routing){ .kind = ROUTING_HOT,
                             .hot_fraction = percent / 100,
                             .hot_experts = (int)experts };
    return 0;
}

static int parse_zipf(const char *text, const char *colon, struct pos at, struct routing *ret,
                      struct diag_list *reterr)
{
    double exponent;

    if (parse_number(colon + 1, strlen(colon + 1), &exponent) || exponent < 0 || exponent > 4) {
        diag_error(reterr, at, "routing %s: the exponent of zipf is a number from 0 to 4", text);
        return diag_hint(reterr, "zipf:1 makes expert i weigh 1 / (i + 1)");
    }
    *ret = (struct routing){ .kind = ROUTING_ZIPF, .zipf_exponent = exponent };
    return 0;
}

int routing_parse(const char *text, struct pos at, struct routing *ret, struct diag_list *reterr)
{
    static const char *const words[] = { "balanced", "natural", "zipf:1" };
    const char *colon = strchr(text, ':');

    if (!strcmp(text, "balanced") || !strcmp(text, "natural")) {
        *ret = (struct routing){ .kind = *text == 'b' ? ROUTING_BALANCED : ROUTING_NATURAL };
        return 0;
    }
    if (colon && !strncmp(text, "zipf:", 5))
        return parse_zipf(text, colon, at, ret, reterr);
    if (colon && ((*text >= '0' && *text <= '9') || *text == '.'))
        return parse_hot(text, colon, at, ret, reterr);
    diag_error(reterr, at, "routing %s is not a profile", text);
    const char *near = text_nearest(text, words, sizeof words / sizeof *words);
    if (near)
        return diag_hint(reterr, "did you mean %s?", near);
    return diag_hint(reterr, "balanced, natural, PERCENT:EXPERTS (80:4) or zipf:EXPONENT");
}

void routing_format(const struct routing *routing, char *ret, size_t size)
{
    size_t used = 0;

    ret[0] = '\0';
    switch (routing->kind) {
    case ROUTING_BALANCED:
        text_append(ret, size, &used, "balanced");
        break;
    case ROUTING_NATURAL:
        text_append(ret, size, &used, "natural");
        break;
    case ROUTING_HOT:
        text_append(ret, size, &used, "%.15g:%d", routing->hot_fraction * 100,
                    routing->hot_experts);
        break;
    case ROUTING_ZIPF:
        text_append(ret, size, &used, "zipf:%.15g", routing->zipf_exponent);
        break;
    }
}
