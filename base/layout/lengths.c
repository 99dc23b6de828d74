#include "base/layout/lengths.h"

#include "base/text.h"
#include "base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 20 };
#define MOST_TOKENS (UINT64_C(1) << 32)
#define MOST_PIECES (INT64_C(1) << 32)

static const char separators[] = ", \t\r\n";
static const char takes[] =
    "lengths are a list such as 1000,513 or 4096*2,512*30, or a file of them";

static int faulty(const char *entry, struct pos at, struct diag_list *reterr)
{
    diag_error(reterr, at, "'%.40s' is not a length in tokens", entry);
    return diag_hint(reterr, "%s", takes);
}

/* Keeps the items sorted, longest first. */
static int add(struct lengths *ret, uint64_t tokens, uint64_t count, struct pos at,
               struct diag_list *reterr)
{
    int place = 0;
    while (place < ret->distinct && ret->items[place].tokens > tokens)
        place++;
    if (place < ret->distinct && ret->items[place].tokens == tokens) {
        ret->items[place].count += count;
        return 0;
    }
    if (ret->distinct == LENGTHS_MAX) {
        diag_error(reterr, at, "more than %d distinct lengths", LENGTHS_MAX);
        return diag_hint(reterr, "round them up, for example to multiples of 128");
    }
    memmove(&ret->items[place + 1], &ret->items[place],
            (size_t)(ret->distinct - place) * sizeof *ret->items);
    ret->items[place] = (struct length_count){ tokens, count };
    ret->distinct++;
    return 0;
}

static int add_entry(struct lengths *ret, char *entry, struct pos at, struct diag_list *reterr)
{
    uint64_t tokens = 0;
    int64_t count = 1;
    char *times = strchr(entry, '*');
    if (times)
        *times = '\0';
    if (units_parse_tokens(entry, &tokens) != 0 || tokens == 0 || tokens > MOST_TOKENS ||
        (times && units_parse_int(times + 1, 1, MOST_PIECES, &count) != 0)) {
        if (times)
            *times = '*';
        return faulty(entry, at, reterr);
    }
    return add(ret, tokens, (uint64_t)count, at, reterr);
}

static int check_pieces(const struct lengths *lengths, struct pos at, struct diag_list *reterr)
{
    uint64_t pieces = 0;
    for (int i = 0; i < lengths->distinct; i++)
        pieces += lengths->items[i].count;
    if (lengths->distinct == 0) {
        diag_error(reterr, at, "no lengths are given");
        return diag_hint(reterr, "%s", takes);
    }
    if (pieces > (uint64_t)MOST_PIECES)
        return diag_error(reterr, at, "%" PRIu64 " pieces are more than 2^32", pieces);
    return 0;
}

int lengths_parse(const char *text, struct pos at, struct lengths *ret, struct diag_list *reterr)
{
    memset(ret, 0, sizeof *ret);
    if (strstr(text, ",,") || text[0] == ',') {
        diag_error(reterr, at, "'%.40s' has an empty length between commas", text);
        return diag_hint(reterr, "%s", takes);
    }
    for (const char *from = text + strspn(text, separators); *from;) {
        char entry[64];
        size_t length = strcspn(from, separators);
        (void)snprintf(entry, sizeof entry, "%.*s", (int)(length < 60 ? length : 60), from);
        if (add_entry(ret, entry, at, reterr) != 0)
            return -1;
        from += length;
        from += strspn(from, separators);
    }
    return check_pieces(ret, at, reterr);
}

int lengths_read(const char *path, struct pos at, struct lengths *ret, struct diag_list *reterr)
{
    memset(ret, 0, sizeof *ret);
    FILE *file = fopen(path, "re");
    if (!file) {
        if (path[0])
            diag_error(reterr, at, "%s cannot be read: %s", path, strerror(errno));
        else
            diag_error(reterr, at, "no lengths are given");
        return diag_hint(reterr, "%s", takes);
    }
    char *text = calloc(1, FILE_MAX + 1);
    size_t size = text ? fread(text, 1, FILE_MAX + 1, file) : 0;
    int status = -1, unread = ferror(file);
    (void)fclose(file);
    if (unread)
        diag_error(reterr, at, "%s cannot be read", path);
    else if (text && size <= FILE_MAX)
        status = lengths_parse(text, (struct pos){ .file = path }, ret, reterr);
    else
        diag_error(reterr, at, "%s is larger than 1 MiB", path);
    free(text);
    return status;
}

char *lengths_format(const struct lengths *lengths, char *ret, size_t size)
{
    size_t used = 0;
    if (size > 0)
        ret[0] = '\0';
    for (int i = 0; i < lengths->distinct; i++) {
        const struct length_count *item = &lengths->items[i];
        text_append(ret, size, &used, "%s%" PRIu64, i ? "," : "", item->tokens);
        if (item->count > 1)
            text_append(ret, size, &used, "*%" PRIu64, item->count);
    }
    return ret;
}
