"""What matrix.sh or ranks.sh left in a folder, as the stored rows of tests/data/measured: date, command, plan,
measurement; and the points of calibrations, in its calibrate. Rows that neither script has any more are removed; a row
that the folder lacks stays as it was. usage: store.py FOLDER"""
import datetime
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
STORED = HERE.parents[2] / "tests" / "data" / "measured"


def part(path):
    return json.loads(path.read_text())


def names_of(script):
    names = subprocess.run(["sh", HERE / script, "--names"], capture_output=True, text=True, check=True)
    return names.stdout.split()


def main():
    folder = pathlib.Path(sys.argv[1])
    names = names_of("matrix.sh") + names_of("ranks.sh")
    for points in folder.glob("*.points.json"):
        stored = STORED / "calibrate" / f"{points.name.removesuffix('.points.json')}.json"
        stored.write_text(points.read_text())
    for path in STORED.glob("*.json"):
        if path.stem not in names:
            path.unlink()
            print(f"removed {path.stem}")
    for name in names:
        measured, plan = folder / f"{name}.json", folder / f"{name}.plan.json"
        if not measured.exists():
            if (folder / f"{name}.command").exists():
                print(f"{'kept' if (STORED / f'{name}.json').exists() else 'MISSING'} {name}")
            continue
        row = {
            "date": datetime.date.fromtimestamp(measured.stat().st_mtime).isoformat(),
            "command": (folder / f"{name}.command").read_text().strip(),
            "plan": part(plan), "measurement": part(measured),
        }
        (STORED / f"{name}.json").write_text(json.dumps(row, separators=(",", ":")) + "\n")
    print(f"{sum((STORED / f'{n}.json').exists() for n in names)} of {len(names)} rows are there")


if __name__ == "__main__":
    main()
