/* table.c - every tensor of the model in its place: unit, part, offset. */
#include "base/checked.h"
#include "executor/primitive/state/state.h"

#include <string.h>

enum { PADDING_ELEMENTS = 64 };

/* A tensor by its name in checkpoints, and its values in a run without a checkpoint. START_ONE of a
 * norm means that it multiplies by 1: norms that are centred at zero begin at zero. */
struct role_row {
    const char *suffix; /* of the tensor's name */
    enum role role;
    enum start start;
};

static const struct role_row role_rows[] = {
    { "embed_tokens.weight", ROLE_EMBEDDING, START_DRAWN },
    { "lm_head.weight", ROLE_HEAD, START_DRAWN },
    { "input_layernorm.weight", ROLE_INPUT_NORM, START_ONE },
    { "self_attn.q_proj.weight", ROLE_Q, START_DRAWN },
    { "self_attn.k_proj.weight", ROLE_K, START_DRAWN },
    { "self_attn.v_proj.weight", ROLE_V, START_DRAWN },
    { "self_attn.q_proj.bias", ROLE_Q_BIAS, START_DRAWN },
    { "self_attn.k_proj.bias", ROLE_K_BIAS, START_DRAWN },
    { "self_attn.v_proj.bias", ROLE_V_BIAS, START_DRAWN },
    { "self_attn.q_norm.weight", ROLE_Q_NORM, START_ONE },
    { "self_attn.k_norm.weight", ROLE_K_NORM, START_ONE },
    { "self_attn.q_a_proj.weight", ROLE_Q_DOWN, START_DRAWN },
    { "self_attn.q_a_layernorm.weight", ROLE_Q_DOWN_NORM, START_ONE },
    { "self_attn.q_b_proj.weight", ROLE_Q_UP, START_DRAWN },
    { "self_attn.kv_a_proj_with_mqa.weight", ROLE_KV_DOWN, START_DRAWN },
    { "self_attn.kv_a_layernorm.weight", ROLE_KV_DOWN_NORM, START_ONE },
    { "self_attn.kv_b_proj.weight", ROLE_KV_UP, START_DRAWN },
    { "self_attn.o_proj.weight", ROLE_O, START_DRAWN },
    { "linear_attn.in_proj_qkv.weight", ROLE_DELTA_IN, START_DRAWN },
    { "linear_attn.in_proj_z.weight", ROLE_DELTA_Z, START_DRAWN },
    { "linear_attn.in_proj_b.weight", ROLE_DELTA_B, START_DRAWN },
    { "linear_attn.in_proj_a.weight", ROLE_DELTA_A, START_DRAWN },
    { "linear_attn.in_proj_qkvz.weight", ROLE_DELTA_IN, START_DRAWN },
    { "linear_attn.in_proj_ba.weight", ROLE_DELTA_B, START_DRAWN },
    { "linear_attn.out_proj.weight", ROLE_DELTA_OUT, START_DRAWN },
    { "linear_attn.conv1d.weight", ROLE_DELTA_CONV, START_DRAWN },
    { "linear_attn.norm.weight", ROLE_DELTA_NORM, START_ONE },
    { "linear_attn.A_log", ROLE_DELTA_LOG, START_ZERO },
    { "linear_attn.dt_bias", ROLE_DELTA_STEP, START_ONE },
    { "post_attention_layernorm.weight", ROLE_POST_NORM, START_ONE },
    { "mlp.gate.weight", ROLE_ROUTER, START_DRAWN },
    { "mlp.gate_proj.weight", ROLE_GATE, START_DRAWN },
    { "mlp.up_proj.weight", ROLE_UP, START_DRAWN },
    { "mlp.down_proj.weight", ROLE_DOWN, START_DRAWN },
    { "mlp.shared_expert.gate_proj.weight", ROLE_SHARED_GATE, START_DRAWN },
    { "mlp.shared_expert.up_proj.weight", ROLE_SHARED_UP, START_DRAWN },
    { "mlp.shared_expert.down_proj.weight", ROLE_SHARED_DOWN, START_DRAWN },
    { "mlp.shared_expert_gate.weight", ROLE_SHARED_SCALAR, START_DRAWN },
    { "mlp.shared_experts.gate_proj.weight", ROLE_SHARED_GATE, START_DRAWN },
    { "mlp.shared_experts.up_proj.weight", ROLE_SHARED_UP, START_DRAWN },
    { "mlp.shared_experts.down_proj.weight", ROLE_SHARED_DOWN, START_DRAWN },
    { "mlp.gate.e_score_correction_bias", ROLE_CORRECTION, START_ZERO },
    { "mlp.experts.{e}.gate_proj.weight", ROLE_EXPERT_GATE, START_DRAWN },
    { "mlp.experts.{e}.up_proj.weight", ROLE_EXPERT_UP, START_DRAWN },
    { "mlp.experts.{e}.down_proj.weight", ROLE_EXPERT_DOWN, START_DRAWN },
    { "mlp.experts.gate_up_proj", ROLE_EXPERT_GATE, START_DRAWN },
    { "mlp.experts.down_proj", ROLE_EXPERT_DOWN, START_DRAWN },
    { "block_sparse_moe.gate.weight", ROLE_ROUTER, START_DRAWN },
    { "block_sparse_moe.experts.{e}.w1.weight", ROLE_EXPERT_GATE, START_DRAWN },
    { "block_sparse_moe.experts.{e}.w3.weight", ROLE_EXPERT_UP, START_DRAWN },
    { "block_sparse_moe.experts.{e}.w2.weight", ROLE_EXPERT_DOWN, START_DRAWN },
    { "norm.weight", ROLE_FINAL_NORM, START_ONE }, /* last: many names end so */
};

