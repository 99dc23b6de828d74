/* chunks.c - mixture of experts in chunks of tokens: dispatch and return of one chunk travel while
 * another computes. Positions of a tensor's life are steps of its own chunk, of a neighbour, or of
 * the layer before the first and after the last chunk. */
#include "planner/residency/tables.h"

#include "base/checked.h"

#include <string.h>

enum { MAX_CHUNKS = 64, MAX_STEPS = 6 + (MAX_CHUNKS + 1) * 15 + 3 };

/* Forward: before the chunks; each chunk; after them. */
enum { F_NORM, F_ROUTER, F_START, F_BEFORE };
enum {
    F_WAIT,
    F_ORDER,
    F_NEXT,
    F_GATE_UP,
    F_SWIGLU,
    F_DOWN,
    F_SOURCE,
    F_COMBINE,
    F_RETURN,
    F_STEPS
};
enum { F_M12, F_M13, F_M14, F_AFTER };
enum {
    P_SEND,
    P_EXCHANGE,
    P_ORDER,
    P_GATE_UP,
    P_SWIGLU,
    P_DOWN,
    P_SOURCE,
    P_RETURN,
    P_COMBINE,
    P_STEPS
};

/* Backward likewise; the steps of AGAIN only in a layer that is computed again. */
enum { R_S1, R_S2, R_S3, R_S4, R_ROUTED, R_START, R_BEFORE };
enum {
    R_AGAIN_WAIT,
    R_AGAIN,
    R_WAIT,
    R_ORDER,
    R_NEXT,
    R_AGAIN_UP,
    R_WEIGHT,
    R_DA,
    R_DH,
    R_WEIGHTS,
    R_DXE,
    R_SOURCE,
    R_UNPERMUTE,
    R_RETURN,
    R_STEPS
};
enum { R_B12, R_B13, R_AFTER };
enum {
    Q_SEND,
    Q_EXCHANGE,
    Q_ORDER,
    Q_GATE_UP,
    Q_D_SEND,
    Q_D_EXCHANGE,
    Q_D_ORDER,
    Q_WEIGHT,
    Q_DA,
    Q_DH,
    Q_WEIGHTS,
    Q_DXE,
    Q_SOURCE,
    Q_RETURN,
    Q_UNPERMUTE,
    Q_STEPS
};

/* Where a position counts from. LATE: the chunk in which the row's weight gradients are computed;
 * FINAL: the last chunk. */
enum anchor { BEFORE, OWN, LATE, FINAL, AFTER };

struct position {
    uint8_t anchor;
    int8_t offset; /* chunks */
    uint8_t step;
};

struct chunk_row {
    const char *tensor;
    uint8_t owner, rows, width, bytes;
    struct position made, last;
    bool kept;
    uint16_t when, unless;
};

enum { ROW_LISTS = 2 };

struct chunk_table {
    int before, steps, after;
    struct {
        size_t count;
        const struct chunk_row *rows;
    } list[ROW_LISTS];
};

#define CROW(tensor, owner, rows, width, bytes, a, da, sa, b, db, sb, kept, when, unless)          \
    {                                                                                              \
        tensor, OWNER_##owner, ROWS_##rows, WIDTH_##width, bytes, { a, da, sa }, { b, db, sb },    \
            kept, when, unless                                                                     \
    }

#define EP WHEN_EXCHANGE
#define SHARED WHEN_SHARED
#define SAVED WHEN_SAVED

/* Before the chunks and after them. */
static const struct chunk_row forward_common[] = {
    CROW("x1", WORKING, NORM, HIDDEN, 2, BEFORE, 0, F_NORM, AFTER, 0, F_M14, KEPT, 0, WHEN_ALONE),
    CROW("n2", WORKING, NORM, HIDDEN, 2, BEFORE, 0, F_NORM, AFTER, 0, F_M12, REMADE, SHARED, 0),
    CROW("n2", WORKING, NORM, HIDDEN, 2, BEFORE, 0, F_NORM, BEFORE, 0, F_ROUTER, REMADE,
         WHEN_REPLAY, SHARED),
    CROW("probs", WORKING, NORM, EXPERTS, 4, BEFORE, 0, F_ROUTER, BEFORE, 0, F_ROUTER, KEPT, 0, 0),
    CROW("n2 gathered", WORKING, TOKENS, HIDDEN, 2, AFTER, 0, F_M12, AFTER, 0, F_M12, REMADE,
         WHEN_TP | SHARED, 0),
    CROW("hs", WORKING, TOKENS, SHARED_TWO, 2, AFTER, 0, F_M12, AFTER, 0, F_M13, KEPT, SHARED, 0),
    CROW("n2 A", WORKING, TOKENS, ADAPTER_SHARED_UP, 2, AFTER, 0, F_M12, AFTER, 0, F_M12, REMADE,
         WHEN_ADAPTERS | SHARED, 0),
    CROW("as", WORKING, TOKENS, SHARED, 2, AFTER, 0, F_M13, AFTER, 0, F_M14, REMADE, SHARED,
         WHEN_REPLAY),
    CROW("as A", WORKING, TOKENS, ADAPTER_SHARED, 2, AFTER, 0, F_M14, AFTER, 0, F_M14, REMADE,
         WHEN_ADAPTERS | SHARED, WHEN_REPLAY),
    CROW("scalar gate", WORKING, TOKENS, ONE, 4, AFTER, 0, F_M12, AFTER, 0, F_M14, KEPT,
         WHEN_SHARED_GATE, 0),
    CROW("partial sum", WORKING, TOKENS, HIDDEN, 2, AFTER, 0, F_M14, AFTER, 0, F_M14, REMADE,
         WHEN_TP | SHARED, WHEN_REPLAY),
};

