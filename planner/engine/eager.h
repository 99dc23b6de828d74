/* eager.h - operations of eager PyTorch as steps of a tape: casts, norms, products, rotary
 * embedding, attention. Internal to this folder. Shapes are rows x width; a tensor's element bytes
 * follow from its size. */
#ifndef RANKFIT_PLANNER_ENGINE_EAGER_H
#define RANKFIT_PLANNER_ENGINE_EAGER_H

#include "planner/engine/tape.h"

enum { BF16_BYTES = 2, FP32_BYTES = 4 };

/* A weight: its parameter, and its bf16 copy under autocast (-1: none yet in this segment). */
struct weight {
    int parameter, cast;
    uint64_t elements;
};

struct eager {
    struct tape *tape;
    bool autocast, fp32;         /* parameters are fp32 */
    bool fixed;                  /* parameters of the base model are frozen */
    int casts[4096], cast_count; /* bf16 copies that autocast keeps until its region ends */
};

uint64_t eager_bytes(const struct eager *e, int tensor);
uint64_t eager_width(const struct eager *e); /* bytes of a parameter's element */
struct weight eager_weight(struct eager *e, uint64_t elements, bool trained);

/* x in elements of `to` bytes: x itself where it has them. */
int eager_cast(struct eager *e, int x, uint64_t elements, uint64_t to);
/* x W^T; under autocast both in bf16. Output rows x out. */
int eager_linear(struct eager *e, int x, uint64_t rows, uint64_t in, uint64_t out,
                 struct weight *weight);
/* RMSNorm as modules write it out: cast, square, mean, rsqrt, two products. `element` is that of
 * x; ret_element that of the output. */
int eager_norm(struct eager *e, int x, uint64_t rows, uint64_t width, struct weight *weight,
               uint64_t *element);
/* x cos + rotate_half(x) sin. */
int eager_rope(struct eager *e, int x, uint64_t elements, uint64_t element, int cosine, int sine);
int eager_unary(struct eager *e, const char *name, int x, uint64_t bytes);
int eager_multiply(struct eager *e, int a, int b, uint64_t bytes);
int eager_add(struct eager *e, int a, int b, uint64_t bytes);
/* The bf16 copies of weights go out of scope. */
void eager_end_autocast(struct eager *e);

#endif
