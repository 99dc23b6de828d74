"""What rehearsals.sh left in a folder: each rehearsed rank against the same rank of the run. usage:
rehearsals.py FOLDER [--store], which writes the rows of tests/data/measured/rehearsals."""
import datetime
import json
import pathlib
import sys

STORED = pathlib.Path(__file__).resolve().parents[3] / "tests" / "data" / "measured" / "rehearsals"
OUTSIDE = ("context", "modules", "communicators", "slack")


def part(path):
    return json.loads(path.read_text())


def items(rank):
    return {i["name"]: (i["bytes"], i["max_bytes"]) for i in rank["items"] if i["name"] not in OUTSIDE}


def percent(got, wanted):
    return f"{100 * (got / wanted - 1):+.1f} %" if wanted else "-"


def show(name, run, rehearsal):
    rank = rehearsal["ranks"][0]
    seconds, phases = rank["step_seconds"][-1], rank["phase_seconds"]
    modelled = rank.get("modelled_bytes", 0) / 1e9  # a GPU's
    line = f"{name} rank {rank['rank']}: device {rank['device_bytes'] / 1e9:.3f} GB, of it modelled {modelled:.3f}"
    if not run:
        print(f"{line}, step {seconds:.3f} s, transfers {phases['communication']:.3f} s")
        return
    same = next(r for r in run["ranks"] if r["rank"] == rank["rank"])
    arena = items(same) == items(rank) and all(
        same[k] == rank[k] for k in ("arena_live_bytes", "arena_extent_bytes", "routed_rows"))
    ran, ran_phases = same["step_seconds"][-1], same["phase_seconds"]
    computed, wanted = seconds - phases["communication"], ran - ran_phases["communication"]
    print(f"{line} ({(rank['device_bytes'] - same['device_bytes']) / 1048576:+.0f} MiB), arena "
          f"{'the same' if arena else 'DIFFERS'}")
    print(f"    step {ran:.4f} s, {percent(seconds, ran)}; less transfers {wanted:.4f} s, {percent(computed, wanted)}; "
          + ", ".join(f"{p} {percent(phases[p], ran_phases[p])}" for p in phases if ran_phases[p] > 1e-3))


def main():
    folder = pathlib.Path(sys.argv[1])
    for path in sorted(folder.glob("*.command")):
        name = path.stem
        run = part(folder / f"{name}.json") if (folder / f"{name}.json").exists() else None
        rehearsals = [part(p) for p in sorted(folder.glob(f"{name}.r*.json"))]
        for rehearsal in rehearsals:
            show(name, run, rehearsal)
        if "--store" not in sys.argv[2:] or not rehearsals:
            continue
        row = {
            "date": datetime.date.fromtimestamp(path.stat().st_mtime).isoformat(),
            "command": path.read_text().strip(), "plan": part(folder / f"{name}.plan.json"),
            "measurement": run, "rehearsals": rehearsals,
        }
        STORED.mkdir(exist_ok=True)
        (STORED / f"{name}.json").write_text(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
