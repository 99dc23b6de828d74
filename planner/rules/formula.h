/* formula.h - the formulas behind the rows of rules; arguments in the order of the row's symbols.
 * Internal to planner/rules. */
#ifndef RANKFIT_PLANNER_RULES_FORMULA_H
#define RANKFIT_PLANNER_RULES_FORMULA_H

/* memory.c */
double formula_layer_inputs(const double *in);
double formula_chosen_keys(const double *in);
double formula_dispatch_row(const double *in);
double formula_worst_dispatch(const double *in);
double formula_gathered_units(const double *in);
double formula_state_whole(const double *in);
double formula_state_sharded(const double *in);
double formula_dynamic_memory(const double *in);
double formula_rank_memory(const double *in);
double formula_spare(const double *in);
double formula_least_gpus(const double *in);
double formula_whole_logits(const double *in);
double formula_latent_row(const double *in);
double formula_sequence_rows(const double *in);
double formula_far_share(const double *in);
double formula_near_share(const double *in);

/* time.c */
double formula_layer_experts(const double *in);
double formula_expert_traffic(const double *in);
double formula_dense_traffic(const double *in);
double formula_layer_traffic(const double *in);
double formula_wire(const double *in);
double formula_context_wire(const double *in);
double formula_layer_active(const double *in);
double formula_layer_products(const double *in);
double formula_tokens_to_hide_behind(const double *in);
double formula_layer_time(const double *in);
double formula_share(const double *in);
double formula_utilization(const double *in);
double formula_utilization_with_replay(const double *in);
double formula_utilization_without_replay(const double *in);
double formula_replay_tax(const double *in);

/* schedule.c */
double formula_pipeline_bubble(const double *in);
double formula_bubble_over_work(const double *in);
double formula_micro_batches_for(const double *in);
double formula_edge(const double *in);
double formula_chunk_overlap(const double *in);
double formula_tensor_skew(const double *in);
double formula_load_skew(const double *in);
double formula_rank_tokens(const double *in);
double formula_tensor_width(const double *in);
double formula_as_measured(const double *in);

#endif