static const struct chunk_row backward_common[] = {
    CROW("x1", WORKING, NORM, HIDDEN, 2, BEFORE, 0, R_S1, AFTER, 0, R_B13, KEPT, 0, WHEN_ALONE),
    CROW("hs", WORKING, TOKENS, SHARED_TWO, 2, BEFORE, 0, R_S1, BEFORE, 0, R_S4, KEPT, SHARED, 0),
    CROW("scalar gate", WORKING, TOKENS, ONE, 4, BEFORE, 0, R_S1, BEFORE, 0, R_S4, KEPT,
         WHEN_SHARED_GATE, 0),
    CROW("dx gathered", WORKING, TOKENS, HIDDEN, 2, BEFORE, 0, R_S1, BEFORE, 0, R_S2, REMADE,
         WHEN_TP | SHARED, 0),
    CROW("as", WORKING, TOKENS, SHARED, 2, BEFORE, 0, R_S1, BEFORE, 0, R_S2, REMADE, SHARED,
         WHEN_IDLE_SHARED),
    CROW("as A", WORKING, TOKENS, ADAPTER_SHARED, 2, BEFORE, 0, R_S2, BEFORE, 0, R_S2, REMADE,
         WHEN_ADAPTERS | SHARED, 0),
    CROW("d as A", WORKING, TOKENS, ADAPTER_SHARED, 2, BEFORE, 0, R_S2, BEFORE, 0, R_S2, REMADE,
         WHEN_ADAPTERS | SHARED, 0),
    CROW("n2 A", WORKING, TOKENS, ADAPTER_SHARED_UP, 2, BEFORE, 0, R_S4, BEFORE, 0, R_S4, REMADE,
         WHEN_ADAPTERS | SHARED, 0),
    CROW("d n2 A", WORKING, TOKENS, ADAPTER_SHARED_UP, 2, BEFORE, 0, R_S4, BEFORE, 0, R_S4, REMADE,
         WHEN_ADAPTERS | SHARED, 0),
    CROW("das", WORKING, TOKENS, SHARED, 2, BEFORE, 0, R_S2, BEFORE, 0, R_S3, REMADE, SHARED, 0),
    CROW("d scalar gate", WORKING, TOKENS, ONE, 4, BEFORE, 0, R_S3, BEFORE, 0, R_S4, REMADE,
         WHEN_SHARED_GATE, 0),
    CROW("n2 gathered", WORKING, TOKENS, HIDDEN, 2, BEFORE, 0, R_S4, BEFORE, 0, R_S4, REMADE,
         WHEN_TP | SHARED, 0),
    CROW("partial sum", WORKING, TOKENS, HIDDEN, 2, BEFORE, 0, R_S4, BEFORE, 0, R_S4, REMADE,
         WHEN_TP | SHARED, 0),
    CROW("n2", WORKING, NORM, HIDDEN, 2, BEFORE, 0, R_S1, AFTER, 0, R_B12, REMADE, SHARED, 0),
    CROW("n2", WORKING, NORM, HIDDEN, 2, BEFORE, 0, R_ROUTED, AFTER, 0, R_B12, REMADE, 0, SHARED),
    CROW("dn2", WORKING, NORM, HIDDEN, 2, BEFORE, 0, R_S4, AFTER, 0, R_B13, REMADE, SHARED, 0),
    CROW("dn2", WORKING, NORM, HIDDEN, 2, BEFORE, 0, R_ROUTED, AFTER, 0, R_B13, REMADE, 0, SHARED),
    CROW("dlogits", WORKING, NORM, EXPERTS, 4, BEFORE, 0, R_ROUTED, AFTER, 0, R_B12, REMADE, 0, 0),
    CROW("latent sum", WORKING, NORM, EXPERT_LATENT, 2, BEFORE, 0, R_S1, BEFORE, 0, R_ROUTED, KEPT,
         SAVED, 0),
    CROW("d latent", WORKING, NORM, EXPERT_LATENT, 2, BEFORE, 0, R_ROUTED, AFTER, 0, R_B12, REMADE,
         0, 0),
};

