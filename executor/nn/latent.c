/* latent.c - attention through MLA's compressed keys and values: steps p1 to p6 and q1 to q9 of
 * ARCHITECTURE.md. A head's query and key have a part of their own and a part that turns with the
 * position, which the heads of keys share; keys and values of all heads are expanded. */
#include "executor/nn/latent.h"

/* The makers' code has it, whatever norm_eps says. */
static const double latent_norm_eps = 1e-6;

static struct latent_saved *saved_of(const struct layer_call *call)
{
    return latent_saved(call);
}

struct latent_widths latent_widths(const struct layer_call *call)
{
    const struct model *m = layer_model(call);
    const struct mla *mla = &m->mla;
    int heads = m->gqa.heads;
    return (struct latent_widths){ .heads = heads,
                                   .hidden = m->hidden,
                                   .query_latent = mla->q_rank,
                                   .latent = mla->kv_rank,
                                   .rope = mla->rope_dim,
                                   .nope = mla->nope_dim,
                                   .value = mla->value_dim,
                                   .head = m->gqa.head_dim,
                                   .down = mla->kv_rank + mla->rope_dim,
                                   .key = (int64_t)heads * m->gqa.head_dim,
                                   .query = (int64_t)heads * m->gqa.head_dim,
                                   .out = (int64_t)heads * mla->value_dim,
                                   .pair = mla->nope_dim + mla->value_dim,
                                   .expanded = (int64_t)heads * (mla->nope_dim + mla->value_dim) };
}

static const bf16 *weight_of(const struct layer_call *call, enum role role)
{
    return state_weight(call->state, call->unit, role);
}

static void *gradient_of(const struct layer_call *call, enum role role)
{
    return state_gradient(call->state, call->unit, role);
}

/* p1, p2 */
static void project_down(const struct layer_call *call, enum owner owner)
{
    struct work *w = call->state->work;
    struct latent_saved *s = saved_of(call);
    const struct latent_widths n = latent_widths(call);
    const struct linear q = layer_linear(call, n.hidden, n.query_latent);
    const struct linear kv = layer_linear(call, n.hidden, n.down);
    struct buffer normed = layer_norm(call, ROLE_INPUT_NORM, &call->saved->checkpoint);

    s->ql = layer_take(call, owner, n.query_latent, sizeof(bf16));
    s->latent = layer_take(call, owner, n.down, sizeof(bf16));
    linear_forward(w, &q, normed.data, weight_of(call, ROLE_Q_DOWN), s->ql.data, false);
    linear_forward(w, &kv, normed.data, weight_of(call, ROLE_KV_DOWN), s->latent.data, false);
    work_give(w, &normed);
}

static struct column_norm query_norm(const struct layer_call *call, struct buffer *to)
{
    const struct latent_widths n = latent_widths(call);
    return (struct column_norm){ .rows = call->batch->tokens,
                                 .width = n.query_latent,
                                 .eps = latent_norm_eps,
                                 .x = saved_of(call)->ql.data,
                                 .w = weight_of(call, ROLE_Q_DOWN_NORM),
                                 .y = to ? to->data : NULL,
                                 .x_stride = n.query_latent,
                                 .y_stride = n.query_latent };
}

struct column_norm latent_norm(const struct layer_call *call, struct buffer *to)
{
    const struct latent_widths n = latent_widths(call);
    return (struct column_norm){ .rows = call->batch->tokens,
                                 .width = n.latent,
                                 .eps = latent_norm_eps,
                                 .x = saved_of(call)->latent.data,
                                 .w = weight_of(call, ROLE_KV_DOWN_NORM),
                                 .y = to ? to->data : NULL,
                                 .x_stride = n.down,
                                 .y_stride = n.latent };
}

