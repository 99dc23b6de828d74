/* lengths.h - a mix of sequence lengths, as `--lengths` gives it: distinct lengths with how many of
 * each, longest first. Knows nothing of layouts. */
#ifndef RANKFIT_BASE_LAYOUT_LENGTHS_H
#define RANKFIT_BASE_LAYOUT_LENGTHS_H

#include "base/diag.h"

#include <stddef.h>
#include <stdint.h>

enum { LENGTHS_MAX = 256, LENGTHS_TEXT = LENGTHS_MAX * 24 };

struct length_count {
    uint64_t tokens, count;
};
struct lengths {
    int distinct; /* 0: none given */
    struct length_count items[LENGTHS_MAX];
};

/* "1000,513" or "4096*2,512*30"; lengths as tokens are written elsewhere (4K). Separated by commas
 * or white space. At most LENGTHS_MAX distinct lengths, 2^32 tokens each, 2^32 pieces in all. */
int lengths_parse(const char *text, struct pos at, struct lengths *ret, struct diag_list *reterr);
/* A file of the same. */
int lengths_read(const char *path, struct pos at, struct lengths *ret, struct diag_list *reterr);
/* As lengths_parse takes it. Returns ret. */
char *lengths_format(const struct lengths *lengths, char *ret, size_t size);

#endif
