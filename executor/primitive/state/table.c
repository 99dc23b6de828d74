/* table.c - every tensor of the model in its place: unit, part, offset. */
#include "base/checked.h"
#include "executor/primitive/state/state.h"

#include <string.h>

enum { PADDING_ELEMENTS = 64 };

struct role_row {
    const char *suffix; /* of the tensor's name */
    enum role role;
};

static const struct role_row role_rows[] = {
    { "embed_tokens.weight", ROLE_EMBEDDING },
    { "lm_head.weight", ROLE_HEAD },
    { "input_layernorm.weight", ROLE_INPUT_NORM },
    { "self_attn.q_proj.weight", ROLE_Q },
    { "self_attn.k_proj.weight", ROLE_K },
    { "self_attn.v_proj.weight", ROLE_V },
    { "self_attn.q_proj.bias", ROLE_Q_BIAS },
    { "self_attn.k_proj.bias", ROLE_K_BIAS },
    { "self_attn.v_proj.bias", ROLE_V_BIAS },
    { "self_attn.q_norm.weight", ROLE_Q_NORM },
    { "self_attn.k_norm.weight", ROLE_K_NORM },
    { "self_attn.o_proj.weight", ROLE_O },
    { "post_attention_layernorm.weight", ROLE_POST_NORM },
    { "mlp.gate.weight", ROLE_ROUTER },
    { "mlp.gate_proj.weight", ROLE_GATE },
    { "mlp.up_proj.weight", ROLE_UP },
    { "mlp.down_proj.weight", ROLE_DOWN },
    { "mlp.shared_expert.gate_proj.weight", ROLE_SHARED_GATE },
    { "mlp.shared_expert.up_proj.weight", ROLE_SHARED_UP },
    { "mlp.shared_expert.down_proj.weight", ROLE_SHARED_DOWN },
    { "mlp.shared_expert_gate.weight", ROLE_SHARED_SCALAR },
    { "mlp.experts.{e}.gate_proj.weight", ROLE_EXPERT_GATE },
    { "mlp.experts.{e}.up_proj.weight", ROLE_EXPERT_UP },
    { "mlp.experts.{e}.down_proj.weight", ROLE_EXPERT_DOWN },
    { "block_sparse_moe.gate.weight", ROLE_ROUTER },
    { "block_sparse_moe.experts.{e}.w1.weight", ROLE_EXPERT_GATE },
    { "block_sparse_moe.experts.{e}.w3.weight", ROLE_EXPERT_UP },
    { "block_sparse_moe.experts.{e}.w2.weight", ROLE_EXPERT_DOWN },
    { "norm.weight", ROLE_FINAL_NORM }, /* last: many names end so */
};

static bool ends_with(const char *name, const char *suffix)
{
    size_t length = strlen(name), tail = strlen(suffix);
    if (length < tail || strcmp(name + length - tail, suffix) != 0)
        return false;
    return length == tail || name[length - tail - 1] == '.';
}

static enum role role_of(const struct tensor *tensor)
{
    for (size_t i = 0; i < sizeof role_rows / sizeof *role_rows; i++)
        if (ends_with(tensor->name, role_rows[i].suffix))
            return role_rows[i].role;
    return ROLE_COUNT;
}

bool state_tensor_is_norm(const struct state_tensor *tensor)
{
    return tensor->facts.component == COMPONENT_NORMS || tensor->facts.axes == 1;
}

static bool is_bias(const struct state_tensor *tensor)
{
    return tensor->role >= ROLE_Q_BIAS && tensor->role <= ROLE_V_BIAS;
}

static enum start start_of(const struct state_tensor *tensor, const struct model *model)
{
    if (!state_tensor_is_norm(tensor) || is_bias(tensor))
        return START_DRAWN;
    return model->norm_zero_centred ? START_ZERO : START_ONE;
}

static int unit_index(const struct state *state, int unit)
{
    if (unit == UNIT_EMBEDDING)
        return 0;
    return unit == UNIT_HEAD ? state_head_unit(state) : state_layer_unit(unit);
}

/* Tensors stand in the order of their roles, whatever the checkpoint's order: what is multiplied
 * together lies together. */
