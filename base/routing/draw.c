/* Draws: which experts one token chooses, from a counter and nothing else. */
#include "base/routing/routing.h"

#include <math.h>
#include <stdbool.h>

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
 */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Random numbers of one token, by counter. */
struct stream {
    uint64_t key, count;
};

static struct stream stream_of(uint64_t seed, int layer, uint64_t token)
{
    return (struct stream){ mix(mix(mix(seed) ^ (uint64_t)layer) ^ token), 0 };
}

static uint64_t stream_next(struct stream *stream)
{
    return mix(stream->key ^ mix(stream->count++));
}

/* 0..n-1; the bias is below n / 2^32. */
static int stream_below(struct stream *stream, int n)
{
    return (int)(((stream_next(stream) >> 32) * (uint64_t)n) >> 32);
}

/* In (0, 1]. */
static double stream_unit(struct stream *stream)
{
    return ((double)(stream_next(stream) >> 11) + 1.0) * 0x1p-53;
}

static bool holds(const int *list, int count, int value)
{
    for (int i = 0; i < count; i++)
        if (list[i] == value)
            return true;
    return false;
}

/* count distinct of first..first+n-1, every subset equally likely: Floyd's sampling. */
static void draw_subset(struct stream *stream, int first, int n, int count, int *ret)
{
    for (int i = 0; i < count; i++) {
        int top = n - count + i;
        int pick = first + stream_below(stream, top + 1);
        ret[i] = holds(ret, i, pick) ? first + top : pick;
    }
}

static void draw_hot(const struct routing *routing, struct stream *stream, int top_k, int experts,
                     int *ret)
{
    int hot_experts = routing->hot_experts < experts ? routing->hot_experts : experts;
    int others = experts - hot_experts;
    bool hot = stream_unit(stream) <= routing->hot_fraction;
    int from_hot = top_k < hot_experts ? top_k : hot_experts;

    if (!hot) /* where the others are too few, hot ones make up the number */
        from_hot = top_k > others ? top_k - others : 0;
    draw_subset(stream, 0, hot_experts, from_hot, ret);
    draw_subset(stream, hot_experts, others, top_k - from_hot, ret + from_hot);
}

/* Drawing without replacement by weight is a race: expert i arrives after an exponential time of
 * rate (i + 1)^-A, and the first k to arrive are chosen, in order. Keeps ret sorted by arrival. */
static void draw_zipf(const struct routing *routing, struct stream *stream, int top_k, int experts,
                      int *ret)
{
    double arrival[ROUTING_MAX_TOP_K];
    int kept = 0;

    if (top_k < 1 || top_k > ROUTING_MAX_TOP_K) {
        draw_subset(stream, 0, experts, top_k, ret);
        return;
    }
    for (int i = 0; i < experts; i++) {
        double time = -log(stream_unit(stream)) * pow(i + 1.0, routing->zipf_exponent);
        if (kept == top_k && time >= arrival[kept - 1])
            continue;
        int at = kept < top_k ? kept++ : kept - 1;
        for (; at > 0 && arrival[at - 1] > time; at--) {
            arrival[at] = arrival[at - 1];
            ret[at] = ret[at - 1];
        }
        arrival[at] = time;
        ret[at] = i;
    }
}

/* Digits of x in the mixed base of E's prime factors, smallest first, in reverse order. */
static int reverse_digits(int x, int experts)
{
    int rest = experts, value = 0;

    for (int prime = 2; rest > 1; prime++) {
        while (rest % prime == 0) {
            rest /= prime;
            value += x % prime * rest;
            x /= prime;
        }
    }
    return value;
}

static void draw_balanced(uint64_t seed, int layer, uint64_t token, int top_k, int experts,
                          int *ret)
{
    uint64_t e = (uint64_t)experts;
    uint64_t start = mix(mix(seed) ^ (uint64_t)layer) % e + token % e * (uint64_t)top_k;

    for (int j = 0; j < top_k; j++)
        ret[j] = reverse_digits((int)((start + (uint64_t)j) % e), experts);
}

void routing_draw(const struct routing *routing, uint64_t seed, int layer, uint64_t token,
                  int top_k, int experts, int *ret)
{
    struct stream stream = stream_of(seed, layer, token);

    switch (routing->kind) {
    case ROUTING_BALANCED:
        draw_balanced(seed, layer, token, top_k, experts, ret);
        break;
    case ROUTING_NATURAL:
        draw_subset(&stream, 0, experts, top_k, ret);
        break;
    case ROUTING_HOT:
        draw_hot(routing, &stream, top_k, experts, ret);
        break;
    case ROUTING_ZIPF:
        draw_zipf(routing, &stream, top_k, experts, ret);
        break;
    }
}
