/* The screens of every command as a person sees them, in tests/golden/screens.txt. */
#include "tests/e2e/program.h"
#include "tests/e2e/texts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MAIN "--model qwen3.5-35b-a3b --hardware h100-sxm --seq 128K --gpus "
#define SMALL "--model qwen3-30b-a3b --hardware h100-sxm --gpus 8 --seq 16K"
#define HOST                                                                                       \
    "--model tiny-moe --hardware host --gpus 2 --seq 128 --set ep=2 --set tp=1 --set pp=1"         \
    " --set cp=1 --set sharding=fsdp --set hardware.memory_bytes=16GB --set hardware.cores=2"      \
    " --set hardware.host_memory_bytes=16GB"
/* Figures that a processor measures read N, times T. */
#define MASKED                                                                                     \
    " 2>/dev/null | sed -E 's/[-+]?[0-9][0-9.,]* ?(ms|us|s)\\b/T/g; s/[-+]?[0-9][0-9.,]*/N/g; "    \
    "s/on .* \\(host\\)/on DEVICE (host)/; s/  +/  /g'"
/* A plan and its measurement on an H200, as $TMP/plan.json and $TMP/measurement.json. */
#define STORED                                                                                     \
    "python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); [json.dump(d[k], "            \
    "open(sys.argv[2] + \"/\" + k + \".json\", \"w\")) for k in (\"plan\", \"measurement\")]' "    \
    "\"$RANKFIT_SOURCE_ROOT/tests/data/measured/moe1-32k.json\" $TMP && "
/* glibc's argp breaks some lines by memory that it has not set: one line for each option instead.
 */
#define ONE_LINE "tr -s ' \\n' ' ' | sed 's/ -/\\n-/g; s/$/\\n/'"
#define EACH(command, words) "for w in " words "; do " command " || exit; done"

