/* loss.c - the final norm, the head and its loss, forward and backward in one pass. What all tiles
 * do is counted together: the head's weight is read, and its gradient read and written, once a
 * tile. */
#include "planner/predict/stage_time.h"

#include "base/checked.h"
#include "base/layout/trained.h"

struct head {
    double tokens, hidden, vocab; /* vocab: this rank's */
    double tiles, strips;         /* strips: of one tile's vocabulary */
    double gradient_bytes;        /* of an element of the weight's gradient */
    bool trained;                 /* whether the weight has one */
};

static void head_init(const struct budget_input *in, struct head *ret)
{
    const struct primitives *p = &in->choices->primitives;
    uint64_t vocab = vocab_rows(in);
    uint64_t tile = p->loss_tile_tokens > 0 ? (uint64_t)p->loss_tile_tokens : 1;
    bool strips = p->loss == LOSS_LINEAR_CE && p->vocab_strip > 0;
    double shards = p->loss == LOSS_RING_DTP && p->vocab_group > 1 ? p->vocab_group : 1;
    *ret = (struct head){
        .tokens = (double)local_tokens(in),
        .hidden = (double)in->model->hidden,
        .vocab = (double)vocab,
        .tiles = (double)div_up(local_tokens(in), tile),
        .strips = strips ? (double)div_up(vocab, (uint64_t)p->vocab_strip) : shards,
        .gradient_bytes = (double)dtype_bytes(p->grad_dtype),
        .trained = has_component(trained_components(p),
                                 in->model->tied ? COMPONENT_EMBEDDING : COMPONENT_HEAD),
    };
}

/* `calls` products of tokens x hidden x vocab FLOPs and `bytes` of operands in all. */
static void products(struct clock *c, const struct head *h, double calls, double bytes)
{
    clock_multiply(c, TIME_LOSS, calls, 2 * h->tokens * h->hidden * h->vocab, bytes);
}

/* Logits of `width` bytes each. */
static void logits(struct clock *c, const struct head *h, double calls, double tiles, double width)
{
    double t = h->tokens, weight = h->hidden * h->vocab;
    products(c, h, calls, 2 * t * h->hidden + 2 * tiles * weight + width * t * h->vocab);
}

/* The hidden gradient, and the weight's, added to. sums: bytes of the hidden gradient a visit. */
static void backward(struct clock *c, const struct head *h, double sums)
{
    double t = h->tokens, weight = h->hidden * h->vocab, calls = h->tiles * h->strips;
    double gradient = 2 * t * h->vocab;
    products(c, h, calls, gradient + 2 * h->tiles * weight + sums * h->strips * t * h->hidden);
    if (!h->trained)
        return;
    products(c, h, calls,
             gradient + 2 * h->strips * t * h->hidden + 2 * h->gradient_bytes * h->tiles * weight);
}

/* Elements of all logits, `bytes` each, one kernel a visit. */
static void visit(struct clock *c, const struct head *h, double calls, double bytes)
{
    clock_move(c, TIME_LOSS, calls, bytes * h->tokens * h->vocab);
}

/* The cross-entropy reads logits and writes their gradient: in place of `width` bytes, which is
 * then rounded to bf16 where it is wider. */
static void whole(struct clock *c, const struct head *h, double width)
{
    logits(c, h, 1, 1, width);
    visit(c, h, 1, 2 * width);
    if (width > 2)
        visit(c, h, h->tiles, width + 2);
    backward(c, h, 2);
}

static void tiled(struct clock *c, const struct head *h)
{
    logits(c, h, h->tiles, h->tiles, 4);
    visit(c, h, h->tiles, 4 + 2);
    backward(c, h, 2);
}

/* Twice over the vocabulary: for the log-sum-exp, and again for the gradient, whose hidden part is
 * summed in fp32. */
static void in_strips(struct clock *c, const struct head *h)
{
    double calls = h->tiles * h->strips;
    logits(c, h, calls, h->tiles, 4);
    visit(c, h, calls, 4);
    logits(c, h, calls, h->tiles, 4);
    visit(c, h, calls, 4 + 2);
    backward(c, h, 8);
    clock_move(c, TIME_LOSS, h->tiles, 6 * h->tokens * h->hidden);
}

/* Shards of hidden x vocabulary / g go round g ranks: their weights for the log-sum-exp, then with
 * their gradients. What the products do not hide. */