/* Beside them, chunked. */
static const struct chunk_row forward_rows[] = {
    CROW("n2", WORKING, NORM, HIDDEN, 2, BEFORE, 0, F_NORM, FINAL, -1, F_NEXT, REMADE, EP,
         SHARED | WHEN_REPLAY),
    CROW("n2", WORKING, NORM, HIDDEN, 2, BEFORE, 0, F_NORM, FINAL, 0, F_ORDER, REMADE, 0,
         EP | SHARED | WHEN_REPLAY),
    CROW("choices", WORKING, NORM, TOP_K, 4, BEFORE, 0, F_ROUTER, FINAL, 1, F_COMBINE, KEPT, 0, 0),
    CROW("weights", WORKING, NORM, TOP_K, 4, BEFORE, 0, F_ROUTER, FINAL, 1, F_COMBINE, KEPT, 0, 0),
    CROW("slots", WORKING, NORM, TOP_K, 4, BEFORE, 0, F_ROUTER, FINAL, 1, F_COMBINE, KEPT, 0, 0),
    CROW("latent", WORKING, NORM, EXPERT_LATENT, 2, BEFORE, 0, F_ROUTER, FINAL, -1, F_NEXT, REMADE,
         EP, WHEN_REPLAY),
    CROW("latent", WORKING, NORM, EXPERT_LATENT, 2, BEFORE, 0, F_ROUTER, FINAL, 0, F_ORDER, REMADE,
         0, EP | WHEN_REPLAY),
    CROW("latent sum", WORKING, NORM, EXPERT_LATENT, 2, OWN, 1, F_COMBINE, AFTER, 0, F_M12, KEPT,
         EP | SAVED, 0),
    CROW("latent sum", WORKING, NORM, EXPERT_LATENT, 2, OWN, 0, F_COMBINE, AFTER, 0, F_M12, KEPT,
         SAVED, EP),
    CROW("send", DISPATCH_SEND, SENT, ROUTED, 2, OWN, -1, F_NEXT, OWN, 0, F_WAIT, REMADE, EP,
         WHEN_REPLAY),
    CROW("send weights", DISPATCH_SEND, SENT, ONE, 4, OWN, -1, F_NEXT, OWN, 0, F_WAIT, REMADE, EP,
         WHEN_REPLAY),
    CROW("recv", DISPATCH_RECV, RECV, ROUTED, 2, OWN, -1, F_NEXT, OWN, 0, F_ORDER, REMADE, EP,
         WHEN_REPLAY),
    CROW("recv weights", DISPATCH_RECV, RECV, ONE, 4, OWN, -1, F_NEXT, OWN, 0, F_ORDER, REMADE, EP,
         WHEN_REPLAY),
    CROW("xe", EXPERT, RECV, ROUTED, 2, OWN, 0, F_ORDER, OWN, 0, F_GATE_UP, KEPT, 0,
         WHEN_REPLAY | WHEN_IDLE_EXPERTS),
    CROW("xe", EXPERT, RECV, ROUTED, 2, OWN, 0, F_ORDER, OWN, 0, F_GATE_UP, REMADE,
         WHEN_IDLE_EXPERTS, WHEN_REPLAY),
    CROW("xe A", EXPERT, RECV, ADAPTER_EXPERT_UP, 2, OWN, 0, F_GATE_UP, OWN, 0, F_GATE_UP, REMADE,
         WHEN_ADAPTERS, WHEN_REPLAY),
    CROW("a A", EXPERT, RECV, ADAPTER_EXPERT, 2, OWN, 0, F_DOWN, OWN, 0, F_DOWN, REMADE,
         WHEN_ADAPTERS, WHEN_REPLAY),
    CROW("we", EXPERT, RECV, ONE, 4, OWN, 0, F_ORDER, OWN, 0, F_SWIGLU, KEPT, 0, WHEN_REPLAY),
    CROW("map", EXPERT, RECV, ONE, 4, OWN, 0, F_ORDER, OWN, 0, F_SOURCE, KEPT, 0, WHEN_REPLAY),
    CROW("h", EXPERT, RECV, GATE_UP, 2, OWN, 0, F_GATE_UP, OWN, 0, F_SWIGLU, KEPT, 0, WHEN_REPLAY),
    CROW("a", EXPERT, RECV, EXPERT, 2, OWN, 0, F_SWIGLU, OWN, 0, F_DOWN, REMADE, 0, WHEN_REPLAY),
    CROW("y", EXPERT, RECV, ROUTED, 2, OWN, 0, F_DOWN, OWN, 0, F_SOURCE, REMADE, EP, WHEN_REPLAY),
    CROW("y", EXPERT, RECV, ROUTED, 2, OWN, 0, F_DOWN, OWN, 0, F_COMBINE, REMADE, 0,
         EP | WHEN_REPLAY),
    CROW("back", DISPATCH_SEND, RECV, ROUTED, 2, OWN, 0, F_SOURCE, OWN, 1, F_SOURCE, REMADE, EP,
         WHEN_REPLAY),
    CROW("ret", DISPATCH_RECV, SENT, ROUTED, 2, OWN, 0, F_RETURN, OWN, 1, F_COMBINE, REMADE, EP,
         WHEN_REPLAY),
    CROW("output", OUTPUT, NORM, HIDDEN, 2, FINAL, 0, F_COMBINE, AFTER, 0, F_M14, REMADE, 0,
         WHEN_REPLAY),
};

