#include "executor/runtime/replay.h"
#include "base/checked.h"
#include "base/safetensors/safetensors.h"

#include <inttypes.h>
#include <string.h>

static uint64_t choices_of(const struct choice_book *book)
{
    return mul_sat(book->tokens, (uint64_t)book->top_k);
}

int replay_blank(const struct plan *plan, struct replay *ret, struct diag_list *reterr)
{
    struct choice_book *book = &ret->book;
    size_t layers = (size_t)plan->model.layers;
    bool all = true;

    *ret = (struct replay){ .book.top_k = plan->model.moe.top_k };
    book->tokens = mul_sat((uint64_t)plan->global_batch, plan->seq_tokens);
    book->layers = pool_alloc(&ret->pool, layers * sizeof *book->layers);
    for (size_t i = 0; i < layers && book->layers && all; i++) {
        if (plan->model.layer_ffn[i] != FFN_MOE)
            continue;
        book->layers[i] = pool_alloc(&ret->pool, choices_of(book) * sizeof *book->layers[i]);
        all = book->layers[i] != NULL;
    }
    return book->layers && all
               ? 0
               : diag_error(reterr, (struct pos){ 0 }, "no memory left for routing choices");
}

/* Choices of one layer: experts that there are, all different for a token. */
static int check_layer(const struct choice_book *book, int layer, int experts, struct pos at,
                       struct diag_list *reterr)
{
    for (uint64_t i = 0; i < choices_of(book); i++) {
        const int32_t *choice = book->layers[layer] + i;
        uint64_t token = i / (uint64_t)book->top_k, first = token * (uint64_t)book->top_k;
        if (*choice < 0 || *choice >= experts)
            return diag_error(reterr, at,
                              "choices.%d: token %" PRIu64 " has expert %d, the model has %d",
                              layer, token, *choice, experts);
        for (uint64_t j = first; j < i; j++)
            if (book->layers[layer][j] == *choice)
                return diag_error(reterr, at, "choices.%d: token %" PRIu64 " has expert %d twice",
                                  layer, token, *choice);
    }
    return 0;
}

static int read_layer(const struct safetensors *file, struct choice_book *book, int layer,
                      struct pos at, struct diag_list *reterr)
{
    char name[32];

    (void)snprintf(name, sizeof name, "choices.%d", layer);
    const struct stored_tensor *tensor = safetensors_find(file, name);
    if (!tensor)
        return diag_error(reterr, at, "has no tensor '%s'", name);
    if (tensor->type != TENSOR_TYPE_I32)
        return diag_error(reterr, at, "tensor '%s' is %s, expected I32", name,
                          tensor_type_name(tensor->type));
    if (tensor->elements != choices_of(book)) {
        diag_error(reterr, at, "tensor '%s' has %" PRIu64 " choices", name, tensor->elements);
        return diag_hint(reterr, "a step has %" PRIu64 " tokens with %d experts each", book->tokens,
                         book->top_k);
    }
    return safetensors_read_all(file, tensor, TENSOR_TYPE_I32, book->layers[layer], reterr);
}

int replay_open(const char *path, const struct plan *plan, struct replay *ret,
                struct diag_list *reterr)
{
    const struct pos at = { .file = path };
    struct safetensors *file = NULL;
    int status = 0;

    *ret = (struct replay){ 0 };
    if (plan->model.moe.experts == 0)
        return diag_error(reterr, at, "the model has no experts to choose");
    if (safetensors_open(path, &file, reterr) != 0)
        return -1;
    if (replay_blank(plan, ret, reterr) != 0)
        status = -1;
    for (int i = 0; i < plan->model.layers && ret->book.layers; i++)
        if (ret->book.layers[i] &&
            (read_layer(file, &ret->book, i, at, reterr) != 0 ||
             check_layer(&ret->book, i, plan->model.moe.experts, at, reterr) != 0))
            status = -1;
    safetensors_close(file);
    return status;
}

void replay_close(struct replay *replay)
{
    pool_done(&replay->pool);
    memset(replay, 0, sizeof *replay);
}
