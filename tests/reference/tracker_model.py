"""A decoder in plain PyTorch for fsdp_tracker.py, and how its layers are sharded and recomputed.

Dense layers are Llama's or Qwen3's (norms of q and k); a layer may hold experts instead. Rotary
positions are applied as complex numbers in fp32, as torchtitan does. Nothing here counts memory.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor import parallel as tp
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts


@dataclass
class Facts:
    """Widths of a model. experts = 0: dense layers of `width`."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    vocab: int
    tied: bool = False
    qk_norm: bool = False
    experts: int = 0
    top_k: int = 0
    expert_width: int = 0


@dataclass
class Layout:
    """How one training step is laid out. Meshes: dense shards over `fsdp` x `cp` ranks, expert
    shards over the ranks that have the same experts; `replicas` is the outer degree of HSDP."""

    name: str
    facts: Facts
    seq: int
    batch: int = 1
    fsdp: int = 8
    replicas: int = 1
    tp: int = 1
    cp: int = 1
    ep: int = 1
    recompute: str = "none"  # none, full, op
    param_dtype: str = "bf16"
    reduce_dtype: str = "fp32"
    reshard: bool = True  # after forward; the head's unit never is, as in torchtitan
    units: str = "torchtitan"  # embedding, layers, norm with head; or: layers alone, rest in root
    loss_dtype: str = "fp32"
    notes: list = field(default_factory=list)

    @property
    def world(self):
        return self.fsdp * self.replicas * self.tp * self.cp


class Attention(nn.Module):
    def __init__(self, facts):
        super().__init__()
        self.head_dim = facts.head_dim
        self.wq = nn.Linear(facts.hidden, facts.heads * facts.head_dim, bias=False)
        self.wk = nn.Linear(facts.hidden, facts.kv_heads * facts.head_dim, bias=False)
        self.wv = nn.Linear(facts.hidden, facts.kv_heads * facts.head_dim, bias=False)
        self.wo = nn.Linear(facts.heads * facts.head_dim, facts.hidden, bias=False)
        self.norms = nn.ModuleList()
        if facts.qk_norm:
            self.norms.extend(nn.RMSNorm(facts.head_dim) for _ in range(2))

    @staticmethod
    def rotate(x, turns):
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turns[None, :, None, :]).flatten(3).type_as(x)

    def forward(self, x, turns):
        q, k, v = (linear(x).unflatten(-1, (-1, self.head_dim))
                   for linear in (self.wq, self.wk, self.wv))
        if len(self.norms):
            q, k = self.norms[0](q), self.norms[1](k)
        q, k = self.rotate(q, turns), self.rotate(k, turns)
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2),
                                             v.transpose(1, 2), is_causal=True, enable_gqa=True)
        return self.wo(out.transpose(1, 2).flatten(2))


class Dense(nn.Module):
    def __init__(self, facts):
        super().__init__()
        self.w1 = nn.Linear(facts.hidden, facts.width, bias=False)
        self.w2 = nn.Linear(facts.width, facts.hidden, bias=False)
        self.w3 = nn.Linear(facts.hidden, facts.width, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class ExpertWeights(nn.Module):
    """The experts of one rank, as three stacked matrices, and their grouped products."""

    def __init__(self, facts, local):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(local, facts.expert_width, facts.hidden))
        self.w2 = nn.Parameter(torch.empty(local, facts.hidden, facts.expert_width))
        self.w3 = nn.Parameter(torch.empty(local, facts.expert_width, facts.hidden))

    def forward(self, rows):
        """rows: [local experts, rows of each, hidden]: balanced, so that a batched product does
        what a grouped one would."""
        up = F.silu(torch.bmm(rows, self.w1.transpose(1, 2)))
        return torch.bmm(up * torch.bmm(rows, self.w3.transpose(1, 2)), self.w2.transpose(1, 2))