static const struct chunk_row backward_rows[] = {
    CROW("probs", WORKING, NORM, EXPERTS, 4, BEFORE, 0, R_S1, FINAL, 1, R_UNPERMUTE, KEPT, 0, 0),
    CROW("choices", WORKING, NORM, TOP_K, 4, BEFORE, 0, R_S1, FINAL, 1, R_UNPERMUTE, KEPT, 0, 0),
    CROW("weights", WORKING, NORM, TOP_K, 4, BEFORE, 0, R_S1, FINAL, 1, R_UNPERMUTE, KEPT, 0, 0),
    CROW("slots", WORKING, NORM, TOP_K, 4, BEFORE, 0, R_S1, FINAL, 1, R_UNPERMUTE, KEPT, 0, 0),
    CROW("d latent sum", WORKING, NORM, EXPERT_LATENT, 2, BEFORE, 0, R_ROUTED, FINAL, 0, R_ORDER,
         REMADE, 0, 0),
    CROW("dsend", DISPATCH_SEND, SENT, ROUTED, 2, OWN, -1, R_NEXT, OWN, 0, R_WAIT, REMADE, EP, 0),
    CROW("drecv", DISPATCH_RECV, RECV, ROUTED, 2, OWN, -1, R_NEXT, OWN, 0, R_ORDER, REMADE, EP, 0),
    CROW("xe", EXPERT, RECV, ROUTED, 2, BEFORE, 0, R_S1, LATE, 0, R_WEIGHTS, KEPT, SAVED,
         WHEN_IDLE_EXPERTS),
    CROW("we", EXPERT, RECV, ONE, 4, BEFORE, 0, R_S1, OWN, 0, R_DH, KEPT, SAVED, 0),
    CROW("map", EXPERT, RECV, ONE, 4, BEFORE, 0, R_S1, OWN, 1, R_SOURCE, KEPT, EP | SAVED, 0),
    CROW("map", EXPERT, RECV, ONE, 4, BEFORE, 0, R_S1, OWN, 0, R_UNPERMUTE, KEPT, SAVED, EP),
    CROW("h", EXPERT, RECV, GATE_UP, 2, BEFORE, 0, R_S1, LATE, 0, R_DXE, KEPT, SAVED, 0),
    CROW("latent", WORKING, NORM, EXPERT_LATENT, 2, BEFORE, 0, R_ROUTED, FINAL, -1, R_NEXT, REMADE,
         EP, SAVED),
    CROW("latent", WORKING, NORM, EXPERT_LATENT, 2, BEFORE, 0, R_ROUTED, FINAL, 0, R_AGAIN, REMADE,
         0, EP | SAVED),
    CROW("send", DISPATCH_SEND, SENT, ROUTED, 2, OWN, -1, R_NEXT, OWN, 0, R_AGAIN_WAIT, REMADE, EP,
         SAVED),
    CROW("send weights", DISPATCH_SEND, SENT, ONE, 4, OWN, -1, R_NEXT, OWN, 0, R_AGAIN_WAIT, REMADE,
         EP, SAVED),
    CROW("recv", DISPATCH_RECV, RECV, ROUTED, 2, OWN, -1, R_NEXT, OWN, 0, R_AGAIN, REMADE, EP,
         SAVED),
    CROW("recv weights", DISPATCH_RECV, RECV, ONE, 4, OWN, -1, R_NEXT, OWN, 0, R_AGAIN, REMADE, EP,
         SAVED),
    CROW("xe", EXPERT, RECV, ROUTED, 2, OWN, 0, R_AGAIN, LATE, 0, R_WEIGHTS, REMADE, 0,
         SAVED | WHEN_IDLE_EXPERTS),
    CROW("xe", EXPERT, RECV, ROUTED, 2, OWN, 0, R_AGAIN, OWN, 0, R_AGAIN_UP, REMADE,
         WHEN_IDLE_EXPERTS, SAVED),
    CROW("we", EXPERT, RECV, ONE, 4, OWN, 0, R_AGAIN, OWN, 0, R_DH, REMADE, 0, SAVED),
    CROW("map", EXPERT, RECV, ONE, 4, OWN, 0, R_AGAIN, OWN, 1, R_SOURCE, REMADE, EP, SAVED),
    CROW("map", EXPERT, RECV, ONE, 4, OWN, 0, R_AGAIN, OWN, 0, R_UNPERMUTE, REMADE, 0, EP | SAVED),
    CROW("xe A", EXPERT, RECV, ADAPTER_EXPERT_UP, 2, OWN, 0, R_AGAIN_UP, OWN, 0, R_AGAIN_UP, REMADE,
         WHEN_ADAPTERS, SAVED),
    CROW("h", EXPERT, RECV, GATE_UP, 2, OWN, 0, R_AGAIN_UP, LATE, 0, R_DXE, REMADE, 0, SAVED),
    CROW("dy", EXPERT, RECV, ROUTED, 2, OWN, 0, R_ORDER, LATE, 0, R_DA, REMADE, 0, 0),
    CROW("a", EXPERT, RECV, EXPERT, 2, OWN, 0, R_WEIGHT, LATE, 0, R_WEIGHT, REMADE, 0,
         WHEN_IDLE_EXPERTS),
    CROW("a A", EXPERT, RECV, ADAPTER_EXPERT, 2, OWN, 0, R_WEIGHT, OWN, 0, R_WEIGHT, REMADE,
         WHEN_ADAPTERS, 0),
    CROW("d a A", EXPERT, RECV, ADAPTER_EXPERT, 2, OWN, 0, R_WEIGHT, OWN, 0, R_DA, REMADE,
         WHEN_ADAPTERS, 0),
    CROW("xe A", EXPERT, RECV, ADAPTER_EXPERT_UP, 2, OWN, 0, R_WEIGHTS, OWN, 0, R_WEIGHTS, REMADE,
         WHEN_ADAPTERS, 0),
    CROW("d xe A", EXPERT, RECV, ADAPTER_EXPERT_UP, 2, OWN, 0, R_WEIGHTS, OWN, 0, R_DXE, REMADE,
         WHEN_ADAPTERS, 0),
    CROW("da", EXPERT, RECV, EXPERT, 2, OWN, 0, R_DA, OWN, 0, R_DH, REMADE, 0, 0),
    CROW("dw", EXPERT, RECV, ONE, 4, OWN, 0, R_DH, OWN, 0, R_SOURCE, REMADE, EP, 0),
    CROW("dw", EXPERT, RECV, ONE, 4, OWN, 0, R_DH, OWN, 0, R_UNPERMUTE, REMADE, 0, EP),
    CROW("dxe", EXPERT, RECV, ROUTED, 2, OWN, 0, R_DXE, OWN, 0, R_SOURCE, REMADE, EP, 0),
    CROW("dxe", EXPERT, RECV, ROUTED, 2, OWN, 0, R_DXE, OWN, 0, R_UNPERMUTE, REMADE, 0, EP),
    CROW("back", DISPATCH_SEND, RECV, ROUTED, 2, OWN, 0, R_SOURCE, OWN, 1, R_SOURCE, REMADE, EP, 0),
    CROW("back weights", DISPATCH_SEND, RECV, ONE, 4, OWN, 0, R_SOURCE, OWN, 1, R_SOURCE, REMADE,
         EP, 0),
    CROW("ret", DISPATCH_RECV, SENT, ROUTED, 2, OWN, 0, R_RETURN, OWN, 1, R_UNPERMUTE, REMADE, EP,
         0),
    CROW("ret weights", DISPATCH_RECV, SENT, ONE, 4, OWN, 0, R_RETURN, OWN, 1, R_UNPERMUTE, REMADE,
         EP, 0),
    CROW("d weights", WORKING, SENT, ONE, 4, OWN, 1, R_UNPERMUTE, OWN, 1, R_UNPERMUTE, REMADE, EP,
         0),
    CROW("d weights", WORKING, SENT, ONE, 4, OWN, 0, R_UNPERMUTE, OWN, 0, R_UNPERMUTE, REMADE, 0,
         EP),
};

