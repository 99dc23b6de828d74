"""One training step in PyTorch, to compare speed and memory with: Qwen3-30B-A3B's shapes with few layers, bf16
weights and gradients, fp32 master weights and AdamW (fused), full recompute of every layer, cuDNN attention,
grouped GEMM experts, cross-entropy in recomputed chunks, every layer compiled. Gradients are not clipped and their
norm is not taken, which rankfit's step does. They are dropped after every step, so that while the last layers go
backward those of the first take no memory; peak_gradients_kept_bytes is what forward and backward take when they are
kept and added to, as a step of several micro-batches needs it and rankfit has it. A line of JSON for each length.
usage: torch_step.py [--layers 4] [--steps 5] [--eager] [--device cuda] SEQ..."""
import argparse
import gc
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 2048, 32, 4, 128, 151936
EXPERTS, TOP_K, WIDTH = 128, 8, 768
EPS, THETA, LOSS_TOKENS = 1e-6, 1e6, 2048


def weight(*shape):
    return torch.nn.Parameter(torch.empty(*shape, dtype=torch.bfloat16).normal_(std=0.02))


class Layer(torch.nn.Module):
    def __init__(self, repeats_keys):
        super().__init__()
        heads = HEADS + 2 * KV_HEADS
        self.repeats_keys = repeats_keys
        self.norm1, self.norm2 = weight(HIDDEN), weight(HIDDEN)
        self.q_norm, self.k_norm = weight(HEAD_DIM), weight(HEAD_DIM)
        self.qkv, self.out = weight(heads * HEAD_DIM, HIDDEN), weight(HIDDEN, HEADS * HEAD_DIM)
        self.router = weight(EXPERTS, HIDDEN)
        self.up, self.down = weight(EXPERTS, 2 * WIDTH, HIDDEN), weight(EXPERTS, HIDDEN, WIDTH)

    def rotate(self, x, cos, sin):
        first, second = x.float().chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        return turned.to(torch.bfloat16).transpose(0, 1).unsqueeze(0)

    def attention(self, x, cos, sin):
        tokens = x.shape[0]
        qkv = F.linear(F.rms_norm(x, (HIDDEN,), self.norm1, EPS), self.qkv).view(tokens, -1, HEAD_DIM)
        q, k, v = qkv.split((HEADS, KV_HEADS, KV_HEADS), dim=1)
        q = self.rotate(F.rms_norm(q, (HEAD_DIM,), self.q_norm, EPS), cos, sin)
        k = self.rotate(F.rms_norm(k, (HEAD_DIM,), self.k_norm, EPS), cos, sin)
        v = v.transpose(0, 1).unsqueeze(0)
        if self.repeats_keys:
            k, v = (t.repeat_interleave(HEADS // KV_HEADS, dim=1) for t in (k, v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=not self.repeats_keys)
        return x + F.linear(o.squeeze(0).transpose(0, 1).reshape(tokens, -1), self.out)

    def experts(self, x):
        tokens = x.shape[0]
        n = F.rms_norm(x, (HIDDEN,), self.norm2, EPS)
        probs = F.linear(n, self.router).float().softmax(dim=-1)
        share, choice = probs.topk(TOP_K, dim=-1)
        share = share / share.sum(dim=-1, keepdim=True)
        chosen, order = choice.flatten().sort(stable=True)
        ends = torch.searchsorted(chosen, torch.arange(EXPERTS, device=x.device), right=True).to(torch.int32)
        rows = n[order // TOP_K]
        gate, up = torch._grouped_mm(rows, self.up.transpose(-2, -1), offs=ends).chunk(2, dim=-1)
        active = (F.silu(gate.float()) * up.float() * share.flatten()[order].unsqueeze(-1)).to(torch.bfloat16)
        y = torch._grouped_mm(active, self.down.transpose(-2, -1), offs=ends)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0], device=x.device)
        return x + y[back].view(tokens, TOP_K, HIDDEN).sum(dim=1)

    def forward(self, x, cos, sin):
        return self.experts(self.attention(x, cos, sin))


class Model(torch.nn.Module):
    def __init__(self, layers, compiles, repeats_keys):
        super().__init__()
        self.embedding, self.norm, self.head = weight(VOCAB, HIDDEN), weight(HIDDEN), weight(VOCAB, HIDDEN)
        self.layers = torch.nn.ModuleList(Layer(repeats_keys) for _ in range(layers))
        self.run = torch.compile(lambda layer, *rest: layer(*rest), dynamic=False) if compiles else Layer.__call__

    def chunk_loss(self, x, targets):
        return F.cross_entropy(F.linear(x, self.head).float(), targets, reduction="sum")

    def forward(self, ids, targets, cos, sin):
        x = F.embedding(ids, self.embedding)
        for layer in self.layers:
            x = checkpoint(self.run, layer, x, cos, sin, use_reentrant=False)
        x = F.rms_norm(x, (HIDDEN,), self.norm, EPS)
        loss = 0
        for part, wanted in zip(x.split(LOSS_TOKENS), targets.split(LOSS_TOKENS)):
            loss = loss + checkpoint(self.chunk_loss, part, wanted, use_reentrant=False)
        return loss / ids.shape[0]


class MasterAdamW:
    """Gradients become fp32 tensor by tensor, each in the place of the bf16 one."""

    def __init__(self, model, fused):
        self.weights = list(model.parameters())
        self.masters = [w.detach().float() for w in self.weights]
        self.adamw = torch.optim.AdamW(self.masters, lr=1e-5, fused=fused)

    def step(self):
        for w, master in zip(self.weights, self.masters):
            master.grad = w.grad.float()
            w.grad = None
        self.adamw.step()
        for w, master in zip(self.weights, self.masters):
            w.detach().copy_(master)
            master.grad = None


def needs_repeated_keys(device):
    """Whether this PyTorch's cuDNN attention refuses fewer heads of keys than of queries."""
    q = torch.zeros(1, HEADS, 128, HEAD_DIM, dtype=torch.bfloat16, device=device)
    k = torch.zeros(1, KV_HEADS, 128, HEAD_DIM, dtype=torch.bfloat16, device=device)
    try:
        F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)
        return False
    except RuntimeError:
        return True