/* Compressed queries, and compressed keys and values, normed in tensors of their own. */
static void norm_latents(const struct layer_call *call, struct buffer *ret_q, struct buffer *ret_kv)
{
    struct work *w = call->state->work;
    const struct latent_widths n = latent_widths(call);

    *ret_q = layer_take(call, OWNER_LAYER, n.query_latent, sizeof(bf16));
    const struct column_norm q = query_norm(call, ret_q);
    WORK_OP(w, column_norm, &q);
    if (!ret_kv)
        return;
    *ret_kv = layer_take(call, OWNER_LAYER, n.latent, sizeof(bf16));
    const struct column_norm kv = latent_norm(call, ret_kv);
    WORK_OP(w, column_norm, &kv);
}

/* p3 */
static void project_up(const struct layer_call *call, enum owner owner)
{
    struct work *w = call->state->work;
    struct latent_saved *s = saved_of(call);
    const struct latent_widths n = latent_widths(call);
    const struct linear q = layer_linear(call, n.query_latent, n.query);
    const struct linear kv = layer_linear(call, n.latent, n.expanded);
    struct buffer qn, ln = { 0 };

    norm_latents(call, &qn, latent_gathers(call) ? NULL : &ln);
    s->q = layer_take(call, owner, n.query, sizeof(bf16));
    linear_forward(w, &q, qn.data, weight_of(call, ROLE_Q_UP), s->q.data, false);
    if (!latent_gathers(call)) {
        s->kv = layer_take(call, owner, n.expanded, sizeof(bf16));
        linear_forward(w, &kv, ln.data, weight_of(call, ROLE_KV_UP), s->kv.data, false);
    }
    work_give(w, &qn);
    work_give(w, &ln);
    work_give_unless_kept(w, call->keep, &s->ql);
}

void latent_turn_queries(const struct layer_call *call, const void *from, void *to, bool back)
{
    const struct latent_widths n = latent_widths(call);
    const struct rope angles = layer_angles(call, (int)n.rope);
    const struct part_rope rope = { .angles = &angles,
                                    .heads = n.heads,
                                    .head_dim = (int)(n.nope + n.rope),
                                    .from = from,
                                    .to = to,
                                    .from_stride = n.query,
                                    .to_stride = n.query,
                                    .back = back };
    WORK_OP(call->state->work, part_rope, &rope);
}

void latent_turn_shared(const struct layer_call *call, const bf16 *from, int64_t from_stride,
                        bf16 *to, int64_t to_stride, bool back)
{
    const struct latent_widths n = latent_widths(call);
    const struct rope angles = layer_angles(call, (int)n.rope);
    const struct part_rope rope = { .angles = &angles,
                                    .heads = 1,
                                    .head_dim = (int)n.rope,
                                    .from = from,
                                    .to = to,
                                    .from_stride = from_stride,
                                    .to_stride = to_stride,
                                    .back = back };
    WORK_OP(call->state->work, part_rope, &rope);
}

static struct joined_keys keys_of(const struct layer_call *call, const struct buffer *keys)
{
    const struct latent_widths n = latent_widths(call);
    return (struct joined_keys){ .rows = call->batch->tokens,
                                 .heads = n.heads,
                                 .own_dim = (int)n.nope,
                                 .shared_dim = (int)n.rope,
                                 .own = saved_of(call)->kv.data,
                                 .shared = keys ? latent_columns(keys, n.nope) : NULL,
                                 .own_stride = n.expanded,
                                 .own_head_stride = n.pair,
                                 .shared_stride = n.key,
                                 .keys = keys ? keys->data : NULL };
}

/* p4, and q3 again */
static void rotate(const struct layer_call *call, struct buffer *ret_q, struct buffer *ret_k)
{
    struct work *w = call->state->work;
    struct latent_saved *s = saved_of(call);
    const struct latent_widths n = latent_widths(call);

    *ret_q = layer_take(call, OWNER_LAYER, n.query, sizeof(bf16));
    *ret_k = layer_take(call, OWNER_LAYER, n.key, sizeof(bf16));
    latent_turn_queries(call, s->q.data, ret_q->data, false);
    latent_turn_shared(call, latent_columns(&s->latent, n.latent), n.down,
                       latent_columns(ret_k, n.nope), n.key, false);
    const struct joined_keys keys = keys_of(call, ret_k);
    WORK_OP(w, join_keys, &keys);
}

