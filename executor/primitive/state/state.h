/* state.h - a rank's share of weights, gradients, master weights and moments.
 *
 * Contract
 *   What it does: cuts the model into units (embedding, layers, head); lays each unit's dense and
 *   expert tensors into flat parts; holds of each part what the sharding leaves here; makes whole
 *   weights and gradient buffers of a unit available while it is used; at the end of the step sums
 *   gradients over ranks.
 *   What it preserves: values do not depend on the layout. A weight's first value is a function of
 *   seed, tensor name and element; a gradient is the sum over every token of the step whatever rank
 *   or micro-batch it fell to, up to the order of additions.
 *   Memory bound: resident, per part of n padded elements over s shards: replicated 2n + g n + 12n;
 *   zero1 2n + g n + 12n/s; fsdp (2 + g + 12) n/s (g: bytes of grad_dtype). While a unit is used,
 *   under fsdp: 2n a gathered part, for the unit and the prefetched ones; in its backward g n, then
 *   g n/s for what is received; with two communication streams these stay one unit longer.
 *   How it is tested: one rank against 2 and 4 under every sharding (tests/unit/executor).
 *
 * Order of calls in a micro-batch: state_micro_batch, then for each use of a unit state_unit_begin
 * ... state_unit_end in the order embedding, layers, head, layers backwards; gradients are written
 * between state_gradient_begin and state_gradient_end; the embedding's backward has only those. */
#ifndef RANKFIT_EXECUTOR_PRIMITIVE_STATE_STATE_H
#define RANKFIT_EXECUTOR_PRIMITIVE_STATE_STATE_H

#include "base/model/tensor.h"
#include "executor/primitive/work.h"

enum role {
    ROLE_EMBEDDING,
    ROLE_FINAL_NORM,
    ROLE_HEAD,
    ROLE_INPUT_NORM,
    ROLE_Q,
    ROLE_K, /* directly behind q, and v behind k: one projection */
    ROLE_V,
    ROLE_Q_BIAS, /* likewise one behind the other */
    ROLE_K_BIAS,
    ROLE_V_BIAS,
    ROLE_Q_NORM,
    ROLE_K_NORM,
    ROLE_Q_DOWN, /* MLA: to the compressed queries, and to the compressed keys and values */
    ROLE_KV_DOWN,
    ROLE_Q_DOWN_NORM,
    ROLE_KV_DOWN_NORM,
    ROLE_Q_UP,
    ROLE_KV_UP,
    ROLE_O,
    ROLE_DELTA_IN, /* queries, keys and values, or these and gates; gates, b and a directly behind
                    */
    ROLE_DELTA_Z,
    ROLE_DELTA_B, /* b, or b and a */
    ROLE_DELTA_A,
    ROLE_DELTA_OUT,
    ROLE_POST_NORM,
    ROLE_ROUTER,
    ROLE_GATE,
    ROLE_UP, /* directly behind the gate */
    ROLE_DOWN,
    ROLE_SHARED_GATE,
    ROLE_SHARED_UP, /* likewise */
    ROLE_SHARED_DOWN,
    ROLE_SHARED_SCALAR,
    ROLE_EXPERT_GATE, /* or gate and up of each expert as one matrix */
    ROLE_EXPERT_UP,
    ROLE_EXPERT_DOWN,
    /* Any number of elements each: they stand behind those that kernels read 16 bytes at a time. */
    ROLE_DELTA_CONV,
    ROLE_DELTA_NORM,
    ROLE_DELTA_LOG, /* of the decay's rate */
    ROLE_DELTA_STEP,
    ROLE_CORRECTION, /* of the experts' scores where they are chosen; no gradient reaches it */
    ROLE_COUNT
};

/* First values: drawn, or what makes a norm multiply by 1. */
enum start { START_DRAWN, START_ZERO, START_ONE };

/* Where a tensor lies in its part: copy c (local expert) begins at offset + c * stride. */
struct state_tensor {
    enum role role;
    enum mesh mesh;
    struct tensor facts;
    enum start start;
    uint64_t elements; /* of one copy */
    uint64_t offset, stride;
    int copies, first_copy; /* local experts, and the first one's index in the model */
};

struct state_part {
    uint64_t elements, padded;   /* 0: the unit has no such part */
    int shards;                  /* ranks that share it */
    uint64_t slice_first, slice; /* what this rank owns of master and moments, in elements */
    int copies;                  /* ranks of the world that hold the same slice */
    struct group *group, *replicas;
    bool gathered; /* weights and gradients are sharded too */
    struct buffer weights, gradients, master, moments;
    struct buffer whole_gradients; /* while a unit's backward is under way */
    const void *used_weights;      /* of the unit in use: gathered or resident */
    void *used_gradients;
};

enum { UNIT_MAX_TENSORS = 28 };

