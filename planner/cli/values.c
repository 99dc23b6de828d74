/* One option as a value: whole numbers, token counts, sizes, fractions, names. */
#include "base/routing/routing.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/cli/options.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a headroom or reserve that is meant. */
static const uint64_t least_bytes = 1000000;

/* "8,16", "8 16", "8-16", "8..16" */
static bool looks_like_several(const char *text)
{
    return strpbrk(text, ", ;:") || strstr(text, "..") || (text[0] && strchr(text + 1, '-'));
}

static int hint_several(struct diag_list *reterr, const char *example)
{
    return diag_hint(reterr, "rankfit sweep takes several, with commas and no spaces: %s", example);
}

static void check_number(const struct option_info *info, const char *text, struct pos at,
                         struct diag_list *reterr)
{
    int64_t value;
    if (units_parse_int(text, info->min, info->max, &value) == 0)
        return;
    diag_error(reterr, at, "%s is '%s', not a whole number from %" PRId64 " to %" PRId64,
               info->name, text, info->min, info->max);
    if (info->lists && looks_like_several(text))
        hint_several(reterr, "8,16,32");
}

static void check_tokens(const struct option_info *info, const char *text, struct pos at,
                         struct diag_list *reterr)
{
    uint64_t tokens;
    char most[32];
    if (units_parse_tokens(text, &tokens) == 0 && tokens >= (uint64_t)info->min &&
        tokens <= (uint64_t)info->max)
        return;
    diag_error(reterr, at, "%s is '%s', not a count of tokens from %" PRId64 " to %s", info->name,
               text, info->min, units_format_count(most, sizeof most, (uint64_t)info->max));
    if (info->lists && looks_like_several(text))
        hint_several(reterr, "4K,32K,128K");
    else
        diag_hint(reterr, "a whole number, with K for 1,024 or M for 1,048,576: 128K");
}

static int hint_bytes(const struct option_info *info, struct diag_list *reterr)
{
    return diag_hint(reterr, "for example 2GB (1e9 bytes)%s2GiB (2^30 bytes)%s",
                     info->type == OPTION_BYTES_OR_PERCENT ? ", " : " or ",
                     info->type == OPTION_BYTES_OR_PERCENT ? " or 2% of the device's memory" : "");
}

/* A few bytes are a unit that was forgotten. */
static void check_bytes(const struct option_info *info, const char *text, struct pos at,
                        struct diag_list *reterr)
{
    uint64_t bytes;
    if (units_parse_bytes(text, &bytes) != 0) {
        diag_error(reterr, at, "%s is '%s', not a size", info->name, text);
        hint_bytes(info, reterr);
    } else if (bytes > 0 && bytes < least_bytes) {
        diag_error(reterr, at, "%s is '%s': %" PRIu64 " bytes; is a unit missing?", info->name,
                   text, bytes);
        hint_bytes(info, reterr);
    }
}

static void check_fraction(const struct option_info *info, const char *text, struct pos at,
                           struct diag_list *reterr)
{
    double fraction;
    if (units_parse_fraction(text, &fraction) == 0)
        return;
    diag_error(reterr, at, "%s is '%s', not a share from 0 to 100%%", info->name, text);
    diag_hint(reterr, "for example 2%% or %s",
              info->type == OPTION_BYTES_OR_PERCENT ? "2GB" : "0.02");
}

static int find_name(const struct option_info *info, const char *text)
{
    for (int i = 0; info->names[i]; i++)
        if (strcmp(info->names[i], text) == 0)
            return i;
    return -1;
}

static void check_name(const struct option_info *info, const char *text, struct pos at,
                       struct diag_list *reterr)
{
    char known[128] = "";
    size_t used = 0, count = 0;
    if (find_name(info, text) >= 0)
        return;
    while (info->names[count])
        count++;
    text_append_names(known, sizeof known, &used, info->names, count);
    const char *near = text_nearest(text, info->names, count);
    diag_error(reterr, at, "%s is '%s', which is not known", info->name, text);
    if (near)
        diag_hint(reterr, "did you mean %s? this version knows %s", near, known);
    else
        diag_hint(reterr, "this version knows %s", known);
}

/* Whole, and from 1 to 1e18: 1000000, 512M, 2.5e9. */
static int parse_amount(const char *text, double *ret)
{
    uint64_t tokens;
    if (units_parse_tokens(text, &tokens) == 0)
        *ret = (double)tokens;
    else if (text[0] && !text[strspn(text, "0123456789.eE+")]) {
        char *end;
        *ret = strtod(text, &end);
        if (*end)
            return -1;
    } else {
        return -1;
    }
    return *ret >= 1 && *ret <= 1e18 && floor(*ret) >= *ret ? 0 : -1;
}

static void check_amount(const struct option_info *info, const char *text, struct pos at,
                         struct diag_list *reterr)
{
    double amount;
    if (parse_amount(text, &amount) == 0)
        return;
    diag_error(reterr, at, "%s is '%s', not a whole number of tokens from 1 to 1e18", info->name,
               text);
    diag_hint(reterr,
              "for example 1e12 or 2.5e9; the only letters are K (1,024) and M (1,048,576)");
}

