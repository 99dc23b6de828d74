/* plan.c - plan files: what is written, the digest over it, and reading it back. Knows the keys of
 * the file, nothing of what a plan predicts. */
#include "base/plan/plan.h"
#include "base/layout/legality.h"
#include "base/pool.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char plan_schema[] = "rankfit.plan/1";
static const char engine_version[] = "0.1.0";

/* Keys that a reader of `model` and `hardware` facts must not see: the plan's own additions and
 * the counts that the planner prints beside the facts. */
static const char *const hardware_extras[] = { "gpus" };
static const char *const model_extras[] = { "params_total",      "params_active",
                                            "params_active_all", "params_active_core",
                                            "params_trained",    "params_by_component" };

static struct json *hardware_part(const struct plan *plan)
{
    struct json *hardware = hardware_to_json(&plan->hardware);
    json_put_int(hardware, "gpus", plan->gpus);
    return hardware;
}

struct json *plan_workload_json(const struct plan *plan)
{
    char routing[64], lengths[LENGTHS_TEXT];
    struct json *workload = json_map();

    routing_format(&plan->routing, routing, sizeof routing);
    json_put_u64(workload, "seq_tokens", plan->seq_tokens);
    if (plan->lengths.distinct > 0)
        json_put_text(workload, "lengths", lengths_format(&plan->lengths, lengths, sizeof lengths));
    json_put_int(workload, "micro_batch", plan->choices.layout.micro_batch);
    json_put_int(workload, "global_batch", plan->global_batch);
    json_put_text(workload, "routing", routing);
    json_put_number(workload, "routing_quantile", plan->routing_quantile);
    json_put_u64(workload, "headroom_bytes", plan->headroom_bytes);
    json_put_u64(workload, "reserve_bytes", plan->reserve_bytes);
    return workload;
}

struct json *plan_engine_json(const struct plan *plan)
{
    struct json *engine = json_map();
    json_put_text(engine, "name", plan->engine);
    bool own = strcmp(plan->engine, "rankfit") == 0;
    json_put_text(engine, "version", own ? engine_version : "not stated");
    return engine;
}

/* A digest is of what a plan had before its younger keys, where they are as usual. */
static struct json *recommended_part(const struct plan *plan, bool for_digest)
{
    struct json *recommended = json_map(), *primitives = choices_primitives_json(&plan->choices);
    if (for_digest)
        choices_drop_younger(&plan->choices, primitives);
    json_put(recommended, "layout", choices_layout_json(&plan->choices));
    json_put(recommended, "primitives", primitives);
    json_put_u64(recommended, "dispatch_bound_rows", plan->dispatch_bound_rows);
    return recommended;
}

static void put_inputs(const struct plan *plan, bool for_digest, struct json *object)
{
    json_put(object, "model", model_to_json(&plan->model));
    json_put(object, "hardware", hardware_part(plan));
    json_put(object, "workload", plan_workload_json(plan));
    json_put(object, "engine", plan_engine_json(plan));
    json_put(object, "recommended", recommended_part(plan, for_digest));
}

struct json *plan_to_json(const struct plan *plan)
{
    struct json *object = json_document(plan_schema);
    json_put_text(object, "plan_digest", plan->digest);
    put_inputs(plan, false, object);
    return object;
}

/* FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint64_t fnv1a(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return hash;
}

int plan_seal(struct plan *plan, struct diag_list *reterr)
{
    struct json *inputs = json_map();
    put_inputs(plan, true, inputs);
    char *text = json_render(inputs, JSON_FORM_SORTED);
    json_free(inputs);
    if (!text)
        return diag_no_memory(reterr);
    (void)snprintf(plan->digest, sizeof plan->digest, "%016" PRIx64, fnv1a(text));
    free(text);
    return 0;
}

static int missing(const struct node *map, const char *key, struct diag_list *reterr)
{
    diag_error(reterr, map->at, "missing key '%s'", key);
    return diag_hint(reterr, "a plan file is written by `rankfit plan ... -o FILE`");
}

/* A required child of the given kind. */
static const struct node *part(const struct node *map, const char *key, struct diag_list *reterr)
{
    const struct node *ret = NULL;
    int found = node_map(map, key, &ret, reterr);
    if (found == 0)
        missing(map, key, reterr);
    return found == 1 ? ret : NULL;
}

