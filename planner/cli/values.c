/* One option as a value: integers, token counts, sizes, fractions, names. */
#include "base/text.h"
#include "base/units.h"
#include "planner/cli/subject.h"

#include <inttypes.h>
#include <string.h>

int option_int(const struct options *options, enum option_id id, int64_t min, int64_t max,
               int64_t *ret, struct diag_list *reterr)
{
    const char *text = options->value[id];
    if (!text || units_parse_int(text, min, max, ret) == 0)
        return 0;
    diag_error(reterr, options->at[id],
               "%s is '%s', not a whole number from %" PRId64 " to %" PRId64, option_infos[id].name,
               text, min, max);
    return -1;
}

int option_tokens(const struct options *options, enum option_id id, uint64_t max, uint64_t *ret,
                  struct diag_list *reterr)
{
    const char *text = options->value[id];
    uint64_t tokens = 0;
    char most[32];
    if (!text)
        return 0;
    if (units_parse_tokens(text, &tokens) == 0 && tokens >= 1 && tokens <= max) {
        *ret = tokens;
        return 0;
    }
    diag_error(reterr, options->at[id], "%s is '%s', not a count of tokens from 1 to %s",
               option_infos[id].name, text, units_format_count(most, sizeof most, max));
    return diag_hint(reterr, "a whole number, with K for 1,024 or M for 1,048,576: 128K");
}

int option_bytes(const struct options *options, enum option_id id, uint64_t *ret,
                 struct diag_list *reterr)
{
    const char *text = options->value[id];
    if (!text || units_parse_bytes(text, ret) == 0)
        return 0;
    diag_error(reterr, options->at[id], "%s is '%s', not a size", option_infos[id].name, text);
    return diag_hint(reterr, "for example 2GB (1e9 bytes) or 2GiB (2^30 bytes)");
}

int option_fraction(const struct options *options, enum option_id id, double *ret,
                    struct diag_list *reterr)
{
    const char *text = options->value[id];
    if (!text || units_parse_fraction(text, ret) == 0)
        return 0;
    diag_error(reterr, options->at[id], "%s is '%s', not a fraction", option_infos[id].name, text);
    return diag_hint(reterr, "for example 2%% or 0.02");
}

int option_name(const struct options *options, enum option_id id, const char *const *names,
                size_t count, int *ret, struct diag_list *reterr)
{
    const char *text = options->value[id];
    if (!text)
        return 0;
    char known[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        text_append(known, sizeof known, &used, "%s%s", i ? ", " : "", names[i]);
        if (strcmp(names[i], text) == 0) {
            *ret = (int)i;
            return 0;
        }
    }
    diag_error(reterr, options->at[id], "%s is '%s', which is not known", option_infos[id].name,
               text);
    return diag_hint(reterr, "known: %s", known);
}