struct state_unit {
    int tensor_count;
    struct state_tensor tensors[UNIT_MAX_TENSORS];
    struct state_part parts[2]; /* by enum mesh */
};

enum { USE_MAX_PARTS = 3 };

/* One use of a unit in a micro-batch: its gathered parts. */
struct state_use {
    bool issued;
    struct buffer weights[USE_MAX_PARTS];
    struct transfer *transfers[USE_MAX_PARTS];
};

/* A reduce-scatter whose buffers are still held. */
struct state_pending {
    struct state_part *part;
    struct buffer whole, received;
    struct transfer *transfer;
};

struct state {
    struct work *work;
    int unit_count; /* layers + 2; 0 embedding, 1 + i layer i, last: head */
    struct state_unit *units;
    int use_count, position;
    struct state_use *uses;
    int pending_count;
    struct state_pending pending[USE_MAX_PARTS];
};

/* Lays out every unit and takes the resident buffers (dry pass). state_close is due in any case. */
int state_open(struct state *state, struct work *work);
void state_close(struct state *state);

/* After arena_pack: where the buffers are; then first values from work->seed. */
void state_resident(struct state *state);
void state_initialise(struct state *state);

/* Elements from .. from + count - 1 of one copy of a tensor. */
struct state_range {
    const struct state_tensor *tensor;
    int copy;
    uint64_t from, count;
};
/* Where values come from: `read` fills ret in host memory. */
struct state_source {
    int (*read)(void *context, const struct state_range *range, float *ret,
                struct diag_list *reterr);
    void *context;
    /* `read` draws from this seed as state_random_read does, which a backend that draws does
     * itself; NULL: it does not. */
    const uint64_t *seed;
};
/* Master from the source, weights = bf16(master), moments zero. */
void state_initialise_from(struct state *state, const struct state_source *source);

static inline int state_layer_unit(int layer)
{
    return 1 + layer;
}
static inline int state_head_unit(const struct state *state)
{
    return state->unit_count - 1;
}

/* At the step's start. Gradients may not be added to before they are awaited. */
void state_zero_gradients(struct state *state);
void state_await_gradients(struct state *state);
void state_micro_batch(struct state *state);
void state_unit_begin(struct state *state, int unit);
void state_unit_end(struct state *state);
void state_gradient_begin(struct state *state, int unit);
void state_gradient_end(struct state *state, int unit);
/* Nothing of this micro-batch's gradients is on its way any more. */
void state_gradient_flush(struct state *state);

/* Tensors of a unit in use; NULL in the dry pass and for a role that the unit lacks. Expert roles:
 * the first local expert. */
const bf16 *state_weight(const struct state *state, int unit, enum role role);
void *state_gradient(const struct state *state, int unit, enum role role);

/* Sums gradients over ranks; afterwards each rank's slice is complete. */
void state_reduce(struct state *state);
/* Norm of the whole gradient, every value counted once. The same on all ranks. */
double state_gradient_norm(struct state *state);
/* After the optimizer: whole weights where they are resident whole. */
void state_spread_weights(struct state *state);

/* The gradient slice that this rank owns. */
void *state_gradient_slice(const struct state *state, const struct state_part *part);
/* The weights of that slice. */
bf16 *state_weight_slice(const struct state *state, const struct state_part *part);

/* The parts that a use of `unit` touches (a tied head uses the embedding too); returns how many. */
int state_use_parts(const struct state *state, int unit, struct state_part **ret);

/* mend.c: of a rehearsal, where a gather repeats this rank's share. What a tensor of the part
 * begins as; and norms in a part's gathered weights as they should be. */
enum start state_first_start(const struct state *state, const struct state_part *part,
                             const struct state_tensor *tensor);
void state_mend(const struct state *state, const struct state_part *part, const void *weights);

/* table.c: the tensors of the model, each in its place. */
int state_table_fill(struct state *state);
/* random.c: N(0, 0.02) as a function of seed, name and element. */
uint64_t state_random_key(uint64_t seed, const char *tensor_name);
float state_random_normal(uint64_t key, uint64_t element);
extern const double state_random_deviation;
/* A state_source's read; context: the seed, a uint64_t. */
int state_random_read(void *context, const struct state_range *range, float *ret,
                      struct diag_list *reterr);
/* The name of a copy: "{e}" replaced by the expert's index. */
void state_tensor_name(const struct state_tensor *tensor, int copy, char *ret, size_t size);
/* Elements of the named tensor before those of a copy: none, or where the checkpoint keeps all
 * experts in one tensor those of the experts before. */
uint64_t state_tensor_before(const struct state_tensor *tensor, int copy);
/* Norms and biases, whose weights do not decay. */
bool state_tensor_is_norm(const struct state_tensor *tensor);
/* First value of an element of a tensor with that key. */
float state_first_value(const struct state_tensor *tensor, uint64_t key, uint64_t element);

#endif