static void need_int(const struct node *map, const char *key, int64_t min, int64_t max,
                     int64_t *ret, struct diag_list *reterr)
{
    if (node_int(map, key, min, max, ret, reterr) == 0)
        missing(map, key, reterr);
}

static void need_real(const struct node *map, const char *key, double min, double max, double *ret,
                      struct diag_list *reterr)
{
    if (node_real(map, key, min, max, ret, reterr) == 0)
        missing(map, key, reterr);
}

static const char *need_text(const struct node *map, const char *key, struct diag_list *reterr)
{
    const char *ret = NULL;
    if (node_text(map, key, &ret, reterr) == 0)
        missing(map, key, reterr);
    return ret;
}

/* `map` without the keys of `extras`; the copies live in the tree's pool. NULL without memory. */
static const struct node *without(struct pool *pool, const struct node *map,
                                  const char *const *extras, size_t count)
{
    struct node *ret = pool_alloc(pool, sizeof *ret);
    if (!ret)
        return NULL;
    *ret = *map;
    ret->child = NULL;
    ret->count = 0;
    struct node **end = &ret->child;
    for (const struct node *child = map->child; child; child = child->next) {
        bool drop = false;
        for (size_t i = 0; i < count; i++)
            drop = drop || strcmp(child->key, extras[i]) == 0;
        if (drop)
            continue;
        struct node *copy = pool_alloc(pool, sizeof *copy);
        if (!copy)
            return NULL;
        *copy = *child;
        copy->next = NULL;
        *end = copy;
        end = &copy->next;
        ret->count++;
    }
    return ret;
}

static void read_model(struct tree *tree, struct plan *ret, struct diag_list *reterr)
{
    const struct node *map = part(tree->root, "model", reterr);
    if (!map)
        return;
    const struct node *facts =
        without(&tree->pool, map, model_extras, sizeof model_extras / sizeof *model_extras);
    if (!facts)
        diag_no_memory(reterr);
    else if (model_from_node(facts, &ret->model, reterr) == 0)
        (void)model_check_planned(&ret->model, map->at, reterr);
}

static void read_hardware(struct tree *tree, struct plan *ret, struct diag_list *reterr)
{
    const struct node *map = part(tree->root, "hardware", reterr);
    int64_t gpus = 0;

    if (!map)
        return;
    need_int(map, "gpus", 1, LAYOUT_MAX_RANKS, &gpus, reterr);
    ret->gpus = (int)gpus;
    const struct node *facts = without(&tree->pool, map, hardware_extras,
                                       sizeof hardware_extras / sizeof *hardware_extras);
    if (!facts)
        diag_no_memory(reterr);
    else
        (void)hardware_from_node(facts, &ret->hardware, reterr);
}

static void read_workload(const struct node *root, struct plan *ret, struct diag_list *reterr)
{
    const struct node *map = part(root, "workload", reterr);
    int64_t seq = 0, headroom = 0, reserve = 0;

    if (!map)
        return;
    need_int(map, "seq_tokens", 1, INT64_C(1) << 40, &seq, reterr);
    need_int(map, "global_batch", 1, INT64_C(1) << 40, &ret->global_batch, reterr);
    need_int(map, "headroom_bytes", 0, INT64_MAX, &headroom, reterr);
    need_int(map, "reserve_bytes", 0, INT64_MAX, &reserve, reterr);
    need_real(map, "routing_quantile", 0, 1, &ret->routing_quantile, reterr);
    const char *lengths = NULL;
    if (node_text(map, "lengths", &lengths, reterr) == 1)
        (void)lengths_parse(lengths, node_get(map, "lengths")->at, &ret->lengths, reterr);
    const char *routing = need_text(map, "routing", reterr);
    if (routing)
        (void)routing_parse(routing, node_get(map, "routing")->at, &ret->routing, reterr);
    ret->seq_tokens = (uint64_t)seq;
    ret->headroom_bytes = (uint64_t)headroom;
    ret->reserve_bytes = (uint64_t)reserve;
}

