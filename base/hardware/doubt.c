/* doubt.c - values that are in range each and yet cannot be, or hardly can be, one machine's: what
 * they look like instead. One row a doubt; of one key the gravest first, and it alone is told. */
#include "base/hardware/hardware.h"

#include <math.h>
#include <string.h>

/* A figure of a machine that lies between `least` and `most` on every part in use. */
struct doubt {
    enum severity severity; /* an error: no machine is so */
    const char *key;        /* whose place in the file is shown */
    double (*figure)(const struct hardware *h);
    double least, most;
    const char *before, *after; /* the figure */
    const char *hint;
};

static double flops_a_byte(const struct hardware *h)
{
    return h->bf16_flops_per_second / h->memory_bytes_per_second;
}

/* The memory's rate where the arithmetic is slow beside it, as bits make any memory look: an H100's
 * in bits are 26.8e12 and 37 FLOPs a byte. Memories in use have up to 8e12. */
static double fast_beside_flops_tb(const struct hardware *h)
{
    return flops_a_byte(h) < 80 ? h->memory_bytes_per_second / 1e12 : 0;
}

static double link_to_memory(const struct hardware *h)
{
    return h->link_bytes_per_second / h->memory_bytes_per_second;
}

static double link_tb(const struct hardware *h)
{
    return h->link_bytes_per_second / 1e12;
}

static double network_gb(const struct hardware *h)
{
    return h->network_bytes_per_second / 1e9;
}

static double network_to_link(const struct hardware *h)
{
    return h->network_bytes_per_second / h->link_bytes_per_second;
}

static double host_link_gb(const struct hardware *h)
{
    return h->host_link_bytes_per_second / 1e9;
}

/* Nodes of a domain, or domains of a node, whichever is more than one; a remainder shows as a
 * fraction. */
static double domains_and_nodes(const struct hardware *h)
{
    double ratio = (double)h->domain_gpus / h->gpus_per_node;
    ratio = ratio < 1 ? 1 / ratio : ratio;
    return ratio - floor(ratio);
}

/* How often 8 GiB, or 8 GB, divide the memory; what is advertised is such a multiple, what a
 * program gets is not. */
static double beyond_advertised(const struct hardware *h)
{
    const uint64_t gib = UINT64_C(8) << 30, gb = UINT64_C(8000000000);
    uint64_t over_gib = h->memory_bytes % gib, over_gb = h->memory_bytes % gb;
    return (double)(over_gib < over_gb ? over_gib : over_gb);
}

static double host_memory_share(const struct hardware *h)
{
    return (double)h->host_memory_bytes / h->gpus_per_node / (double)h->memory_bytes;
}

static double expert_to_dense(const struct hardware *h)
{
    return h->expert_gemm_efficiency / h->gemm_efficiency;
}

static double context_mib(const struct hardware *h)
{
    return (double)h->context_bytes / 1048576;
}

static double latency_us(const struct hardware *h)
{
    return h->collective_latency_seconds * 1e6;
}

static double launch_us(const struct hardware *h)
{
    return h->launch_seconds * 1e6;
}

#define FIGURE(name)                                                                               \
    static double figure_##name(const struct hardware *h)                                          \
    {                                                                                              \
        return h->name;                                                                            \
    }
FIGURE(gemm_efficiency)
FIGURE(attention_forward_efficiency)
FIGURE(attention_backward_efficiency)
FIGURE(memory_efficiency)
FIGURE(gather_efficiency)
FIGURE(exchange_efficiency)
FIGURE(network_efficiency)

#define SHARE_ROW(name, least, most, hint)                                                         \
    {                                                                                              \
        SEVERITY_WARNING, #name, figure_##name, least, most, #name " is ", "", hint                \
    }

