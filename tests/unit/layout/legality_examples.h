/* legality_examples.h - for every rule ways to break the sample layout. */
#ifndef RANKFIT_TESTS_LAYOUT_LEGALITY_EXAMPLES_H
#define RANKFIT_TESTS_LAYOUT_LEGALITY_EXAMPLES_H

#include "tests/unit/layout/fixture.h"

struct example {
    const char *rule;
    void (*bend)(struct fixture *f);
};

/* Three of the ways by themselves. */
void experts_uneven(struct fixture *f);
void chunks_under_plain(struct fixture *f);
void ring_without_group(struct fixture *f);

/* legality_row_examples.c */
void budget_below_the_longest(struct fixture *f);
void budget_and_micro_batch(struct fixture *f);
void reference_of_nothing(struct fixture *f);
void packing_without_lengths(struct fixture *f);
void piece_beyond_a_row(struct fixture *f);
void pieces_of_odd_length(struct fixture *f);

extern const struct example legality_examples[];
extern const int legality_example_count;

#endif
