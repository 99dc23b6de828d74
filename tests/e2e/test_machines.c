/* Recipes of other machines through the command line: what is decided on them and why, and the
 * largest items of their budgets, worked here by hand from the model's published sizes. Bytes that
 * the program pads to whole shards are compared within 1e-5, the others to the byte. */
#include "tests/e2e/cases.h"
#include "tests/e2e/program.h"
#include "tests/support/golden.h"
#include "tests/support/near.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define PADDED 1e-5

/* GLM-5.2: sizes of its config.json. */
enum {
    HIDDEN = 6144,
    LAYERS = 78,
    INDEXED = 21, /* layers that choose keys */
    CHOSEN = 2048,
    HEADS = 64,
    QUERY_LATENT = 2048,
    LATENT_KEY = 512 + 64,
    INDEX_KEY = 128,
    VOCAB = 154880,
    EXPERTS = 256,
    TOP_K = 8,
    EXPERT_WIDTH = 2048
};

static json_t *plan(const char *arguments, int status)
{
    char command[512];
    (void)snprintf(command, sizeof command, "plan --json --policy articles %s 2>/dev/null",
                   arguments);
    return program_json(command, status);
}

static json_t *item(json_t *plan, const char *name)
{
    return json_named(json_at(plan, "recommended.ranks.0.items"), name);
}

static void assert_live(json_t *plan, const char *name, double bytes, double tolerance)
{
    assert_near(number_at(item(plan, name), "bytes"), bytes, tolerance, "B");
}

static void assert_most(json_t *plan, const char *name, double bytes, double tolerance)
{
    assert_near(number_at(item(plan, name), "max_bytes"), bytes, tolerance, "B");
}

static const char *because(json_t *plan, const char *choice)
{
    json_t *reason;
    size_t index;
    json_array_foreach(json_at(plan, "recommended.reasons"), index, reason)
    {
        if (!strcmp(json_string_value(json_at(reason, "choice")), choice))
            return json_string_value(json_at(reason, "because"));
    }
    fail_msg("no reason for %s", choice);
    return "";
}

/* All reasons are those of the golden file. */
static void assert_golden_reasons(const char *title, json_t *plan)
{
    json_t *reason;
    size_t index;
    FILE *out = golden_begin();
    json_array_foreach(json_at(plan, "recommended.reasons"), index, reason)
    {
        (void)fprintf(out, "%s: %s\n", json_string_value(json_at(reason, "choice")),
                      json_string_value(json_at(reason, "because")));
    }
    assert_golden_end(title);
}

static void assert_verdict(json_t *plan, const char *verdict)
{
    assert_string_equal(json_string_value(json_at(plan, "verdict")), verdict);
}

/* Elements of one layer's dense part: both latents and their projections, output, router with its
 * bias, shared expert, four norms. */
static double dense_of_layer(void)
{
    double attention = (double)HIDDEN * QUERY_LATENT + QUERY_LATENT * (HEADS * 256.0) +
                       (double)HIDDEN * LATENT_KEY + 512.0 * HEADS * (192 + 256) +
                       HEADS * 256.0 * HIDDEN;
    double norms = 2 * HIDDEN + QUERY_LATENT + 512;
    return attention + norms + (double)EXPERTS * HIDDEN + EXPERTS + 3.0 * HIDDEN * EXPERT_WIDTH;
}

static double experts_of_layer(int experts)
{
    return 3.0 * HIDDEN * EXPERT_WIDTH * experts;
}

/* Queries, keys and indexer's head weights of an indexer of 32 heads x 128, its key's norm. */
static double indexer_elements(void)
{
    return QUERY_LATENT * 32.0 * INDEX_KEY + (double)HIDDEN * INDEX_KEY + HIDDEN * 32.0 +
           2.0 * INDEX_KEY;
}

/* Everything but experts: 78 layers, three of them with a dense MLP of 12,288 and without router
 * and shared expert; 21 indexers; embedding, head, last norm. */