/* Capped: nothing of a chunk is kept, and a backward brings all of it again. */
static const struct chunk_row capped_forward_rows[] = {
    CROW("n2", WORKING, NORM, HIDDEN, 2, BEFORE, 0, F_NORM, FINAL, 0, P_SEND, REMADE, EP,
         SHARED | WHEN_REPLAY),
    CROW("n2", WORKING, NORM, HIDDEN, 2, BEFORE, 0, F_NORM, FINAL, 0, P_ORDER, REMADE, 0,
         EP | SHARED | WHEN_REPLAY),
    CROW("choices", WORKING, NORM, TOP_K, 4, BEFORE, 0, F_ROUTER, FINAL, 0, P_COMBINE, KEPT, 0, 0),
    CROW("weights", WORKING, NORM, TOP_K, 4, BEFORE, 0, F_ROUTER, FINAL, 0, P_COMBINE, KEPT, 0, 0),
    CROW("slots", WORKING, NORM, TOP_K, 4, BEFORE, 0, F_ROUTER, FINAL, 0, P_COMBINE, KEPT, 0, 0),
    CROW("latent", WORKING, NORM, EXPERT_LATENT, 2, BEFORE, 0, F_ROUTER, FINAL, 0, P_SEND, REMADE,
         EP, WHEN_REPLAY),
    CROW("latent", WORKING, NORM, EXPERT_LATENT, 2, BEFORE, 0, F_ROUTER, FINAL, 0, P_ORDER, REMADE,
         0, EP | WHEN_REPLAY),
    CROW("latent sum", WORKING, NORM, EXPERT_LATENT, 2, OWN, 0, P_COMBINE, AFTER, 0, F_M12, KEPT,
         SAVED, 0),
    CROW("send", DISPATCH_SEND, SENT, ROUTED, 2, OWN, 0, P_SEND, OWN, 0, P_EXCHANGE, REMADE, EP,
         WHEN_REPLAY),
    CROW("send weights", DISPATCH_SEND, SENT, ONE, 4, OWN, 0, P_SEND, OWN, 0, P_EXCHANGE, REMADE,
         EP, WHEN_REPLAY),
    CROW("recv", DISPATCH_RECV, RECV, ROUTED, 2, OWN, 0, P_EXCHANGE, OWN, 0, P_ORDER, REMADE, EP,
         WHEN_REPLAY),
    CROW("recv weights", DISPATCH_RECV, RECV, ONE, 4, OWN, 0, P_EXCHANGE, OWN, 0, P_ORDER, REMADE,
         EP, WHEN_REPLAY),
    CROW("xe", EXPERT, RECV, ROUTED, 2, OWN, 0, P_ORDER, OWN, 0, P_GATE_UP, REMADE, 0, WHEN_REPLAY),
    CROW("we", EXPERT, RECV, ONE, 4, OWN, 0, P_ORDER, OWN, 0, P_SWIGLU, REMADE, 0, WHEN_REPLAY),
    CROW("map", EXPERT, RECV, ONE, 4, OWN, 0, P_ORDER, OWN, 0, P_SOURCE, REMADE, 0, WHEN_REPLAY),
    CROW("xe A", EXPERT, RECV, ADAPTER_EXPERT_UP, 2, OWN, 0, P_GATE_UP, OWN, 0, P_GATE_UP, REMADE,
         WHEN_ADAPTERS, WHEN_REPLAY),
    CROW("h", EXPERT, RECV, GATE_UP, 2, OWN, 0, P_GATE_UP, OWN, 0, P_SWIGLU, REMADE, 0,
         WHEN_REPLAY),
    CROW("a", EXPERT, RECV, EXPERT, 2, OWN, 0, P_SWIGLU, OWN, 0, P_DOWN, REMADE, 0, WHEN_REPLAY),
    CROW("a A", EXPERT, RECV, ADAPTER_EXPERT, 2, OWN, 0, P_DOWN, OWN, 0, P_DOWN, REMADE,
         WHEN_ADAPTERS, WHEN_REPLAY),
    CROW("y", EXPERT, RECV, ROUTED, 2, OWN, 0, P_DOWN, OWN, 0, P_SOURCE, REMADE, EP, WHEN_REPLAY),
    CROW("y", EXPERT, RECV, ROUTED, 2, OWN, 0, P_DOWN, OWN, 0, P_COMBINE, REMADE, 0,
         EP | WHEN_REPLAY),
    CROW("back", DISPATCH_SEND, RECV, ROUTED, 2, OWN, 0, P_SOURCE, OWN, 0, P_RETURN, REMADE, EP,
         WHEN_REPLAY),
    CROW("ret", DISPATCH_RECV, SENT, ROUTED, 2, OWN, 0, P_RETURN, OWN, 0, P_COMBINE, REMADE, EP,
         WHEN_REPLAY),
    CROW("output", OUTPUT, NORM, HIDDEN, 2, OWN, 0, P_COMBINE, AFTER, 0, F_M14, REMADE, 0,
         WHEN_REPLAY),
};

