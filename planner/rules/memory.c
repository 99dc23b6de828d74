/* memory.c - formulas of bytes. */
#include "planner/rules/formula.h"

#include <math.h>

static const double bf16 = 2, fp32 = 4; /* bytes of an element */

/* L hidden H: under full recompute a token leaves each layer's input behind, bf16. Bytes a token.
 */
double formula_layer_inputs(const double *in)
{
    double layers = in[0], hidden = in[1];
    return layers * hidden * bf16;
}

/* Layers with an indexer keep the places of the k keys that they chose, int32. Bytes a token. */
double formula_chosen_keys(const double *in)
{
    double indexers = in[0], chosen = in[1];
    return indexers * chosen * 4;
}

/* What travels with a token: hidden state, bf16, and a probability for each of E experts, fp32.
 * Bytes a token. */
double formula_dispatch_row(const double *in)
{
    double hidden = in[0], experts = in[1];
    return hidden * bf16 + experts * fp32;
}

/* The worst case of an exchange: every one of ep ranks sends all of its tokens here. Bytes a token
 * of one rank. */
double formula_worst_dispatch(const double *in)
{
    double row = in[0], ep = in[1];
    return row * ep;
}

/* FSDP: a layer of P / L parameters on a rank, dense part whole and experts by ep, as weights in
 * use and weights fetched ahead (bf16) and as a gradient (fp32). Bytes. */
double formula_gathered_units(const double *in)
{
    double params = in[0], layers = in[1], dense = in[2], experts = in[3], ep = in[4];
    return params / layers * (dense + experts / ep) * (bf16 + bf16 + fp32);
}

/* Master weights, two moments and gradients in fp32, weights in bf16: 18 bytes. Bytes of a model of
 * P parameters, wherever they lie. */
double formula_state_whole(const double *in)
{
    double params = in[0], each = in[1];
    return params * each;
}

/* The same on one rank: shares of P that are dense and experts, each by the ranks that share it.
 * Bytes. */
double formula_state_sharded(const double *in)
{
    double params = in[0], each = in[1], dense = in[2], dense_shards = in[3];
    double experts = in[4], expert_shards = in[5];
    return params * each * (dense / dense_shards + experts / expert_shards);
}

/* Tokens of a rank, times what each of them holds, and what comes whatever the tokens. Bytes. */
double formula_dynamic_memory(const double *in)
{
    double tokens = in[0], inputs = in[1], chosen = in[2], dispatch = in[3], working = in[4];
    double fixed = in[5];
    return tokens * (inputs + chosen + dispatch + working) + fixed;
}

/* A rank's memory: what comes and goes, its state, the units gathered. Bytes. */
double formula_rank_memory(const double *in)
{
    double dynamic = in[0], state = in[1], gathered = in[2];
    return dynamic + state + gathered;
}

/* What a device of M bytes has left. Bytes. */
double formula_spare(const double *in)
{
    double memory = in[0], used = in[1];
    return memory - used;
}

/* The fewest devices whose memories together hold so many bytes. */
double formula_least_gpus(const double *in)
{
    double bytes = in[0], memory = in[1];
    return ceil(bytes / memory);
}

/* Logits that are there at once: T tokens, V entries of which a rank has one of tp parts. Bytes. */
double formula_whole_logits(const double *in)
{
    double tokens = in[0], vocab = in[1], tp = in[2], each = in[3];
    return tokens * vocab / tp * each;
}

/* Latent attention: latent, rotary key and index key of a token, bf16. Bytes a token and layer. */
double formula_latent_row(const double *in)
{
    double latent = in[0], rotary = in[1], index = in[2];
    return (latent + rotary + index) * bf16;
}

/* Rows of a whole sequence. Bytes. */
double formula_sequence_rows(const double *in)
{
    double row = in[0], tokens = in[1];
    return row * tokens;
}

/* Gathering over cp ranks of which `near` share a domain, the network first: from one rank of each
 * of the cp / near - 1 other domains comes its 1 / cp. Bytes. */
double formula_far_share(const double *in)
{
    double bytes = in[0], cp = in[1], near = in[2];
    return bytes * (cp / near - 1) / cp;
}

/* Then inside the domain: from each of near - 1 others what it has, 1 / near. Bytes. */
double formula_near_share(const double *in)
{
    double bytes = in[0], near = in[1];
    return bytes * (near - 1) / near;
}
