"""What speed.sh left in a folder, as ratios to PyTorch. State is what both keep through a step: weights, gradients,
master weights and moments. The peak that is compared is what tensors hold: allocated bytes there, live bytes of the
arena here. PyTorch drops gradients after a step, so that its largest moment lacks those of the layers to come; in
brackets is what it takes when it keeps them, as rankfit does. The ratios are to both.
usage: speed.py FOLDER"""
import json
import pathlib
import statistics
import sys

STATE = ("weights", "gradients", "master", "moments")
GIB = 2**30


def rankfit_row(name, folder):
    measured = json.loads((folder / f"{name}.json").read_text())
    plan = json.loads((folder / f"{name}.plan.json").read_text())
    rank = measured["ranks"][0]
    seq, step = plan["workload"]["seq_tokens"], statistics.median(rank["step_seconds"][1:])
    state = sum(item["bytes"] for item in rank["items"] if item["name"] in STATE)
    return {
        "seq": seq, "rate": seq / step, "step": step, "moving": rank["arena_live_bytes"] - state,
        "device": rank["device_bytes"],
    }


def torch_rows(folder):
    path = folder / "torch.json"
    lines = path.read_text().splitlines() if path.exists() else []
    for row in map(json.loads, lines):
        yield row["seq_tokens"], {
            "rate": row["tokens_per_second"], "step": row["step_seconds"], "device": row["device_bytes"],
            "moving": row["peak_allocated_bytes"] - row["resident_bytes"],
            "kept": row["peak_gradients_kept_bytes"] - row["resident_bytes"],
        }


def main():
    folder = pathlib.Path(sys.argv[1])
    torch = dict(torch_rows(folder))
    head = ("row", "tokens/s", "step s", "peak - state GiB", "device GiB", "speed", "peak - state", "device")
    print("{:<12}{:>10}{:>9}{:>18}{:>12}{:>10}{:>16}{:>8}".format(*head))
    for seq, row in torch.items():
        moving = "{:.2f} ({:.2f})".format(row["moving"] / GIB, row["kept"] / GIB)
        print(f"torch-{seq // 1024}K{row['rate']:>13,.0f}{row['step']:>9.4f}{moving:>18}{row['device'] / GIB:>12.2f}")
    for path in sorted(folder.glob("*.plan.json")):
        name = path.name.removesuffix(".plan.json")
        if not (folder / f"{name}.json").exists():
            continue
        row = rankfit_row(name, folder)
        text = f"{name:<12}{row['rate']:>10,.0f}{row['step']:>9.4f}{row['moving'] / GIB:>18.2f}{row['device'] / GIB:>12.2f}"
        other = torch.get(row["seq"])
        if other:
            moving = "{:.3f} ({:.3f})".format(row["moving"] / other["moving"], row["moving"] / other["kept"])
            text += f"{row['rate'] / other['rate']:>10.3f}{moving:>16}{row['device'] / other['device']:>8.3f}"
        print(text)
    if torch:
        print("in brackets: where PyTorch keeps gradients as well")


if __name__ == "__main__":
    main()