class Device:
    def __init__(self, name):
        self.name = name
        self.is_cuda = name == "cuda"

    def sync(self):
        if self.is_cuda:
            torch.cuda.synchronize()

    def begin(self):
        gc.collect()
        if self.is_cuda:
            torch.cuda.empty_cache()
        self.forget_peak()

    def forget_peak(self):
        if self.is_cuda:
            torch.cuda.reset_peak_memory_stats()

    def peak(self):
        return torch.cuda.max_memory_allocated() if self.is_cuda else 0

    def figures(self):
        if not self.is_cuda:
            return {}
        free, total = torch.cuda.mem_get_info()
        return {"peak_reserved_bytes": torch.cuda.max_memory_reserved(), "device_bytes": total - free}


def pass_through(model, tokens, tables, device):
    ids = torch.randint(VOCAB, (tokens + 1,), device=device.name)
    device.sync()
    began = time.perf_counter()
    loss = model(ids[:-1], ids[1:], *tables)
    loss.backward()
    return loss, began


def peak_with_gradients_kept(model, tokens, tables, device):
    for w in model.parameters():
        w.grad = torch.zeros_like(w)
    device.begin()
    pass_through(model, tokens, tables, device)
    for w in model.parameters():
        w.grad = None
    return device.peak()


def measure(model, optimizer, device, tokens, steps):
    angles = torch.arange(tokens, device=device.name).unsqueeze(-1) * THETA ** (
        -torch.arange(0, HEAD_DIM, 2, device=device.name) / HEAD_DIM
    )
    tables = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)
    seconds, before_optimizer, peak = [], 0, 0
    for step in range(steps + 2):
        if step < 2:  # of what was compiled and tuned in the first, nothing counts
            device.begin()
            before_optimizer = peak = 0
        device.forget_peak()
        loss, began = pass_through(model, tokens, tables, device)
        before_optimizer = max(before_optimizer, device.peak())
        optimizer.step()
        device.sync()
        seconds.append(time.perf_counter() - began)
        peak = max(peak, device.peak())
    step, figures = statistics.median(seconds[2:]), device.figures()
    return {
        "seq_tokens": tokens, "layers": len(model.layers), "step_seconds": step, "tokens_per_second": tokens / step,
        "all_seconds": seconds, "loss": loss.item(),
        "resident_bytes": sum(w.numel() * (2 + 2 + 4 + 8) for w in optimizer.weights),
        "peak_before_optimizer_bytes": before_optimizer, "peak_allocated_bytes": peak, **figures,
        "peak_gradients_kept_bytes": peak_with_gradients_kept(model, tokens, tables, device),
        "torch": torch.__version__,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("seq", type=int, nargs="+")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = Device(options.device)
    backend = SDPBackend.CUDNN_ATTENTION if device.is_cuda else SDPBackend.MATH
    with sdpa_kernel(backend):
        with torch.device(options.device):
            model = Model(options.layers, not options.eager, needs_repeated_keys(options.device))
        optimizer = MasterAdamW(model, device.is_cuda)
        for seq in options.seq:
            print(json.dumps(measure(model, optimizer, device, seq, options.steps)), flush=True)


if __name__ == "__main__":
    main()