static const struct doubt doubts[] = {
    { SEVERITY_ERROR, "bf16_flops_per_second", flops_a_byte, 0, 480, "bf16_flops_per_second is ",
      " times memory_bytes_per_second",
      "is it the sparse peak? no part has more than 420; the dense peak is half of the sparse one, "
      "of the fp8 one, a quarter of the fp4 one" },
    { SEVERITY_WARNING, "bf16_flops_per_second", flops_a_byte, 15, INFINITY,
      "bf16_flops_per_second is only ", " times memory_bytes_per_second",
      "is it the fp32 or fp64 peak? bf16 on matrix units is meant" },
    { SEVERITY_ERROR, "memory_bytes_per_second", fast_beside_flops_tb, 0, 12,
      "memory_bytes_per_second is ", " TB/s",
      "bits per second? 8 bits are one byte, and no memory in use has more than 8 TB/s" },
    { SEVERITY_ERROR, "link_bytes_per_second", link_to_memory, 0, 0.6, "link_bytes_per_second is ",
      " of memory_bytes_per_second",
      "a link is far below the memory's rate; bits per second? 8 bits are one byte" },
    { SEVERITY_WARNING, "link_bytes_per_second", link_tb, 0, 1.2, "link_bytes_per_second is ",
      " TB/s", "does it count both directions? one direction is meant, half of 1,800 GB/s" },
    { SEVERITY_WARNING, "link_bytes_per_second", link_to_memory, 0, 0.2,
      "link_bytes_per_second is ", " of memory_bytes_per_second",
      "does it count both directions? one direction is meant, at most 0.15 of the memory's rate" },
    { SEVERITY_ERROR, "network_bytes_per_second", network_gb, 0, 250,
      "network_bytes_per_second is ", " GB/s a GPU",
      "adapters are sold in Gb/s: 400 Gb/s are 50e9 bytes per second" },
    { SEVERITY_WARNING, "network_bytes_per_second", network_to_link, 0, 1.01,
      "network_bytes_per_second is ", " of link_bytes_per_second",
      "is it the whole node's? one GPU's share is meant" },
    { SEVERITY_WARNING, "host_link_bytes_per_second", host_link_gb, 0, 500,
      "host_link_bytes_per_second is ", " GB/s a GPU",
      "does it count both directions, or two GPUs of one processor? one of each is meant" },
    { SEVERITY_ERROR, "domain_gpus", domains_and_nodes, 0, 0,
      "domain_gpus and gpus_per_node do not divide each other (remainder ", ")",
      "domain_gpus counts the GPUs that reach each other at link speed, 8 in an eight-GPU node, 72 "
      "in a rack of such" },
    { SEVERITY_WARNING, "memory_bytes", beyond_advertised, 1, INFINITY,
      "memory_bytes is a round size, ", " bytes from a multiple of 8 GB or GiB",
      "is it the advertised one? what a program gets is less or more: cudaMemGetInfo's total" },
    { SEVERITY_WARNING, "host_memory_bytes", host_memory_share, 0.4, 64, "host memory is ",
      " of device memory for each GPU", "host_memory_bytes is that of a whole node, in bytes" },
    SHARE_ROW(gemm_efficiency, 0.3, 0.95,
              "large dense matmuls reach 0.5 to 0.85 of the dense peak"),
    { SEVERITY_WARNING, "expert_gemm_efficiency", expert_to_dense, 0.2, 1.05,
      "expert_gemm_efficiency is ", " of gemm_efficiency",
      "grouped matmuls reach 0.5 to 0.9 of what dense ones do" },
    SHARE_ROW(attention_forward_efficiency, 0.15, 0.95,
              "causal attention reaches 0.4 to 0.75 when half of the square is counted"),
    SHARE_ROW(attention_backward_efficiency, 0.1, 0.95,
              "causal attention's backward reaches 0.3 to 0.6 when half of the square is counted"),
    SHARE_ROW(memory_efficiency, 0.4, 0.98, "copies reach 0.7 to 0.95 of the memory's rate"),
    SHARE_ROW(gather_efficiency, 0.2, 0.98,
              "rings reach 0.6 to 0.8 of one direction; is the link's rate that of both?"),
    SHARE_ROW(exchange_efficiency, 0.2, 0.98,
              "exchanges reach 0.5 to 0.8 of one direction; is the link's rate that of both?"),
    SHARE_ROW(network_efficiency, 0.2, 0.98, "collectives reach 0.6 to 0.95 of the adapter"),
    { SEVERITY_WARNING, "collective_latency_seconds", latency_us, 1, 1000,
      "collective_latency_seconds is ", " us", "small collectives take 5 to 50 us" },
    { SEVERITY_WARNING, "launch_seconds", launch_us, 0.5, 100, "launch_seconds is ", " us",
      "starting a kernel takes 2 to 10 us" },
    { SEVERITY_WARNING, "context_bytes", context_mib, 64, 4096, "context_bytes is ", " MiB",
      "contexts take 300 to 1,000 MiB" },
};

static void tell(const struct doubt *doubt, double figure, const struct node *root,
                 struct diag_list *reterr)
{
    const struct node *node = node_get(root, doubt->key);
    struct pos at = node ? node->at : root->at;

    if (doubt->severity == SEVERITY_ERROR)
        diag_error(reterr, at, "%s%.4g%s", doubt->before, figure, doubt->after);
    else
        diag_warning(reterr, at, "%s%.4g%s", doubt->before, figure, doubt->after);
    diag_hint(reterr, "%s", doubt->hint);
}

int hardware_doubts(const struct hardware *h, const struct node *root, bool all,
                    struct diag_list *reterr)
{
    int before = reterr->errors;
    const char *told = "";

    if (h->host)
        return 0;
    for (size_t i = 0; i < sizeof doubts / sizeof *doubts; i++) {
        const struct doubt *doubt = &doubts[i];
        double figure = doubt->figure(h);
        bool holds = figure >= doubt->least && figure <= doubt->most;
        if (holds || !(all || doubt->severity == SEVERITY_ERROR) || !strcmp(told, doubt->key))
            continue;
        told = doubt->key;
        tell(doubt, figure, root, reterr);
    }
    return reterr->errors > before ? -1 : 0;
}