static bool ends_with(const char *name, const char *suffix)
{
    size_t length = strlen(name), tail = strlen(suffix);
    if (length < tail || strcmp(name + length - tail, suffix) != 0)
        return false;
    return length == tail || name[length - tail - 1] == '.';
}

/* NULL for a name that this executor does not know. */
static const struct role_row *row_of(const struct tensor *tensor)
{
    for (size_t i = 0; i < sizeof role_rows / sizeof *role_rows; i++)
        if (ends_with(tensor->name, role_rows[i].suffix))
            return &role_rows[i];
    return NULL;
}

bool state_tensor_is_norm(const struct state_tensor *tensor)
{
    return tensor->facts.component == COMPONENT_NORMS || tensor->facts.axes == 1;
}

/* The gated norm of a delta net multiplies by its weights as they are in every model. */
static enum start start_of(const struct role_row *row, const struct model *model)
{
    bool centred =
        model->norm_zero_centred && row->role != ROLE_DELTA_NORM && row->role != ROLE_DELTA_STEP;
    return row->start == START_ONE && centred ? START_ZERO : row->start;
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
    const struct role_row *row = row_of(facts);
    struct state_tensor tensor = { .mesh = facts->mesh, .facts = *facts };

    if (facts->unit == UNIT_MTP || facts->unit == UNIT_VISION)
        return 0;
    struct state_unit *unit = &state->units[unit_index(state, facts->unit)];
    if (!row || unit->tensor_count == UNIT_MAX_TENSORS)
        return diag_error(w->errors, (struct pos){ 0 }, "tensor %s has no place in this executor",
                          facts->name);
    tensor.role = row->role;
    tensor.start = start_of(row, &w->plan->model);
    tensor.elements = facts->params / facts->copies;
    tensor.copies = 1;
    if (facts->mesh == MESH_EXPERT) {
        tensor.copies = (int)facts->copies / w->mesh->layout->ep;
        tensor.first_copy = mesh_first_expert(w->mesh, w->mesh->fabric->rank, (int)facts->copies);
    }
    insert(unit, &tensor);
    return 0;
}

/* From one expert's copy to the next one's: an expert's gate and up are one matrix, whether the
 * checkpoint has them as one tensor or as two. */
static uint64_t expert_stride(const struct state_unit *unit, int i)
{
    const struct state_tensor *tensor = &unit->tensors[i];
    bool up_behind = i + 1 < unit->tensor_count && tensor[1].role == ROLE_EXPERT_UP;
    return up_behind || tensor->role == ROLE_EXPERT_UP ? 2 * tensor->elements : tensor->elements;
}

static void place_tensors(struct state_unit *unit)
{
    for (int i = 0; i < unit->tensor_count; i++) {
        struct state_tensor *tensor = &unit->tensors[i];
        struct state_part *part = &unit->parts[tensor->mesh];
        tensor->stride = tensor->mesh == MESH_EXPERT ? expert_stride(unit, i) : tensor->elements;
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

uint64_t state_tensor_before(const struct state_tensor *tensor, int copy)
{
    bool stacked = tensor->mesh == MESH_EXPERT && !strstr(tensor->facts.name, "{e}");
    return stacked ? (uint64_t)(tensor->first_copy + copy) * tensor->elements : 0;
}
