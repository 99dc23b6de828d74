/* data.h - what a model is trained on: a file of bytes, a file of 32-bit tokens, or tokens drawn
 * from a seed. Sequences are numbered through the whole run, so that every layout reads the same
 * ones. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_DATA_H
#define RANKFIT_EXECUTOR_RUNTIME_DATA_H

#include "base/diag.h"

#include <stdint.h>

enum data_format { DATA_BYTES, DATA_U32, DATA_FORMAT_COUNT };
extern const char *const data_format_names[DATA_FORMAT_COUNT];

/* A zeroed data with vocab and seed set draws its tokens. */
struct data {
    enum data_format format;
    const void *map; /* NULL: drawn */
    uint64_t bytes, tokens;
    uint64_t stride; /* of a map: tokens from one sequence's first to the next one's; 0: as long as
                        a sequence */
    uint64_t seed;
    int64_t vocab;
};

/* Maps a file. -1 with a diagnostic: unreadable, fewer than seq_tokens + 1 tokens, a vocabulary
 * under 256 for bytes, or a token id at or beyond the vocabulary. */
int data_open(struct data *data, const char *path, enum data_format format, uint64_t seq_tokens,
              int64_t vocab, struct diag_list *reterr);
void data_close(struct data *data);

/* Sequence `index`: seq_tokens ids, and for each the token that follows it. A file's sequences
 * follow each other and begin again at its end. */
void data_sequence(const struct data *data, uint64_t index, uint64_t seq_tokens, int32_t *ret_ids,
                   int32_t *ret_targets);
/* Tokens begin .. begin + count - 1 of the same. */
void data_run(const struct data *data, uint64_t index, uint64_t seq_tokens, uint64_t begin,
              uint64_t count, int32_t *ret_ids, int32_t *ret_targets);

#endif