static double circulation(const struct budget_input *in, const struct head *h, double products)
{
    const struct layout *l = &in->choices->layout;
    int group = in->choices->primitives.vocab_group;
    struct ranks ranks = { group, l->tp * l->cp };
    double shard = h->hidden * h->vocab / group;
    double round = send_seconds(in->hardware, ranks, 2 * shard) +
                   send_seconds(in->hardware, ranks, (2 + h->gradient_bytes) * shard);
    double left = (group - 1) * round - products;
    return left > 0 ? left : 0;
}

/* Probabilities of a tile written in fp32 and read. */
static void entropy(struct clock *c, const struct head *h, const struct budget_input *in)
{
    if (in->choices->primitives.rl & RL_ENTROPY)
        visit(c, h, h->tiles * h->strips, 8);
}

/* Shards of the weights alone go round. */
static double weights_round(const struct budget_input *in, const struct head *h, double products)
{
    const struct layout *l = &in->choices->layout;
    int group = in->choices->primitives.vocab_group;
    struct ranks ranks = { group, l->tp * l->cp };
    double left =
        (group - 1) * send_seconds(in->hardware, ranks, 2 * h->hidden * h->vocab / group) -
        products;
    return left > 0 ? left : 0;
}

/* Ranks of tp that split the vocabulary: the normed rows gathered; with a gradient its partial sums
 * scattered; in each tile the largest logit, then sum and target, fp32, known to all. */
static double tensor_seconds(const struct budget_input *in, const struct head *h, double tiles,
                             int collectives)
{
    const struct hardware *hardware = in->hardware;
    struct ranks ranks = { in->choices->layout.tp, 1 };
    double rows = gather_seconds(hardware, ranks, 2 * h->tokens * h->hidden);
    double largest = 4 * h->tokens / tiles, sums = 2 * largest;
    double known = gather_seconds(hardware, ranks, largest) + gather_seconds(hardware, ranks, sums);
    return collectives * rows + 2 * tiles * known;
}

static void logprob_cost(const struct budget_input *in, const struct machine *machine,
                         struct pass *ret)
{
    const struct primitives *p = &in->choices->primitives;
    struct head h;
    struct clock c;
    bool full = p->loss == LOSS_FULL;
    double width = full ? (double)dtype_bytes(p->logits_dtype) : 4;
    head_init(in, &h);
    double calls = full ? 1 : h.tiles * h.strips;
    clock_begin(&c, machine, ret);
    clock_move(&c, TIME_LOSS, 1, 4 * (double)norm_tokens(in) * (double)in->model->hidden);
    logits(&c, &h, calls, full ? 1 : h.tiles, width);
    visit(&c, &h, calls, width);
    entropy(&c, &h, in);
    clock_end(&c);
    if (p->loss == LOSS_RING_DTP && p->vocab_group > 1)
        ret->item[TIME_EXPOSED_GATHER] += weights_round(in, &h, ret->item[TIME_LOSS]);
    ret->item[TIME_EXPOSED_TENSOR] += tensor_seconds(in, &h, full ? 1 : h.tiles, 1);
}

double logprob_head_seconds(const struct budget_input *in, const struct machine *machine)
{
    struct pass pass = { .item = { 0 } };
    if (logprob_passes(&in->choices->primitives) == 0)
        return 0;
    logprob_cost(in, machine, &pass);
    return pass_seconds(&pass);
}

void loss_cost(const struct budget_input *in, const struct machine *machine, struct pass *ret)
{
    const struct primitives *p = &in->choices->primitives;
    double normed = (double)norm_tokens(in) * (double)in->model->hidden;
    struct head h;
    struct clock c;
    head_init(in, &h);
    clock_begin(&c, machine, ret);
    clock_move(&c, TIME_LOSS, 1, 4 * normed);
    if (p->loss == LOSS_FULL)
        whole(&c, &h, (double)dtype_bytes(p->logits_dtype));
    else if (h.strips > 1 || (p->loss == LOSS_LINEAR_CE && p->vocab_strip > 0))
        in_strips(&c, &h);
    else
        tiled(&c, &h);
    entropy(&c, &h, in);
    clock_move(&c, TIME_LOSS, 1, 6 * normed);
    clock_end(&c);
    if (p->loss == LOSS_RING_DTP && p->vocab_group > 1)
        ret->item[TIME_EXPOSED_GATHER] += circulation(in, &h, ret->item[TIME_LOSS]);
    ret->item[TIME_EXPOSED_TENSOR] += tensor_seconds(in, &h, p->loss == LOSS_FULL ? 1 : h.tiles, 2);
}