static double dense_elements(void)
{
    double moe = (double)EXPERTS * HIDDEN + EXPERTS + 3.0 * HIDDEN * EXPERT_WIDTH;
    return LAYERS * dense_of_layer() + 3 * (3.0 * HIDDEN * 12288 - moe) +
           INDEXED * indexer_elements() + 2.0 * VOCAB * HIDDEN + HIDDEN;
}

/* A rank's share of all parameters: dense over `dense`, experts of 75 layers over all ranks. */
static double state_elements(int dense, int ranks)
{
    return dense_elements() / dense + 75 * experts_of_layer(EXPERTS) / ranks;
}

/* Each layer's input, bf16, and in 21 layers the chosen keys, int32. */
static double checkpoint_bytes(double tokens)
{
    return tokens * (LAYERS * 2.0 * HIDDEN + INDEXED * 4.0 * CHOSEN);
}

/* What a layer that keeps nothing else holds of one token when its backward reaches attention: the
 * gradient stream; both latents, queries of 64 x 256; attention's output in latent space, its
 * gradient; absorbed queries and theirs, 64 x 576 each; two fp32 numbers a head. */
static double attention_backward_bytes(double tokens)
{
    double bf16 =
        HIDDEN + QUERY_LATENT + LATENT_KEY + HEADS * 256 + 2 * HEADS * 512 + 2 * HEADS * LATENT_KEY;
    return tokens * (2 * bf16 + 2 * 4 * HEADS);
}

/* A layer with an indexer holds its keys, queries and, fp32, weights beside. */
static double indexer_bytes(double tokens)
{
    return tokens * (2 * (INDEX_KEY + 32 * INDEX_KEY) + 4 * 32);
}

/* The same where its experts are at work: stream, the layer's middle, its norm and that one's
 * gradient; what attention keeps; router's probabilities and their gradients, fp32, and three
 * numbers a choice. */
static double experts_backward_bytes(double tokens)
{
    double bf16 = 4 * HIDDEN + QUERY_LATENT + LATENT_KEY + HEADS * 256 + HEADS * 512;
    return tokens * (2 * bf16 + 4 * HEADS + 2 * 4 * EXPERTS + 3 * 4 * TOP_K);
}

/* bf16 weights, fp32 master and gradients, two fp32 moments. */
static void assert_state(json_t *plan, double elements)
{
    assert_live(plan, "weights", 2 * elements, PADDED);
    assert_live(plan, "master", 4 * elements, PADDED);
    assert_live(plan, "gradients", 4 * elements, PADDED);
    assert_live(plan, "moments", 8 * elements, PADDED);
    assert_near(number_at(plan, "recommended.ranks.0.static_bytes"), 18 * elements, PADDED, "B");
}

/* 1,048,576 tokens over 64 ranks of one rack. 56.19 GB of state; the article, which takes 98 % of
 * 753e9 parameters for experts, has 56.12. */
static void assert_glm_on_racks(json_t *plan, int racks)
{
    const double tokens = 1048576.0 / 64, all = 1048576;
    double layer = dense_of_layer() + experts_of_layer(EXPERTS / 64);
    double head = (double)VOCAB * HIDDEN + HIDDEN;

    assert_verdict(plan, "fits");
    assert_state(plan, state_elements(64, 64 * racks));
    assert_live(plan, "checkpoints", checkpoint_bytes(tokens), 0);
    assert_live(plan, "layer_working", attention_backward_bytes(tokens), 0);
    assert_most(plan, "layer_working", attention_backward_bytes(tokens) + indexer_bytes(tokens), 0);
    /* latents of all tokens, their fp32 gradients; index keys where a layer chooses */
    assert_live(plan, "kv_gather", all * LATENT_KEY * (2 + 4), 0);
    assert_most(plan, "kv_gather", all * (LATENT_KEY * (2 + 4) + INDEX_KEY * 2), 0);
    /* two layers' weights; one's fp32 gradients, and the head's, whose sum is not yet taken */
    assert_live(plan, "gathered_weights", 2 * 2 * layer, PADDED);
    assert_live(plan, "gathered_gradients", 4 * layer + 4 * head * 65 / 64, PADDED);
    assert_golden_reasons(racks == 4 ? "glm-5.2-1m-256-gb200" : "glm-5.2-1m-128-gb200", plan);
}

