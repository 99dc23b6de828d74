"""Rows of delta.sh's results. `row NAME STATUS FOLDER` prints FOLDER/NAME.json and NAME.compared.json as one line of
JSON; `table FILE` prints the lines of FILE as a short table.
usage: delta_rows.py row NAME STATUS FOLDER | table FILE"""
import json
import pathlib
import sys


def row(name, status, folder):
    ret = {"plan": name, "status": int(status)}
    try:
        measured = json.loads((folder / f"{name}.json").read_text())
        compared = json.loads((folder / f"{name}.compared.json").read_text())
    except (OSError, ValueError) as error:
        print(json.dumps(ret | {"error": str(error)}))
        return
    rank, own = compared["ranks"][0], measured["ranks"][0]
    pairs = {i["name"]: (i["predicted_bytes"], i["measured_bytes"]) for i in rank["items"]}
    ret |= {"rank": own["rank"], "arena_bytes": rank["arena_bytes"], "device_bytes": own["device_bytes"],
            "device": rank.get("device_bytes"), "differ": {k: v for k, v in pairs.items() if v[0] != v[1]},
            "items": pairs, "step_seconds": own["step_seconds"], "phase_seconds": own["phase_seconds"],
            "predicted_seconds": compared["step_seconds"]["predicted"], "loss": own.get("loss")}
    print(json.dumps(ret))


def table(path):
    for line in path.read_text().splitlines():
        r = json.loads(line)
        if "part" in r:
            print(f"{r['part']:14} status {r['status']}" + (f" after {r['seconds']} s" if "seconds" in r else ""))
        elif "error" in r:
            print(f"{r['plan']:14} status {r['status']}: {r['error']}")
        else:
            arena = r["arena_bytes"]
            print(f"{r['plan']:14} status {r['status']} rank {r['rank']} arena predicted {arena['predicted']} measured "
                  f"{arena['measured']} device {r['device_bytes']} ({r['device']}) step {r['step_seconds'][-1]:.4f} s "
                  f"(predicted {r['predicted_seconds']:.4f}) differ {r['differ'] or 'nothing'}")


if __name__ == "__main__":
    if sys.argv[1] == "row":
        row(sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4]))
    else:
        table(pathlib.Path(sys.argv[2]))
