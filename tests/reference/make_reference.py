#!/usr/bin/env python3
"""Produces the stored reference of tests/data/reference/ with transformers on PyTorch.

Two tiny models (Qwen3-MoE, Qwen3 dense): random bf16 weights, token ids, and from an fp32 run on them the
logits, the loss, the router's choices, every gradient, and 20 losses of training. Beside each gradient
and the logits stands the RMS error of PyTorch's own bf16 run on the same weights (router choices of the
fp32 run forced on it), which tests use as the yardstick for bf16 arithmetic.

    python3 tests/reference/make_reference.py OUT_DIRECTORY

Needs torch, transformers (5.x) and safetensors; nothing of it is needed to build or test rankfit.
"""

import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

SEQUENCES, TOKENS, STEPS = 2, 64, 20
# The executor's own constants (executor/primitive/optimizer).
RATE, BETAS, EPSILON, DECAY, CLIP = 3e-4, (0.9, 0.95), 1e-8, 0.1, 1.0

COMMON = dict(
    vocab_size=256, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=512, rms_norm_eps=1e-6,
    tie_word_embeddings=False, use_sliding_window=False, attention_bias=False, hidden_act="silu",
)
ROPE = {"rope_type": "default", "rope_theta": 10000.0}


def configurations():
    moe = Qwen3MoeConfig(
        **COMMON, rope_parameters=ROPE, intermediate_size=96, moe_intermediate_size=32, num_experts=8,
        num_experts_per_tok=2, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
        output_router_logits=False)
    dense = Qwen3Config(**COMMON, rope_parameters=ROPE, intermediate_size=96)
    return {"qwen3-moe": (moe, Qwen3MoeForCausalLM), "qwen3-dense": (dense, Qwen3ForCausalLM)}


def plain_config(config):
    """The keys that a published config.json of this family has."""
    known = config.to_dict()
    if "num_local_experts" in known:
        known.setdefault("num_experts", known["num_local_experts"])
    wanted = ["model_type", "rope_parameters", "torch_dtype", *COMMON, "intermediate_size",
              "moe_intermediate_size", "num_experts", "num_experts_per_tok", "norm_topk_prob",
              "decoder_sparse_step", "mlp_only_layers"]
    out = {key: known[key] for key in wanted if key in known}
    return {"architectures": [config.architectures[0]], **out}


def per_expert(tensors):
    """Published names: one gate, up and down projection an expert, whatever the library fuses."""
    out = {}
    for name, value in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            for e in range(value.shape[0]):
                gate, up = value[e].chunk(2, dim=0)
                out[name.replace("gate_up_proj", f"{e}.gate_proj.weight")] = gate.clone()
                out[name.replace("gate_up_proj", f"{e}.up_proj.weight")] = up.clone()
        elif name.endswith("experts.down_proj"):
            for e in range(value.shape[0]):
                out[name.replace("down_proj", f"{e}.down_proj.weight")] = value[e].clone()
        else:
            out[name] = value.clone()
    return out


def randomise(model, seed):
    """Weights that bf16 holds exactly, norms away from one so that they matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            value = 1 + 0.1 * noise if name.endswith("norm.weight") else 0.08 * noise
            weight.copy_(value.to(torch.bfloat16).float())


class Routing:
    """Records the router's choices, or forces recorded ones."""

    def __init__(self, model, forced=None):
        self.choices, self.forced = [], forced
        for module in model.modules():
            if type(module).__name__ == "Qwen3MoeTopKRouter":
                module.register_forward_hook(self.hook)

    def hook(self, module, _inputs, outputs):
        logits, _weights, choices = outputs
        if self.forced is not None:
            choices = self.forced[len(self.choices)]
        self.choices.append(choices.detach().clone())
        probabilities = torch.softmax(logits.float(), dim=-1) if logits.dim() else logits
        chosen = probabilities.gather(-1, choices)
        chosen = chosen / chosen.sum(dim=-1, keepdim=True)
        return logits, chosen.to(logits.dtype), choices


def loss_of(model, tokens):
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(
        logits.float().reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
    return loss, logits


def one_step(make, config, weights, tokens, dtype, forced):
    model = make(config)
    model.load_state_dict(weights)
    model = model.to(dtype)
    routing = Routing(model, forced)
    loss, logits = loss_of(model, tokens)
    loss.backward()
    gradients = {n: p.grad.float() for n, p in model.named_parameters()}
    return loss.item(), logits.detach().float(), per_expert(gradients), routing.choices


def trajectory(make, config, weights, steps):
    model = make(config)
    model.load_state_dict(weights)
    # As the executor has it: norms do not decay.
    matrices = [p for p in model.parameters() if p.dim() > 1]
    norms = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": DECAY}, {"params": norms, "weight_decay": 0.0}],
        lr=RATE, betas=BETAS, eps=EPSILON)
    losses = []
    for tokens in steps:
        loss, _ = loss_of(model, tokens)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    return losses


def rms(value):
    return value.double().pow(2).mean().sqrt().item()


def produce(name, config, make, out):
    config._attn_implementation = "eager"
    config.architectures = [make.__name__]
    torch.manual_seed(0)
    model = make(config)
    randomise(model, seed=7)
    weights = {n: w.clone() for n, w in model.state_dict().items()}
    generator = torch.Generator().manual_seed(11)
    # A skewed vocabulary, so that there is something to learn.
    ids = (torch.rand(STEPS, SEQUENCES, TOKENS + 1, generator=generator) ** 3 * 256).long()

    loss, logits, gradients, choices = one_step(make, config, weights, ids[0], torch.float32, None)
    _, logits16, gradients16, _ = one_step(make, config, weights, ids[0], torch.bfloat16, choices or None)

    directory = out / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(plain_config(config), indent=2) + "\n")
    save_file({n: w.to(torch.bfloat16).contiguous() for n, w in per_expert(weights).items()},
              directory / "model.safetensors")
    expected = {f"gradient.{n}": g.contiguous() for n, g in gradients.items()}
    expected["logits"] = logits.contiguous()
    for layer, value in enumerate(choices):
        expected[f"choices.{layer}"] = value.to(torch.int32).contiguous()
    save_file(expected, directory / "expected.safetensors")
    ids.to(torch.int32).numpy().astype("<u4").tofile(directory / "tokens.u32")
    facts = {
        "torch": torch.__version__, "transformers": transformers.__version__,
        "sequences": SEQUENCES, "tokens": TOKENS, "steps": STEPS,
        "optimizer": {"rate": RATE, "betas": BETAS, "epsilon": EPSILON, "decay": DECAY, "clip": CLIP},
        "loss": loss, "losses": trajectory(make, config, weights, ids),
        "bf16_rms_error": {"logits": rms(logits16 - logits),
                           **{f"gradient.{n}": rms(gradients16[n] - g) for n, g in gradients.items()}},
    }
    (directory / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(name, "loss", loss, "losses", facts["losses"][0], "->", facts["losses"][-1],
          "tensors", len(gradients), "logits bf16 error", facts["bf16_rms_error"]["logits"])


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_reference.py OUT_DIRECTORY")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    for name, (config, make) in configurations().items():
        produce(name, config, make, pathlib.Path(sys.argv[1]))


if __name__ == "__main__":
    main()
