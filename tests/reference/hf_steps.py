#!/usr/bin/env python3
"""Measures real training steps of Hugging Face models and of torchtitan on one GPU (or a few).

Each case of hf_cases.py runs in a process of its own and gives one JSON line: its inputs, versions,
torch's allocated and reserved bytes by moment of a step and at their peaks, the device's used
bytes, and the times of five steps. Lines are written as cases end, so a run that is cut short
loses nothing. Nothing of this is needed to build or test rankfit.

    python3 tests/reference/hf_steps.py --out DIRECTORY            every case, one GPU
    python3 tests/reference/hf_steps.py --out DIRECTORY --world 2 --only titan   FSDP2 on two GPUs
    python3 tests/reference/hf_steps.py --out DIRECTORY --device cpu --tiny      dry path, one rank

Needs the packages of requirements-oracles.txt. The parent process imports them once and forks a
child for each case; it never touches the GPU itself.
"""

import argparse
import gc
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
import traceback

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # is_available() without a context

import torch  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import hf_models  # noqa: E402
from hf_cases import CASES, facts_of  # noqa: E402

TIMED_STEPS = 5  # after two: a first one, and one that is read by moment


class Meter:
    """Bytes and seconds of a device. A CPU has no allocator to ask: its bytes are None."""

    def __init__(self, device):
        self.cuda = device.type == "cuda"
        self.device = device

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def restart_peaks(self):
        if self.cuda:
            torch.cuda.reset_peak_memory_stats(self.device)

    def release(self):
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()

    def now(self):
        if not self.cuda:
            return dict(allocated=None, allocated_peak=None, reserved=None)
        return dict(allocated=torch.cuda.memory_allocated(self.device),
                    allocated_peak=torch.cuda.max_memory_allocated(self.device),
                    reserved=torch.cuda.memory_reserved(self.device))

    def device_used(self):
        """What every program on the device uses, the driver's own part included."""
        if not self.cuda:
            return None
        free, total = torch.cuda.mem_get_info(self.device)
        return total - free

    def allocator(self):
        """The allocator's figures at the end that tell why reserved is more than allocated."""
        if not self.cuda:
            return {}
        stats = torch.cuda.memory_stats(self.device)
        wanted = ["active_bytes.all.peak", "requested_bytes.all.peak", "segment.all.peak",
                  "inactive_split_bytes.all.peak", "num_alloc_retries", "num_ooms",
                  "reserved_bytes.small_pool.peak", "reserved_bytes.large_pool.peak"]
        return {key: stats.get(key) for key in wanted}


def one_step(job, meter=None, moments=None):
    """Forward with the loss, backward, clipping, optimizer; gradients end with the step."""

    def moment(name):
        if moments is not None:
            meter.wait()
            moments[name] = meter.now()
            meter.restart_peaks()

    if moments is not None:
        meter.restart_peaks()
    loss = job.forward_loss()
    moment("forward")
    loss.backward()
    moment("backward")
    job.clip()
    moment("clip")
    job.optimizer.step()
    moment("optimizer")
    job.optimizer.zero_grad(set_to_none=True)
    moment("zero_grad")
    return loss


def timed_steps(job, meter, count):
    seconds = []
    for _ in range(count):
        meter.wait()
        start = time.perf_counter()
        loss = one_step(job)
        meter.wait()
        seconds.append(time.perf_counter() - start)
    return seconds, float(loss.detach())


def versions():
    found = dict(torch=torch.__version__)
    for name in ("transformers", "peft"):
        if name in sys.modules:
            found[name] = sys.modules[name].__version__
    if "torchtitan" in sys.modules:
        found["torchtitan"] = hf_models.TORCHTITAN
    return found


def measure(case, arguments, rank):
    """One case from building the model to its record."""
    device = torch.device(arguments.device, rank if arguments.device == "cuda" else 0)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
    meter = Meter(device)
    facts = facts_of(case, arguments.tiny)
    if arguments.tiny:
        case = dict(case, seq=64)
    empty = meter.device_used()
    torch.manual_seed(1 + rank)
    job = hf_models.build(case, facts, device, rank, arguments.world)
    meter.release()
    record = dict(case=case, facts=facts, world=arguments.world, rank=rank, versions=versions(),
                  device_idle_mib=arguments.idle_mib,
                  device=torch.cuda.get_device_name(device) if meter.cuda else "cpu",
                  parameters=job.parameters, trained_parameters=job.trained_parameters,
                  device_with_context_bytes=empty,
                  built=meter.now())
    meter.release()
    meter.restart_peaks()
    loss = one_step(job)
    moments = {}
    record.update(graph_nodes=hf_models.graph_nodes(loss), first_step=meter.now())
    del loss
    one_step(job, meter, moments)
    meter.restart_peaks()
    seconds, loss = timed_steps(job, meter, TIMED_STEPS)
    record.update(moments=moments, peak=meter.now(), allocator=meter.allocator(),
                  device_used_bytes=meter.device_used(), step_seconds=seconds,
                  step_seconds_median=statistics.median(seconds), loss=loss)
    return record


