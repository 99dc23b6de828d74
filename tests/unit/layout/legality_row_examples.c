/* Ways to break rows of tokens and passes of reinforcement learning. */
#include "tests/unit/layout/legality_examples.h"

/* 2,048 of prompt and 30,720 of response. */
void budget_below_the_longest(struct fixture *f)
{
    f->choices.layout.cp = 4;
    f->choices.layout.ep = 4;
    f->choices.primitives.context = CONTEXT_RING;
    f->choices.primitives.tokens_per_gpu = 8000;
    f->input.seq_tokens = 32768;
    fixture_derive(f);
}

void budget_and_micro_batch(struct fixture *f)
{
    f->choices.primitives.tokens_per_gpu = 8192;
    f->choices.layout.micro_batch = 2;
    fixture_derive(f);
}

void reference_of_nothing(struct fixture *f)
{
    f->choices.primitives.reference_weights = REFERENCE_HOST;
}

void packing_without_lengths(struct fixture *f)
{
    f->choices.primitives.packing = PACKING_ROW;
}

static const struct lengths two_pieces = { 2, { { 1000, 1 }, { 513, 1 } } };
static const struct lengths long_piece = { 1, { { 9000, 1 } } };

void piece_beyond_a_row(struct fixture *f)
{
    f->choices.primitives.packing = PACKING_ROW;
    f->input.lengths = &long_piece;
}

/* A row of 1,520 tokens over cp 4 and tp 2: 1,000 and 520 of them. */
void pieces_of_odd_length(struct fixture *f)
{
    f->choices.layout.cp = 4;
    f->choices.layout.tp = 2;
    f->choices.primitives.context = CONTEXT_ALLGATHER_KV;
    f->choices.primitives.packing = PACKING_ROW;
    f->input.seq_tokens = 1520;
    f->input.lengths = &two_pieces;
    fixture_derive(f);
}
