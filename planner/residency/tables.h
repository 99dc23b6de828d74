/* tables.h - short names for the columns of the tables in this folder. */
#ifndef RANKFIT_PLANNER_RESIDENCY_TABLES_H
#define RANKFIT_PLANNER_RESIDENCY_TABLES_H

#include "planner/residency/residency.h"

/* A row without and with conditions. */
#define ROW(tensor, owner, rows, width, bytes, made, last, stays, when, unless)                    \
    {                                                                                              \
        tensor, OWNER_##owner, ROWS_##rows, WIDTH_##width, bytes, made, last, stays, when, unless  \
    }

#define TABLE(name, steps, rows)                                                                   \
    {                                                                                              \
        name, steps, sizeof(rows) / sizeof(rows)[0], rows                                          \
    }

#define KEPT STAYS_KEPT
#define ATTENDED STAYS_ATTENDED
#define REMADE STAYS_NOT

extern const struct residency_table residency_attention_forward, residency_attention_backward;
extern const struct residency_table residency_delta_forward, residency_delta_backward;
extern const struct residency_table residency_latent_forward, residency_latent_backward;
extern const struct residency_table residency_sparse_forward, residency_sparse_backward;
extern const struct residency_table residency_lightning_forward, residency_lightning_backward;
extern const struct residency_table residency_mamba_forward, residency_mamba_backward;
extern const struct residency_table residency_no_mixer;
extern const struct residency_table residency_no_ffn_forward, residency_no_ffn_backward;
extern const struct residency_table residency_dense_forward, residency_dense_backward;
extern const struct residency_table residency_moe_forward, residency_moe_backward;

/* The feed-forward half under a chunked schedule. */
void residency_chunks(const struct residency_shape *shape, enum residency_mode mode,
                      struct residency_half *ret);

#endif
