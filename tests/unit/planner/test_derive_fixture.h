/* Questions for the tests of derivation and search: shipped or mutated models on shipped or altered
 * hardware. */
#ifndef RANKFIT_TESTS_UNIT_PLANNER_TEST_DERIVE_FIXTURE_H
#define RANKFIT_TESTS_UNIT_PLANNER_TEST_DERIVE_FIXTURE_H

#include "base/layout/legality.h"
#include "planner/derive/derive.h"
#include "tests/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A question with what it points to; must not be copied. */
struct ask {
    struct model model;
    struct hardware hardware;
    struct model_sizes sizes;
    struct question q;
};

/* After the model was changed. */
static inline void ask_model_changed(struct ask *ask)
{
    model_sizes_init(&ask->sizes, &ask->model);
}

/* Headroom 2 % of memory, as the command line has it; after memory_bytes was changed. */
static inline void ask_memory_changed(struct ask *ask)
{
    ask->q.headroom_bytes = question_memory_bytes(&ask->q) / 50;
}

static inline void ask_init(struct ask *ask, const char *model, const char *hardware, int gpus,
                            uint64_t seq_tokens)
{
    struct diag_list list = { 0 };

    memset(ask, 0, sizeof *ask);
    assert_int_equal(model_load(model, &ask->model, &list), 0);
    assert_int_equal(hardware_load(hardware, &ask->hardware, &list), 0);
    ask->q = (struct question){
        .model = &ask->model,
        .sizes = &ask->sizes,
        .hardware = &ask->hardware,
        .gpus = gpus,
        .seq_tokens = seq_tokens,
        .micro_batch = 1,
        .routing = { .kind = ROUTING_BALANCED },
        .routing_quantile = 0.99,
    };
    ask_model_changed(ask);
    ask_memory_changed(ask);
}

static inline void ask_set(struct ask *ask, const char *key, const char *value)
{
    struct diag_list list = { 0 };
    assert_int_equal(choice_set(&ask->q.fixed, key, value, (struct pos){ 0 }, &list), 0);
}

/* A model of a shipped kind with other depth, width, vocabulary and number of experts; hardware
 * with other memory; a world of up to most_gpus (a power of two); 4K to 128K tokens. */
static inline void ask_random(struct ask *ask, uint64_t *state, int most_gpus)
{
    static const char *const models[] = { "qwen3.5-35b-a3b", "qwen3-30b-a3b", "llama-3.1-8b",
                                          "qwen3-0.6b" };
    static const char *const machines[] = { "h100-sxm", "h200" };
    int gpus = 1 << random_below(state, (uint64_t)__builtin_ctz((unsigned)most_gpus) + 1);
    uint64_t seq = (uint64_t)4096 << random_below(state, 6);

    ask_init(ask, models[random_below(state, 4)], machines[random_below(state, 2)], gpus, seq);
    struct model *m = &ask->model;
    int period = m->layers, layers = 4 + (int)random_below(state, 45);
    for (int i = 0; i < layers; i++) {
        m->layer_mixer[i] = m->layer_mixer[i % period];
        m->layer_ffn[i] = m->layer_ffn[i % period];
    }
    m->layers = layers;
    m->hidden >>= random_below(state, 2);
    m->vocab >>= random_below(state, 3);
    if (m->moe.experts > 0)
        m->moe.experts >>= random_below(state, 3);
    ask_model_changed(ask);
    ask->hardware.memory_bytes = (uint64_t)(8 + random_below(state, 120)) << 30;
    ask_memory_changed(ask);
}

static inline bool ask_is_legal(const struct ask *ask, const struct choices *choices)
{
    const struct legality_input in = {
        .model = &ask->model,
        .hardware = &ask->hardware,
        .choices = choices,
        .gpus = ask->q.gpus,
        .seq_tokens = ask->q.seq_tokens,
        .global_batch = question_global_batch(&ask->q),
    };
    return legality_check(&in, NULL) == 0;
}

/* Asks again with one entry's change; must fit. */
static inline void ask_nearest(const struct ask *ask, const struct nearest *nearest)
{
    static struct answer again;
    struct question q = ask->q;
    struct diag_list list = { 0 };

    if (nearest->gpus)
        q.gpus = nearest->gpus;
    if (nearest->seq_tokens)
        q.seq_tokens = nearest->seq_tokens;
    if (nearest->set[0]) {
        char key[96];
        size_t length = strcspn(nearest->set, "=");
        memcpy(key, nearest->set, length);
        key[length] = '\0';
        q.fixed.set &= ~((uint64_t)1 << choice_key_find(key));
        assert_int_equal(
            choice_set(&q.fixed, key, nearest->set + length + 1, (struct pos){ 0 }, &list), 0);
    }
    q.policy = POLICY_ARTICLES;
    assert_int_equal(derive(&q, &again, &list), 0);
    if (again.recommended.verdict != VERDICT_FITS)
        fail_msg("nearest does not fit: %s", nearest->change);
}

#endif
