/* Every bad input that a person can make: one clear error each, the exit status of the contract,
 * nothing on standard output, no partial file. */
#include "tests/e2e/program.h"
#include "tests/e2e/texts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DENSE "--model qwen3-0.6b --hardware h100-sxm --gpus 8 --seq 4K"
#define MOE "--model qwen3-30b-a3b --hardware h100-sxm --gpus 16 --seq 8K"
#define PAIRS "--model qwen3-30b-a3b --hardware h100-sxm"
#define SMALL "--model tiny-moe --hardware host --gpus 4 --seq 256"
#define HOST_SIZES                                                                                 \
    " --set hardware.memory_bytes=16GB --set hardware.host_memory_bytes=16GB"                      \
    " --set hardware.cores=2"
#define RUNNABLE SMALL " --set tp=1 --set pp=1 --set cp=1 --set ep=4 --set sharding=fsdp" HOST_SIZES
/* The configuration of a family as its makers write it, in $TMP. */
#define FAMILY(name)                                                                               \
    "sed -n '2s/^ \"config\": \\(.*\\),$/\\1/p'"                                                   \
    " \"$RANKFIT_SOURCE_ROOT/tests/data/transformers/" name ".json\" >$TMP/model.json && "
/* A plan file in $TMP that every machine writes alike. */
#define WITH_PLAN "\"$RANKFIT\" plan " RUNNABLE " -o $TMP/plan.yaml >/dev/null && "

