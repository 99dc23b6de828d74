/* weight.c - gradients of trained weights, and adapters: y = x W + (x A) B with A [in, r] and
 * B [r, out]. A frozen weight has no gradient, and its product's dx alone is left; x A is made
 * again in backward, where x is there for the gradient of A. */
#include "planner/time/cost.h"

#include "base/layout/trained.h"

bool inputs_are_read(const struct layer_shape *s, enum component component)
{
    return has_component(s->trained | s->adapted, component);
}

void weight_gradient(struct walk *w, const struct layer_shape *s, enum component component,
                     double m, double n, double k)
{
    if (has_component(s->trained, component))
        walk_product(w, TIME_MATMUL, m, n, k, 2 * s->gradient_bytes);
}

static double calls_of(const struct layer_shape *s)
{
    return s->experts * s->chunks;
}

void expert_gradient(struct walk *w, const struct layer_shape *s, double n, double k)
{
    if (has_component(s->trained, COMPONENT_EXPERTS))
        walk_experts(w, calls_of(s), s->received, n, k, 2 * s->gradient_bytes);
}

/* One product for the x A of all parts; (x A) B a part, added to y. */
void adapter_forward(struct walk *w, const struct layer_shape *s, enum component component,
                     double rows, double in, double out, int parts)
{
    double r = s->rank, all = parts * r;
    if (!has_component(s->adapted, component))
        return;
    walk_product(w, TIME_MATMUL, rows, all, in, 2);
    walk_multiply(w, TIME_MATMUL, parts, 2 * rows * r * out,
                  2 * (rows * all + r * out) + 4 * rows * out);
}

/* x A again; dB, d(x A); dA, and dx added to. */
void adapter_backward(struct walk *w, const struct layer_shape *s, enum component component,
                      double rows, double in, double out, int parts)
{
    double r = s->rank, all = parts * r, flops = 2 * rows * r * out, added = 2 * s->gradient_bytes;
    if (!has_component(s->adapted, component))
        return;
    walk_product(w, TIME_MATMUL, rows, all, in, 2);
    walk_multiply(w, TIME_MATMUL, parts, flops, 2 * rows * (all + out) + added * r * out);
    walk_multiply(w, TIME_MATMUL, parts, flops, 2 * (rows * (out + all) + r * out));
    walk_product(w, TIME_MATMUL, all, in, rows, added);
    walk_product(w, TIME_MATMUL, rows, in, all, 4);
}

void expert_adapter_forward(struct walk *w, const struct layer_shape *s, double in, double out,
                            int parts)
{
    double r = s->rank, all = parts * r, rows = s->received;
    if (!has_component(s->adapted, COMPONENT_EXPERTS))
        return;
    walk_experts(w, calls_of(s), rows, all, in, 2);
    walk_experts(w, parts * calls_of(s), rows, out, r, 2);
}

void expert_adapter_backward(struct walk *w, const struct layer_shape *s, double in, double out,
                             int parts)
{
    double r = s->rank, all = parts * r, rows = s->received, added = 2 * s->gradient_bytes;
    double calls = calls_of(s);
    if (!has_component(s->adapted, COMPONENT_EXPERTS))
        return;
    walk_experts(w, calls, rows, all, in, 2);
    walk_experts(w, parts * calls, rows, out, r, added);
    walk_experts(w, parts * calls, rows, out, r, 2);
    walk_experts(w, calls, rows, all, in, added);
    walk_experts(w, calls, rows, all, in, 2);
}