static struct attention attention_of(const struct layer_call *call, const struct buffer *q,
                                     const struct buffer *k)
{
    const struct latent_widths n = latent_widths(call);
    const struct latent_saved *s = saved_of(call);
    const struct primitives *p = &call->state->work->plan->choices.primitives;
    int64_t tokens = zigzag_tokens(&call->batch->order);
    return (struct attention){ .sequences = (int)(call->batch->tokens / tokens),
                               .heads = n.heads,
                               .kv_heads = n.heads,
                               .head_dim = (int)(n.nope + n.rope),
                               .tokens = tokens,
                               .q = q->data,
                               .k = k->data,
                               .v = latent_columns(&s->kv, n.nope),
                               .q_stride = n.query,
                               .k_stride = n.key,
                               .v_stride = n.expanded,
                               .o = s->o.data,
                               .lse = s->lse.data,
                               .deterministic = p->attention_deterministic != 0,
                               .value_dim = (int)n.value,
                               .v_head_stride = n.pair,
                               .score_factor = (float)layer_model(call)->gqa.rope.score_factor };
}

static bool keeps_attention(const struct layer_call *call)
{
    return call->state->work->plan->choices.primitives.keep_attention != 0;
}

/* A recomputed layer may keep o and lse alone. */
static enum keep attention_keep(const struct layer_call *call)
{
    return call->keep == KEEP_NOTHING && keeps_attention(call) ? KEEP_SAVED : call->keep;
}

/* p4, p5; a recompute that finds their results skips them. */
static void attend(const struct layer_call *call)
{
    struct work *w = call->state->work;
    struct latent_saved *s = saved_of(call);
    const struct latent_widths n = latent_widths(call);
    enum keep keep = attention_keep(call);
    enum owner owner = kept_owner(keep, OWNER_LAYER);
    struct buffer q, k;

    if (call->keep == KEEP_OWN && keeps_attention(call))
        return;
    if (latent_gathers(call)) {
        latent_gather_attend(call, keep);
        return;
    }
    rotate(call, &q, &k);
    work_give_unless_kept(w, call->keep, &s->q);
    work_give_unless_kept(w, call->keep, &s->latent);
    s->o = layer_take(call, owner, n.out, sizeof(bf16));
    s->lse = layer_take(call, owner, n.heads, sizeof(float));
    const struct attention attention = attention_of(call, &q, &k);
    WORK_OP(w, attention, &attention);
    work_give(w, &q);
    work_give(w, &k);
    work_give_unless_kept(w, keep, &s->lse);
    work_give_unless_kept(w, call->keep, &s->kv);
}

static void latent_forward(const struct layer_call *call)
{
    struct work *w = call->state->work;
    struct latent_saved *s = saved_of(call);
    enum owner owner = kept_owner(call->keep, OWNER_LAYER);

    project_down(call, owner);
    project_up(call, owner);
    attend(call);
    layer_project_out(call, owner, ROLE_O, latent_widths(call).out, &s->o);
    work_give_unless_kept(w, attention_keep(call), &s->o);
}

/* Gradients of rotated queries, of joined keys, and of expanded keys and values. */
struct gradients {
    struct buffer dq, dk, dkv;
    struct buffer own; /* of a gathered form, in the place of dk and dkv */
};

/* q3 to q5 */
static struct gradients through_attention(const struct layer_call *call, struct buffer *d_o)
{
    struct work *w = call->state->work;
    struct latent_saved *s = saved_of(call);
    const struct latent_widths n = latent_widths(call);
    struct gradients ret = { 0 };
    struct buffer q, k;