def child(case, arguments, rank, path):
    """Body of a forked process: writes its record, or why there is none, and ends."""
    status = 0
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(arguments.world),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(arguments.port))
    try:
        record = measure(case, arguments, rank)
    except torch.OutOfMemoryError as error:
        record = dict(case=case, rank=rank, outcome="ran out of memory", error=str(error)[:400])
    except Exception as error:  # a case that fails must not take the others with it
        record = dict(case=case, rank=rank, outcome="failed", error=repr(error)[:400],
                      trace=traceback.format_exc()[-1500:])
        status = 1
    path.write_text(json.dumps(record))
    sys.stdout.flush()
    os._exit(status)


def run_case(case, arguments, scratch):
    """Forks a process for each rank, waits, and ends those that are over their time."""
    deadline = time.monotonic() + arguments.case_seconds
    paths = [scratch / f"rank{rank}.json" for rank in range(arguments.world)]
    running = {}
    arguments.port += 1
    for rank, path in enumerate(paths):
        path.unlink(missing_ok=True)
        running[fork_or_start(case, arguments, rank, path)] = rank
    while running and time.monotonic() < deadline:
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid:
            running.pop(pid, None)
        else:
            time.sleep(0.05)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return [json.loads(path.read_text()) if path.exists() else
            dict(case=case, rank=rank, outcome="no result in time" if running else "died")
            for rank, path in enumerate(paths)]


def fork_or_start(case, arguments, rank, path):
    """A process for one rank of a case: a fork of this one, or with --fresh a new interpreter."""
    if arguments.fresh:
        command = [sys.executable, __file__, "--rank", str(rank), "--record", str(path), "--only",
                   case["name"], "--device", arguments.device, "--world", str(arguments.world),
                   "--port", str(arguments.port)] + ["--tiny"] * arguments.tiny
        return subprocess.Popen(command).pid
    pid = os.fork()
    if pid == 0:
        child(case, arguments, rank, path)
    return pid


def idle_mib(arguments):
    """What the device uses before any case has a context, as its driver counts."""
    if arguments.device == "cpu":
        return None
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split() if line.isdigit()]


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="folder of steps.jsonl")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models of the same shape")
    parser.add_argument("--only", default="", help="cases whose names hold one of these, by commas")
    parser.add_argument("--world", type=int, default=1, help="GPUs; more than one for torchtitan")
    parser.add_argument("--case-seconds", type=float, default=60)
    parser.add_argument("--budget-seconds", type=float, default=285)
    parser.add_argument("--port", type=int, default=29600)
    parser.add_argument("--fresh", action="store_true", help="a new interpreter for each case")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--record", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help="names of the cases")
    return parser.parse_args()


def wanted(arguments):
    parts = [part for part in arguments.only.split(",") if part]
    return [case for case in CASES
            if (not parts or any(part in case["name"] for part in parts))
            and (arguments.world == 1 or case["engine"] == "torchtitan" and case["fsdp"])]


def main():
    arguments = read_arguments()
    cases = wanted(arguments)
    if arguments.list:
        print("\n".join(case["name"] for case in cases))
        return 0
    if arguments.record:
        case = next(case for case in cases if case["name"] == arguments.only)
        hf_models.import_engines({case["engine"]}, case["lora"])
        arguments.idle_mib = None
        child(case, arguments, arguments.rank, arguments.record)
    if not arguments.out or not cases:
        print("hf_steps: --out DIRECTORY is missing, or no case is named so", file=sys.stderr)
        return 2
    arguments.out.mkdir(parents=True, exist_ok=True)
    start, failed = time.monotonic(), 0
    arguments.idle_mib = idle_mib(arguments)
    hf_models.import_engines({case["engine"] for case in cases}, any(c["lora"] for c in cases))
    print(f"imports: {time.monotonic() - start:.1f} s", flush=True)
    with open(arguments.out / "steps.jsonl", "a", encoding="utf-8") as lines:
        for case in cases:
            began = time.monotonic()
            if began - start > arguments.budget_seconds:
                results = [dict(case=case, outcome="not started: the time was spent")]
            else:
                results = run_case(case, arguments, arguments.out)
                if not arguments.fresh and "CUDA" in results[0].get("error", "") and \
                        "nitializ" in results[0]["error"]:
                    print("a forked process has no GPU: new interpreters from here on", flush=True)
                    arguments.fresh = True
                    results = run_case(case, arguments, arguments.out)
            for result in results:
                lines.write(json.dumps(result) + "\n")
                failed += "outcome" in result
            lines.flush()
            peak = results[0].get("peak", {})
            took = f"{time.monotonic() - began:.1f} s"
            print(f"{case['name']}: {took}", results[0].get("outcome", ""),
                  peak.get("allocated_peak"), peak.get("reserved"),
                  results[0].get("step_seconds_median"), results[0].get("error", ""), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
