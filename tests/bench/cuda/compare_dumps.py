#!/usr/bin/env python3
"""Two dumps of the same step (safetensors, F32): the difference of each tensor, as root mean square,
beside its bound: each may be off by four bf16 ulp of its root mean square, so that their difference
may be twice that. One line for each tensor beyond
the bound (-v: for all) and one for all. Exit 1 when any is beyond."""
import array
import json
import math
import struct
import sys


def read(path):
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        base = 8 + length
        for name in sorted(header):
            if name == "__metadata__":
                continue
            begin, end = header[name]["data_offsets"]
            file.seek(base + begin)
            values = array.array("f")
            values.frombytes(file.read(end - begin))
            yield name, values


def rms(values):
    return math.sqrt(math.fsum(v * v for v in values) / max(len(values), 1))


def main():
    paths = [a for a in sys.argv[1:] if a != "-v"]
    beyond, worst, count = 0, (0.0, "none"), 0
    for (name, a), (other, b) in zip(read(paths[0]), read(paths[1]), strict=True):
        if name != other or len(a) != len(b):
            sys.exit(f"{name} of {len(a)} against {other} of {len(b)}")
        size = rms(a)
        error = math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(a, b)) / max(len(a), 1))
        bound = 2 * 4 * 2.0 ** (math.floor(math.log2(size)) - 7) if size > 0 else 0.0
        part = error / bound if bound > 0 else (0.0 if error == 0 else math.inf)
        count += 1
        beyond += not part <= 1
        worst = max(worst, (part, name)) if part == part else (math.inf, name)
        if "-v" in sys.argv or not part <= 1:
            print(f"    {name:60} rms {size:.3e} error {error:.3e} {part:8.3f} of the bound")
    print(f"{count} tensors, {beyond} beyond the bound, worst {worst[0]:.3f} of it: {worst[1]}")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
