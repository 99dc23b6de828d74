/* hardware.h - the facts of one machine type: what a device offers, what of it is reached, what
 * software holds on it. Every value comes with source and confidence in hardware/NAME.yaml. */
#ifndef RANKFIT_BASE_HARDWARE_HARDWARE_H
#define RANKFIT_BASE_HARDWARE_HARDWARE_H

#include "base/diag.h"
#include "base/json.h"
#include "base/tree.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hardware {
    char name[64]; /* "h100-sxm" */
    char gpu[64];  /* "H100 SXM" */
    bool host;     /* ranks are processes of this machine and share its memory */

    /* the device */
    uint64_t memory_bytes; /* what the device gives a program (cudaMemGetInfo's total) */
    double memory_bytes_per_second;
    double bf16_flops_per_second; /* dense */
    int cores;                    /* of the machine that host ranks share; 0 elsewhere */
    int gpus_per_node;
    int domain_gpus;              /* GPUs that reach each other at link speed (NVLink domain) */
    double link_bytes_per_second; /* inside the domain, one direction, per GPU */
    double peer_link_bytes_per_second; /* to one peer, where no switch joins them; 0: any peer gets
                                          the whole link */
    double network_bytes_per_second;   /* per GPU, one direction */
    double host_link_bytes_per_second;
    uint64_t host_memory_bytes; /* per node */

    /* what is reached of it, fractions 0..1 */
    double gemm_efficiency;        /* dense matmuls of at least 8192 rows */
    double expert_gemm_efficiency; /* grouped, at >= 512 rows an expert */
    double attention_forward_efficiency, attention_backward_efficiency;
    double memory_efficiency;          /* elementwise kernels, of memory bandwidth */
    double gather_efficiency;          /* all-gather and reduce-scatter, of the link */
    double exchange_efficiency;        /* all-to-all, of the link */
    double network_efficiency;         /* collectives across nodes, of the network */
    double collective_latency_seconds; /* floor of one collective */
    double launch_seconds;             /* host cost of one kernel */
    double exchange_overlap; /* share of an exchange that hides behind expert GEMMs when chunked */
    double delta_rule_seconds_per_token; /* forward, one layer of 32 value heads x 128 x 128 */

    /* what software holds outside the arena */
    uint64_t context_bytes, modules_bytes;
    uint64_t library_bytes;   /* handles of cuBLAS and cuDNN */
    uint64_t workspace_bytes; /* inside the arena: scratch of the matmul library */
    /* Communicators, n ranks each. The first of a process: communicator_first_bytes, and at its
     * first exchange exchange_first_bytes. Each further one: communicator_next_bytes. Every one
     * that runs ring collectives adds ring_channels * channel_bytes, every one that exchanges
     * exchange_peer_bytes * (n - 1). */
    uint64_t communicator_first_bytes, exchange_first_bytes, communicator_next_bytes;
    uint64_t channel_bytes; /* one ring channel's buffers */
    int ring_channels;
    uint64_t exchange_peer_bytes; /* all-to-all buffers for each peer */

    /* Finer figures of step time, as `calibrate` fits them; 0: not said, and without effect.
     * A product takes the third root of the cubes of call_seconds, FLOPs / rate, and traffic_share
     * * bytes / memory rate. */
    double gemm_call_seconds, gemm_traffic_share;
    double expert_gemm_call_seconds, expert_gemm_traffic_share; /* a call: one expert's product */
    /* Efficiencies at head dims 64 and 256 over that at 128; at s tokens, over 1 + half / s, and
     * forward, whose keys outgrow the cache, over 1 + half / s + min(s, most) / fade. */
    double attention_head64_factor, attention_head256_factor;
    double attention_backward_head64_factor, attention_backward_head256_factor;
    double attention_half_tokens, attention_fade_tokens;
    double sustained_share; /* of these rates, kept through the length of a step */
    /* Of the delta rule's seconds with 32 heads the share of its chain over chunks, which fewer
     * heads do not shorten, forward and backward; and its backward in forwards. */
    double delta_chain_share, delta_backward_factor, delta_backward_chain_share;
    double gemm_launch_seconds;             /* host cost of one matmul, where not launch_seconds */
    double elementwise_call_seconds;        /* one elementwise kernel, beside its bytes */
    double optimizer_efficiency;            /* AdamW's passes, of memory bandwidth */
    double scatter_efficiency;              /* reduce-scatter, where not gather_efficiency */
    double exchange_latency_seconds;        /* all-to-all, where not the collective one */
    double gather_contention;               /* of a hidden gather's time, lost by what hides it */
    double host_link_both_bytes_per_second; /* each way when both directions are busy */
    /* All-to-all on the copy engines, where not as on SMs: rate, share that hides, device memory.
     */
    double copy_exchange_efficiency, copy_exchange_overlap;
    uint64_t copy_exchange_bytes;
    bool held_assumed; /* what software holds was measured on another part */
};

/* The longest sequence that `calibrate` times attention at: fade is fitted up to here, and beyond
 * it no more is lost. Public steps of 4M tokens on H100s, 512K keys a call, are as fast a FLOP as
 * those of 1M with 128K (trl, pull request 6845). */
enum { ATTENTION_FADE_MOST_TOKENS = 131072 };

/* One value of the file: key, where it goes, range, unit and meaning. The table feeds reader,
 * writer,
 * --set hardware.KEY, explain and the keys' help. A rate is a plain number in base units; bytes
 * also take sizes ("80GiB") and, on a host, `detect`. */
enum hardware_type { HARDWARE_TEXT, HARDWARE_BOOL, HARDWARE_INT, HARDWARE_BYTES, HARDWARE_REAL };
struct hardware_key {
    const char *key;
    enum hardware_type type;
    size_t offset;
    double min, max;
    bool required; /* for a GPU; `host` may omit all but its name */
    const char *unit, *meaning;
    bool fine; /* 0 means not said, and is left out of plans, whose digests so outlive new keys */
    bool held; /* what software holds on the device: measured of this part, or held_assumed */
};
extern const struct hardware_key hardware_keys[];
extern const size_t hardware_key_count;

/* NAME or FILE. A value is either plain or {value, source, confidence: A..D}; a file that ships
 * with rankfit must give source and confidence for all (tested). `host` fills memory_bytes from the
 * machine when the file says `memory_bytes: detect`. */
int hardware_load(const char *name_or_path, struct hardware *ret, struct diag_list *reterr);
/* The same, and every value that hardly can be as a warning. */
int hardware_check(const char *name_or_path, struct hardware *ret, struct diag_list *reterr);
/* What is in range and cannot be (an error, -1: a sparse peak, bits for bytes) or, with `all`,
 * hardly can be; with the likely cause. root: the file that says so. */
int hardware_doubts(const struct hardware *hardware, const struct node *root, bool all,
                    struct diag_list *reterr);
int hardware_from_node(const struct node *root, struct hardware *ret, struct diag_list *reterr);
struct json *hardware_to_json(const struct hardware *hardware);
/* Whether the key is a number that is said. */
bool hardware_number(const struct hardware *hardware, const struct hardware_key *key, double *ret);
int hardware_set(struct hardware *hardware, const char *field, const char *value, struct pos at,
                 struct diag_list *reterr);

/* Physical memory, or what the control group of this process allows of it; 0 when unknown. */
uint64_t hardware_host_memory(void);

/* Cores that this process may run on; 0 when unknown. */
int hardware_host_cores(void);

#endif
