"""Times of flash-linear-attention's chunked gated delta rule on one GPU, to compare with bench_delta: forward, forward
and backward, memory kept beyond queries, keys and values, and memory at the peak. Inputs as there: unit queries and
keys, bf16 values, fp32 decays. One line for each case. Where Triton is 3.4 to 3.7.0 the library refuses the gated backward on
Hopper, whose gradients are wrong there (its issue 640); the check is switched off here, so these are times and no
numerics. Without the package the figures that were measured on an H200 with release 0.6.0 and torch 2.11 are printed,
marked as stored.
usage: fla_delta.py [KEY_HEADS/VALUE_HEADS:TOKENS...]"""
import statistics
import sys

CASES = ["32/32:32768", "16/32:32768"]
STORED = {"32/32:32768": (2.27, 8.64, 908 - 768, 4.2), "32/32:65536": (4.42, 17.06, None, None)}
DIM, RUNS = 128, 10


def print_case(case, forward, both, kept, peak, source):
    print(f"fla {case:12} forward {forward:7.3f} ms  forward and backward {both:7.3f} ms" +
          (f"  kept beyond q, k, v {kept:5.0f} MiB  peak {peak:4.1f} GiB" if kept is not None else "") + f"  {source}",
          flush=True)


def print_stored(cases, why):
    print(f"{why}: stored figures")
    for case in cases:
        if case in STORED:
            print_case(case, *STORED[case], "stored")


def make_inputs(torch, key_heads, value_heads, tokens):
    options = {"device": "cuda", "dtype": torch.bfloat16}
    q, k = (torch.nn.functional.normalize(torch.randn(1, tokens, key_heads, DIM, **options), dim=-1) for _ in range(2))
    v = torch.randn(1, tokens, value_heads, DIM, **options)
    g = -torch.rand(1, tokens, value_heads, device="cuda")
    beta = torch.rand(1, tokens, value_heads, device="cuda")
    return [x.requires_grad_() for x in (q, k, v, g, beta)]


def median_ms(torch, run):
    times = []
    for i in range(-3, RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        if i >= 0:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def measure(torch, rule, case):
    heads, tokens = case.split(":")
    key_heads, value_heads = (int(x) for x in heads.split("/"))
    inputs = make_inputs(torch, key_heads, value_heads, int(tokens))
    d_o = torch.randn(1, int(tokens), value_heads, DIM, device="cuda", dtype=torch.bfloat16)

    def both():
        o, _ = rule(*inputs, output_final_state=False)
        torch.autograd.grad(o, inputs, d_o)

    both()
    with torch.no_grad():
        forward = median_ms(torch, lambda: rule(*inputs, output_final_state=False))
    whole = median_ms(torch, both)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    o, _ = rule(*inputs, output_final_state=False)
    kept = torch.cuda.memory_allocated() - before - o.numel() * o.element_size()
    torch.autograd.grad(o, inputs, d_o)
    print_case(case, forward, whole, kept / 2**20, (torch.cuda.max_memory_allocated() - before) / 2**30, "measured")


def main():
    cases = sys.argv[1:] or CASES
    try:
        import torch
        import fla.ops.common.chunk_o as chunk_o
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    except ImportError as error:
        return print_stored(cases, error)
    if not torch.cuda.is_available():
        return print_stored(cases, "no GPU")
    chunk_o.IS_NVIDIA_HOPPER = False
    for case in cases:
        try:
            measure(torch, chunk_gated_delta_rule, case)
        except Exception as error:  # a library in another version: the others' times still count
            print_stored([case], f"{type(error).__name__}: {str(error)[:200]}")
    return None


if __name__ == "__main__":
    main()
