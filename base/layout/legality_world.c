/* Worlds: do the degrees multiply to the GPUs there are, and do groups stay where links are fast.
 */
#include "base/layout/legality_rules.h"
#include "base/text.h"

#include <inttypes.h>

/* Ranks of one data-parallel replica of the dense part; 64 bits because nothing is checked yet. */
static int64_t dense_model_ranks(const struct layout *l)
{
    return (int64_t)l->tp * l->cp * l->pp;
}

static int64_t expert_model_ranks(const struct layout *l)
{
    return (int64_t)l->etp * l->ep * l->pp;
}

int legality_degrees(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    const struct {
        const char *key;
        int value, min, max;
    } degrees[] = {
        { "tp", l->tp, 1, LAYOUT_MAX_RANKS },
        { "pp", l->pp, 1, LAYOUT_MAX_STAGES },
        { "vpp", l->vpp, 1, MODEL_MAX_LAYERS },
        { "cp", l->cp, 1, LAYOUT_MAX_RANKS },
        { "ep", l->ep, 1, LAYOUT_MAX_RANKS },
        { "etp", l->etp, 1, LAYOUT_MAX_RANKS },
        { "micro_batch", l->micro_batch, 1, 1 << 20 },
        { "gpus", in->gpus, 1, LAYOUT_MAX_RANKS },
        /* 0 says that nothing was left for them; the world rules say why */
        { "fsdp", l->fsdp, 0, LAYOUT_MAX_RANKS },
        { "d_rep", l->d_rep, 0, LAYOUT_MAX_RANKS },
        { "e_fsdp", l->e_fsdp, 0, LAYOUT_MAX_RANKS },
        { "e_rep", l->e_rep, 0, LAYOUT_MAX_RANKS },
    };
    int violated = 0;

    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        if (degrees[i].value >= degrees[i].min && degrees[i].value <= degrees[i].max)
            continue;
        violated = 1;
        if (reterr)
            diag_error(reterr, choice_pos(in->fixed, degrees[i].key), "%s %d is outside %d..%d",
                       degrees[i].key, degrees[i].value, degrees[i].min, degrees[i].max);
    }
    return violated;
}

bool world_is_filled(const struct legality_input *in)
{
    const struct layout *l = &in->choices->layout;
    int64_t dp = (int64_t)l->fsdp * l->d_rep;
    return dp > 0 && dp <= in->gpus && dense_model_ranks(l) <= in->gpus &&
           dp * dense_model_ranks(l) == in->gpus;
}

/* The largest value of one degree below its present one that lets both views fill the world;
 * 0: none. dense_rest, expert_rest: product of the other degrees of each view that it is in, or 0.
 */
static int smaller_degree(int gpus, int degree, int64_t dense_rest, int64_t expert_rest)
{
    for (int d = degree - 1; d >= 1; d--) {
        bool dense = dense_rest == 0 || gpus % (dense_rest * d) == 0;
        bool expert = expert_rest == 0 || gpus % (expert_rest * d) == 0;
        if (dense && expert)
            return d;
    }
    return 0;
}

/* Appends ", KEY n" for a degree that could shrink. */
static void suggest(char *text, size_t size, size_t *used, const char *key, int value)
{
    if (value > 0)
        text_append(text, size, used, "%s%s %d", *used ? ", or " : "", key, value);
}

/* Numbers of GPUs next to the present one that `ranks` divides. */
static void suggest_gpus(char *text, size_t size, size_t *used, int gpus, int64_t ranks)
{
    int64_t below = gpus / ranks * ranks;
    if (below > 0)
        text_append(text, size, used, "%s%lld", *used ? ", or " : "", (long long)below);
    const char *between = below > 0 ? " or " : *used ? ", or " : "";
    text_append(text, size, used, "%s%" PRId64 " GPUs", between, below + ranks);
}

static void say_misfit(const struct legality_input *in, const char *arithmetic, int64_t ranks,
                       const char *key, struct diag_list *reterr)
{
    if (ranks > in->gpus)
        diag_error(reterr, choice_pos(in->fixed, key),
                   "%s = %lld ranks, but there are %d GPUs: needs at least %lld GPUs", arithmetic,
                   (long long)ranks, in->gpus, (long long)ranks);
    else
        diag_error(reterr, choice_pos(in->fixed, key),
                   "%s = %lld ranks, which does not divide %d GPUs", arithmetic, (long long)ranks,
                   in->gpus);
}

/* The key that is shown: of those above 1 the first that the user set. */
static const char *culprit(const struct legality_input *in, const char *const keys[],
                           const int degrees[], int count)
{
    const char *ret = keys[0];
    for (int i = count - 1; i >= 0; i--)
        if (degrees[i] > 1 && choice_is_fixed(in->fixed, keys[i]))
            ret = keys[i];
    return ret;
}

static const char *dense_culprit(const struct legality_input *in)
{
    static const char *const keys[] = { "pp", "stage_layers", "cp", "tp" };
    const struct layout *l = &in->choices->layout;
    const int degrees[] = { l->pp, l->pp, l->cp, l->tp };
    return culprit(in, keys, degrees, 4);
}

static const char *expert_culprit(const struct legality_input *in)
{
    static const char *const keys[] = { "ep", "etp", "pp", "stage_layers" };
    const struct layout *l = &in->choices->layout;
    const int degrees[] = { l->ep, l->etp, l->pp, l->pp };
    return culprit(in, keys, degrees, 4);
}