static const struct chunk_row capped_backward_rows[] = {
    CROW("probs", WORKING, NORM, EXPERTS, 4, BEFORE, 0, R_S1, FINAL, 0, Q_UNPERMUTE, KEPT, 0, 0),
    CROW("choices", WORKING, NORM, TOP_K, 4, BEFORE, 0, R_S1, FINAL, 0, Q_UNPERMUTE, KEPT, 0, 0),
    CROW("weights", WORKING, NORM, TOP_K, 4, BEFORE, 0, R_S1, FINAL, 0, Q_UNPERMUTE, KEPT, 0, 0),
    CROW("slots", WORKING, NORM, TOP_K, 4, BEFORE, 0, R_S1, FINAL, 0, Q_UNPERMUTE, KEPT, 0, 0),
    CROW("d latent sum", WORKING, NORM, EXPERT_LATENT, 2, BEFORE, 0, R_ROUTED, FINAL, 0, Q_D_ORDER,
         REMADE, 0, 0),
    CROW("latent", WORKING, NORM, EXPERT_LATENT, 2, BEFORE, 0, R_ROUTED, FINAL, 0, Q_SEND, REMADE,
         EP, 0),
    CROW("latent", WORKING, NORM, EXPERT_LATENT, 2, BEFORE, 0, R_ROUTED, FINAL, 0, Q_ORDER, REMADE,
         0, EP),
    CROW("send", DISPATCH_SEND, SENT, ROUTED, 2, OWN, 0, Q_SEND, OWN, 0, Q_EXCHANGE, REMADE, EP, 0),
    CROW("send weights", DISPATCH_SEND, SENT, ONE, 4, OWN, 0, Q_SEND, OWN, 0, Q_EXCHANGE, REMADE,
         EP, 0),
    CROW("recv", DISPATCH_RECV, RECV, ROUTED, 2, OWN, 0, Q_EXCHANGE, OWN, 0, Q_ORDER, REMADE, EP,
         0),
    CROW("recv weights", DISPATCH_RECV, RECV, ONE, 4, OWN, 0, Q_EXCHANGE, OWN, 0, Q_ORDER, REMADE,
         EP, 0),
    CROW("xe", EXPERT, RECV, ROUTED, 2, OWN, 0, Q_ORDER, OWN, 0, Q_WEIGHTS, REMADE, 0,
         WHEN_IDLE_EXPERTS),
    CROW("xe", EXPERT, RECV, ROUTED, 2, OWN, 0, Q_ORDER, OWN, 0, Q_GATE_UP, REMADE,
         WHEN_IDLE_EXPERTS, 0),
    CROW("we", EXPERT, RECV, ONE, 4, OWN, 0, Q_ORDER, OWN, 0, Q_DH, REMADE, 0, 0),
    CROW("map", EXPERT, RECV, ONE, 4, OWN, 0, Q_ORDER, OWN, 0, Q_RETURN, REMADE, EP, 0),
    CROW("map", EXPERT, RECV, ONE, 4, OWN, 0, Q_ORDER, OWN, 0, Q_UNPERMUTE, REMADE, 0, EP),
    CROW("xe A", EXPERT, RECV, ADAPTER_EXPERT_UP, 2, OWN, 0, Q_GATE_UP, OWN, 0, Q_GATE_UP, REMADE,
         WHEN_ADAPTERS, 0),
    CROW("h", EXPERT, RECV, GATE_UP, 2, OWN, 0, Q_GATE_UP, OWN, 0, Q_DXE, REMADE, 0, 0),
    CROW("dsend", DISPATCH_SEND, SENT, ROUTED, 2, OWN, 0, Q_D_SEND, OWN, 0, Q_D_EXCHANGE, REMADE,
         EP, 0),
    CROW("drecv", DISPATCH_RECV, RECV, ROUTED, 2, OWN, 0, Q_D_EXCHANGE, OWN, 0, Q_D_ORDER, REMADE,
         EP, 0),
    CROW("dy", EXPERT, RECV, ROUTED, 2, OWN, 0, Q_D_ORDER, OWN, 0, Q_DA, REMADE, 0, 0),
    CROW("a", EXPERT, RECV, EXPERT, 2, OWN, 0, Q_WEIGHT, OWN, 0, Q_WEIGHT, REMADE, 0,
         WHEN_IDLE_EXPERTS),
    CROW("a A", EXPERT, RECV, ADAPTER_EXPERT, 2, OWN, 0, Q_WEIGHT, OWN, 0, Q_WEIGHT, REMADE,
         WHEN_ADAPTERS, 0),
    CROW("d a A", EXPERT, RECV, ADAPTER_EXPERT, 2, OWN, 0, Q_WEIGHT, OWN, 0, Q_DA, REMADE,
         WHEN_ADAPTERS, 0),
    CROW("da", EXPERT, RECV, EXPERT, 2, OWN, 0, Q_DA, OWN, 0, Q_DH, REMADE, 0, 0),
    CROW("xe A", EXPERT, RECV, ADAPTER_EXPERT_UP, 2, OWN, 0, Q_WEIGHTS, OWN, 0, Q_WEIGHTS, REMADE,
         WHEN_ADAPTERS, 0),
    CROW("d xe A", EXPERT, RECV, ADAPTER_EXPERT_UP, 2, OWN, 0, Q_WEIGHTS, OWN, 0, Q_DXE, REMADE,
         WHEN_ADAPTERS, 0),
    CROW("dw", EXPERT, RECV, ONE, 4, OWN, 0, Q_DH, OWN, 0, Q_SOURCE, REMADE, EP, 0),
    CROW("dw", EXPERT, RECV, ONE, 4, OWN, 0, Q_DH, OWN, 0, Q_UNPERMUTE, REMADE, 0, EP),
    CROW("dxe", EXPERT, RECV, ROUTED, 2, OWN, 0, Q_DXE, OWN, 0, Q_SOURCE, REMADE, EP, 0),
    CROW("dxe", EXPERT, RECV, ROUTED, 2, OWN, 0, Q_DXE, OWN, 0, Q_UNPERMUTE, REMADE, 0, EP),
    CROW("back", DISPATCH_SEND, RECV, ROUTED, 2, OWN, 0, Q_SOURCE, OWN, 0, Q_RETURN, REMADE, EP, 0),
    CROW("back weights", DISPATCH_SEND, RECV, ONE, 4, OWN, 0, Q_SOURCE, OWN, 0, Q_RETURN, REMADE,
         EP, 0),
    CROW("ret", DISPATCH_RECV, SENT, ROUTED, 2, OWN, 0, Q_RETURN, OWN, 0, Q_UNPERMUTE, REMADE, EP,
         0),
    CROW("ret weights", DISPATCH_RECV, SENT, ONE, 4, OWN, 0, Q_RETURN, OWN, 0, Q_UNPERMUTE, REMADE,
         EP, 0),
    CROW("d weights", WORKING, SENT, ONE, 4, OWN, 0, Q_UNPERMUTE, OWN, 0, Q_UNPERMUTE, REMADE, 0,
         0),
};

