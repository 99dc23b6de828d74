/* cases.h - the groups of cases of the CUDA backend's test, one file a group. */
#ifndef RANKFIT_TESTS_UNIT_CUDA_CASES_H
#define RANKFIT_TESTS_UNIT_CUDA_CASES_H

#include "tests/unit/cuda/pair.h"

void cases_norm(struct pair *p);
void cases_rope(struct pair *p);
void cases_activation(struct pair *p);
void cases_gate(struct pair *p);
void cases_route(struct pair *p);
void cases_rows(struct pair *p);
void cases_loss(struct pair *p);
void cases_optimizer(struct pair *p);
void cases_gemm(struct pair *p);
void cases_expert_gemm(struct pair *p);
void cases_attention(struct pair *p);
void cases_attention_sums(struct pair *p);
void cases_attention_run(struct pair *p);
void cases_delta_input(struct pair *p);
void cases_delta_rule(struct pair *p);
void cases_delta_long(struct pair *p);
void cases_delta_lengths(struct pair *p);
void cases_refusal(struct pair *p);

/* What one rounding to bf16 on each side may leave between two results, and what sums in fp32 in
 * another order may. */
#define ROUNDED 4e-3
#define SUMMED 2e-5

#endif
