"""The least time of a measured step on one GPU, from the step's own shapes and the best rates that were measured for
each kind of work, and the share of it that each phase reached. Products and attention at their rates one after
another, elementwise passes at copy speed with each tensor read and written once; nothing overlaps. Causal attention
counts half of the square, its backward two and a half forwards; replayed layers count. With the trace of a run each
kind of work is compared for itself, by the time in which any of its kernels ran; kernels of experts overlap.
usage: limit.py PLAN MEASUREMENT [TRACE]"""
import json
import sys

# FLOP/s and bytes/s of one H200. bench_ops is tests/bench/cuda/bench_ops.
RATES = {
    "dense": 788e12,  # bench_ops: weight gradient of 4096 -> 2048 over 32,768 rows, the best of this model's shapes
    "experts": 697e12,  # PyTorch 2.11's grouped GEMM, 262,144 rows, 128 experts, 2048 -> 1536; own loop 672 to 688
    "attention": 681e12,  # cuDNN forward, 32/4 heads of 128, 32,768 tokens
    "attention backward": 537e12,  # the same
    "passes": 4.22e12,  # device copy of 4 GiB, bytes read and written
}


class Step:
    def __init__(self, plan):
        model, choices = plan["model"], plan["recommended"]
        layout, self.primitives = choices["layout"], choices["primitives"]
        moe, gqa = model.get("moe") or {}, model["attention"]
        self.batches, self.layers = layout["micro_batches"], model["layers"]
        self.seq = plan["workload"]["seq_tokens"]
        self.tokens = self.seq * layout["micro_batch"] // layout["cp"]
        self.hidden, self.vocab = model["hidden"], model["vocab"]
        self.q, self.k = gqa["heads"] * gqa["head_dim"], gqa["kv_heads"] * gqa["head_dim"]
        self.experts, self.top_k = moe.get("experts", 0), moe.get("top_k", 0)
        self.width = moe["width"] if self.experts else model["dense_width"]
        self.rows = self.tokens * self.top_k if self.experts else self.tokens
        self.gradient = {"fp32": 4, "bf16": 2}[self.primitives["grad_dtype"]]
        mlp = 3 * self.hidden * self.width * max(self.experts, 1) + self.hidden * self.experts
        attention = self.hidden * (2 * self.q + 2 * self.k)
        tables = self.vocab * self.hidden * (1 if model["tied"] else 2)
        self.params = tables + self.layers * (mlp + attention)

    def layer_products(self):
        """FLOPs of one layer's forward."""
        t, h = self.tokens, self.hidden
        dense = 2 * t * h * (2 * self.q + 2 * self.k + self.experts)
        mlp = 6 * self.rows * h * self.width
        return (dense, mlp) if self.experts else (dense + mlp, 0)

    def forward_passes(self):
        """Bytes: two norms, head norms with rotation, activation; with experts their order and the way back."""
        t, h, heads = self.tokens, self.hidden, self.q + self.k
        ret = 2 * 4 * t * h + 4 * t * heads + 6 * self.rows * self.width
        if self.experts:
            ret += 8 * t * self.experts + 2 * h * (t + self.rows) + 2 * h * (self.rows + 2 * t)
        return ret

    def replay_products(self):
        """The forward's without those behind the last tensor that the backward reads: the down projection."""
        dense, experts = self.layer_products()
        down = 2 * self.rows * self.hidden * self.width
        return (dense, experts - down) if self.experts else (dense - down, experts)

    def replay_passes(self):
        """Nor the activation and what follows."""
        ret = self.forward_passes() - 6 * self.rows * self.width
        return ret - 2 * self.hidden * (self.rows + 2 * self.tokens) if self.experts else ret

    def backward_passes(self):
        """Bytes: norms again and backward, rotation again and backward, activation again and backward; with experts
        the rows' gradients to them and back."""
        t, h, heads = self.tokens, self.hidden, self.q + self.k
        ret = 2 * (4 + 8) * t * h + 4 * t * heads + 6 * t * heads + 4 * t * self.q
        ret += (6 + 10) * self.rows * self.width
        if self.experts:
            ret += 2 * h * (t + self.rows) * 2 + 8 * t * self.experts
        return ret

    def replayed(self):
        kind, layers = self.primitives["recompute"], self.primitives["recompute_layers"]
        return 0 if kind == "none" else self.layers if layers == "all" else min(layers, self.layers)

    def phases(self):
        """Work of each kind: FLOPs, and bytes of passes."""
        n, replays, batches = self.layers, self.replayed(), self.batches
        dense, experts = self.layer_products()
        dense_again, experts_again = self.replay_products()
        attention = 2 * self.tokens * self.seq * self.q
        again = 0 if self.primitives.get("keep_attention") else replays
        t, h, v = self.tokens, self.hidden, self.vocab
        yield "forward", {
            "dense": batches * n * dense, "experts": batches * n * experts, "attention": batches * n * attention,
            "passes": batches * (n * self.forward_passes() + 4 * t * h) + self.gradient * self.params,
        }
        yield "loss", {"dense": batches * 6 * t * h * v, "passes": batches * (6 * t * v + 16 * t * h)}
        yield "backward", {
            "dense": batches * (2 * n * dense + replays * dense_again),
            "experts": batches * (2 * n * experts + replays * experts_again),
            "attention": batches * again * attention, "attention backward": batches * n * 2.5 * attention,
            "passes": batches * (n * self.backward_passes() + replays * self.replay_passes() + 6 * t * h),
        }
        yield "optimizer", {"passes": (2 * self.gradient + 26) * self.params}