#define ROWS(list)                                                                                 \
    {                                                                                              \
        sizeof(list) / sizeof(list)[0], list                                                       \
    }

static const struct chunk_table forward_table = {
    F_BEFORE, F_STEPS, F_AFTER, { ROWS(forward_common), ROWS(forward_rows) }
};
static const struct chunk_table backward_table = {
    R_BEFORE, R_STEPS, R_AFTER, { ROWS(backward_common), ROWS(backward_rows) }
};
static const struct chunk_table capped_forward_table = {
    F_BEFORE, P_STEPS, F_AFTER, { ROWS(forward_common), ROWS(capped_forward_rows) }
};
static const struct chunk_table capped_backward_table = {
    R_BEFORE, Q_STEPS, R_AFTER, { ROWS(backward_common), ROWS(capped_backward_rows) }
};

/* One evaluation. change[step]: bytes made at a step less bytes released after the one before; sums
 * of sizes up to too_large cannot wrap, and what reaches it counts as beyond 64 bits. */
struct run {
    const struct chunk_table *table;
    const struct residency_shape *shape;
    enum residency_mode mode;
    int chunks, steps;
    uint64_t sent[MAX_CHUNKS], received[MAX_CHUNKS];
    uint64_t change[MAX_STEPS + 1][OWNER_COUNT];
};

static const uint64_t too_large = UINT64_C(1) << 50;

/* A step's place in the whole run. Before chunk 0 there is only the start of its exchange; weight
 * gradients that wait are computed at the dxe of a later chunk. */
static int place(const struct run *r, struct position p, int chunk)
{
    const struct chunk_table *t = r->table;
    int delay = r->shape->chunks.delay, late = chunk + delay, step = p.step;
    if (p.anchor == BEFORE)
        return p.step;
    if (p.anchor == AFTER)
        return t->before + (r->chunks + 1) * t->steps + p.step;
    if (p.anchor == FINAL)
        chunk = r->chunks - 1;
    if (p.anchor == LATE && delay > 0) {
        chunk = late < r->chunks ? late : r->chunks - 1;
        step = R_DXE;
    }
    chunk += p.offset;
    return chunk < 0 ? t->before - 1 : t->before + chunk * t->steps + step;
}

/* More chunks than are enumerated count as that many, which are larger. Of capped ones, which have
 * nothing in common, the first, another and the last. */
static int chunk_count(const struct residency_shape *shape)
{
    int most = shape->chunks.capped ? 3 : MAX_CHUNKS;
    return shape->chunks.count < most ? shape->chunks.count : most;
}

/* Runs of ceil(T / n) tokens; rows received in proportion, unless they are known. */
static void chunk_rows(struct run *r)
{
    const struct residency_shape *s = r->shape;
    uint64_t n = (uint64_t)(s->chunks.capped ? s->chunks.count : r->chunks);
    uint64_t tokens = s->rows[ROWS_NORM], run = div_up(tokens, n), left = tokens;
    for (int i = 0; i < r->chunks; i++) {
        if (i == r->chunks - 1)
            left = tokens > run * (n - 1) ? tokens - run * (n - 1) : 0;
        uint64_t mine = left < run ? left : run;
        left -= mine;
        r->sent[i] = tokens ? div_up(mul_sat(s->rows[ROWS_SENT], mine), tokens) : 0;
        r->received[i] = tokens ? div_up(mul_sat(s->rows[ROWS_RECV], mine), tokens) : 0;
        if (s->chunks.received && s->chunks.count == r->chunks)
            r->received[i] = s->chunks.received[i];
    }
}