static void glm_at_1m_on_four_racks(void **state)
{
    (void)state;
    json_t *document = plan("--recipe glm-5.2-1m-256-gb200", 0);
    assert_glm_on_racks(document, 4);
    assert_near(number_at(document, "recommended.ranks.0.static_bytes"), 56.122e9, 0.002, "B");
    json_decref(document);
}

/* Experts' state over half as many ranks: twice as much a rank, and nothing else changes. */
static void glm_at_1m_on_two_racks(void **state)
{
    (void)state;
    json_t *document = plan("--recipe glm-5.2-1m-128-gb200", 0);
    assert_glm_on_racks(document, 2);
    json_decref(document);
}

/* 262,144 tokens over 8 ranks. Dense state over all ranks: 52.27 GB, the trunk's 743.4e9 x 18 / 256
 * where the article divides 753e9 and has 52.95. The peak is in a layer's experts, whose tokens go
 * in four runs: of each side of the exchange one run comes, one works, one goes, twice with an fp32
 * number a row; experts hold three times what a run's rows weigh (the rows, their gradient, and
 * 3 x 2,048 between), and three numbers a row. */
static void glm_at_256k_on_nvl8(void **state)
{
    const double tokens = 262144.0 / 8, rows = tokens * TOP_K / 4;
    double layer = dense_of_layer() + experts_of_layer(EXPERTS / 8);
    (void)state;
    json_t *document = plan("--recipe glm-5.2-256k-256-b300", 0);
    assert_verdict(document, "fits");
    assert_state(document, state_elements(256, 256));
    assert_near(number_at(document, "recommended.ranks.0.static_bytes"), 743.4e9 * 18 / 256, 1e-3,
                "B");
    assert_most(document, "checkpoints", checkpoint_bytes(tokens), 0);
    assert_live(document, "layer_working", experts_backward_bytes(tokens), 0);
    assert_live(document, "dispatch_send", rows * (3 * 2 * HIDDEN + 2 * 4), 0);
    assert_live(document, "dispatch_recv", rows * (3 * 2 * HIDDEN + 2 * 4), 0);
    assert_live(document, "expert_working", rows * (3 * 2 * HIDDEN + 3 * 4), 0);
    assert_live(document, "gathered_weights", 2 * 2 * layer, PADDED);
    /* two layers' fp32 gradients, and the share that the rank receives of one */
    assert_live(document, "gathered_gradients",
                2 * 4 * layer + 4 * dense_of_layer() / 256 + 4 * experts_of_layer(1), PADDED);
    assert_golden_reasons("glm-5.2-256k-256-b300", document);
    json_decref(document);
}

/* One sequence over eight systems: of 704 numbers a token and layer, 1.476 GB, a rank receives 7/64
 * over the network. Beside state and units all is as on racks, which hold as many tokens a rank. */
static void glm_at_1m_on_nvl8(void **state)
{
    const double all = 1048576, tokens = all / 64;
    char received[64];
    (void)state;
    json_t *document = plan("--recipe glm-5.2-1m-256-b300", 0);
    assert_verdict(document, "fits");
    assert_state(document, state_elements(256, 256));
    assert_most(document, "checkpoints", checkpoint_bytes(tokens), 0);
    assert_most(document, "layer_working", attention_backward_bytes(tokens) + indexer_bytes(tokens),
                0);
    assert_most(document, "kv_gather", all * (LATENT_KEY * (2 + 4) + INDEX_KEY * 2), 0);
    (void)snprintf(received, sizeof received, " %.3f GB ",
                   2 * (LATENT_KEY + INDEX_KEY) * all * 7 / 64 / 1e9);
    assert_non_null(strstr(because(document, "context=allgather_kv"), received));
    assert_golden_reasons("glm-5.2-1m-256-b300", document);
    json_decref(document);
}

static void nobody_speaks_of_nvlink(json_t *plan)
{
    json_t *reason;
    size_t index;
    json_array_foreach(json_at(plan, "recommended.reasons"), index, reason)
    {
        const char *text = json_string_value(json_at(reason, "because"));
        assert_null(strstr(text, "NVLink"));
    }
}

