/* space.h - the layouts that a question leaves open: which values each choice may take, what
 * follows from them, whether the result is legal, what it costs. Shared by derivation and brute
 * force, so that both judge by the same budgets; knows no policy and prefers nothing. */
#ifndef RANKFIT_PLANNER_SEARCH_SPACE_H
#define RANKFIT_PLANNER_SEARCH_SPACE_H

#include "base/layout/legality.h"
#include "planner/derive/derive.h"
#include "planner/predict/predictor.h"

enum { SPACE_MAX_VALUES = 16, SPACE_MAX_DIVISORS = 160 };

/* Values of one primitive, the fastest kind first, the leanest last. */
struct knob {
    int count;
    int values[SPACE_MAX_VALUES];
};

/* What the user fixed is in every list as its only value. Degrees are open where `open_` is set. */
struct space {
    const struct question *q;
    struct predictor *predictor; /* of this question */
    struct predictor *slowest;   /* the same for the upper end of a step's range; or NULL */
    uint64_t limit_bytes;
    int64_t global_batch;
    int micro_batch;
    bool has_moe, has_softmax, has_linear;
    bool open_tp, open_pp, open_cp, open_ep, open_etp, open_fsdp, open_e_fsdp;
    bool open_context, open_linear_context, open_moe, open_vocab_group, open_host_bytes;
    bool open_prefetch, open_streams, open_tile;
    bool open_vpp, open_micro_batch, open_stages, open_recompute_layers, open_offload;
    bool open_exchange, open_cap, open_attention;
    bool only_offload;      /* where offload is open it is used */
    bool full_widths_only;  /* shard over all ranks there are; set by who wants fewer layouts */
    bool every_divisor;     /* of tensor splits and micro-batches, not powers of two alone */
    struct primitives base; /* defaults with the fixed choices on top */
    struct layout fixed;    /* meaningful where not open */
    struct knob sharding, recompute, loss, chunks, ahead;
    struct knob attention; /* keep_attention of recomputed layers */
    struct knob context;   /* of softmax attention where cp > 1 */
    struct knob exchange, capped;
    int lighter; /* layers that an end of stages has fewer for its head and loss; 0: none */
    long layouts, legal, fitting;
    bool no_memory; /* a search inside the derivation ran out of memory */
};

/* The free numbers of a layout; all else follows. fsdp or e_fsdp 0: as wide as there are ranks; vpp
 * or micro_batch 0: as fixed, or the least. */
struct degrees {
    int tp, pp, cp, ep, etp, fsdp, e_fsdp, vpp, micro_batch;
    int lighter; /* layers that the last stage has fewer, beside those of the space */
};

/* What runs beside a unit's computation: gathers of the next unit, and reduce-scatters of the one
 * before on a stream of their own. Each of the first three holds more than the one below and takes
 * no longer; what only reduces on a stream of its own lies between. */
enum ahead { AHEAD_NOTHING, AHEAD_GATHERS, AHEAD_BOTH, AHEAD_REDUCES };

/* One point of the primitives' product. Zero in the last ones: as fixed, or their defaults (all
 * layers, nothing, 512 tokens, gathered keys, SMs, no cap, a group inside the domain). */
struct settings {
    enum sharding sharding;
    enum recompute recompute;
    enum loss loss;
    int chunks; /* 1: plain */
    enum ahead ahead;
    enum linear_context linear_context; /* used where cp > 1 */
    int recompute_layers;               /* under full recompute: of the first so many */
    unsigned offload;
    int tile;
    enum context context; /* used where cp > 1 */
    enum exchange exchange;
    bool capped;        /* chunks one after another, of as few tokens as make so many of them */
    int vocab_group;    /* under ring_dtp */
    int keep_attention; /* used under full recompute */
};

void space_init(struct space *space, const struct question *q);

/* With the keys that derivation leaves alone: micro-batches, interleaving, offload, every kind of
 * context, exchange, sharding and loss that can be planned; or without. */
void space_open(struct space *space, bool everything);
/* Every kind of context parallelism, and zero2; or no offload but what was set. */
void space_open_kinds(struct space *space);
void space_close_host(struct space *space);

/* Degrees 1 everywhere but where fixed. */
struct degrees space_fixed_degrees(const struct space *space);

/* Settings of the first (fastest kind) or last (leanest) values of every knob. */
struct settings space_fastest(const struct space *space);
struct settings space_leanest(const struct space *space);

