/* rows.h - what a micro-batch holds: rows of tokens, filled with pieces of one or of several
 * lengths. Arithmetic alone: whether rows are wise or legal is legality.h's matter. */
#ifndef RANKFIT_BASE_LAYOUT_ROWS_H
#define RANKFIT_BASE_LAYOUT_ROWS_H

#include "base/layout/key.h"
#include "base/layout/lengths.h"

#include <stdbool.h>

struct rows_input {
    const struct choices *choices;
    uint64_t seq_tokens;           /* the longest piece, or a row */
    const struct lengths *lengths; /* NULL, or without any: all pieces have seq_tokens */
};

struct packed_rows {
    uint64_t row_tokens;            /* of one row, at all ranks that share it */
    uint64_t multiple;              /* of which a piece's tokens are, padded */
    uint64_t pieces;                /* packed, longest first, into */
    uint64_t rows;                  /* as many rows */
    uint64_t most_pieces;           /* of the row that has the most */
    uint64_t tokens, padded_tokens; /* of all these pieces, without and with their padding */
    /* Sum of the squares of the fullest data-parallel rank's pieces over the mean of all, where
     * rows are dealt in turn; 1: even. What attention's share of that rank is longer. */
    double imbalance;
};

/* Of the samples of a step under tokens_per_gpu, of the mix as given otherwise. A piece longer than
 * a row counts as a row of its own. */
void rows_init(const struct rows_input *in, struct packed_rows *ret);

/* True where a micro-batch is anything but micro_batch sequences of seq_tokens. */
bool rows_are_packed(const struct rows_input *in);

/* A piece's tokens with its padding. */
uint64_t rows_padded(uint64_t tokens, uint64_t multiple);
/* 2 x cp, or 1 without cp; under packing=piece cp x lcm(2, tp), or tp without cp. */
uint64_t rows_multiple(const struct choices *choices);
/* Tokens of the longest piece with its padding; seq_tokens where nothing is packed. */
uint64_t rows_longest(const struct rows_input *in);
/* tokens_per_gpu x cp, or seq_tokens. */
uint64_t rows_capacity(const struct choices *choices, uint64_t seq_tokens);

/* Micro-batches of a step: layout.micro_batches, which under tokens_per_gpu are the samples of a
 * data-parallel rank: then as many as its share of the rows. */
int rows_micro_batches(const struct rows_input *in);
/* Tokens that a step trains on, padding and empty ends of rows left out. */
double rows_step_tokens(const struct rows_input *in);

#endif
