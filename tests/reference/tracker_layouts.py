"""Layouts that fsdp_tracker.py follows. Widths are published ones; depths are cut."""

from dataclasses import replace

from tracker_model import Facts, Layout

LLAMA_8B = Facts("llama-3.1-8b", hidden=4096, layers=6, heads=32, kv_heads=8, head_dim=128,
                 width=14336, vocab=128256)
LLAMA_1B = Facts("llama-3.2-1b", hidden=2048, layers=8, heads=32, kv_heads=8, head_dim=64,
                 width=8192, vocab=128256, tied=True)
LLAMA_7B = Facts("llama-2-7b", hidden=4096, layers=6, heads=32, kv_heads=32, head_dim=128,
                 width=11008, vocab=32000)
QWEN_8B = Facts("qwen3-8b", hidden=4096, layers=6, heads=32, kv_heads=8, head_dim=128, width=12288,
                vocab=151936, qk_norm=True)
QWEN_2B = Facts("qwen3-1.7b", hidden=2048, layers=8, heads=16, kv_heads=8, head_dim=128,
                width=6144, vocab=151936, tied=True, qk_norm=True)
QWEN_MOE = Facts("qwen3-30b-a3b", hidden=2048, layers=4, heads=32, kv_heads=4, head_dim=128,
                 width=6144, vocab=151936, qk_norm=True, experts=128, top_k=8, expert_width=768)

# FSDP2 alone.
SHARDED = [
    Layout("8b-none", LLAMA_8B, 8192),
    Layout("8b-full", LLAMA_8B, 8192, recompute="full"),
    Layout("8b-op", LLAMA_8B, 8192, recompute="op"),
    Layout("8b-full-64", LLAMA_8B, 8192, fsdp=64, recompute="full"),
    Layout("8b-full-b4", LLAMA_8B, 4096, batch=4, fsdp=16, recompute="full"),
    Layout("8b-hsdp-none", LLAMA_8B, 4096, fsdp=8, replicas=2),
    Layout("8b-hsdp-full", LLAMA_8B, 8192, fsdp=8, replicas=4, recompute="full"),
    Layout("8b-hsdp-op", LLAMA_8B, 8192, fsdp=4, replicas=4, recompute="op"),
    Layout("8b-kept", LLAMA_8B, 4096, reshard=False),
    Layout("8b-kept-full", LLAMA_8B, 16384, reshard=False, recompute="full"),
    Layout("8b-bf16-reduce", LLAMA_8B, 4096, reduce_dtype="bf16"),
    Layout("8b-fp32", LLAMA_8B, 2048, param_dtype="fp32"),
    Layout("7b-none-b2", LLAMA_7B, 2048, batch=2),
    Layout("7b-op-b8", LLAMA_7B, 2048, batch=8, recompute="op"),
    Layout("7b-full-root", LLAMA_7B, 4096, batch=2, units="layers", recompute="full"),
    Layout("q8b-none", QWEN_8B, 4096),
    Layout("q8b-op", QWEN_8B, 8192, fsdp=32, recompute="op"),
    Layout("q8b-hsdp-full", QWEN_8B, 32768, fsdp=8, replicas=2, recompute="full"),
    Layout("q2b-tied-none", QWEN_2B, 4096, fsdp=4),
    Layout("q2b-tied-full", QWEN_2B, 16384, fsdp=4, recompute="full"),
    Layout("1b-tied-op", LLAMA_1B, 8192, fsdp=2, recompute="op"),
    Layout("1b-tied-bf16-loss", LLAMA_1B, 8192, fsdp=8, loss_dtype="bf16"),
]

# Tensor parallelism with FSDP2 over the rest.
SPLIT = [
    Layout("8b-tp2-none", LLAMA_8B, 8192, fsdp=4, tp=2),
    Layout("8b-tp4-full", LLAMA_8B, 8192, batch=2, fsdp=4, tp=4, recompute="full"),
    Layout("8b-tp8-op", LLAMA_8B, 8192, batch=2, fsdp=2, tp=8, recompute="op"),
    Layout("8b-tp2-hsdp", LLAMA_8B, 4096, fsdp=4, replicas=2, tp=2, recompute="full"),
]

# Experts over ranks of their own; their shards over the ranks that hold the same experts.
EXPERTS = [
    Layout("moe-ep1-none", QWEN_MOE, 4096, fsdp=8),
    Layout("moe-ep8-none", QWEN_MOE, 4096, fsdp=8, ep=8),
    Layout("moe-ep4-full", QWEN_MOE, 8192, fsdp=8, ep=4, recompute="full"),
    Layout("moe-ep8-16-op", QWEN_MOE, 4096, batch=2, fsdp=16, ep=8, recompute="op"),
    Layout("moe-ep8-32-full", replace(QWEN_MOE, layers=6), 16384, fsdp=32, ep=8, recompute="full"),
]

# A ring of context ranks: its attention has GPU operators alone.
CONTEXT = [
    Layout("8b-cp2-none", LLAMA_8B, 16384, fsdp=4, cp=2),
    Layout("8b-cp4-full", LLAMA_8B, 65536, fsdp=2, cp=4, recompute="full"),
    Layout("8b-cp8-full", LLAMA_8B, 131072, fsdp=1, cp=8, recompute="full"),
]

CPU_LAYOUTS = SHARDED + SPLIT + EXPERTS
CUDA_LAYOUTS = SHARDED[:3] + SPLIT + EXPERTS + CONTEXT
