/* Configurations of every family against transformers: the files of tests/data/transformers/ hold
 * the results of tests/reference/model_counts.py. A file is read with the same parameters by
 * component, as its makers write it and as transformers writes it back. Each key taken away leaves
 * the counts of the class's default, which is said, or is asked for. */
#include "tests/unit/model/fixture.h"

#include <dirent.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Keys for which no class's default stands in, since they differ from model to model; by the end of
 * its key. */
static const char *const asked_for[] = {
    "hidden_size",
    "num_hidden_layers",
    "num_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "moe_num_experts",
    "moe_intermediate_size",
    "ffn_hidden_size",
    "expert_ffn_hidden_size",
    "num_experts_per_tok",
    "top_k_experts",
    "moe_top_k",
};

/* Keys that are asked for although the class has a default; file NULL: of any. */
static const struct {
    const char *file, *key;
} asked_of[] = {
    { NULL, "vision_config.out_hidden_size" }, /* another width than the text's cannot be joined */
    { "llama4", "vision_config.projector_output_dim" },
    { "llama4", "vision_config.vision_output_dim" },
    { "minimax-m1", "layer_types" }, /* the class's pattern is no released model's */
    { "nemotron-h", "hybrid_override_pattern" },
};

/* Keys whose absence means none or no, or the pattern of the class; not said. */
static const char *const unsaid[] = {
    "tie_word_embeddings", /* said where the class ties */
    "attention_bias",
    "mlp_bias",
    "head_dim", /* hidden_size / heads where the class has no number */
    "use_qk_norm",
    "first_k_dense_replace",
    "layer_types",
    "compress_ratios",
    "moe_layer_freq",
    "attention_k_eq_v",
    "enable_moe_block",
    "num_global_key_value_heads",
    "num_kv_shared_layers",
    "use_double_wide_mlp",
    "use_clipped_linears",
    "standardize",
    "shared_intermediate_size",
    "num_nextn_predict_layers",
    "sparse_attention_config",
    "audio_config",
    "linear_attn_config", /* said by its numbers */
    "moe_latent_size",
    "lm_head_bias",
    "full_attn_layers",
    "kda_layers",
};

/* Where the makers' files or code differ from transformers, and are followed. */
static const struct {
    const char *file, *key, *why;
} kept[] = {
    { "mistral3", "tie_word_embeddings", "published files lack it and have a head of their own" },
    { "kimi-k2.5", "tie_word_embeddings", "the text part's own is read where the root has none" },
    { "mimo-v2-flash", "head_dim", "the makers' swa_head_dim is read, as their code does" },
    { "mimo-v2-flash", "v_head_dim", "the same of swa_v_head_dim" },
    { "step3.7", "text_config.head_dim", "attention_other_setting has one of its own" },
    { "step3.7", "text_config.num_attention_groups", "the same" },
};

static const char *failing_file, *failing_key;
static int failures;

