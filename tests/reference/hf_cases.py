"""The training steps that hf_steps.py measures: model facts, layouts, and nothing about memory.

A case names a model of MODELS (published widths; `layers` may cut the depth, weights are random),
the number of tokens, and how the step is run. Every value is written into the result, so that a
result can be asked as a question without this file.
"""

# Published widths. `kind`: which Hugging Face class; `tied`: the head is the embedding.
MODELS = {
    "qwen3-0.6b": dict(kind="qwen3", hidden=1024, layers=28, heads=16, kv_heads=8, head_dim=128,
                       width=3072, vocab=151936, tied=True),
    "qwen3-1.7b": dict(kind="qwen3", hidden=2048, layers=28, heads=16, kv_heads=8, head_dim=128,
                       width=6144, vocab=151936, tied=True),
    "qwen3-4b": dict(kind="qwen3", hidden=2560, layers=36, heads=32, kv_heads=8, head_dim=128,
                     width=9728, vocab=151936, tied=True),
    "llama-3.2-1b": dict(kind="llama", hidden=2048, layers=16, heads=32, kv_heads=8, head_dim=64,
                         width=8192, vocab=128256, tied=True),
    "llama-3.2-3b": dict(kind="llama", hidden=3072, layers=28, heads=24, kv_heads=8, head_dim=128,
                         width=8192, vocab=128256, tied=True),
    "llama-3.1-8b": dict(kind="llama", hidden=4096, layers=32, heads=32, kv_heads=8, head_dim=128,
                         width=14336, vocab=128256, tied=False),
    "qwen3-30b-a3b": dict(kind="qwen3_moe", hidden=2048, layers=48, heads=32, kv_heads=4,
                          head_dim=128, width=6144, expert_width=768, experts=128, top_k=8,
                          vocab=151936, tied=False),
    "gpt-oss-20b": dict(kind="gpt_oss", hidden=2880, layers=24, heads=64, kv_heads=8, head_dim=64,
                        width=2880, experts=32, top_k=4, window=128, vocab=201088, tied=False),
}

# state: `bf16` holds weights, gradients and moments in bf16; `fp32` holds them in fp32 and
# computes under torch.autocast(bf16). checkpoint: the library's own switch, every layer.
# lora: rank of the adapters, on `lora_on` (all = every linear layer of the layers).
DEFAULTS = dict(engine="hf", batch=1, state="bf16", checkpoint=False, compiled=False,
                attention="sdpa", lora=0, lora_on="all", lora_dropout=0.0, lora_dtype="fp32",
                autocast=False, experts_as="grouped_mm")


def hf(name, model, seq, **more):
    return dict(DEFAULTS, name=name, model=model, seq=seq, **more)


def titan(name, model, seq, **more):
    """torchtitan's own model, recompute, compile and FSDP2 calls on a mesh of one or more GPUs:
    fp32 shards, bf16 computation, fp32 reduction. ac: none, full or op (its selective option)."""
    return dict(DEFAULTS, engine="torchtitan", state="fp32 shards", name=name, model=model,
                seq=seq, **dict(dict(ac="none", fsdp=True), **more))


CASES = [
    hf("q06-4k-b4", "qwen3-0.6b", 4096, batch=4),
    hf("q17-8k", "qwen3-1.7b", 8192),
    hf("q17-16k-ckpt", "qwen3-1.7b", 16384, checkpoint=True),
    hf("q4-4k", "qwen3-4b", 4096),
    hf("q4-8k-b2-ckpt", "qwen3-4b", 8192, batch=2, checkpoint=True),
    hf("l1-8k", "llama-3.2-1b", 8192),
    hf("l1-8k-fp32", "llama-3.2-1b", 8192, state="fp32", autocast=True),
    hf("l1-32k-ckpt", "llama-3.2-1b", 32768, checkpoint=True),
    hf("l3-4k-b2-fp32-ckpt", "llama-3.2-3b", 4096, batch=2, state="fp32", autocast=True,
       checkpoint=True),
    hf("q06-4k-b2-fp32", "qwen3-0.6b", 4096, batch=2, state="fp32", autocast=True),
    hf("l8-8layers-8k", "llama-3.1-8b", 8192, layers=8),
    hf("moe-4layers-4k-b2", "qwen3-30b-a3b", 4096, batch=2, layers=4),
    hf("moe-4layers-16k-ckpt", "qwen3-30b-a3b", 16384, layers=4, checkpoint=True),
    hf("moe-2layers-4k-fp32", "qwen3-30b-a3b", 4096, layers=2, state="fp32", autocast=True),
    hf("moe-1layer-4k-fp32-loop", "qwen3-30b-a3b", 4096, layers=1, state="fp32", autocast=True,
       experts_as="eager"),
    hf("moe-1layer-4k-loop", "qwen3-30b-a3b", 4096, layers=1, experts_as="eager"),
    hf("oss-3layers-4k", "gpt-oss-20b", 4096, layers=3, attention="eager"),
    hf("oss-6layers-8k-ckpt", "gpt-oss-20b", 8192, layers=6, attention="eager", checkpoint=True),
    hf("l3-4k-b2-lora", "llama-3.2-3b", 4096, batch=2, lora=16),
    hf("q4-8k-lora-drop-ckpt", "qwen3-4b", 8192, lora=16, lora_dropout=0.05, checkpoint=True,
       autocast=True),
    hf("l8-8layers-4k-lora-qv-bf16", "llama-3.1-8b", 4096, layers=8, lora=8, lora_on="q,v",
       lora_dropout=0.1, lora_dtype="bf16"),
    hf("l8-8layers-4k-lora", "llama-3.1-8b", 4096, layers=8, lora=16, lora_dropout=0.05),
    titan("titan-8layers-8k", "llama-3.1-8b", 8192, layers=8),
    titan("titan-8layers-8k-full", "llama-3.1-8b", 8192, layers=8, ac="full"),
    titan("titan-8layers-8k-op", "llama-3.1-8b", 8192, layers=8, ac="op"),
    titan("titan-6layers-8k-b2-full", "llama-3.1-8b", 8192, batch=2, layers=6, ac="full"),
    titan("titan-8layers-8k-plain", "llama-3.1-8b", 8192, layers=8, fsdp=False),
    titan("titan-moe-3layers-4k", "qwen3-30b-a3b", 4096, layers=3),
    titan("titan-moe-3layers-8k-full", "qwen3-30b-a3b", 8192, layers=3, ac="full"),
    titan("titan-8layers-8k-compiled", "llama-3.1-8b", 8192, layers=8, compiled=True),
    titan("titan-8layers-8k-op-compiled", "llama-3.1-8b", 8192, layers=8, ac="op", compiled=True),
    titan("titan-8layers-8k-full-compiled", "llama-3.1-8b", 8192, layers=8, ac="full",
          compiled=True),
    hf("l1-4layers-4k-b2-compiled", "llama-3.2-1b", 4096, batch=2, layers=4, compiled=True),
    hf("q06-4layers-8k-compiled", "qwen3-0.6b", 8192, layers=4, compiled=True),
]


def facts_of(case, tiny):
    """The model facts of a case; tiny ones keep every ratio that the code branches on."""
    facts = dict(MODELS[case["model"]])
    facts["layers"] = case.get("layers", facts["layers"])
    if tiny:
        facts.update(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, width=96, vocab=512)
        facts.update({key: value for key, value in
                      dict(expert_width=32, experts=8, top_k=2, window=16).items() if key in facts})
    return facts