int legality_dense_world(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    int64_t ranks = dense_model_ranks(l);
    char text[160], hint[240] = "";
    size_t used = 0;

    if (in->gpus % ranks == 0 || l->pp > in->model->layers) /* the latter: told by stage_count */
        return 0;
    if (!reterr)
        return 1;
    text_append(text, sizeof text, &used, "pp %d x tp %d x cp %d", l->pp, l->tp, l->cp);
    say_misfit(in, text, ranks, dense_culprit(in), reterr);
    used = 0;
    suggest(hint, sizeof hint, &used, "pp",
            smaller_degree(in->gpus, l->pp, ranks / l->pp, expert_model_ranks(l) / l->pp));
    suggest(hint, sizeof hint, &used, "tp", smaller_degree(in->gpus, l->tp, ranks / l->tp, 0));
    suggest(hint, sizeof hint, &used, "cp", smaller_degree(in->gpus, l->cp, ranks / l->cp, 0));
    suggest_gpus(hint, sizeof hint, &used, in->gpus, ranks);
    diag_hint(reterr, "nearest legal: %s", hint);
    return 1;
}

/* Like smaller_degree, and the experts must still divide. */
static int smaller_ep(const struct legality_input *in, int64_t rest)
{
    int ep = in->choices->layout.ep;
    do
        ep = smaller_degree(in->gpus, ep, 0, rest);
    while (ep > 0 && in->model->moe.experts % ep != 0);
    return ep;
}

int legality_expert_world(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    int64_t ranks = expert_model_ranks(l);
    char text[160], hint[240] = "", key[32];
    size_t used = 0;

    if (in->gpus % ranks == 0 || ranks == l->pp) /* the latter: told by dense_world */
        return 0;
    if (!reterr)
        return 1;
    text_append(text, sizeof text, &used, "pp %d x etp %d x ep %d", l->pp, l->etp, l->ep);
    say_misfit(in, text, ranks, expert_culprit(in), reterr);
    used = 0;
    text_append(key, sizeof key, &used, "ep %d with pp", l->ep);
    used = 0;
    suggest(hint, sizeof hint, &used, key,
            smaller_degree(in->gpus, l->pp, dense_model_ranks(l) / l->pp, ranks / l->pp));
    size_t key_used = 0;
    text_append(key, sizeof key, &key_used, "pp %d with ep", l->pp);
    suggest(hint, sizeof hint, &used, key, smaller_ep(in, ranks / l->ep));
    suggest(hint, sizeof hint, &used, "etp", smaller_degree(in->gpus, l->etp, 0, ranks / l->etp));
    suggest_gpus(hint, sizeof hint, &used, in->gpus, ranks);
    diag_hint(reterr, "nearest legal: %s", hint);
    return 1;
}

/* shards x copies must be what the model ranks leave of the world. */
static int check_shards(const struct legality_input *in, const char *const names[3], int shards,
                        int copies, int64_t ranks, struct diag_list *reterr)
{
    char near[64];

    if (in->gpus % ranks != 0) /* reported by the world rule */
        return 0;
    int64_t width = in->gpus / ranks;
    if ((int64_t)shards * copies == width)
        return 0;
    if (!reterr)
        return 1;
    diag_error(reterr, choice_pos(in->fixed, names[0]),
               "%s %d x %s %d = %lld, but %s = %d GPUs / %lld = %lld", names[0], shards, names[1],
               copies, (long long)shards * copies, names[2], in->gpus, (long long)ranks,
               (long long)width);
    if (width % (shards > 0 ? shards : 1) == 0)
        diag_hint(reterr, "%s %lld fills it", names[1],
                  (long long)(width / (shards > 0 ? shards : 1)));
    else
        diag_hint(reterr, "%s must divide %lld: nearest legal %s", names[0], (long long)width,
                  nearest_divisors(width, shards, near, sizeof near));
    return 1;
}

int legality_dense_shards(const struct legality_input *in, struct diag_list *reterr)
{
    static const char *const names[3] = { "fsdp", "d_rep", "dp" };
    const struct layout *l = &in->choices->layout;
    return check_shards(in, names, l->fsdp, l->d_rep, dense_model_ranks(l), reterr);
}

int legality_expert_shards(const struct legality_input *in, struct diag_list *reterr)
{
    static const char *const names[3] = { "e_fsdp", "e_rep", "e_dp" };
    const struct layout *l = &in->choices->layout;
    return check_shards(in, names, l->e_fsdp, l->e_rep, expert_model_ranks(l), reterr);
}

/* A group wider than the domain: how much slower its traffic is there. */
static int check_domain(const struct legality_input *in, int64_t group, const char *key,
                        const char *what, struct diag_list *reterr)
{
    const struct hardware *h = in->hardware;

    if (!h || h->host || h->domain_gpus < 1 || group <= h->domain_gpus)
        return 0;
    if (!reterr)
        return 1;
    diag_warning(reterr, choice_pos(in->fixed, key),
                 "%s of %lld GPUs leaves the NVLink domain of %d: %.0f GB/s per GPU instead of %.0f, "
                 "%.1f times slower",
                 what, (long long)group, h->domain_gpus, h->network_bytes_per_second / 1e9,
                 h->link_bytes_per_second / 1e9,
                 h->network_bytes_per_second > 0
                     ? h->link_bytes_per_second / h->network_bytes_per_second
                     : 0.0);
    diag_hint(reterr, "%s up to %d stays inside", key, h->domain_gpus);
    return 1;
}

int legality_expert_domain(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    if (l->ep == 1)
        return 0;
    return check_domain(in, (int64_t)l->etp * l->ep, "ep", "an expert group", reterr);
}

int legality_tensor_domain(const struct legality_input *in, struct diag_list *reterr)
{
    return check_domain(in, in->choices->layout.tp, "tp", "a tensor-parallel group", reterr);
}
