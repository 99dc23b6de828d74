#include "base/layout/capability.h"
#include "tests/support/golden.h"
#include "tests/unit/layout/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Settings that no backend runs, one key per row. */
static const struct {
    const char *key, *value;
} refused[] = {
    { "tp", "2" },
    { "pp", "2" },
    { "vpp", "2" },
    { "etp", "2" },
    { "sharding", "zero2" },
    { "recompute", "selective" },
    { "loss", "ring_dtp" },
    { "moe", "capped" },
    { "moe_cap_tokens", "64" },
    { "context", "ring" },
    { "prefetch_units", "3" },
    { "offload", "optimizer" },
    { "vocab_group", "2" },
    { "optimizer", "muon" },
    { "moments_dtype", "bf16" },
    { "master", "none" },
    { "lora_rank", "16" },
    { "frozen", "embedding,head" },
};

static const struct {
    const char *key, *value;
} accepted[] = {
    { "sharding", "replicated" },
    { "sharding", "zero1" },
    { "sharding", "fsdp" },
    { "prefetch_units", "0" },
    { "prefetch_units", "2" },
    { "comm_streams", "2" },
    { "linear_context", "head_split" },
    { "linear_context", "state_pass" },
    { "ep", "4" },
    { "fsdp", "2" },
    { "e_fsdp", "2" },
    { "micro_batch", "3" },
    { "grad_dtype", "bf16" },
    { "recompute", "none" },
    { "recompute_layers", "3" },
    { "loss", "full" },
    { "logits_dtype", "bf16" },
    { "vocab_strip", "4096" },
    { "loss_tile_tokens", "2048" },
    { "moe", "chunked" },
    { "moe_chunks", "5" },
    { "wgrad_delay", "1" },
    { "wgrad_delay", "all" },
    { "cp", "4" },
    { "context", "allgather_kv" },
    { "attention_deterministic", "1" },
    { "keep_attention", "1" },
    { "lora_targets", "attention" },
};

static void set(struct fixture *f, const char *key, const char *value)
{
    struct diag_list errors = { 0 };
    int row = choice_key_find(key);
    assert_true(row >= 0);
    assert_int_equal(choice_parse(&f->choices, row, value, (struct pos){ 0 }, &errors), 0);
}

/* Each fault names the key and the value. */
static void refuses_by_key_and_value(void **state)
{
    FILE *out = golden_begin();
    (void)state;
    for (enum backend backend = BACKEND_HOST; backend <= BACKEND_CUDA; backend++) {
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
            struct diag_list errors = { 0 };
            struct fixture f;
            char pair[80];
            fixture_init(&f);
            set(&f, refused[i].key, refused[i].value);
            assert_int_equal(capability_check(backend, &f.model, &f.choices, &errors), -1);
            assert_int_equal(errors.errors, 1);
            (void)snprintf(pair, sizeof pair, "%s=%s", refused[i].key, refused[i].value);
            assert_non_null(strstr(errors.items[0].what, pair));
            diag_list_print(out, &errors);
        }
    }
    assert_golden_end("refused settings");
}

static void runs_the_rest(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        struct diag_list errors = { 0 };
        struct fixture f;

        fixture_init(&f);
        set(&f, accepted[i].key, accepted[i].value);
        assert_int_equal(capability_check(BACKEND_CUDA, &f.model, &f.choices, &errors), 0);
        f.choices.layout.d_rep = f.choices.layout.e_rep = 2;
        assert_int_equal(capability_check(BACKEND_HOST, &f.model, &f.choices, &errors), 0);
        assert_int_equal(errors.count, 0);
    }
}

static void host_refuses_models_it_does_not_run(void **state)
{
    struct diag_list errors = { 0 };
    struct fixture f;
    (void)state;

    fixture_init(&f);
    f.model.gqa.output_gate = f.model.gqa.qkv_bias = f.model.norm_zero_centred = true;
    f.model.gqa.window_tokens = 128;
    f.model.gqa.rotary_fraction = 0.25;
    f.model.mtp_layers = 1; /* not trained, it is no obstacle; nor is what attention may have */
    assert_int_equal(capability_check(BACKEND_HOST, &f.model, &f.choices, &errors), 0);
    f.model.layer_mixer[5] = MIXER_GDN;
    assert_int_equal(capability_check(BACKEND_HOST, &f.model, &f.choices, &errors), 0);
    assert_int_equal(capability_check(BACKEND_CUDA, &f.model, &f.choices, &errors), 0);
    f.model.moe.sigmoid = f.model.moe.router_bias = true;
    assert_int_equal(capability_check(BACKEND_HOST, &f.model, &f.choices, &errors), 0);
    assert_int_equal(capability_check(BACKEND_CUDA, &f.model, &f.choices, &errors), 0);
    f.model.moe.sigmoid = f.model.moe.router_bias = false;
    f.model.gdn.conv_width = 9;
    assert_int_equal(capability_check(BACKEND_CUDA, &f.model, &f.choices, &errors), -1);
    assert_int_equal(errors.errors, 1);
    f.model.gdn = (struct gdn){ .conv_width = 4, .value_dim = 513 };
    memset(&errors, 0, sizeof errors);
    assert_int_equal(capability_check(BACKEND_HOST, &f.model, &f.choices, &errors), -1);
    assert_int_equal(errors.errors, 1);
    f.model.layer_mixer[5] = MIXER_MAMBA;
    memset(&errors, 0, sizeof errors);
    assert_int_equal(capability_check(BACKEND_HOST, &f.model, &f.choices, &errors), -1);
    assert_int_equal(errors.errors, 1);
    f.model.mtp_trained = true;
    memset(&errors, 0, sizeof errors);
    assert_int_equal(capability_check(BACKEND_HOST, &f.model, &f.choices, &errors), -1);
    assert_int_equal(errors.errors, 2);
    set(&f, "sharding", "zero2");
    set(&f, "offload", "checkpoints,optimizer");
    memset(&errors, 0, sizeof errors);
    assert_int_equal(capability_check(BACKEND_HOST, &f.model, &f.choices, &errors), -1);
    assert_golden_diags("a model and settings at once", &errors);
}

/* MLA: the host with one rank of a sequence; the forms that nothing runs have lines of their own.
 */
static void mla_runs_on_the_host(void **state)
{
    struct diag_list errors = { 0 };
    struct fixture f;
    (void)state;

    fixture_init(&f);
    f.model.layer_mixer[2] = MIXER_MLA;
    f.model.mla = (struct mla){ .q_rank = 32, .kv_rank = 16, .rope_dim = 8, .value_dim = 16 };
    assert_int_equal(capability_check(BACKEND_HOST, &f.model, &f.choices, &errors), 0);
    assert_int_equal(capability_check(BACKEND_CUDA, &f.model, &f.choices, &errors), -1);
    f.model.mla.q_rank = 0;
    assert_int_equal(capability_check(BACKEND_HOST, &f.model, &f.choices, &errors), -1);
    f.model.layer_mixer[2] = MIXER_DSA;
    assert_int_equal(capability_check(BACKEND_HOST, &f.model, &f.choices, &errors), -1);
    assert_golden_diags("attention through compressed keys and values", &errors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_by_key_and_value),
        cmocka_unit_test(runs_the_rest),
        cmocka_unit_test(host_refuses_models_it_does_not_run),
        cmocka_unit_test(mla_runs_on_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