    if (latent_gathers(call)) {
        latent_gather_backward(call, d_o, &ret.dq, &ret.own);
        return ret;
    }
    rotate(call, &q, &k);
    work_give(w, &s->q);
    ret.dq = layer_take(call, OWNER_LAYER, n.query, sizeof(bf16));
    ret.dk = layer_take(call, OWNER_LAYER, n.key, sizeof(bf16));
    ret.dkv = layer_take(call, OWNER_LAYER, n.expanded, sizeof(bf16));
    struct buffer delta = layer_take(call, OWNER_LAYER, n.heads, sizeof(float));
    struct attention_gradient gradient = { .forward = attention_of(call, &q, &k),
                                           .d_o = d_o->data,
                                           .dq = ret.dq.data,
                                           .dk = ret.dk.data,
                                           .dv = latent_columns(&ret.dkv, n.nope),
                                           .dq_stride = n.query,
                                           .dk_stride = n.key,
                                           .dv_stride = n.expanded,
                                           .dv_head_stride = n.pair,
                                           .delta = delta.data };
    struct buffer workspace =
        work_take(w, OWNER_WORKSPACE,
                  w->backend->ops->attention_workspace_bytes(w->backend, &gradient.forward));
    gradient.workspace = workspace.data;
    WORK_OP(w, attention_backward, &gradient);
    work_give(w, &workspace);
    work_give(w, &delta);
    work_give(w, &q);
    work_give(w, &k);
    work_give(w, d_o);
    work_give(w, &s->o);
    work_give(w, &s->lse);
    work_give(w, &s->kv);
    return ret;
}

/* From the gradient of a latent's norm, in the first columns of dx's rows, to that of the latent in
 * the same place. */
static void through_norm(const struct layer_call *call, struct column_norm norm, struct buffer *dx,
                         int64_t stride, enum role role)
{
    struct work *w = call->state->work;
    const struct column_norm_gradient gradient = { .forward = norm,
                                                   .dy = dx->data,
                                                   .dx = dx->data,
                                                   .dy_stride = stride,
                                                   .dx_stride = stride,
                                                   .dw = gradient_of(call, role),
                                                   .grad_type =
                                                       w->plan->choices.primitives.grad_dtype };
    WORK_OP(w, column_norm_backward, &gradient);
}

/* The gradient of expanded keys and values through their matrix, into the first columns of
 * d_latent. */
static void through_expansion(const struct layer_call *call, const struct buffer *dkv,
                              const struct buffer *d_latent)
{
    struct work *w = call->state->work;
    const struct latent_widths n = latent_widths(call);
    const struct gemm gemm = { .form = GEMM_INPUT,
                               .m = call->batch->tokens,
                               .n = n.expanded,
                               .k = n.latent,
                               .a = dkv->data,
                               .b = weight_of(call, ROLE_KV_UP),
                               .c = d_latent->data,
                               .a_type = DTYPE_BF16,
                               .b_type = DTYPE_BF16,
                               .c_type = DTYPE_BF16,
                               .a_stride = n.expanded,
                               .b_stride = n.latent,
                               .c_stride = n.down };
    WORK_OP(w, gemm, &gemm);
}

/* The gradient of keys and values, normed compressed ones and the turned shared part, into
 * d_latent; that of the expansion. */
static void through_keys(const struct layer_call *call, const struct gradients *g,
                         const struct buffer *ln, const struct buffer *d_latent)
{
    struct work *w = call->state->work;
    const struct latent_widths n = latent_widths(call);
    const struct linear kv = layer_linear(call, n.latent, n.expanded);
    struct joined_keys_gradient keys = { .forward = keys_of(call, NULL),
                                         .d_keys = g->dk.data,
                                         .d_own = g->dkv.data,
                                         .d_shared = latent_columns(d_latent, n.latent) };

    if (latent_gathers(call)) {
        WORK_OP(w, rows_to_bf16, call->batch->tokens, n.down, g->own.data, n.down, d_latent->data,
                n.down);
        return;
    }
    keys.forward.shared_stride = n.down;
    WORK_OP(w, join_keys_backward, &keys);
    linear_weight(w, &kv, g->dkv.data, ln->data, gradient_of(call, ROLE_KV_UP));
    through_expansion(call, &g->dkv, d_latent);
}