static const struct told bad_inputs[] = {
    { "no_command", 2, "\"$RANKFIT\"" },
    { "unknown_command", 2, "\"$RANKFIT\" plna" },
    { "unknown_option", 2, "\"$RANKFIT\" plan --modle x --gpus" },
    { "abbreviated_option", 2, "\"$RANKFIT\" plan --mod qwen3-0.6b" },
    { "option_of_another_command", 2, "\"$RANKFIT\" plan --steps 3" },
    { "missing_value", 2, "\"$RANKFIT\" plan --model" },
    { "missing_name", 2, "\"$RANKFIT\" search --objective" },
    { "missing_file", 2, "\"$RANKFIT\" search -o" },
    { "flag_with_value", 2, "\"$RANKFIT\" plan --json=yes" },
    { "option_twice", 2, "\"$RANKFIT\" plan " DENSE " --gpus 16" },
    { "too_many_arguments", 2, "\"$RANKFIT\" compare a b c" },
    { "too_few_arguments", 2, "\"$RANKFIT\" compare a" },
    { "missing_options", 2, "\"$RANKFIT\" plan --gpus 8" },
    { "bad_numbers", 2,
      "\"$RANKFIT\" plan --model qwen3-0.6b --hardware h100-sxm --gpus 0 --seq 12Q --micro-batch "
      "-1 "
      "--headroom 200% --reserve much --routing sometimes" },
    { "absurd_sequence", 2,
      "\"$RANKFIT\" plan --model qwen3-0.6b --hardware h100-sxm --gpus 8 --seq "
      "99999999999999999999" },
    { "absurd_model", 2, "\"$RANKFIT\" plan " DENSE " --set model.hidden=99999999999999" },
    { "nothing_left", 2, "\"$RANKFIT\" plan " DENSE " --reserve 90GB" },
    { "unknown_engine", 2, "\"$RANKFIT\" plan " DENSE " --engine megatrom" },
    { "engine_without_that_loss", 2,
      "\"$RANKFIT\" plan " DENSE " --engine megatron --set loss=linear_ce --set sharding=fsdp" },
    { "engine_without_adapters", 2,
      "\"$RANKFIT\" budget --model qwen3-4b --hardware h200 --gpus 1 --seq 4K --engine torch "
      "--set lora_rank=16" },
    { "engine_without_that_key", 2,
      "\"$RANKFIT\" budget --model qwen3-4b --hardware h200 --gpus 1 --seq 4K --engine torch "
      "--set grad_dtype=bf16 --set master=none" },
    { "engine_of_one_gpu", 2,
      "\"$RANKFIT\" plan --model qwen3-8b --hardware h200 --gpus 8 --seq 4K --engine torch" },
    { "engine_without_those_layers", 2,
      "\"$RANKFIT\" plan --model qwen3.5-35b-a3b --hardware h200 --gpus 8 --seq 4K --engine "
      "megatron" },
    { "run_for_another_engine", 2,
      "\"$RANKFIT\" run --model qwen3-0.6b --hardware h200 --gpus 1 --seq 4K --engine torch" },
    { "unknown_model", 2, "\"$RANKFIT\" plan --model qwen3-0.6 --hardware h100 --gpus 8 --seq 4K" },
    { "set_malformed", 2, "\"$RANKFIT\" plan " DENSE " --set tp" },
    { "set_unknown_key", 2,
      "\"$RANKFIT\" plan " DENSE
      " --set shardign=fsdp --set model.hiden=1 --set hardware.memroy=1" },
    { "set_derived", 2,
      "\"$RANKFIT\" plan " DENSE " --set dp=4 --set d_rep=2 --set e_dp=4 --set micro_batches=2" },
    { "set_option", 2, "\"$RANKFIT\" plan " DENSE " --set gpus=16 --set global_batch=4" },
    { "set_field", 2, "\"$RANKFIT\" plan " DENSE " --set layers=12 --set memory_bytes=80GB" },
    { "set_other_words", 2,
      "\"$RANKFIT\" plan " DENSE " --set TP=2 --set sharding=zero3 --set grad_dtype=float32"
      " --set offload=checkpoint" },
    { "set_model_kinds", 2,
      "\"$RANKFIT\" plan " DENSE " --set model.layers=twelve --set model.hidden=12.5"
      " --set model.tied=maybe --set model.experts=64 --set model.mtp=1 --set "
      "model.vision=frozen" },
    { "set_model_apart", 2, "\"$RANKFIT\" plan " DENSE " --set model.kv_heads=3" },
    { "set_hardware_values", 2,
      "\"$RANKFIT\" plan " DENSE " --set hardware.memory_bytes=80 --set hardware.gemm_efficiency=0"
      " --set hardware.gather_efficiency=1.2 --set hardware.exchange_efficiency=72%"
      " --set hardware.network_bytes_per_second=400 --set hardware.ring_channels=2.5" },
    { "set_hardware_sparse_peak", 2,
      "\"$RANKFIT\" plan " DENSE " --set hardware.bf16_flops_per_second=1979e12" },
    { "set_hardware_bits", 2,
      "\"$RANKFIT\" plan " DENSE " --set hardware.memory_bytes_per_second=26.8e12" },
    { "set_hardware_domain", 2, "\"$RANKFIT\" plan " DENSE " --set hardware.domain_gpus=12" },
    { "routing_beyond_experts", 2, "\"$RANKFIT\" plan " MOE " --routing 80:400" },
    { "sizes_without_unit", 2, "\"$RANKFIT\" plan " DENSE " --headroom 2 --reserve 5" },
    { "headroom_of_all", 2, "\"$RANKFIT\" plan " DENSE " --headroom 100%" },
    { "set_wrong_value", 2, "\"$RANKFIT\" plan " DENSE " --set tp=zero --set sharding=fspd" },
    { "set_twice", 2, "\"$RANKFIT\" plan " DENSE " --set tp=1 --set tp=2" },
    { "illegal_layout", 2, "\"$RANKFIT\" plan " DENSE " --set tp=3 --set pp=5 --set ep=2" },
    { "lengths_malformed", 2, "\"$RANKFIT\" plan " DENSE " --lengths 1000,0x" },
    { "lengths_empty", 2, "\"$RANKFIT\" plan " DENSE " --lengths ''" },
    { "lengths_missing", 2, "\"$RANKFIT\" plan " DENSE " --lengths nosuch.txt" },
    { "lengths_too_long", 2, "\"$RANKFIT\" plan " DENSE " --lengths 1000,200000" },
    { "recipe_missing", 2, "\"$RANKFIT\" plan --recipe host-quikstart" },
    { "recipe_malformed", 2, "\"$RANKFIT\" plan --recipe malformed.yaml" },
    { "recipe_duplicate", 2, "\"$RANKFIT\" plan --recipe duplicate.yaml" },
    { "recipe_unknown_keys", 2, "\"$RANKFIT\" plan --recipe unknown_keys.yaml" },
    { "recipe_wrong_types", 2, "\"$RANKFIT\" plan --recipe wrong_types.yaml" },
    { "recipe_not_a_map", 2, "\"$RANKFIT\" plan --recipe list.yaml" },
    { "model_malformed", 2, "\"$RANKFIT\" explain ./malformed.json" },
    { "model_unknown_architecture", 2, "\"$RANKFIT\" explain ./unknown_architecture.json --json" },
    { "model_counted_only", 2,
      FAMILY("deepseek-v4") "\"$RANKFIT\" plan --model $TMP/model.json --hardware h100-sxm --gpus 8"
                            " --seq 4K" },
    { "model_tower_counted_only", 2,
      FAMILY("mistral3") "\"$RANKFIT\" plan --model $TMP/model.json --hardware h100-sxm --gpus 8"
                         " --seq 4K --set model.vision=trained" },
    { "model_with_a_rope_that_nothing_runs", 2,
      FAMILY("llama") "sed -i s/llama3/longrope/ $TMP/model.json && \"$RANKFIT\" run --model"
                      " $TMP/model.json --hardware host --gpus 2 --seq 128 --set tp=1 --set pp=1"
                      " --set cp=1 --set sharding=fsdp" HOST_SIZES },
    { "model_run_without_its_scales", 2,
      FAMILY("granite") "\"$RANKFIT\" rehearse --model $TMP/model.json --hardware host --gpus 2"
                        " --seq 128 --set tp=1 --set pp=1 --set cp=1 --set sharding=fsdp" HOST_SIZES
                        " --rank 2" },
    { "model_incomplete", 2, "\"$RANKFIT\" explain ./incomplete.json" },
    { "hardware_wrong", 2,
      "\"$RANKFIT\" plan --model qwen3-0.6b --hardware ./hardware.yaml --gpus 8 --seq 4K" },
    { "hardware_sparse_peak", 2,
      "sed 's/989.4e12/1979e12/' \"$RANKFIT_SOURCE_ROOT/hardware/h100-sxm.yaml\" >$TMP/gpu.yaml && "
      "\"$RANKFIT\" plan --model qwen3-0.6b --hardware $TMP/gpu.yaml --gpus 8 --seq 4K" },
    { "hardware_units", 2,
      "sed -e '/^memory_bytes_per_second/,+1s/3.35e12/3350/'"
      " -e '/^link_bytes_per_second/,+1s/450e9/3600e9/'"
      " -e '/^network_bytes_per_second/,+1s/50e9/400e9/'"
      " -e '/^memory_bytes:/,+1s/80998MiB/0/' -e '/^gemm_efficiency/,+1s/0.7168/1.2/'"
      " \"$RANKFIT_SOURCE_ROOT/hardware/h100-sxm.yaml\" >$TMP/gpu.yaml && "
      "\"$RANKFIT\" list hardware --check $TMP/gpu.yaml" },
    { "hardware_bits", 2,
      "sed -e '/^memory_bytes_per_second/,+1s/3.35e12/26.8e12/'"
      " -e '/^link_bytes_per_second/,+1s/450e9/3600e9/'"
      " -e '/^network_bytes_per_second/,+1s/50e9/400e9/'"
      " -e '/^domain_gpus/,+1s/8/12/'"
      " \"$RANKFIT_SOURCE_ROOT/hardware/h100-sxm.yaml\" >$TMP/gpu.yaml && "
      "\"$RANKFIT\" list hardware --check $TMP/gpu.yaml" },
    { "hardware_check", 2, "\"$RANKFIT\" list hardware --check ./hardware.yaml" },
    { "hardware_check_kind", 2, "\"$RANKFIT\" list models --check ./hardware.yaml" },
    { "set_recompute_none_of_some", 2,
      "\"$RANKFIT\" plan " MOE " --set recompute=none --set recompute_layers=4" },
    { "set_context_none_of_two", 2, "\"$RANKFIT\" plan " MOE " --set cp=2 --set context=none" },
    { "set_chunks_of_plain", 2, "\"$RANKFIT\" plan " MOE " --set moe=plain --set moe_chunks=4" },
    { "set_host_bytes_of_nothing", 2,
      "\"$RANKFIT\" plan " MOE " --set offload=none --set sco_host_bytes=1GB" },
    { "set_micro_batch_both_ways", 2,
      "\"$RANKFIT\" plan " MOE " --set micro_batch=3 --micro-batch 2" },
    { "set_widths_apart", 2, "\"$RANKFIT\" plan " MOE " --set fsdp=3 --set e_fsdp=5" },
    { "stages_apart", 2, "\"$RANKFIT\" plan " MOE " --set pp=4 --set stage_layers=24,24" },
    { "stages_drop_layers", 2, "\"$RANKFIT\" plan " MOE " --set pp=2 --set stage_layers=11,13" },
    { "stages_malformed", 2, "\"$RANKFIT\" plan " MOE " --set stage_layers='Et*12|q*12|L'" },
    { "stages_empty", 2, "\"$RANKFIT\" plan " MOE " --set 'stage_layers=Et*24|t*24|L'" },
    { "stages_one", 2, "\"$RANKFIT\" plan " MOE " --set stage_layers=24" },
    { "stages_string_sum", 2,
      "\"$RANKFIT\" plan " MOE " --set pp=2 --set 'stage_layers=Et*24|t*25L'" },
    { "stages_no_string", 2, "\"$RANKFIT\" plan " MOE " --set stage_layers=24,even" },
    { "stages_empty_part", 2, "\"$RANKFIT\" plan " MOE " --set 'stage_layers=Et*24||t*24L'" },
    { "stages_second_embedding", 2, "\"$RANKFIT\" plan " MOE " --set 'stage_layers=Et*24|Et*24L'" },
    { "stages_early_loss", 2, "\"$RANKFIT\" plan " MOE " --set 'stage_layers=Et*24L|t*24'" },
    { "stages_bracket", 2, "\"$RANKFIT\" plan " MOE " --set 'stage_layers=E(t*24|t*24L'" },
    { "stages_endless", 2,
      "\"$RANKFIT\" plan " MOE " --set 'stage_layers=E((t*4|)*1000000)*1000000L'" },
    { "stages_interleaved", 2, "\"$RANKFIT\" plan " MOE " --set pp=2 --set vpp=5" },
    { "search_illegal", 2, "\"$RANKFIT\" search " MOE " --set tp=3" },
    { "search_contradiction", 2,
      "\"$RANKFIT\" search " MOE " --set ep=16 --set pp=2 --set recompute=none"
      " --set recompute_layers=2" },
    { "search_options", 2,
      "\"$RANKFIT\" search " MOE " --objective speed --tokens lots --threads 0" },
    { "search_hours_of_what", 2, "\"$RANKFIT\" search " MOE " --objective gpu-hours" },
    { "search_experts", 2, "\"$RANKFIT\" search " MOE " --set ep=256" },
    { "search_beyond_world", 2, "\"$RANKFIT\" search " MOE " --set ep=16 --set etp=4" },
    { "search_stages_beyond_world", 2, "\"$RANKFIT\" search " MOE " --set ep=16 --set pp=4" },
    { "search_stages_beyond_layers", 2, "\"$RANKFIT\" search " MOE " --set pp=49" },
    { "search_sequence", 2, "\"$RANKFIT\" search " PAIRS " --gpus 16 --seq 4097 --set cp=2" },
    { "search_interleaved_string", 2,
      "\"$RANKFIT\" search " MOE " --set pp=2 --set vpp=2 --set "
      "'stage_layers=Et*12|t*12|t*12|t*12L'" },
    { "search_stages_unasked", 2, "\"$RANKFIT\" search " MOE " --set stage_layers=1*48" },
    { "search_vocabulary", 2, "\"$RANKFIT\" search " MOE " --set loss=ring_dtp --set cp=16" },
    { "search_offload_nowhere", 2,
      "\"$RANKFIT\" search " MOE " --set offload=checkpoints --set sco_host_bytes=0" },
    { "search_batch", 2, "\"$RANKFIT\" search " MOE " --set micro_batch=3 --global-batch 16" },
    { "search_fewest_illegal", 2,
      "\"$RANKFIT\" search " MOE " --objective gpus --set recompute=none --set "
      "recompute_layers=4" },
    { "search_hours_illegal", 2,
      "\"$RANKFIT\" search " MOE " --objective gpu-hours --tokens 1e12 --set tp=3" },
    { "search_near_objective", 2, "\"$RANKFIT\" search " MOE " --objective throughputt" },
    { "search_tokens_none", 2, "\"$RANKFIT\" search " MOE " --objective gpu-hours --tokens 0" },
    { "search_tokens_negative", 2,
      "\"$RANKFIT\" search " MOE " --objective gpu-hours --tokens -1e12" },
    { "search_tokens_absurd", 2,
      "\"$RANKFIT\" search " MOE " --objective gpu-hours --tokens 1e40" },
    { "search_tokens_no_number", 2,
      "\"$RANKFIT\" search " MOE " --objective gpu-hours --tokens nan" },
    { "search_argument", 2, "\"$RANKFIT\" search plan.yaml" },
    { "search_option_of_plan", 2, "\"$RANKFIT\" search " MOE " --judge" },
    { "search_list", 2, "\"$RANKFIT\" search " PAIRS " --gpus 8,16 --seq 4K" },
    { "sweep_illegal", 2, "\"$RANKFIT\" sweep " PAIRS " --gpus 3,5 --seq 4K,8K --set tp=2" },
    { "sweep_lists", 2, "\"$RANKFIT\" sweep " PAIRS " --gpus 8,,x --seq 4K,0" },
    { "sweep_one_pair", 2, "\"$RANKFIT\" sweep " PAIRS " --gpus 7 --seq 4K --set tp=2" },
    { "sweep_short_sequence", 2, "\"$RANKFIT\" sweep " PAIRS " --gpus 8 --seq 1 --set cp=2" },
    { "sweep_no_gpus", 2, "\"$RANKFIT\" sweep " PAIRS " --gpus 0,8 --seq 4K" },
    { "sweep_empty", 2, "\"$RANKFIT\" sweep " PAIRS " --gpus '' --seq ," },
    { "sweep_range", 2, "\"$RANKFIT\" sweep " PAIRS " --gpus 8-16,'8 16' --seq 4G" },
    { "sweep_endless", 2,
      "\"$RANKFIT\" sweep " PAIRS " --gpus $(seq -s, 1 9999) --seq $(seq -s, 1 9999)" },
    { "sweep_long_value", 2,
      "\"$RANKFIT\" sweep " PAIRS " --gpus 8 --seq 4K,$(printf '%064d' 8)192" },
    { "sweep_pairs", 2,
      "\"$RANKFIT\" sweep " PAIRS " --gpus $(seq -s, 1 20) --seq $(seq -s, 1 20)" },
    { "sweep_output", 2, "\"$RANKFIT\" sweep " PAIRS " --gpus 8 --seq 4K -o $TMP/sweep.yaml" },
    { "sweep_missing", 2, "\"$RANKFIT\" sweep " PAIRS " --seq 4K" },
    { "grid_illegal", 2, "\"$RANKFIT\" grid " MOE " --set ep=7" },
    { "grid_list", 2, "\"$RANKFIT\" grid " PAIRS " --gpus 8,16 --seq 4K" },
    { "grid_stages", 2, "\"$RANKFIT\" grid " MOE " --set stage_layers=24,25" },
    { "grid_stages_beyond_layers", 2, "\"$RANKFIT\" grid " MOE " --set pp=49" },
    { "grid_no_gpus", 2, "\"$RANKFIT\" grid " PAIRS " --gpus 0 --seq 0" },
    { "plan_missing", 2, "\"$RANKFIT\" budget nosuch.yaml" },
    { "plan_malformed", 2, "\"$RANKFIT\" budget malformed.json" },
    { "plan_not_a_plan", 2, "\"$RANKFIT\" budget duplicate.yaml" },
    { "plan_of_another_model", 2,
      WITH_PLAN "sed 's/ hidden: 64/ hidden: 128/' $TMP/plan.yaml >$TMP/other.yaml && \"$RANKFIT\" "
                "budget $TMP/other.yaml" },
    { "plan_of_another_world", 2,
      WITH_PLAN "sed 's/ gpus: 4/ gpus: 8/' $TMP/plan.yaml >$TMP/other.yaml && \"$RANKFIT\" budget "
                "$TMP/other.yaml" },
    { "plan_and_options", 2, WITH_PLAN "\"$RANKFIT\" budget $TMP/plan.yaml --gpus 8 --set tp=2" },
    { "rank_outside", 2, WITH_PLAN "\"$RANKFIT\" budget $TMP/plan.yaml --rank 4" },
    { "measurement_wrong", 2, WITH_PLAN "\"$RANKFIT\" compare $TMP/plan.yaml measurement.json" },
    { "log_of_another_run", 2,
      WITH_PLAN
      "printf '  world_size ...... 64\\n  num_layers ...... 99\\nmemory (MB) | max "
      "allocated: 1000.0\\n' >$TMP/r.log; cd $TMP; \"$RANKFIT\" compare plan.yaml r.log" },
    { "log_without_memory", 2,
      WITH_PLAN "echo loss 3 >$TMP/r.log; cd $TMP; \"$RANKFIT\" compare plan.yaml r.log" },
    { "log_missing", 2, WITH_PLAN "\"$RANKFIT\" compare $TMP/plan.yaml nosuch.log" },
    { "export_without_target", 2, WITH_PLAN "\"$RANKFIT\" export $TMP/plan.yaml" },
    { "export_to_unknown", 2, WITH_PLAN "\"$RANKFIT\" export $TMP/plan.yaml --to megatorn" },
    { "export_of_no_plan", 2, "\"$RANKFIT\" export measurement.json --to slurm" },
    { "check_of_nothing", 2, "\"$RANKFIT\" check" },
    { "check_of_both", 2, "\"$RANKFIT\" check launch.sh -- torchrun x" },
    { "check_of_missing_file", 2, "\"$RANKFIT\" check nosuch.sh --hardware h100-sxm" },
    { "check_of_no_launch", 2, "\"$RANKFIT\" check measurement.json --hardware h100-sxm" },
    { "check_of_open_quote", 2,
      "printf 'torchrun \"x' >$TMP/s.sh; cd $TMP; \"$RANKFIT\" check s.sh" },
    { "check_of_broken_toml", 2,
      "printf '[parallelism\\n' >$TMP/s.toml; cd $TMP; \"$RANKFIT\" check s.toml" },
    { "check_of_no_number", 2,
      "\"$RANKFIT\" check --hardware h100-sxm --model qwen3-0.6b --gpus 8 -- pretrain_gpt.py "
      "--seq-length 4096 --tensor-model-parallel-size '$TP' --micro-batch-size one" },
    { "check_without_vocabulary", 2,
      "\"$RANKFIT\" check --hardware h100-sxm --gpus 8 -- pretrain_gpt.py --seq-length 4096 "
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4" },
    { "check_of_bad_architecture", 2,
      "\"$RANKFIT\" check --hardware h100-sxm --gpus 8 -- pretrain_gpt.py --seq-length 4096 "
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 256 --num-experts 4 "
      "--moe-layer-freq '[0]*3'" },
    { "check_without_gpus", 2,
      "\"$RANKFIT\" check --model qwen3-0.6b -- pretrain_gpt.py --tensor-model-parallel-size 2" },
    { "output_without_directory", 3, "\"$RANKFIT\" plan " DENSE " -o $TMP/nowhere/plan.yaml" },
    { "output_is_directory", 3, "\"$RANKFIT\" plan " DENSE " -o $TMP" },
    { "output_is_device", 3, "\"$RANKFIT\" plan " DENSE " -o /dev/full" },
    { "stdout_full", 3, "\"$RANKFIT\" plan " DENSE " >/dev/full" },
    { "explain_unknown", 2, "\"$RANKFIT\" explain chekpoints" },
    { "list_unknown", 2, "\"$RANKFIT\" list modles" },
    { "run_wrong_options", 2,
      "\"$RANKFIT\" run " RUNNABLE " --steps 0 --seed x --data nosuch.txt --data-format utf8" },
    { "memory_limit_unknown", 2, "\"$RANKFIT\" run " RUNNABLE " --memory-limit much" },
    { "memory_limit_too_small", 2, "\"$RANKFIT\" run " RUNNABLE " --memory-limit 80MB" },
    { "memory_limit_below_reserve", 2,
      "\"$RANKFIT\" plan " RUNNABLE
      " --reserve 1GB -o $TMP/plan.yaml >/dev/null && \"$RANKFIT\" run "
      "$TMP/plan.yaml --memory-limit 1GB" },
    { "run_beyond_backend", 2,
      "\"$RANKFIT\" run " SMALL
      " --set tp=2 --set offload=optimizer --set hardware.memory_bytes=16GB" },
    { "run_other_world", 2,
      WITH_PLAN "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 \"$RANKFIT\" run $TMP/plan.yaml" },
    { "rehearse_rank_outside", 2, WITH_PLAN "\"$RANKFIT\" rehearse $TMP/plan.yaml --rank 4" },
    { "rehearse_under_launcher", 2,
      WITH_PLAN
      "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 \"$RANKFIT\" rehearse $TMP/plan.yaml" },
    { "rehearse_beyond_backend", 2,
      "\"$RANKFIT\" rehearse " SMALL " --set tp=2 --set hardware.memory_bytes=16GB" },
    { "run_without_mpi", 3,
      WITH_PLAN
      "cp \"$RANKFIT\" $TMP/rankfit && ln -s /bin/true $TMP/rankfit-host && PATH=/nowhere "
      "$TMP/rankfit run $TMP/plan.yaml" },
    { "run_without_executor", 3,
      WITH_PLAN
      "cp \"$RANKFIT\" $TMP/rankfit && RANKFIT_LIBEXEC= $TMP/rankfit run $TMP/plan.yaml" },
    { "run_executor_fails", 3,
      WITH_PLAN
      "printf '#!/bin/sh\\nexit 9\\n' >$TMP/rankfit-host && chmod +x $TMP/rankfit-host && "
      "PMIX_RANK=0 RANKFIT_LIBEXEC=$TMP \"$RANKFIT\" run $TMP/plan.yaml" },
    { "run_executor_killed", 3,
      WITH_PLAN "printf '#!/bin/sh\\nkill -9 $$\\n' >$TMP/rankfit-host && chmod +x "
                "$TMP/rankfit-host && PMIX_RANK=0 RANKFIT_LIBEXEC=$TMP \"$RANKFIT\" run "
                "$TMP/plan.yaml" },
};

/* A failed write leaves neither the file nor a temporary neighbour. */
static void no_partial_file(void **state)
{
    (void)state;
    struct program_result result;
    program_run("(ulimit -f 1; trap '' XFSZ; \"$RANKFIT\" plan " DENSE
                " -o $TMP/plan.yaml >/dev/null 2>&1; echo $?); ls -A $TMP",
                &result);
    assert_string_equal(result.out, "3\n");
    program_done(&result);
}

/* Nothing is written for a question that is wrong, whatever else would be. */
static void nothing_is_written(void **state)
{
    static const char *const commands[] = {
        "\"$RANKFIT\" search " MOE " --set tp=3 -o $TMP/plan.yaml",
        "\"$RANKFIT\" search " MOE " --objective gpus --set tp=3 -o $TMP/plan.yaml",
        "\"$RANKFIT\" search " MOE " --objective gpu-hours -o $TMP/plan.yaml",
        "\"$RANKFIT\" sweep " PAIRS " --gpus 7 --seq 4K --set tp=2 --json",
        "\"$RANKFIT\" sweep " PAIRS " --gpus 8 --seq 4K -o $TMP/plan.yaml",
        "\"$RANKFIT\" grid " MOE " --set ep=7 --json",
        "\"$RANKFIT\" plan " MOE " --set stage_layers=24,25 -o $TMP/plan.yaml",
        "\"$RANKFIT\" calibrate --hardware nosuch -o $TMP/plan.yaml",
    };
    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        struct program_result result;
        char line[512];
        (void)snprintf(line, sizeof line, "%s 2>/dev/null; echo $?; ls -A $TMP", commands[i]);
        program_run(line, &result);
        if (strcmp(result.out, "2\n") != 0)
            fail_msg("%s: %s", commands[i], result.out);
        program_done(&result);
    }
}

/* An existing file stays as it was when the question is wrong. */
static void existing_file_is_kept(void **state)
{
    (void)state;
    struct program_result result;
    program_run("echo before >$TMP/plan.yaml; \"$RANKFIT\" plan " DENSE
                " --set tp=3 -o $TMP/plan.yaml; cat $TMP/plan.yaml",
                &result);
    assert_string_equal(result.out, "before\n");
    program_done(&result);
}

int main(void)
{
    enum { BAD_COUNT = sizeof bad_inputs / sizeof *bad_inputs, OTHERS = 3 };
    struct CMUnitTest tests[OTHERS + BAD_COUNT] = {
        cmocka_unit_test(no_partial_file),
        cmocka_unit_test(existing_file_is_kept),
        cmocka_unit_test(nothing_is_written),
    };
    told_tests(bad_inputs, BAD_COUNT, tests + OTHERS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