static void insert(struct state_unit *unit, const struct state_tensor *tensor)
{
    int at = unit->tensor_count++;
    for (; at > 0 && unit->tensors[at - 1].role > tensor->role; at--)
        unit->tensors[at] = unit->tensors[at - 1];
    unit->tensors[at] = *tensor;
}

static int add_tensor(const struct tensor *facts, void *context)
{
    struct state *state = context;
    struct work *w = state->work;
    struct state_tensor tensor = { .role = role_of(facts), .mesh = facts->mesh, .facts = *facts };

    if (facts->unit == UNIT_MTP || facts->unit == UNIT_VISION)
        return 0;
    struct state_unit *unit = &state->units[unit_index(state, facts->unit)];
    if (tensor.role == ROLE_COUNT || unit->tensor_count == UNIT_MAX_TENSORS)
        return diag_error(w->errors, (struct pos){ 0 }, "tensor %s has no place in this executor",
                          facts->name);
    tensor.start = start_of(&tensor, &w->plan->model);
    tensor.elements = facts->params / facts->copies;
    tensor.copies = 1;
    if (facts->mesh == MESH_EXPERT) {
        tensor.copies = (int)facts->copies / w->mesh->layout->ep;
        tensor.first_copy = mesh_first_expert(w->mesh, w->mesh->fabric->rank, (int)facts->copies);
    }
    insert(unit, &tensor);
    return 0;
}

/* An expert's gate and up are one matrix; the next expert's follows at `stride`. */
static uint64_t expert_stride(const struct state_tensor *tensor)
{
    return tensor->role == ROLE_EXPERT_DOWN ? tensor->elements : 2 * tensor->elements;
}

static void place_tensors(struct state_unit *unit)
{
    for (int i = 0; i < unit->tensor_count; i++) {
        struct state_tensor *tensor = &unit->tensors[i];
        struct state_part *part = &unit->parts[tensor->mesh];
        tensor->stride = tensor->mesh == MESH_EXPERT ? expert_stride(tensor) : tensor->elements;
        if (tensor->role == ROLE_EXPERT_UP)
            tensor->offset = unit->tensors[i - 1].offset + tensor->elements;
        else
            tensor->offset = part->elements;
        if (tensor->role != ROLE_EXPERT_UP)
            part->elements += tensor->stride * (uint64_t)tensor->copies;
    }
}

static void place_part(const struct state *state, enum mesh mesh, struct state_part *part)
{
    const struct work *w = state->work;
    const struct layout *l = w->mesh->layout;
    enum sharding sharding = w->plan->choices.primitives.sharding;
    bool dense = mesh == MESH_DENSE;
    int spread = dense ? 1 : l->ep * l->etp; /* ranks with different tensors */

    part->group = w->mesh->groups[dense ? MESH_DENSE_SHARDS : MESH_EXPERT_SHARDS];
    part->replicas = w->mesh->groups[dense ? MESH_DENSE_REPLICAS : MESH_EXPERT_REPLICAS];
    int shards = group_info(part->group)->count;
    part->padded = round_up_to(part->elements, (uint64_t)PADDING_ELEMENTS * (uint64_t)shards);
    part->shards = sharding == SHARDING_REPLICATED ? 1 : shards;
    part->gathered = sharding == SHARDING_FSDP && shards > 1;
    part->slice = part->padded / (uint64_t)part->shards;
    if (part->shards > 1)
        part->slice_first = part->slice * (uint64_t)group_info(part->group)->index;
    part->copies = layout_world(l) / (spread * part->shards);
}

int state_table_fill(struct state *state)
{
    if (model_tensors(&state->work->plan->model, add_tensor, state) != 0)
        return -1;
    for (int i = 0; i < state->unit_count; i++) {
        place_tensors(&state->units[i]);
        for (int mesh = 0; mesh < 2; mesh++)
            place_part(state, (enum mesh)mesh, &state->units[i].parts[mesh]);
    }
    return 0;
}

void state_tensor_name(const struct state_tensor *tensor, int copy, char *ret, size_t size)
{
    const char *name = tensor->facts.name, *mark = strstr(name, "{e}");
    if (tensor->mesh == MESH_EXPERT && mark)
        (void)snprintf(ret, size, "%.*s%d%s", (int)(mark - name), name, tensor->first_copy + copy,
                       mark + 3);
    else
        (void)snprintf(ret, size, "%s", name);
}
