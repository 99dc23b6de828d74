#include "tests/unit/executor/reference.h"

#include "tests/unit/executor/delta_reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_WIDTH = 128, MAX_TOKENS = 64 };

/* One sequence on its way through the layers. */
struct pass {
    struct reference *r;
    int layer;
    double x[MAX_TOKENS][MAX_WIDTH];
};

/* NULL: there is none of that name. */
static const double *find(struct reference *r, const char *format, int layer, int expert)
{
    char name[128], layer_text[16], expert_text[16], *at;
    const char *from = format;

    (void)snprintf(layer_text, sizeof layer_text, "%d", layer);
    (void)snprintf(expert_text, sizeof expert_text, "%d", expert);
    for (at = name; *from; from++) { /* # stands for the layer, @ for the expert */
        const char *number = *from == '#' ? layer_text : *from == '@' ? expert_text : NULL;
        if (number) {
            memcpy(at, number, strlen(number));
            at += strlen(number);
        } else {
            *at++ = *from;
        }
    }
    *at = '\0';
    for (int i = 0; i < r->count; i++)
        if (strcmp(r->tensors[i].name, name) == 0)
            return r->tensors[i].values;
    return NULL;
}

static const double *weight(struct reference *r, const char *format, int layer, int expert)
{
    const double *ret = find(r, format, layer, expert);
    if (!ret)
        fail_msg("no tensor %s", format);
    return ret;
}

/* y = W x, W [out, in] */
static void multiply(const double *w, int out, int in, const double *x, double *y)
{
    for (int o = 0; o < out; o++) {
        y[o] = 0;
        for (int i = 0; i < in; i++)
            y[o] += w[o * in + i] * x[i];
    }
}

/* Weights multiply as they are, or one more. */
static void norm(const struct reference *r, const double *w, int width, const double *x, double *y)
{
    double square = 0, more = r->plan->model.norm_zero_centred ? 1 : 0;
    for (int i = 0; i < width; i++)
        square += x[i] * x[i];
    for (int i = 0; i < width; i++)
        y[i] = x[i] / sqrt(square / width + r->plan->model.norm_eps) * (w[i] + more);
}

/* Dimension i turns with dimension i + half, by position / theta^(2 i / dim). */
static void rotate(double *head, int dim, double theta, int position)
{
    for (int i = 0; i < dim / 2; i++) {
        double angle = position / pow(theta, 2.0 * i / dim);
        double a = head[i], b = head[i + dim / 2];
        head[i] = a * cos(angle) - b * sin(angle);
        head[i + dim / 2] = b * cos(angle) + a * sin(angle);
    }
}