/* q6: gradients of the compressed queries, keys and values. */
static void through_latents(const struct layer_call *call, struct gradients *g,
                            struct buffer *ret_dql, struct buffer *ret_dlatent)
{
    struct work *w = call->state->work;
    struct latent_saved *s = saved_of(call);
    const struct latent_widths n = latent_widths(call);
    const struct linear q = layer_linear(call, n.query_latent, n.query);
    struct buffer qn, ln;

    norm_latents(call, &qn, &ln);
    *ret_dql = layer_take(call, OWNER_LAYER, n.query_latent, sizeof(bf16));
    *ret_dlatent = layer_take(call, OWNER_LAYER, n.down, sizeof(bf16));
    latent_turn_queries(call, g->dq.data, g->dq.data, true);
    linear_weight(w, &q, g->dq.data, qn.data, gradient_of(call, ROLE_Q_UP));
    linear_input(w, &q, g->dq.data, weight_of(call, ROLE_Q_UP), ret_dql->data, false);
    through_norm(call, query_norm(call, NULL), ret_dql, n.query_latent, ROLE_Q_DOWN_NORM);
    through_keys(call, g, &ln, ret_dlatent);
    bf16 *shared = latent_columns(ret_dlatent, n.latent);
    latent_turn_shared(call, shared, n.down, shared, n.down, true);
    through_norm(call, latent_norm(call, NULL), ret_dlatent, n.down, ROLE_KV_DOWN_NORM);
    struct buffer *const done[] = {
        &qn, &ln, &g->dq, &g->dk, &g->dkv, &g->own, &s->ql, &s->latent
    };
    for (size_t i = 0; i < sizeof done / sizeof *done; i++)
        work_give(w, done[i]);
}

/* q7 to q9 */
static void through_down(const struct layer_call *call, struct buffer *dql, struct buffer *dlatent,
                         struct buffer *gradient)
{
    struct work *w = call->state->work;
    const struct latent_widths n = latent_widths(call);
    const struct linear q = layer_linear(call, n.hidden, n.query_latent);
    const struct linear kv = layer_linear(call, n.hidden, n.down);

    struct buffer normed = layer_norm(call, ROLE_INPUT_NORM, &call->saved->checkpoint);
    linear_weight(w, &q, dql->data, normed.data, gradient_of(call, ROLE_Q_DOWN));
    linear_weight(w, &kv, dlatent->data, normed.data, gradient_of(call, ROLE_KV_DOWN));
    work_give(w, &normed);
    struct buffer d_normed = layer_take(call, OWNER_LAYER, n.hidden, sizeof(bf16));
    linear_input(w, &q, dql->data, weight_of(call, ROLE_Q_DOWN), d_normed.data, false);
    linear_input(w, &kv, dlatent->data, weight_of(call, ROLE_KV_DOWN), d_normed.data, true);
    work_give(w, dql);
    work_give(w, dlatent);
    layer_norm_backward(call, ROLE_INPUT_NORM, &d_normed, &call->saved->checkpoint, gradient);
    work_give(w, &d_normed);
    work_give(w, &call->saved->checkpoint);
}

static void latent_backward(const struct layer_call *call, struct buffer *gradient)
{
    const struct latent_widths n = latent_widths(call);
    struct buffer dql, dlatent;

    layer_project_out_weight(call, ROLE_O, n.out, gradient, &saved_of(call)->o);
    struct buffer d_o = layer_project_out_input(call, ROLE_O, n.out, gradient);
    struct gradients gradients = through_attention(call, &d_o);
    through_latents(call, &gradients, &dql, &dlatent);
    through_down(call, &dql, &dlatent, gradient);
}

const struct mixer_ops latent_ops = { .saved_bytes = sizeof(struct latent_saved),
                                      .forward = latent_forward,
                                      .replay = latent_forward,
                                      .backward = latent_backward };