/* One rank holds the whole sequence. RCCL: 1,024 MiB for the first communicator, 666 for each of
 * two more, 48 for each of seven peers of the exchange; 1 GiB of context and five panels of 32 MiB
 * beside hipBLASLt's 32. */
static void mi300x_drops_cp(void **state)
{
    const double mib = 1048576;
    (void)state;
    json_t *document = plan("--recipe qwen3.5-35b-a3b-128k-mi300x", 0);
    assert_verdict(document, "fits");
    assert_int_equal((int)number_at(document, "recommended.layout.cp"), 1);
    assert_string_equal(json_string_value(json_at(document, "recommended.primitives.context")),
                        "none");
    assert_live(document, "communicators", (1024 + 2 * 666 + 7 * 48) * mib, 0);
    assert_live(document, "context", 1024 * mib, 0);
    assert_live(document, "workspace", 6 * 32 * mib, 0);
    assert_live(document, "checkpoints", 40 * 2.0 * 131072 * 2048, 0);
    assert_golden_reasons("qwen3.5-35b-a3b-128k-mi300x", document);
    nobody_speaks_of_nvlink(document);
    json_decref(document);
}

/* cp comes with the sequence that does not fit whole, and no more of it than makes it fit. */
static void mi300x_takes_cp_on_overflow(void **state)
{
    static const char *const lengths[] = { "512K", "1M" };
    bool cut = false;
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char arguments[200];
        (void)snprintf(arguments, sizeof arguments, "--recipe qwen3.5-35b-a3b-128k-mi300x --seq %s",
                       lengths[i]);
        json_t *document = plan(arguments, 0);
        int cp = (int)number_at(document, "recommended.layout.cp");
        json_decref(document);
        if (cp == 1)
            continue;
        cut = true;
        (void)snprintf(arguments, sizeof arguments,
                       "--recipe qwen3.5-35b-a3b-128k-mi300x --seq %s --set tp=1 --set cp=%d",
                       lengths[i], cp / 2);
        document = plan(arguments, 1);
        assert_verdict(document, "does_not_fit");
        json_decref(document);
    }
    assert_true(cut);
}

/* 18 bytes of each of 0.9987e12 parameters are 18.0 TB, whatever the layout. */
static void a_trillion_is_18_terabytes(void **state)
{
    (void)state;
    json_t *document = plan("--recipe trillion-gb200 --set fsdp=128 --set e_fsdp=4", 0);
    double params = number_at(document, "model.params_trained");
    double state_bytes = 256 * number_at(document, "recommended.ranks.0.static_bytes");
    assert_near(params, 1e12, 0.002, "parameters");
    assert_near(state_bytes, 18 * params, PADDED, "B");
    assert_near(state_bytes, 18e12, 0.002, "B");
    json_decref(document);
}

/* The state of a rank against what a GPU gives a program: too much on 90, less on 91, which only
 * shards of everything over all ranks divide. Nothing fits on either, and the first world that
 * machines come in on which something does, by its leanest settings, is larger. */
static void a_trillion_needs_91_gpus(void **state)
{
    (void)state;
    json_t *ninety = plan("--recipe trillion-gb200 --gpus 90", 1);
    json_t *more = plan("--recipe trillion-gb200 --gpus 91", 1);
    double memory = number_at(ninety, "hardware.memory_bytes");
    assert_verdict(ninety, "does_not_fit");
    assert_true(number_at(ninety, "recommended.ranks.0.static_bytes") > memory);
    assert_true(number_at(more, "recommended.ranks.0.static_bytes") < memory);
    assert_golden("limit of 90 GPUs", json_string_value(json_at(ninety, "binding")));
    double nearest = number_at(ninety, "nearest.0.gpus");
    assert_true(nearest >= 91);
    json_t *search =
        program_json("search --json --recipe trillion-gb200 --gpus 128 --micro-batch 1 "
                     "--set etp=1 --set sharding=fsdp --set recompute=full "
                     "--set loss=linear_ce",
                     0);
    assert_string_equal(json_string_value(json_at(search, "objective")), "gpus");
    assert_true(number_at(search, "gpus") >= 91);
    assert_true(number_at(search, "gpus") <= nearest);
    json_decref(ninety);
    json_decref(more);
    json_decref(search);
}