static void read_engine(const struct node *root, struct plan *ret, struct diag_list *reterr)
{
    const struct node *map = part(root, "engine", reterr);
    const char *name = map ? need_text(map, "name", reterr) : NULL;
    if (name && text_copy(ret->engine, sizeof ret->engine, name) != 0)
        diag_error(reterr, node_get(map, "name")->at, "engine name \"%s\" is too long", name);
}

static void read_recommended(const struct node *root, struct plan *ret, struct diag_list *reterr)
{
    const struct node *map = part(root, "recommended", reterr);
    int64_t bound = 0;

    if (!map)
        return;
    const struct node *layout = part(map, "layout", reterr);
    const struct node *primitives = part(map, "primitives", reterr);
    if (layout && primitives)
        (void)choices_from_nodes(layout, primitives, &ret->choices, reterr);
    need_int(map, "dispatch_bound_rows", 0, INT64_MAX, &bound, reterr);
    ret->dispatch_bound_rows = (uint64_t)bound;
}

static int check_schema(const struct node *root, struct diag_list *reterr)
{
    const char *schema = NULL;

    if (root->kind != NODE_MAP) {
        diag_error(reterr, root->at, "a plan is a map, this is %s", node_kind_name(root->kind));
        return diag_hint(reterr, "a plan file is written by `rankfit plan ... -o FILE`");
    }
    int found = node_text(root, "schema", &schema, reterr);
    if (found == 0)
        return missing(root, "schema", reterr);
    if (found < 0)
        return -1;
    if (strcmp(schema, plan_schema) == 0)
        return 0;
    diag_error(reterr, node_get(root, "schema")->at, "schema \"%s\" is not a plan", schema);
    return diag_hint(reterr, "this program reads \"%s\"", plan_schema);
}

static void check_legal(const struct node *root, const struct plan *plan, struct diag_list *reterr)
{
    struct diag_list faults = { 0 };
    const struct node *layout = node_get(node_get(root, "recommended"), "layout");
    const struct legality_input input = { .model = &plan->model,
                                          .hardware = &plan->hardware,
                                          .choices = &plan->choices,
                                          .gpus = plan->gpus,
                                          .seq_tokens = plan->seq_tokens,
                                          .global_batch = plan->global_batch,
                                          .routing = &plan->routing,
                                          .lengths = &plan->lengths };

    if (legality_check(&input, &faults) == 0)
        return;
    for (int i = 0; i < faults.count; i++) {
        struct diag *fault = &faults.items[i];
        if (fault->severity != SEVERITY_ERROR)
            continue;
        diag_error(reterr, layout->at, "%s", fault->what);
        if (fault->hint[0])
            diag_hint(reterr, "%s", fault->hint);
    }
}

static void check_digest(const struct node *root, struct plan *plan, struct diag_list *reterr)
{
    const char *written = need_text(root, "plan_digest", reterr);

    if (plan_seal(plan, reterr) != 0 || !written || strcmp(written, plan->digest) == 0)
        return;
    diag_error(reterr, node_get(root, "plan_digest")->at,
               "plan_digest \"%s\" does not match the plan's contents (%s)", written, plan->digest);
    diag_hint(reterr, "the file was edited; plan again with the changed options instead");
}

int plan_load(const char *path, struct plan *ret, struct diag_list *reterr)
{
    struct tree tree;
    int errors_before = reterr->errors;

    memset(ret, 0, sizeof *ret);
    if (tree_read_file(&tree, path, reterr) == 0 && check_schema(tree.root, reterr) == 0) {
        read_model(&tree, ret, reterr);
        read_hardware(&tree, ret, reterr);
        read_workload(tree.root, ret, reterr);
        read_engine(tree.root, ret, reterr);
        read_recommended(tree.root, ret, reterr);
        if (reterr->errors == errors_before)
            check_digest(tree.root, ret, reterr);
        if (reterr->errors == errors_before)
            check_legal(tree.root, ret, reterr);
    }
    tree_done(&tree);
    return reterr->errors == errors_before ? 0 : -1;
}