/* The settings that complete to these choices. */
struct settings settings_of(const struct choices *choices);

/* Values of linear_context and context for a cp, of exchange for an ep; at least one. */
struct knob space_linear_contexts(const struct space *space, int cp);
struct knob space_contexts(const struct space *space, int cp);
struct knob space_exchanges(const struct space *space, int ep);

/* Groups of ranks that may share the vocabulary under ring_dtp: as fixed, or what divides dp and
 * the vocabulary, largest first. ret: SPACE_MAX_DIVISORS entries; none is no error. */
int space_vocab_groups(const struct space *space, const struct layout *layout, int *ret);

/* Legal or not, the values of one degree given those outside it, ascending: the fixed one, or the
 * divisors of what is left of the world (powers of two for tp and etp). ret: SPACE_MAX_DIVISORS
 * entries. */
enum degree { DEGREE_TP, DEGREE_PP, DEGREE_CP, DEGREE_EP, DEGREE_ETP, DEGREE_FSDP, DEGREE_E_FSDP };
int space_vpp_values(const struct space *space, const struct degrees *outer, int *ret);
/* Of stages in one piece that are open: every number of layers that the last one can be lighter by
 * while the others share them evenly, from 0; else 0 alone. ret: MODEL_MAX_LAYERS entries. */
int space_lighter_values(const struct space *space, const struct degrees *outer, int *ret);
int space_micro_batch_values(const struct space *space, const struct degrees *outer, int *ret);
int space_degree_values(const struct space *space, enum degree degree, const struct degrees *outer,
                        int *ret);

/* The stages of a layout whose other degrees are there, where they are open. */
void space_split_layers(const struct space *space, struct layout *layout);

/* Writes the whole of *ret. Degrees that do not divide the world are rounded down, so that the
 * legality table can name the fault. */
void space_complete(const struct space *space, const struct degrees *degrees,
                    const struct settings *settings, struct choices *ret);

/* Of complete choices what runs ahead alone. */
void space_set_ahead(const struct space *space, enum ahead ahead, struct primitives *ret);
/* Of complete choices everything but the layout. */
void space_complete_primitives(const struct space *space, const struct degrees *degrees,
                               const struct settings *settings, struct choices *ret);

/* Takes from every open choice what the host backend does not run. */
void space_restrict_to_host(struct space *space);

/* Tokens of a micro-batch per rank. */
uint64_t space_local_tokens(const struct space *space, const struct layout *layout);

/* Tiles of the loss beyond `least` tokens, largest first; none where they are fixed. */
struct knob space_wider_tiles(const struct space *space, const struct layout *layout,
                              enum loss loss, int least);

/* Host memory that one rank may fill. */
uint64_t space_host_room(const struct space *space);

/* By the legality table; the last counts. */
struct legality_input space_legality_input(const struct space *space,
                                           const struct choices *choices);
bool space_is_legal(const struct space *space, const struct choices *choices);
bool space_legal(struct space *space, const struct choices *choices);

/* Completes and judges; false when illegal. */
bool space_try(struct space *space, const struct degrees *degrees, const struct settings *settings,
               struct candidate *ret);

struct budget_input space_budget_input(const struct space *space, const struct choices *choices);
enum verdict space_verdict(const struct space *space, const struct rank_budget *worst);
/* The worst rank's peaks alone; by the predictor where there is one. */
void space_peaks(const struct space *space, const struct choices *choices,
                 struct layout_peaks *ret);
/* worst and verdict; takes the largest tiles of the loss that leave the peak where it is. */
void space_judge(struct space *space, struct candidate *candidate);
/* The same, and the time, of what only its peaks, verdict and seconds are wanted; by the predictor
 * where there is one. */
void space_weigh(struct space *space, struct candidate *candidate);
/* Everything about a weighed candidate, which stays as it is. */
void space_fill(const struct space *space, struct candidate *candidate);
double space_seconds(const struct space *space, const struct choices *choices);
void space_time(const struct space *space, struct candidate *candidate);

/* How many things a layout has beyond one rank that does all at once: degrees above 1, copies of
 * state, uneven stages, and each primitive that is not the plainest. Of two layouts the one with
 * fewer is the simpler. */
int choices_complexity(const struct choices *choices);

/* Verdict first, then speed (peak where neither fits): the upper end of the step's range where both
 * have it. Both must be judged and timed. */
bool candidate_better(const struct candidate *a, const struct candidate *b);

#endif