/* 16 bytes x 668.2e9 / 64 are 167.0 GB a rank, more than an H200's 150.1: no length is short
 * enough, and what would do is said. */
static void no_length_holds_667e9(void **state)
{
    (void)state;
    for (int tokens = 4096; tokens <= 1048576; tokens *= 2) {
        char arguments[100];
        (void)snprintf(arguments, sizeof arguments, "--recipe 667b-64-h200 --seq %d", tokens);
        json_t *document = plan(arguments, 1);
        double params = number_at(document, "model.params_trained");
        double held = number_at(document, "recommended.ranks.0.static_bytes");
        assert_near(params, 667e9, 0.005, "parameters");
        assert_verdict(document, "does_not_fit");
        assert_near(held, 16 * params / 64, PADDED, "B");
        assert_true(held > number_at(document, "hardware.memory_bytes"));
        assert_true(case_offers(document, "offload=optimizer"));
        assert_false(case_offers(document, "seq_tokens"));
        json_decref(document);
    }
}

/* Of every token of the sequence: latents, bf16, and their gradients, fp32; 8 of 64 heads at a time
 * keys of 128 + 64 and, once more without the 64, with values of 128, and the gradients of both. */
static double expanded_bytes(void)
{
    return 2 * 576 + 4 * 576 + 2 * 8 * 2 * (192 + 128 + 128);
}

/* On the device 4 bytes a parameter and two slots of 100 x 2^20 parameters' master weights and
 * moments; on the host 12 bytes, and the inputs of 40 layers, within a rank's eighth of 2 TB. */
static void offload_holds_667e9(void **state)
{
    (void)state;
    json_t *document = plan("--recipe 667b-64-h200-offload", 0);
    double share = number_at(document, "model.params_trained") / 64;
    double tokens = 1048576 / number_at(document, "recommended.layout.cp");
    double host = 12 * share + 40 * 2 * tokens * 7168;
    assert_true(strcmp(json_string_value(json_at(document, "verdict")), "does_not_fit") != 0);
    assert_live(document, "weights", 2 * share, PADDED);
    assert_live(document, "gradients", 2 * share, PADDED);
    assert_live(document, "master", 2 * 4 * 104857600.0, 0);
    assert_live(document, "moments", 2 * 8 * 104857600.0, 0);
    assert_most(document, "kv_gather", expanded_bytes() * 1048576, 0);
    assert_near(number_at(document, "recommended.ranks.0.host_bytes"), host, PADDED, "B");
    assert_true(host < 2e12 / 8);
    json_decref(document);
}

/* A node of 1 TB gives a rank 125.0 GB, less than its 125.3 GB of master weights and moments. */
static void host_memory_is_looked_at(void **state)
{
    (void)state;
    json_t *document =
        plan("--recipe 667b-64-h200-offload --set hardware.host_memory_bytes=1e12", 1);
    assert_verdict(document, "does_not_fit");
    assert_true(number_at(document, "recommended.ranks.0.host_bytes") > 1e12 / 8);
    assert_golden("limit of host memory", json_string_value(json_at(document, "binding")));
    json_decref(document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(glm_at_1m_on_four_racks),
        cmocka_unit_test(glm_at_1m_on_two_racks),
        cmocka_unit_test(glm_at_256k_on_nvl8),
        cmocka_unit_test(glm_at_1m_on_nvl8),
        cmocka_unit_test(mi300x_drops_cp),
        cmocka_unit_test(mi300x_takes_cp_on_overflow),
        cmocka_unit_test(a_trillion_is_18_terabytes),
        cmocka_unit_test(a_trillion_needs_91_gpus),
        cmocka_unit_test(no_length_holds_667e9),
        cmocka_unit_test(offload_holds_667e9),
        cmocka_unit_test(host_memory_is_looked_at),
    };
    return cmocka_run_group_tests_name("machines", tests, NULL, NULL);
}
