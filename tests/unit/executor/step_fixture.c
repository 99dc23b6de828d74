#include "tests/unit/executor/step_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fabric *step_fabric;

static struct model small_model(void)
{
    return (struct model){ .name = "small",
                           .architecture = "Qwen3MoeForCausalLM",
                           .layers = 2,
                           .hidden = 32,
                           .vocab = 61,
                           .norm_eps = 1e-6,
                           .gqa = { .heads = 4,
                                    .kv_heads = 2,
                                    .head_dim = 8,
                                    .qk_norm = true,
                                    .rotary_fraction = 1,
                                    .rope_theta = 10000 } };
}

void step_moe_model(struct model *ret)
{
    *ret = small_model();
    ret->moe = (struct moe){ .experts = 8,
                             .top_k = 2,
                             .width = 16,
                             .shared_width = 24,
                             .shared_gate = true,
                             .normalize_top_k = true };
    memset(ret->layer_ffn, FFN_MOE, (size_t)ret->layers);
}

void step_dense_model(struct model *ret)
{
    *ret = small_model();
    memcpy(ret->architecture, "LlamaForCausalLM", sizeof "LlamaForCausalLM");
    ret->gqa.qk_norm = false;
    ret->tied = true;
    ret->dense_width = 40;
}

void step_featured_model(struct model *ret, bool moe)
{
    (moe ? step_moe_model : step_dense_model)(ret);
    ret->norm_zero_centred = true;
    ret->gqa.output_gate = true;
    ret->gqa.qkv_bias = true;
    ret->gqa.qk_norm = true;
    ret->gqa.rotary_fraction = 0.5;
    ret->gqa.window_tokens = 7;
}

void step_hybrid_model(struct model *ret, enum hybrid kind)
{
    static const char *const architectures[] = { "Qwen3_5MoeForCausalLM", "Qwen3NextForCausalLM",
                                                 "Qwen3_5ForCausalLM" };
    if (kind == HYBRID_QWEN3_5_DENSE)
        step_dense_model(ret);
    else
        step_moe_model(ret);
    (void)snprintf(ret->architecture, sizeof ret->architecture, "%s", architectures[kind]);
    ret->tied = kind == HYBRID_QWEN3_5_DENSE;
    ret->norm_zero_centred = ret->gqa.output_gate = ret->gqa.qk_norm = true;
    ret->gqa.rotary_fraction = 0.5;
    ret->gdn = (struct gdn){
        .key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 6, .conv_width = 4
    };
    ret->layer_mixer[0] = MIXER_GDN;
}

static int at_least_one(int value)
{
    return value > 0 ? value : 1;
}

void step_plan(struct plan *ret, const struct model *model, const struct step_layout *layout,
               const char *routing)
{
    struct diag_list errors = { 0 };
    struct layout *l = &ret->choices.layout;
    struct routing_load load;

    memset(ret, 0, sizeof *ret);
    ret->model = *model;
    ret->choices.primitives = primitives_default();
    ret->choices.primitives.sharding = layout->sharding;
    ret->choices.primitives.prefetch_units = layout->prefetch_units;
    ret->choices.primitives.comm_streams = at_least_one(layout->comm_streams);
    *l = (struct layout){ .tp = 1,
                          .pp = 1,
                          .vpp = 1,
                          .cp = at_least_one(layout->cp),
                          .etp = 1,
                          .ep = at_least_one(layout->ep),
                          .fsdp = at_least_one(layout->fsdp),
                          .d_rep = at_least_one(layout->d_rep),
                          .e_fsdp = at_least_one(layout->e_fsdp),
                          .e_rep = at_least_one(layout->e_rep),
                          .micro_batch = at_least_one(layout->micro_batch),
                          .micro_batches = at_least_one(layout->micro_batches),
                          .stage_layers = { model->layers } };
    if (l->cp > 1)
        ret->choices.primitives.context = CONTEXT_ALLGATHER_KV;
    if (layout->chunks > 1) {
        ret->choices.primitives.moe = MOE_CHUNKED;
        ret->choices.primitives.moe_chunks = layout->chunks;
        ret->choices.primitives.wgrad_delay = layout->wgrad_delay;
    }
    ret->gpus = layout_world(l);
    ret->seq_tokens = SEQ_TOKENS;
    ret->global_batch = (int64_t)layout_dp(l) * l->micro_batch * l->micro_batches;
    if (routing_parse(routing, (struct pos){ 0 }, &ret->routing, &errors) != 0)
        fail_msg("routing %s", routing);
    const struct routing_shape shape = { (uint64_t)trainer_batch_tokens(ret),
                                         at_least_one(model->moe.top_k),
                                         at_least_one(model->moe.experts), l->ep };
    routing_load(&ret->routing, &shape, -1, 0.99, &load);
    ret->dispatch_bound_rows = load.bound_rows;
}

static void fail_with(const struct diag_list *errors)
{
    diag_list_print(stderr, errors);
    fail_msg("the step did not run");
}

static void dump_now(struct trainer *trainer, void *context)
{
    (void)dump_gradients(trainer, context);
    trainer->on_gradients = NULL;
}

void step_run(struct fabric *fabric, const struct plan *plan, int steps, struct step_run *ret)
{
    struct diag_list errors = { 0 };
    struct trainer trainer;
    struct backend *backend = step_open_backend(&errors);
    const struct data data = { .seed = 5, .vocab = plan->model.vocab };

    memset(ret, 0, sizeof *ret);
    if (!backend || trainer_open(&trainer, plan, fabric, backend, &data, 7, &errors) != 0) {
        fail_with(&errors);
        return;
    }
    trainer.on_gradients = dump_now;
    trainer.on_gradients_context = &ret->dump;
    assert_int_equal(trainer_keep_hidden(&trainer), 0);
    for (int step = 1; step <= steps; step++) {
        struct step_result result;
        if (trainer_step(&trainer, step, &result) != 0)
            fail_with(&errors);
        ret->loss[step - 1] = result.loss;
        ret->norm[step - 1] = result.gradient_norm;
        if (step == 1 && dump_hidden(&trainer, &ret->dump) != 0)
            fail_with(&errors);
    }
    arena_record(trainer.work.arena, &ret->memory);
    trainer_close(&trainer);
    step_close_backend(backend);
}

struct fabric *step_alone(struct fabric *fabric)
{
    struct diag_list errors = { 0 };
    const int self = 0;
    struct fabric *alone = calloc(1, sizeof *alone);

    assert_non_null(alone);
    *alone = (struct fabric){ .ops = fabric->ops, .rank = 0, .world = 1 };
    assert_int_equal(fabric->ops->group_open(alone, &self, 1, &alone->all, &errors), 0);
    return alone;
}

void step_alone_close(struct fabric *alone)
{
    alone->ops->group_close(alone, alone->all);
    free(alone);
}

int step_main(int argc, char **argv, const char *name, const struct CMUnitTest *tests,
              unsigned long count)
{
    struct diag_list errors = { 0 };
    step_fabric = step_open_fabric(&argc, &argv, &errors);
    if (!step_fabric) {
        diag_list_print(stderr, &errors);
        return 1;
    }
    /* one rank speaks for all; the others' failures still end in their exit status */
    if (step_fabric->rank != 0 && !freopen("/dev/null", "w", stdout))
        return 1;
    int failed = _cmocka_run_group_tests(name, tests, count, NULL, NULL);
    step_fabric->ops->close(step_fabric);
    return failed != 0;
}
