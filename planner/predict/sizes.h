/* sizes.h - values of the symbols that operation lists are written in, for one layout. */
#ifndef RANKFIT_PLANNER_PREDICT_SIZES_H
#define RANKFIT_PLANNER_PREDICT_SIZES_H

#include "planner/step/symbol.h"

#include <stdbool.h>
#include <stdint.h>

enum { CHUNKS_MAX = 64 };

struct step_sizes {
    uint64_t rows[ROWS_COUNT]; /* sent and received: of the whole layer */
    uint64_t width[WIDTH_COUNT];
    uint64_t adapter_rank; /* 0: no adapters */
    struct {
        int count; /* 1: not chunked */
        bool capped;
        int delay;                /* chunks that weight gradients wait */
        const uint64_t *received; /* rows received of each, where known; NULL: an even share */
    } chunks;
};

/* Bytes of rows x width elements, rounded up to the arena's 256; saturates. */
uint64_t tensor_bytes(uint64_t rows, uint64_t width, uint64_t element_bytes);

#endif