static const struct told screens[] = {
    { "--version", 0, "$RANKFIT --version | tr -d '0-9.'" },
    { "--help", 0, "$RANKFIT --help" },
    { "COMMAND --help", 0,
      EACH("$RANKFIT $w --help | " ONE_LINE,
           "plan budget run compare explain list pair rehearse calibrate "
           "search sweep grid validate export check") },
    { "plan", 0, "$RANKFIT plan " MAIN "32" },
    { "plan of a dense model", 0,
      "$RANKFIT plan --model llama-3.1-70b --hardware h100-sxm --gpus 64 --seq 8K" },
    { "plan of stages", 0,
      "$RANKFIT plan --model qwen3-30b-a3b --hardware h100-sxm --gpus 32 --seq 4K --global-batch "
      "256 "
      "--set pp=4 --set vpp=2 --set offload=optimizer --routing 80:4" },
    { "plan for Megatron", 0,
      "$RANKFIT plan --engine megatron --model qwen3-30b-a3b --hardware h100-sxm --gpus 16 --seq "
      "4K --global-batch 64 --set ep=8" },
    { "plan for PyTorch", 0,
      "$RANKFIT plan --engine torch --model qwen3-1.7b --hardware h200 --gpus 1 --seq 8K --set "
      "master=none --set moments_dtype=bf16 --set recompute=none | head -6" },
    { "list engines", 0, "$RANKFIT list engines" },
    { "explain an engine", 0, "$RANKFIT explain megatron" },
    { "plan that does not fit", 1, "$RANKFIT plan " MAIN "2" },
    { "budget", 0, "$RANKFIT budget " SMALL },
    { "budget of a rank", 0,
      "$RANKFIT budget --model qwen3-8b --hardware h100-sxm --gpus 8 --seq 4K --set pp=4 --rank "
      "7" },
    { "search", 0, "$RANKFIT search --threads 1 " SMALL " --set tp=1 --set moe=plain" },
    { "search for hours", 0,
      "$RANKFIT search --threads 1 " SMALL
      " --set tp=1 --set moe=plain --objective gpu-hours --tokens 1e12" },
    { "search for a Pareto front", 0,
      "$RANKFIT search --threads 1 --pareto --model qwen3-0.6b --hardware h100-sxm --gpus 4 --seq "
      "16K" },
    { "search that finds none", 1,
      "$RANKFIT search --threads 1 --model llama-3.1-70b --hardware h100-sxm --gpus 2 --seq 8K "
      "--set offload=none" },
    { "sweep", 0,
      "$RANKFIT sweep --model qwen3-30b-a3b --hardware h100-sxm --gpus 3,8,16 --seq 8K,32K --set "
      "ep=8" },
    { "grid", 0, "$RANKFIT grid " SMALL },
    { "compare", 0, STORED "$RANKFIT compare $TMP/plan.json $TMP/measurement.json" },
    { "compare out of tolerance", 1,
      STORED "sed -i 's/\"device_bytes\": [0-9]*/\"device_bytes\": 1000/' $TMP/measurement.json && "
             "$RANKFIT compare $TMP/plan.json $TMP/measurement.json" },
    { "export to every target", 0,
      "$RANKFIT plan " SMALL " -o $TMP/p.yaml >/dev/null && cd $TMP && "
      "for t in megatron torchtitan megatron-bridge verl slime ms-swift slurm mpirun; do $RANKFIT "
      "export p.yaml --to $t; done" },
    { "export of stages and MLA", 0,
      "$RANKFIT plan --model deepseek-v3 --hardware h100-sxm --gpus 512 --seq 4096 --pp 8 --ep 8 "
      "--tp 1 -o $TMP/p.yaml >/dev/null 2>&1; $RANKFIT export $TMP/p.yaml --to megatron" },
    { "check a launch that fits", 0, "$RANKFIT check launch.sh --hardware h100-sxm" },
    { "check a launch that does not fit", 1,
      "$RANKFIT check launch.sh --hardware h100-sxm --seq 128K --gpus 8" },
    { "check an illegal launch", 1,
      "$RANKFIT check --hardware h100-sxm --model qwen3-30b-a3b -- torchrun --nproc_per_node 8 "
      "pretrain_gpt.py --num-experts 128 --tensor-model-parallel-size 3 --seq-length 8192 "
      "--pipeline-model-parallel-size 5 --recompute-granularity full --micro-batch-size 1 "
      "--use-distributed-optimizer --optimizer-cpu-offload --fp8-format hybrid --frobnicate 3" },
    { "check a torchtitan file", 0, "$RANKFIT check launch.toml --hardware h200" },
    { "check a script of our own", 0,
      "$RANKFIT plan " SMALL " -o $TMP/p.yaml >/dev/null && cd $TMP && "
      "$RANKFIT export p.yaml --to slurm -o s.sh && $RANKFIT check s.sh" },
    { "check a script of another world", 1,
      "$RANKFIT plan " SMALL " -o $TMP/p.yaml >/dev/null && cd $TMP && "
      "$RANKFIT export p.yaml --to mpirun | sed 's/-n 8/-n 4/' >s.sh; $RANKFIT check s.sh" },
    { "compare with a log of Megatron", 1,
      "$RANKFIT plan " SMALL " -o $TMP/p.yaml >/dev/null; printf '%s\\n' "
      "'  num_layers ............... 48' '  world_size ............... 8' "
      "'[Rank 0] (after 2 iterations) memory (MB) | allocated: 50000.0 | max allocated: 70000.0 | "
      "reserved: 71000.0 | max reserved: 73000.0' ' iteration 2/ 9 | elapsed time per iteration "
      "(ms): 5000.0 |' >$TMP/run.log; $RANKFIT compare $TMP/p.yaml $TMP/run.log" },
    { "compare with a message that memory is out", 1,
      "$RANKFIT plan " SMALL " -o $TMP/p.yaml >/dev/null; echo 'torch.OutOfMemoryError: CUDA out "
      "of memory. Tried to allocate 4.64 GiB. GPU 0 has a total capacity of 79.10 GiB of which "
      "1.00 GiB is free. Including non-PyTorch memory, this process has 78.00 GiB memory in use. "
      "Of the allocated memory 72.00 GiB is allocated by PyTorch, and 4.00 GiB is reserved by "
      "PyTorch but unallocated.' >$TMP/oom.txt; $RANKFIT compare $TMP/p.yaml $TMP/oom.txt" },
    { "explain a model", 0, "$RANKFIT explain qwen3.5-35b-a3b" },
    { "explain a machine", 0, "$RANKFIT explain h100-sxm" },
    { "explain with a plan", 0,
      "$RANKFIT plan " SMALL " -o $TMP/p.yaml >/dev/null && "
      "for w in ep weights layer_working balance matmul; do $RANKFIT explain $w $TMP/p.yaml; "
      "done" },
    { "explain names of other engines", 0,
      "for w in EP expert_parallel_degree zero3 hsdp fp8 mtp 1f1b zig-zag; do $RANKFIT explain $w; "
      "done" },
    { "explain every key", 0,
      "for w in $($RANKFIT list keys | cut -d' ' -f1 | grep -v FIELD); do $RANKFIT explain $w; "
      "done" },
    { "explain every item", 0,
      "for w in $($RANKFIT list items | cut -d' ' -f1); do $RANKFIT explain $w; done" },
    { "list", 0,
      EACH("$RANKFIT list $w", "models hardware recipes keys items primitives rules facts "
                               "validation") },
    { "validate figures", 0, "$RANKFIT validate figures" },
    { "validate stages", 0, "$RANKFIT validate stages 2>/dev/null" },
    { "validate public", 0, "$RANKFIT validate public 2>/dev/null" },
};

static const struct told runs[] = {
    { "run", 0, "$RANKFIT run " HOST " --steps 2" MASKED },
    { "rehearse", 0, "$RANKFIT rehearse " HOST " --rank 1 --steps 1" MASKED },
    { "pair", 0, "$RANKFIT pair recompute=full --steps 1" MASKED },
};

int main(void)
{
    enum { SCREENS = sizeof screens / sizeof *screens, RUNS = sizeof runs / sizeof *runs };
    struct CMUnitTest tests[SCREENS + RUNS];
    told_tests(screens, SCREENS, tests);
    told_tests(runs, RUNS, tests + SCREENS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
