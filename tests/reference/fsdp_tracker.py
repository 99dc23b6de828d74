#!/usr/bin/env python3
"""Asks FSDP2's own memory tracker what a rank holds, by moment and by category, without a cluster.

The tracker (torch.distributed._tools.fsdp2_mem_tracker) follows a step of fake tensors on rank 0
of a fake process group. On a CPU mesh the operators are the CPU's; with fake `cuda` tensors they
are the GPU's, which wants a machine with a driver and takes none of its memory. Results are small
JSON lines; nothing of this is needed to build or test rankfit.

    python3 tests/reference/fsdp_tracker.py --out tests/data/reference/fsdp2-tracker-cpu.jsonl
    python3 tests/reference/fsdp_tracker.py --device cuda --out fsdp2-tracker-cuda.jsonl

What it cannot follow: the allocator (all figures are live bytes, no pools, no rounding), streams
(a collective ends where it is called), what NCCL and cuBLAS hold, compiled graphs, pipelines, and
sizes that depend on data, so that experts get balanced splits written in and batched products
instead of grouped ones. On a CPU mesh a ring of context ranks has no operators.

Seen with the versions of requirements-oracles.txt. The tracker is made outside the fake mode;
AdamW is fused. The second step is read, so that the optimizer's state is there.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import sys
import traceback

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.parallel import loss_parallel
from torch.utils._python_dispatch import _disable_current_modes
from torch.testing._internal.distributed.fake_pg import FakeStore

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tracker_model as model_of  # noqa: E402
from tracker_layouts import CPU_LAYOUTS, CUDA_LAYOUTS  # noqa: E402


class Tracker(FSDPMemTracker):
    """The tracker, with a peak that can start again, so that each moment has its own. Tensors that
    DTensor makes to learn the shape of a result, at the size of the whole mesh, take no memory of
    a device; they are not counted."""

    paused = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self.paused:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)

    @contextlib.contextmanager
    def without_shapes(self):
        learn = ShardingPropagator._propagate_tensor_meta_non_cached

        def quietly(propagator, schema):
            before, self.paused = self.paused, True
            try:
                return learn(propagator, schema)
            finally:
                self.paused = before

        ShardingPropagator._propagate_tensor_meta_non_cached = quietly
        try:
            yield
        finally:
            ShardingPropagator._propagate_tensor_meta_non_cached = learn

    def restart_peak(self):
        self._peak_mem_snap = self.get_tracker_snapshot()
        self._peak_mem = {device: found["Total"] for device, found in self._peak_mem_snap.items()}


def read(tracker, device, which):
    """One snapshot: bytes by category, those that are not zero."""
    for key, found in tracker.get_tracker_snapshot(which).items():
        if key.type == device:
            return {getattr(name, "value", name).lower().replace(" ", "_"): size
                    for name, size in found.items() if size}
    return {}


def unit_peaks(tracker, device):
    """Total bytes at the peak of each FSDP unit, in its forward and in its backward."""
    found = {}
    for stats in tracker.memory_tracking.values():
        peaks = {}
        for state, name in (("Peak Forward", "forward"), ("Peak Backward", "backward")):
            for snapshot in stats.snapshots.get(state, [])[-1:]:
                peaks[name] = next((kept["Total"] for key, kept in snapshot.items()
                                    if key.type == device), 0)
        found[stats.mod_fqn] = peaks
    return found


class Moments:
    """Now and peak at each named moment of a step."""

    def __init__(self, tracker, device):
        self.tracker, self.device, self.found = tracker, device, {}
        tracker.restart_peak()

    def __call__(self, name):
        self.found[name] = dict(now=read(self.tracker, self.device, "current"),
                                peak=read(self.tracker, self.device, "peak"))
        self.tracker.restart_peak()


def meshes(layout, device):
    """The dense mesh of FSDP, the one of tensor parallelism, of context, of experts, of their
    shards. Dimensions from the outside in: replicas, fsdp, cp, tp."""
    sizes, names = (layout.replicas, layout.fsdp, layout.cp, layout.tp), ("r", "f", "c", "t")
    whole = init_device_mesh(device, sizes, mesh_dim_names=names)
    if layout.cp > 1:
        whole["f", "c"]._flatten("shards")
    shards = whole["shards"] if layout.cp > 1 else whole["f"]
    dense = whole["r", "f"] if layout.replicas > 1 else shards
    found = dict(dense=dense, tp=whole["t"] if layout.tp > 1 else None,
                 cp=whole["c"] if layout.cp > 1 else None, ep=None, expert_shards=None)
    if layout.facts.experts:
        ranks = layout.world // layout.tp
        apart = init_device_mesh(device, (ranks // layout.ep, layout.ep),
                                 mesh_dim_names=("e_fsdp", "ep"))
        found.update(ep=apart["ep"], expert_shards=apart["e_fsdp"])
    return found


def keep_meshes_real():
    """FSDP joins its mesh with that of tensor parallelism while the model is built: ranks are real
    numbers, not fake ones."""
    join = DeviceMesh._concatenate

    def joined(*arguments):
        with _disable_current_modes():
            return join(*arguments)

    DeviceMesh._concatenate = staticmethod(joined)


def build(layout, device, mesh):
    group = mesh["ep"].get_group() if mesh["ep"] is not None else None
    with torch.device(device):
        model = model_of.Decoder(layout, group)
    if mesh["tp"] is not None:
        keep_meshes_real()
        model_of.apply_tensor_parallel(model, mesh["tp"])
    if mesh["cp"] is not None:
        from torch.distributed.tensor.experimental._attention import (
            _enable_context_parallel_dispatcher)
        _enable_context_parallel_dispatcher()
    model_of.apply_recompute(model, layout.recompute)
    model_of.apply_fsdp(model, layout, mesh["dense"], mesh["expert_shards"])
    return model


@contextlib.contextmanager
def context_split(layout, mesh, buffers):
    """Splits tokens, labels and rotary turns over the context group; attention becomes a ring."""
    if mesh["cp"] is None:
        yield
        return
    from torch.distributed.tensor.experimental import context_parallel

    with context_parallel(mesh["cp"], buffers=buffers, buffer_seq_dims=[1, 1, 0],
                          no_restore_buffers=set(buffers)):
        yield


def loss_of(layout, logits, labels):
    logits = logits.float() if layout.loss_dtype == "fp32" else logits
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(0, 1))


def step(layout, model, optimizer, batch, mesh, moment):
    tokens, labels = batch
    split = loss_parallel() if mesh["tp"] is not None else contextlib.nullcontext()
    with split:
        logits = model(tokens)
        moment("forward")
        loss = loss_of(layout, logits, labels)
        del logits
        moment("loss")
        loss.backward()
        del loss
    moment("backward")
    optimizer.step()
    moment("optimizer")
    optimizer.zero_grad(set_to_none=True)
    moment("end")


def follow(layout, device):
    """Two steps under the tracker; what the second one held."""
    dist.init_process_group("fake", rank=0, world_size=layout.world, store=FakeStore())
    try:
        mesh, fake = meshes(layout, device), FakeTensorMode()
        with fake:
            model = build(layout, device, mesh)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
            shape = (layout.batch, layout.seq)
            batch = [torch.randint(0, layout.facts.vocab, shape, device=device) for _ in range(2)]
        tracker = Tracker(model, optimizer)
        tracker.track_inputs(tuple(batch))
        split = context_split(layout, mesh, [*batch, model.turns])
        with fake, split, tracker.without_shapes(), tracker:
            for _ in range(2):
                moments = Moments(tracker, device)
                moments("start")
                step(layout, model, optimizer, batch, mesh, moments)
                units = unit_peaks(tracker, device)
                tracker.reset_mod_stats()
        held = sum(parameter.to_local().numel() for parameter in model.parameters())
        return dict(rank_parameters=held, moments=moments.found, units=units)
    finally:
        dist.destroy_process_group()


def in_a_process(layout, device):
    """The record of one layout from a process of its own, since a failure leaves patches behind."""
    record = dict(layout=dataclasses.asdict(layout), world=layout.world, device=device,
                  torch=torch.__version__)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            record.update(follow(layout, device))
        except Exception as error:  # the other layouts are worth having
            record.update(outcome="failed", error=repr(error)[:300])
            print(traceback.format_exc()[-2500:], flush=True)
        with os.fdopen(writer, "w") as stream:
            json.dump(record, stream)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else dict(record, outcome="died")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--layouts", choices=("cpu", "cuda"), help="the device's own unless said")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="JSON lines")
    parser.add_argument("--only", default="", help="layouts whose names hold this")
    arguments = parser.parse_args()
    layouts = dict(cpu=CPU_LAYOUTS, cuda=CUDA_LAYOUTS)[arguments.layouts or arguments.device]
    failed, lines = 0, []
    for layout in layouts:
        if arguments.only not in layout.name:
            continue
        record = in_a_process(layout, arguments.device)
        failed += "outcome" in record
        peaks = {name: round(found["peak"].get("total", 0) / 2**30, 3)
                 for name, found in record.get("moments", {}).items()}
        print(layout.name, record.get("error", ""), peaks, flush=True)
        lines.append(json.dumps(record))
        arguments.out.write_text("\n".join(lines) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