KIND_OF_OPERATION = {
    "gemm": "dense", "expert_gemm": "experts", "attention": "attention", "attention_backward": "attention backward",
}


def covered(intervals):
    """Time in which any of them runs."""
    total, end = 0, float("-inf")
    for first, last in sorted(intervals):
        total += max(0, last - max(first, end))
        end = max(end, last)
    return total


def traced_kinds(trace, phase, batches):
    """Milliseconds of each kind in the phase of the last step, and those in which nothing ran."""
    ranges = [e for e in trace if e.get("cat") == "phase" and e["name"] == phase][-batches:]
    ret = {}
    for span in ranges:
        begin, end = span["ts"], span["ts"] + span["dur"]
        kernels = [e for e in trace if e.get("cat") == "kernel" and begin <= e["ts"] + e["dur"] / 2 < end]
        kinds = {}
        for e in kernels:
            kind = KIND_OF_OPERATION.get(e.get("args", {}).get("operation"), "passes")
            kinds.setdefault(kind, []).append((e["ts"], e["ts"] + e["dur"]))
        idle = span["dur"] - covered([i for part in kinds.values() for i in part])
        for kind, intervals in list(kinds.items()) + [("nothing runs", [(0, idle)])]:
            ret[kind] = ret.get(kind, 0) + covered(intervals) / 1e3
    return ret


def print_traced(step, path):
    trace = json.load(open(path, encoding="utf-8"))
    trace = trace["traceEvents"] if isinstance(trace, dict) else trace
    losses = []
    for phase, work in step.phases():
        took = traced_kinds(trace, phase, 1 if phase == "optimizer" else step.batches)
        for kind, ms in took.items():
            limit = 1e3 * work.get(kind, 0) / RATES.get(kind, 1)
            losses.append((ms - limit, phase, kind, limit, ms))
            print(f"{phase:<11}{kind:<20}{limit:>9.1f}{ms:>9.1f}{limit / ms if ms else 0:>9.3f}")
    text = ", ".join(f"{kind} in {phase} {ms:.1f} ms" for ms, phase, kind, _, _ in sorted(losses, reverse=True)[:3])
    print("largest losses: " + text)


def main():
    plan, measured = (json.load(open(path, encoding="utf-8")) for path in sys.argv[1:3])
    if plan["hardware"]["gpus"] != 1:
        sys.exit("the limit is of a step on one GPU")
    took = measured["ranks"][0]["phase_seconds"]
    print(f"{'phase':<11}{'limit ms':>9}{'took ms':>9}{'reached':>9}   of the limit, ms")
    least, all_took, losses = 0, 0, []
    step = Step(plan)
    for phase, work in step.phases():
        parts = {kind: 1e3 * amount / RATES[kind] for kind, amount in work.items() if amount}
        limit, took_ms = sum(parts.values()), 1e3 * took[phase]
        least, all_took = least + limit, all_took + took_ms
        losses.append((took_ms - limit, phase))
        text = ", ".join(f"{kind} {ms:.1f}" for kind, ms in parts.items())
        print(f"{phase:<11}{limit:>9.1f}{took_ms:>9.1f}{limit / took_ms:>9.3f}   {text}")
    print(f"{'step':<11}{least:>9.1f}{all_took:>9.1f}{least / all_took:>9.3f}")
    print("beyond it: " + ", ".join(f"{phase} {ms:.1f} ms" for ms, phase in sorted(losses, reverse=True)[:3]))
    if len(sys.argv) > 3:
        print_traced(step, sys.argv[3])


if __name__ == "__main__":
    main()