static void prepare_heads(struct pass *p, const char *norm_name, int heads, double *row,
                          int position)
{
    const struct model *m = &p->r->plan->model;
    for (int h = 0; h < heads; h++) {
        double *head = row + (ptrdiff_t)h * m->gqa.head_dim;
        if (m->gqa.qk_norm)
            norm(p->r, weight(p->r, norm_name, p->layer, 0), m->gqa.head_dim, head, head);
        rotate(head, (int)(m->gqa.head_dim * m->gqa.rotary_fraction), m->gqa.rope_theta, position);
    }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* window 0: every key up to the query; else the last `window` of them. */
static void attend_head(const double *q, double (*k)[MAX_WIDTH], double (*v)[MAX_WIDTH], int at,
                        int dim, int window, int last, double *out)
{
    double score[MAX_TOKENS], sum = 0;
    int first = window > 0 && last >= window ? last - window + 1 : 0;
    for (int t = first; t <= last; t++) {
        score[t] = 0;
        for (int i = 0; i < dim; i++)
            score[t] += q[i] * k[t][at + i];
        score[t] = exp(score[t] / sqrt(dim));
        sum += score[t];
    }
    for (int i = 0; i < dim; i++) {
        out[i] = 0;
        for (int t = first; t <= last; t++)
            out[i] += score[t] / sum * v[t][at + i];
    }
}

static void project(struct pass *p, const char *matrix, const char *bias, int out, const double *n,
                    double *y)
{
    multiply(weight(p->r, matrix, p->layer, 0), out, p->r->plan->model.hidden, n, y);
    for (int i = 0; i < out && p->r->plan->model.gqa.qkv_bias; i++)
        y[i] += weight(p->r, bias, p->layer, 0)[i];
}

/* With an output gate the projection of queries holds, head by head, the query and its gate. */
static void project_queries(struct pass *p, const double *n, double *q, double *gate)
{
    const struct gqa *g = &p->r->plan->model.gqa;
    int dim = g->head_dim, sides = g->output_gate ? 2 : 1;
    double both[2 * MAX_WIDTH];

    project(p, "model.layers.#.self_attn.q_proj.weight", "model.layers.#.self_attn.q_proj.bias",
            g->heads * dim * sides, n, both);
    for (int h = 0; h < g->heads; h++)
        for (int i = 0; i < dim; i++) {
            q[h * dim + i] = both[h * dim * sides + i];
            gate[h * dim + i] = g->output_gate ? both[h * dim * sides + dim + i] : 0;
        }
}

/* A sequence's queries, keys, values and gates. */
struct heads {
    double q[MAX_TOKENS][MAX_WIDTH], k[MAX_TOKENS][MAX_WIDTH], v[MAX_TOKENS][MAX_WIDTH],
        gate[MAX_TOKENS][MAX_WIDTH];
};

static void project_token(struct pass *p, struct heads *all, int t)
{
    const struct model *m = &p->r->plan->model;
    int kv = m->gqa.kv_heads * m->gqa.head_dim;
    double n[MAX_WIDTH] = { 0 };

    norm(p->r, weight(p->r, "model.layers.#.input_layernorm.weight", p->layer, 0), m->hidden,
         p->x[t], n);
    project_queries(p, n, all->q[t], all->gate[t]);
    project(p, "model.layers.#.self_attn.k_proj.weight", "model.layers.#.self_attn.k_proj.bias", kv,
            n, all->k[t]);
    project(p, "model.layers.#.self_attn.v_proj.weight", "model.layers.#.self_attn.v_proj.bias", kv,
            n, all->v[t]);
    prepare_heads(p, "model.layers.#.self_attn.q_norm.weight", m->gqa.heads, all->q[t], t);
    prepare_heads(p, "model.layers.#.self_attn.k_norm.weight", m->gqa.kv_heads, all->k[t], t);
}

static void attention(struct pass *p)
{
    static struct heads all;
    const struct model *m = &p->r->plan->model;
    int tokens = (int)p->r->plan->seq_tokens, dim = m->gqa.head_dim, width = m->gqa.heads * dim;
    double o[MAX_WIDTH] = { 0 }, y[MAX_WIDTH];

    for (int t = 0; t < tokens; t++)
        project_token(p, &all, t);
    for (int t = 0; t < tokens; t++) {
        for (int h = 0; h < m->gqa.heads; h++)
            attend_head(all.q[t] + (ptrdiff_t)h * dim, all.k, all.v,
                        h * m->gqa.kv_heads / m->gqa.heads * dim, dim, m->gqa.window_tokens, t,
                        o + (ptrdiff_t)h * dim);
        for (int i = 0; i < width && m->gqa.output_gate; i++)
            o[i] *= sigmoid(all.gate[t][i]);
        multiply(weight(p->r, "model.layers.#.self_attn.o_proj.weight", p->layer, 0), m->hidden,
                 width, o, y);
        for (int i = 0; i < m->hidden; i++)
            p->x[t][i] += y[i];
    }
}

/* One layer's gated delta net. Rows of a token: queries, keys, values of all heads; gates z. */
struct delta {
    double qkv[MAX_TOKENS][MAX_WIDTH], z[MAX_TOKENS][MAX_WIDTH];
    double mixed[MAX_TOKENS][MAX_WIDTH]; /* qkv before the convolution */
    double decay[MAX_TOKENS][MAX_WIDTH], beta[MAX_TOKENS][MAX_WIDTH], o[MAX_TOKENS][MAX_WIDTH];
};

/* One head of a joint matrix has its query, key, values and gates side by side. */
static void split_joint(const struct gdn *g, const double *qkvz, const double *ba, double *mixed,
                        double *z, double *b, double *a)
{
    int each = g->value_heads / g->key_heads, key = g->key_dim, values = each * g->value_dim;
    int keys = g->key_heads * key;
    for (int h = 0; h < g->key_heads; h++) {
        const double *at = qkvz + (ptrdiff_t)h * 2 * (key + values);
        memcpy(mixed + h * key, at, (size_t)key * sizeof *at);
        memcpy(mixed + keys + h * key, at + key, (size_t)key * sizeof *at);
        memcpy(mixed + 2 * keys + h * values, at + 2 * key, (size_t)values * sizeof *at);
        memcpy(z + h * values, at + 2 * key + values, (size_t)values * sizeof *at);
        memcpy(b + h * each, ba + h * 2 * each, (size_t)each * sizeof *at);
        memcpy(a + h * each, ba + h * 2 * each + each, (size_t)each * sizeof *at);
    }
}

static void project_delta(struct pass *p, struct delta *d, int t)
{
    const struct model *m = &p->r->plan->model;
    const struct gdn *g = &m->gdn;
    int values = g->value_heads * g->value_dim, channels = 2 * g->key_heads * g->key_dim + values;
    double n[MAX_WIDTH] = { 0 }, a[MAX_WIDTH], b[MAX_WIDTH], qkvz[2 * MAX_WIDTH], ba[MAX_WIDTH];
    static const char joint[] = "model.layers.#.linear_attn.in_proj_qkvz.weight";

    norm(p->r, weight(p->r, "model.layers.#.input_layernorm.weight", p->layer, 0), m->hidden,
         p->x[t], n);
    if (find(p->r, joint, p->layer, 0)) {
        multiply(weight(p->r, joint, p->layer, 0), channels + values, m->hidden, n, qkvz);
        multiply(weight(p->r, "model.layers.#.linear_attn.in_proj_ba.weight", p->layer, 0),
                 2 * g->value_heads, m->hidden, n, ba);
        split_joint(g, qkvz, ba, d->mixed[t], d->z[t], b, a);
    } else {
        multiply(weight(p->r, "model.layers.#.linear_attn.in_proj_qkv.weight", p->layer, 0),
                 channels, m->hidden, n, d->mixed[t]);
        multiply(weight(p->r, "model.layers.#.linear_attn.in_proj_z.weight", p->layer, 0), values,
                 m->hidden, n, d->z[t]);
        multiply(weight(p->r, "model.layers.#.linear_attn.in_proj_b.weight", p->layer, 0),
                 g->value_heads, m->hidden, n, b);
        multiply(weight(p->r, "model.layers.#.linear_attn.in_proj_a.weight", p->layer, 0),
                 g->value_heads, m->hidden, n, a);
    }
    for (int h = 0; h < g->value_heads; h++) {
        d->decay[t][h] = delta_reference_decay(
            a[h], weight(p->r, "model.layers.#.linear_attn.A_log", p->layer, 0)[h],
            weight(p->r, "model.layers.#.linear_attn.dt_bias", p->layer, 0)[h]);
        d->beta[t][h] = sigmoid(b[h]);
    }
    for (int c = 0; c < channels; c++)
        d->qkv[t][c] = delta_reference_convolve(
            &d->mixed[0][c], MAX_WIDTH, t, g->conv_width,
            weight(p->r, "model.layers.#.linear_attn.conv1d.weight", p->layer, 0) +
                (ptrdiff_t)c * g->conv_width,
            NULL);
    for (int h = 0; h < 2 * g->key_heads; h++)
        delta_reference_unit(d->qkv[t] + (ptrdiff_t)h * g->key_dim, g->key_dim);
}

static void delta_head(const struct gdn *g, struct delta *d, int tokens, int head)
{
    static double q[MAX_TOKENS * MAX_WIDTH], k[MAX_TOKENS * MAX_WIDTH], v[MAX_TOKENS * MAX_WIDTH];
    static double o[MAX_TOKENS * MAX_WIDTH];
    double state[MAX_WIDTH * MAX_WIDTH] = { 0 }, decay[MAX_TOKENS], beta[MAX_TOKENS];
    int keys = g->key_heads * g->key_dim, at = head / (g->value_heads / g->key_heads) * g->key_dim;
    const struct delta_sequence s = { tokens, g->key_dim, g->value_dim, q,     k,
                                      v,      decay,      beta,         state, o };

    for (int t = 0; t < tokens; t++) {
        memcpy(q + (ptrdiff_t)t * g->key_dim, d->qkv[t] + at, (size_t)g->key_dim * sizeof *q);
        memcpy(k + (ptrdiff_t)t * g->key_dim, d->qkv[t] + keys + at,
               (size_t)g->key_dim * sizeof *q);
        memcpy(v + (ptrdiff_t)t * g->value_dim,
               d->qkv[t] + 2 * keys + (ptrdiff_t)head * g->value_dim,
               (size_t)g->value_dim * sizeof *q);
        decay[t] = d->decay[t][head];
        beta[t] = d->beta[t][head];
    }
    delta_reference_rule(&s);
    for (int t = 0; t < tokens; t++)
        memcpy(d->o[t] + (ptrdiff_t)head * g->value_dim, o + (ptrdiff_t)t * g->value_dim,
               (size_t)g->value_dim * sizeof *o);
}

static void delta_net(struct pass *p)
{
    static struct delta d;
    const struct model *m = &p->r->plan->model;
    const struct gdn *g = &m->gdn;
    int tokens = (int)p->r->plan->seq_tokens, width = g->value_heads * g->value_dim;
    double on[MAX_WIDTH] = { 0 }, y[MAX_WIDTH];

    for (int t = 0; t < tokens; t++)
        project_delta(p, &d, t);
    for (int h = 0; h < g->value_heads; h++)
        delta_head(g, &d, tokens, h);
    for (int t = 0; t < tokens; t++) {
        for (int h = 0; h < g->value_heads; h++)
            delta_reference_gated_norm(
                d.o[t] + (ptrdiff_t)h * g->value_dim, d.z[t] + (ptrdiff_t)h * g->value_dim,
                weight(p->r, "model.layers.#.linear_attn.norm.weight", p->layer, 0), g->value_dim,
                m->norm_eps, on + (ptrdiff_t)h * g->value_dim);
        multiply(weight(p->r, "model.layers.#.linear_attn.out_proj.weight", p->layer, 0), m->hidden,
                 width, on, y);
        for (int i = 0; i < m->hidden; i++)
            p->x[t][i] += y[i];
    }
}

/* x += scale * down(silu(gate n) * up n) */
static void add_mlp(const double *gate, const double *up, const double *down, int width, int hidden,
                    const double *n, double scale, double *x)
{
    double g[MAX_WIDTH], u[MAX_WIDTH], y[MAX_WIDTH];
    multiply(gate, width, hidden, n, g);
    multiply(up, width, hidden, n, u);
    for (int i = 0; i < width; i++)
        g[i] = g[i] * sigmoid(g[i]) * u[i];
    multiply(down, hidden, width, g, y);
    for (int i = 0; i < hidden; i++)
        x[i] += scale * y[i];
}

static void shared_expert(struct pass *p, const double *n, double *x)
{
    struct reference *r = p->r;
    const struct model *m = &r->plan->model;
    double gate;

    multiply(weight(r, "model.layers.#.mlp.shared_expert_gate.weight", p->layer, 0), 1, m->hidden,
             n, &gate);
    add_mlp(weight(r, "model.layers.#.mlp.shared_expert.gate_proj.weight", p->layer, 0),
            weight(r, "model.layers.#.mlp.shared_expert.up_proj.weight", p->layer, 0),
            weight(r, "model.layers.#.mlp.shared_expert.down_proj.weight", p->layer, 0),
            m->moe.shared_width, m->hidden, n, sigmoid(gate), x);
}

/* Each expert's matrices apart, or those of all in one tensor. */
static void add_expert(struct pass *p, int e, const double *n, double scale, double *x)
{
    struct reference *r = p->r;
    const struct model *m = &r->plan->model;
    ptrdiff_t size = (ptrdiff_t)m->moe.width * m->hidden;
    const double *pairs = find(r, "model.layers.#.mlp.experts.gate_up_proj", p->layer, 0);

    if (pairs)
        add_mlp(pairs + 2 * e * size, pairs + (2 * e + 1) * size,
                weight(r, "model.layers.#.mlp.experts.down_proj", p->layer, 0) + e * size,
                m->moe.width, m->hidden, n, scale, x);
    else
        add_mlp(weight(r, "model.layers.#.mlp.experts.@.gate_proj.weight", p->layer, e),
                weight(r, "model.layers.#.mlp.experts.@.up_proj.weight", p->layer, e),
                weight(r, "model.layers.#.mlp.experts.@.down_proj.weight", p->layer, e),
                m->moe.width, m->hidden, n, scale, x);
}

static void experts(struct pass *p, const double *n, uint64_t token, double *x)
{
    struct reference *r = p->r;
    const struct model *m = &r->plan->model;
    double probs[MAX_WIDTH], chosen = 0;
    int choices[16];

    multiply(weight(r, "model.layers.#.mlp.gate.weight", p->layer, 0), m->moe.experts, m->hidden, n,
             probs);
    routing_draw(&r->plan->routing, r->seed, p->layer, token, m->moe.top_k, m->moe.experts,
                 choices);
    if (m->moe.normalize_top_k) /* the softmax's own sum cancels */
        for (int j = 0; j < m->moe.top_k; j++)
            chosen += exp(probs[choices[j]]);
    else
        for (int e = 0; e < m->moe.experts; e++)
            chosen += exp(probs[e]);
    for (int j = 0; j < m->moe.top_k; j++)
        add_expert(p, choices[j], n, exp(probs[choices[j]]) / chosen, x);
    if (m->moe.shared_width > 0)
        shared_expert(p, n, x);
}

static void feed_forward(struct pass *p, int sequence)
{
    const struct model *m = &p->r->plan->model;
    int tokens = (int)p->r->plan->seq_tokens;
    double n[MAX_WIDTH] = { 0 };

    for (int t = 0; t < tokens; t++) {
        norm(p->r, weight(p->r, "model.layers.#.post_attention_layernorm.weight", p->layer, 0),
             m->hidden, p->x[t], n);
        if (m->moe.experts > 0)
            experts(p, n, (uint64_t)sequence * (uint64_t)tokens + (uint64_t)t, p->x[t]);
        else
            add_mlp(weight(p->r, "model.layers.#.mlp.gate_proj.weight", p->layer, 0),
                    weight(p->r, "model.layers.#.mlp.up_proj.weight", p->layer, 0),
                    weight(p->r, "model.layers.#.mlp.down_proj.weight", p->layer, 0),
                    m->dense_width, m->hidden, n, 1, p->x[t]);
    }
}

static double token_loss(struct reference *r, const double *x, int target, double *normed)
{
    const struct model *m = &r->plan->model;
    double logits[MAX_WIDTH], sum = 0;

    norm(r, weight(r, "model.norm.weight", 0, 0), m->hidden, x, normed);
    multiply(weight(r, m->tied ? "model.embed_tokens.weight" : "lm_head.weight", 0, 0),
             (int)m->vocab, m->hidden, normed, logits);
    for (int i = 0; i < (int)m->vocab; i++)
        sum += exp(logits[i]);
    return log(sum) - logits[target];
}

static double sequence_loss(struct reference *r, int sequence)
{
    static struct pass p;
    const struct model *m = &r->plan->model;
    int tokens = (int)r->plan->seq_tokens, hidden = m->hidden;
    const int *ids = r->ids + (ptrdiff_t)sequence * (tokens + 1);
    double sum = 0;

    p.r = r;
    for (int t = 0; t < tokens; t++)
        memcpy(p.x[t], weight(r, "model.embed_tokens.weight", 0, 0) + (ptrdiff_t)ids[t] * hidden,
               (size_t)hidden * sizeof(double));
    for (p.layer = 0; p.layer < m->layers; p.layer++) {
        if (m->layer_mixer[p.layer] == MIXER_GDN)
            delta_net(&p);
        else
            attention(&p);
        feed_forward(&p, sequence);
    }
    for (int t = 0; t < tokens; t++)
        sum += token_loss(r, p.x[t], ids[t + 1],
                          r->hidden + (ptrdiff_t)(sequence * tokens + t) * hidden);
    return sum;
}

double reference_loss(struct reference *r)
{
    double sum = 0;
    for (int s = 0; s < (int)r->plan->global_batch; s++)
        sum += sequence_loss(r, s);
    return sum / ((double)r->plan->global_batch * (double)r->plan->seq_tokens);
}

double reference_slope(struct reference *r, int tensor, uint64_t element, double h)
{
    double *at = &r->tensors[tensor].values[element], kept = *at;
    *at = kept + h;
    double above = reference_loss(r);
    *at = kept - h;
    double below = reference_loss(r);
    *at = kept;
    return (above - below) / (2 * h);
}