static void check_value(const struct option_info *info, const char *text, struct pos at,
                        struct diag_list *reterr)
{
    struct routing routing;
    switch (info->type) {
    case OPTION_NUMBER:
        check_number(info, text, at, reterr);
        break;
    case OPTION_TOKENS:
        check_tokens(info, text, at, reterr);
        break;
    case OPTION_BYTES:
        check_bytes(info, text, at, reterr);
        break;
    case OPTION_FRACTION:
        check_fraction(info, text, at, reterr);
        break;
    case OPTION_BYTES_OR_PERCENT:
        if (strchr(text, '%'))
            check_fraction(info, text, at, reterr);
        else
            check_bytes(info, text, at, reterr);
        break;
    case OPTION_NAME:
        check_name(info, text, at, reterr);
        break;
    case OPTION_PROFILE:
        (void)routing_parse(text, at, &routing, reterr);
        break;
    case OPTION_AMOUNT:
        check_amount(info, text, at, reterr);
        break;
    case OPTION_FLAG:
    case OPTION_TEXT:
    case OPTION_DATA_PATH:
    case OPTION_BYTES_OR_DATA:
    case OPTION_PATH:
        break;
    }
}

/* A value and what makes it too long to be one. */
enum { ITEM_BYTES = 64 };

const char *option_item(const struct options *options, enum option_id id, int index, char *ret,
                        size_t size)
{
    const char *text = options->value[id];
    for (; text && index > 0; index--) {
        text = strchr(text, ',');
        text = text ? text + 1 : NULL;
    }
    if (!text)
        return NULL;
    (void)snprintf(ret, size, "%.*s", (int)strcspn(text, ","), text);
    return ret;
}

int option_count(const struct options *options, enum option_id id)
{
    const char *text = options->value[id];
    int count = text != NULL;
    for (; text && *text; text++)
        count += *text == ',';
    return count;
}

static int check_list_form(const struct options *options, enum option_id id,
                           struct diag_list *reterr)
{
    const char *name = option_infos[id].name, *text = options->value[id];
    int count = option_count(options, id), index = 0;
    if (!*text)
        return diag_error(reterr, options->at[id], "%s is empty", name);
    if (count > OPTION_ITEMS_MAX)
        return diag_error(reterr, options->at[id],
                          "%s is a list of %d values; at most %d are taken", name, count,
                          (int)OPTION_ITEMS_MAX);
    for (const char *item = text;; item++) {
        size_t length = strcspn(item, ",");
        index++;
        if (length == 0 || length >= ITEM_BYTES)
            return diag_error(reterr, options->at[id], "%s is '%s', of which value %d is %s", name,
                              text, index, length == 0 ? "empty" : "too long");
        item += length;
        if (!*item)
            return 0;
    }
}

static void check_list(const struct options *options, enum option_id id, struct diag_list *reterr)
{
    char text[ITEM_BYTES];
    if (check_list_form(options, id, reterr) != 0) {
        diag_hint(reterr, "one value or several with commas, as in --%s %s", option_infos[id].name,
                  option_infos[id].type == OPTION_TOKENS ? "4K,32K,128K" : "8,16,32");
        return;
    }
    for (int i = 0; option_item(options, id, i, text, sizeof text); i++)
        check_value(&option_infos[id], text, options->at[id], reterr);
}

void options_check_values(const struct options *options, unsigned command_bits,
                          struct diag_list *reterr)
{
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct option_info *info = &option_infos[i];
        if (!options->value[i] || !(info->commands & command_bits))
            continue;
        if (info->lists & command_bits)
            check_list(options, (enum option_id)i, reterr);
        else
            check_value(info, options->value[i], options->at[i], reterr);
    }
}

int64_t option_number(const struct options *options, enum option_id id, int64_t otherwise)
{
    int64_t ret = otherwise;
    if (options_has(options, id))
        (void)units_parse_int(options->value[id], option_infos[id].min, option_infos[id].max, &ret);
    return ret;
}

uint64_t option_size(const struct options *options, enum option_id id, uint64_t otherwise)
{
    uint64_t ret = otherwise;
    if (!options_has(options, id))
        return ret;
    if (option_infos[id].type == OPTION_TOKENS)
        (void)units_parse_tokens(options->value[id], &ret);
    else
        (void)units_parse_bytes(options->value[id], &ret);
    return ret;
}

double option_amount(const struct options *options, enum option_id id, double otherwise)
{
    double ret = otherwise;
    if (options_has(options, id))
        (void)parse_amount(options->value[id], &ret);
    return ret;
}

double option_fraction(const struct options *options, enum option_id id, double otherwise)
{
    double ret = otherwise;
    if (options_has(options, id))
        (void)units_parse_fraction(options->value[id], &ret);
    return ret;
}

int option_row(const struct options *options, enum option_id id, int otherwise)
{
    int row = options_has(options, id) ? find_name(&option_infos[id], options->value[id]) : -1;
    return row < 0 ? otherwise : row;
}