class Experts(nn.Module):
    """Router, exchange over `group` with balanced splits written in, experts, and back."""

    def __init__(self, facts, group, ranks):
        super().__init__()
        self.facts, self.group, self.ranks = facts, group, ranks
        self.router = nn.Linear(facts.hidden, facts.experts, bias=False)
        self.experts = ExpertWeights(facts, facts.experts // ranks)

    def exchange(self, rows):
        if self.ranks == 1:
            return rows
        splits = [rows.shape[0] // self.ranks] * self.ranks
        moved = all_to_all_single_autograd(rows, splits, splits, self.group)
        return torch.ops._c10d_functional.wait_tensor(moved)

    def forward(self, x):
        facts, tokens = self.facts, x.flatten(0, 1)
        scores = F.softmax(self.router(tokens).float(), dim=-1)
        weight, _ = scores.topk(facts.top_k, dim=-1)
        # Which rows go where is data; any permutation of the right size keeps the same bytes.
        order = torch.arange(tokens.shape[0] * facts.top_k, device=x.device)
        rows = self.exchange(tokens[order // facts.top_k])
        local = facts.experts // self.ranks
        by_expert = rows.unflatten(0, (self.ranks, local, -1)).transpose(0, 1)
        out = self.experts(by_expert.flatten(1, 2))
        out = out.unflatten(1, (self.ranks, -1)).transpose(0, 1).flatten(0, 2)
        out = self.exchange(out).unflatten(0, (-1, facts.top_k))
        return (out * weight.unsqueeze(-1).to(out.dtype)).sum(1).view_as(x)


class Layer(nn.Module):
    def __init__(self, facts, group, ranks):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(facts.hidden), nn.RMSNorm(facts.hidden)
        self.attention = Attention(facts)
        self.ffn = Experts(facts, group, ranks) if facts.experts else Dense(facts)

    def forward(self, x, turns):
        x = x + self.attention(self.attention_norm(x), turns)
        return x + self.ffn(self.ffn_norm(x))


class Decoder(nn.Module):
    def __init__(self, layout, group=None):
        super().__init__()
        facts = layout.facts
        self.embedding = nn.Embedding(facts.vocab, facts.hidden)
        self.layers = nn.ModuleList(Layer(facts, group, layout.ep) for _ in range(facts.layers))
        self.norm = nn.RMSNorm(facts.hidden)
        self.head = nn.Linear(facts.hidden, facts.vocab, bias=False)
        self.register_buffer("turns", torch.empty(layout.seq, facts.head_dim // 2,
                                                  dtype=torch.complex64), persistent=False)
        if facts.tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens, turns=None):
        turns = self.turns if turns is None else turns
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, turns)
        return self.head(self.norm(x))


SAVED = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
         torch.ops.aten._scaled_dot_product_flash_attention.default,
         torch.ops.aten._scaled_dot_product_efficient_attention.default,
         torch.ops.aten._scaled_dot_product_cudnn_attention.default,
         torch.ops._c10d_functional.reduce_scatter_tensor.default}


def every_second_product():
    """torchtitan's selective recompute "op": attention and every second matrix product are kept,
    all else of the layer is computed again. The CPU's attention stands for the GPU's."""
    counts = dict(forward=0, again=0)

    def policy(context, operation, *_, **__):
        which = "again" if context.is_recompute else "forward"
        keep = operation in SAVED
        if operation == torch.ops.aten.mm.default:
            counts[which] += 1
            keep = counts[which] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def apply_recompute(model, kind):
    if kind == "none":
        return
    extra = dict(context_fn=every_second_product) if kind == "op" else {}
    for index, layer in enumerate(model.layers):
        model.layers[index] = checkpoint_wrapper(layer, preserve_rng_state=False, **extra)


def apply_tensor_parallel(model, mesh):
    """Column and row splits with sequence parallelism between them; the logits stay split."""
    tp.parallelize_module(model, mesh, {
        "embedding": tp.RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": tp.SequenceParallel(),
        "head": tp.ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1),
                                   use_local_output=False)})
    for layer in model.layers:
        tp.parallelize_module(layer, mesh, {
            "attention_norm": tp.SequenceParallel(),
            "attention": tp.PrepareModuleInput(input_layouts=(Shard(1), None),
                                               desired_input_layouts=(Replicate(), None)),
            "attention.wq": tp.ColwiseParallel(), "attention.wk": tp.ColwiseParallel(),
            "attention.wv": tp.ColwiseParallel(),
            "attention.wo": tp.RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": tp.SequenceParallel(),
            "ffn": tp.PrepareModuleInput(input_layouts=(Shard(1),),
                                         desired_input_layouts=(Replicate(),)),
            "ffn.w1": tp.ColwiseParallel(), "ffn.w3": tp.ColwiseParallel(),
            "ffn.w2": tp.RowwiseParallel(output_layouts=Shard(1))})


DTYPES = dict(bf16=torch.bfloat16, fp32=torch.float32)


def apply_fsdp(model, layout, mesh, expert_mesh):
    """FSDP2 units: the embedding, each layer (its experts apart), norm with head, the rest."""
    policy = MixedPrecisionPolicy(param_dtype=DTYPES[layout.param_dtype],
                                  reduce_dtype=DTYPES[layout.reduce_dtype])
    common = dict(mesh=mesh, mp_policy=policy, reshard_after_forward=layout.reshard)
    own_units = layout.units == "torchtitan" and not layout.facts.tied
    if own_units:
        fully_shard(model.embedding, **common)
    for layer in model.layers:
        if expert_mesh is not None:
            inner = getattr(layer, "_checkpoint_wrapped_module", layer)
            fully_shard(inner.ffn.experts, **dict(common, mesh=expert_mesh))
        fully_shard(layer, **common)
    if own_units:
        fully_shard([model.norm, model.head], **dict(common, reshard_after_forward=False))
    fully_shard(model, mesh=mesh, mp_policy=policy)