static void fail_with(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fail_with(const char *format, ...)
{
    va_list arguments;
    (void)fprintf(stderr, "%s%s%s: ", failing_file, failing_key != NULL ? ", without " : "",
                  failing_key != NULL ? failing_key : "");
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    failures++;
}

/* MTP layers are compared where transformers builds them as the makers do: not those of
 * Step, which have a window and its heads. A tower is compared where the file has one: without it
 * transformers makes that of the class's defaults. */
static void compare_counts(const struct model *model, const struct node *counts, bool tower)
{
    struct model_counts found;
    model_count(model, &found);
    for (int i = 0; i < COMPONENT_COUNT; i++) {
        const struct node *node = node_get(counts, component_names[i]);
        uint64_t wanted = node != NULL ? (uint64_t)node->integer : 0;
        if (i == COMPONENT_MTP && (node == NULL || strncmp(failing_file, "step", 4) == 0))
            continue;
        if (i == COMPONENT_VISION && !tower)
            wanted = 0;
        if (found.by_component[i] != wanted)
            fail_with("%s %llu, transformers has %llu", component_names[i],
                      (unsigned long long)found.by_component[i], (unsigned long long)wanted);
    }
}

static void fail_refused(const char *form, const struct diag_list *list)
{
    fail_with("%s is refused", form);
    diag_list_print(stderr, list);
}

static bool read_equal(const struct node *config, const struct node *counts, const char *form)
{
    struct model model;
    struct diag_list list = { 0 };
    if (model_from_node(config, &model, &list) != 0) {
        fail_refused(form, &list);
        return false;
    }
    compare_counts(&model, counts, true);
    return true;
}

/* The link of map.key: the node that it points to is the child; `key` may have one dot. */
static struct node **link_of(struct node *map, const char *key)
{
    const char *dot = strchr(key, '.');
    size_t length =
        dot != NULL && strncmp(dot - 7, "_config.", 8) == 0 ? (size_t)(dot - key) : strlen(key);
    struct node **link = &map->child;
    while (*link != NULL &&
           !(strlen((*link)->key) == length && strncmp((*link)->key, key, length) == 0))
        link = &(*link)->next;
    assert_non_null(*link);
    return key[length] == '.' ? link_of(*link, key + length + 1) : link;
}

static bool is_in(const char *key, const char *const *keys, size_t count)
{
    const char *dot = strrchr(key, '.');
    for (size_t i = 0; i < count; i++)
        if (strcmp(dot != NULL ? dot + 1 : key, keys[i]) == 0)
            return true;
    return false;
}

static bool may_be_asked_for(const char *file, const char *key)
{
    for (size_t i = 0; i < sizeof asked_of / sizeof asked_of[0]; i++)
        if ((asked_of[i].file == NULL || strcmp(asked_of[i].file, file) == 0) &&
            strcmp(asked_of[i].key, key) == 0)
            return true;
    return strncmp(key, "vision_config.", 14) != 0 &&
           is_in(key, asked_for, sizeof asked_for / sizeof asked_for[0]);
}

/* Gemma 4's class has no tower then; that of sound stays. */
static bool is_optional_tower(const char *file, const char *key)
{
    return strncmp(file, "gemma4", 6) == 0 && strcmp(key, "vision_config") == 0;
}

static bool may_be_unsaid(const char *file, const char *key)
{
    return is_optional_tower(file, key) || is_in(key, unsaid, sizeof unsaid / sizeof unsaid[0]);
}

static bool says(const struct diag_list *list, const char *key)
{
    const char *dot = strrchr(key, '.');
    for (int i = 0; i < list->count; i++)
        if (strstr(list->items[i].what, dot != NULL ? dot + 1 : key) != NULL ||
            strstr(list->items[i].hint, dot != NULL ? dot + 1 : key) != NULL)
            return true;
    return false;
}

static bool is_kept(const char *file, const char *key)
{
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (strcmp(kept[i].file, file) == 0 && strcmp(kept[i].key, key) == 0)
            return true;
    return false;
}

/* counts NULL: those of the whole file. */
static void check_without(const char *file, struct node *config, const char *key,
                          const struct node *counts, const struct node *whole)
{
    struct model model;
    struct diag_list list = { 0 };
    struct node **link = link_of(config, key), *taken = *link;
    failing_key = key;
    *link = taken->next;
    int result = model_from_node(config, &model, &list);
    if (counts != NULL && counts->kind != NODE_MAP) {
        /* transformers builds no model either */
    } else if (result != 0) {
        if (!may_be_asked_for(file, key))
            fail_refused("the rest", &list);
    } else if (!is_kept(file, key)) {
        compare_counts(&model, counts != NULL ? counts : whole,
                       strcmp(key, "vision_config") != 0 || is_optional_tower(file, key));
        if (counts != NULL && !may_be_unsaid(file, key) && !says(&list, key))
            fail_with("a default is taken and not said");
    }
    *link = taken;
    failing_key = NULL;
}

static void check_keys(const char *name, struct node *config, const struct node *without,
                       const struct node *counts)
{
    const struct node *keys = node_get(without, "same"), *other = node_get(without, "other");
    for (const struct node *n = keys->child; n != NULL; n = n->next)
        check_without(name, config, n->text, NULL, counts);
    for (const struct node *n = other->child; n != NULL; n = n->next)
        check_without(name, config, n->key, n, counts);
}

static void check_file(const char *path, const char *name)
{
    struct tree tree = { 0 };
    struct diag_list list = { 0 };
    failing_file = name;
    if (tree_read_file(&tree, path, &list) != 0)
        diag_list_print(stderr, &list);
    assert_int_equal(list.errors, 0);
    const struct node *counts = node_get(tree.root, "counts");
    struct node *config = *link_of(tree.root, "config");
    (void)read_equal(node_get(tree.root, "rewritten"), counts, "the form that transformers writes");
    if (read_equal(config, counts, "the makers' form"))
        check_keys(name, config, node_get(tree.root, "without"), counts);
    tree_done(&tree);
}

static void families_have_the_counts_of_transformers(void **state)
{
    (void)state;
    const char *root = getenv("RANKFIT_SOURCE_ROOT");
    char directory[PATH_MAX - 300], path[PATH_MAX];
    struct dirent **entries = NULL;
    (void)snprintf(directory, sizeof directory, "%s/tests/data/transformers",
                   root != NULL ? root : ".");
    int count = scandir(directory, &entries, NULL, alphasort), files = 0;
    for (int i = 0; i < count; i++) {
        char *ending = strstr(entries[i]->d_name, ".json");
        if (ending != NULL) {
            (void)snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
            *ending = '\0';
            check_file(path, entries[i]->d_name);
            files++;
        }
        free(entries[i]);
    }
    free((void *)entries);
    assert_true(files >= 60);
    assert_int_equal(failures, 0);
}

/* By hand, for hidden_size 128 and a dense MLP of 80: 48 heads of 8, 4 of keys and values, a gate
 * for each head and two norms of 8; the MLP's three matrices; a matrix of 2 x 128 x 128; 5 norms.
 */
static void an_mtp_layer_with_a_window(void **state)
{
    (void)state;
    struct tree tree = { 0 };
    struct diag_list list = { 0 };
    struct model model;
    struct model_counts counts;
    char path[PATH_MAX];
    const char *root = getenv("RANKFIT_SOURCE_ROOT");
    (void)snprintf(path, sizeof path, "%s/tests/data/transformers/step3.7.json",
                   root != NULL ? root : ".");
    assert_int_equal(tree_read_file(&tree, path, &list), 0);
    for (int i = 0; i < 2; i++) {
        const char *form = i == 0 ? "config" : "rewritten";
        assert_int_equal(model_from_node(node_get(tree.root, form), &model, &list), 0);
        model_count(&model, &counts);
        assert_int_equal(counts.by_component[COMPONENT_MTP], 2 * 128 * 48 * 8 + 2 * 128 * 4 * 8 +
                                                                 128 * 48 + 2 * 8 + 3 * 128 * 80 +
                                                                 2 * 128 * 128 + 5 * 128);
        assert_int_equal(counts.total - counts.trained, counts.by_component[COMPONENT_MTP] +
                                                            counts.by_component[COMPONENT_VISION]);
    }
    tree_done(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_mtp_layer_with_a_window),
        cmocka_unit_test(families_have_the_counts_of_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