static bool is_backward(enum residency_mode mode)
{
    return mode == RESIDENCY_BACKWARD || mode == RESIDENCY_BACKWARD_SAVED;
}

static const struct chunk_table *table_of(const struct residency_shape *shape,
                                          enum residency_mode mode)
{
    if (shape->chunks.capped)
        return is_backward(mode) ? &capped_backward_table : &capped_forward_table;
    return is_backward(mode) ? &backward_table : &forward_table;
}

static enum owner owner_of(const struct chunk_row *row, enum residency_mode mode)
{
    if (row->kept && (mode == RESIDENCY_FORWARD_SAVED || mode == RESIDENCY_BACKWARD_SAVED))
        return OWNER_SAVED;
    return (enum owner)row->owner;
}

static uint64_t row_bytes(const struct run *r, const struct chunk_row *row, int chunk)
{
    uint64_t rows = row->rows == ROWS_SENT   ? r->sent[chunk]
                    : row->rows == ROWS_RECV ? r->received[chunk]
                                             : r->shape->rows[row->rows];
    uint64_t bytes = round_up_to(mul3_sat(rows, r->shape->width[row->width], row->bytes), 256);
    return bytes < too_large ? bytes : too_large;
}

/* The output is made at the first combine: of chunk 0, with an exchange a chunk later unless the
 * return is waited for. With a latent width it is made of the sum of all chunks. */
static int output_step(const struct run *r)
{
    const struct chunk_table *t = r->table;
    bool later = (r->shape->when & WHEN_EXCHANGE) && !r->shape->chunks.capped;
    if (r->shape->width[WIDTH_EXPERT_LATENT] > 0)
        return t->before + (r->chunks + 1) * t->steps + F_M12;
    return t->before + (r->shape->chunks.capped ? P_COMBINE : F_COMBINE) + (later ? t->steps : 0);
}

/* Adds one row of one chunk to the steps of its life; returns its bytes when they are kept. */
static uint64_t add_row(struct run *r, const struct chunk_row *row, int chunk)
{
    bool keeps = row->kept && r->mode != RESIDENCY_FORWARD;
    uint64_t bytes = row_bytes(r, row, chunk);
    int made = place(r, row->made, chunk), last = place(r, row->last, chunk);
    if (row->owner == OWNER_OUTPUT)
        made = output_step(r);
    if (keeps && !is_backward(r->mode))
        last = r->steps - 1;
    enum owner owner = owner_of(row, r->mode);
    r->change[made][owner] += bytes;
    r->change[last + 1][owner] -= bytes;
    return keeps ? bytes : 0;
}

/* Whether a row exists once a chunk: all routed rows do. */
static int repeats(const struct chunk_row *row, int chunks)
{
    return row->rows == ROWS_SENT || row->rows == ROWS_RECV ? chunks : 1;
}

/* Sums the changes: the fullest step and each owner's own maximum. */
static void find_fullest(const struct run *r, struct residency_half *ret)
{
    uint64_t live[OWNER_COUNT] = { 0 }, peak = 0, bare = 0;
    for (int step = 0; step < r->steps; step++) {
        uint64_t total = 0;
        for (int owner = 0; owner < OWNER_COUNT; owner++) {
            live[owner] += r->change[step][owner];
            total += live[owner];
            ret->max[owner] = live[owner] > ret->max[owner] ? live[owner] : ret->max[owner];
        }
        if (total > peak) {
            peak = total;
            memcpy(ret->live, live, sizeof live);
        }
        if (total - live[OWNER_OUTPUT] > bare) {
            bare = total - live[OWNER_OUTPUT];
            memcpy(ret->bare_live, live, sizeof live);
        }
    }
    for (int owner = 0; owner < OWNER_COUNT; owner++) {
        ret->live[owner] = ret->live[owner] < too_large ? ret->live[owner] : UINT64_MAX;
        if (ret->bare_live[owner] >= too_large)
            ret->bare_live[owner] = UINT64_MAX;
        ret->max[owner] = ret->max[owner] < too_large ? ret->max[owner] : UINT64_MAX;
    }
}

void residency_chunks(const struct residency_shape *shape, enum residency_mode mode,
                      struct residency_half *ret)
{
    struct run r;
    unsigned when = shape->when | (mode == RESIDENCY_REPLAY ? WHEN_REPLAY : 0);
    when |= mode == RESIDENCY_BACKWARD_SAVED || mode == RESIDENCY_FORWARD_SAVED ? WHEN_SAVED : 0;
    r.table = table_of(shape, mode);
    r.shape = shape;
    r.mode = mode;
    r.chunks = chunk_count(shape);
    r.steps = r.table->before + (r.chunks + 1) * r.table->steps + r.table->after;
    chunk_rows(&r);
    memset(r.change, 0, (size_t)(r.steps + 1) * sizeof r.change[0]);
    memset(ret, 0, sizeof *ret);
    ret->known = true;
    for (int list = 0; list < ROW_LISTS; list++)
        for (size_t i = 0; i < r.table->list[list].count; i++) {
            const struct chunk_row *row = &r.table->list[list].rows[i];
            if ((row->when & ~when) || (row->unless & when))
                continue;
            for (int chunk = 0; chunk < repeats(row, r.chunks); chunk++)
                ret->kept = add_sat(ret->kept, add_row(&r, row, chunk));
        }
    find_fullest(&r, ret);
}
