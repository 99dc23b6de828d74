#include "tests/unit/executor/reference.h"

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

static const double *weight(struct reference *r, const char *format, int layer, int expert)
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
    fail_msg("no tensor %s", name);
    return NULL;
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
    for (int j = 0; j < m->moe.top_k; j++) {
        int e = choices[j];
        add_mlp(weight(r, "model.layers.#.mlp.experts.@.gate_proj.weight", p->layer, e),
                weight(r, "model.layers.#.mlp.experts.@.up_proj.weight", p->layer, e),
                weight(r, "model.layers.#.mlp.experts.@.down_proj.weight", p->layer, e),
                m->moe.width, m->hidden, n, exp(probs[e]) / chosen, x);
    }
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
