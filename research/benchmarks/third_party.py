"""Do models of other packages and of many kinds train the same plainly and placed?

Each kind of `third_party_kinds` runs in a process of its own, with a time limit: three steps from one seed as they are,
and again with its ops going round four logical CPUs. Losses and final weights are compared to the bit. Grappler is off,
as it fuses a plain program and not a placed one, and so is oneDNN; random numbers and sums have a fixed order. What is
not installed is named in the results, not counted as a failure.

    pip install keras-hub keras-rs keras-tcn spektral tensorflow-recommenders
    python -m research.benchmarks.third_party --jobs=4      # some 20 minutes; rewrites third_party.json
    python -m research.benchmarks.third_party bert dqn      # these; other rows stay as they are
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "research" / "data" / "third_party.json"
COMMAND = "python -m research.benchmarks.third_party"
DEVICES, STEPS, SEED, LIMIT_S = 4, 3, 0, 120
PACKAGES = ("tensorflow", "keras", "tf-keras", "keras-hub", "keras-rs", "keras-tcn", "spektral", "dm-sonnet")
PACKAGES += ("tensorflow-probability", "tensorflow-recommenders", "numpy")
NOT_INSTALLED = ("larq", "qkeras", "tensorflow-gnn", "tensorflow-model-optimization", "tf-agents", "tf-models-official")
"""Of these pip found no version that goes with the others."""
ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}


def run(kind, limit_s):
    """The row of one kind, from a process of its own."""
    from research.benchmarks.third_party_kinds import LEGACY

    legacy = {"TF_USE_LEGACY_KERAS": "1"} if kind in LEGACY else {}
    begin = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "research.benchmarks.third_party", "--child", kind],
            env=os.environ | ENVIRONMENT | legacy,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"kind": kind, "error": f"not done after {limit_s} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"kind"')]
    row = json.loads(lines[-1]) if lines else {"kind": kind, "error": f"ended with {done.returncode}"}
    if not lines or "bit_equal" not in row:
        print(done.stderr[-2000:], file=sys.stderr)
    return row | {"seconds": round(time.perf_counter() - begin, 1)}


# ---- in the child ----------------------------------------------------------------------------------------------------


def compare(kind):
    """Trains plainly and placed, and says what differs."""
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration() for _ in range(DEVICES)]
    )
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    tf.config.experimental.enable_op_determinism()
    row = {"kind": kind}
    for stage in ("plain", "placed"):
        try:
            row[stage] = _train(kind, placed=stage == "placed")
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            text = next((line for line in lines if line.startswith("(0) ")), lines[0] if lines else "")
            why = f"{type(error).__name__}: {text[:300]}"
            if stage == "placed" or not isinstance(error, ImportError):
                import traceback

                traceback.print_exc()
            return row_of(row) | {"error" if stage == "placed" else "not_run": why}
    out = row_of(row)
    if not out["bit_equal"]:  # is it so without any placement?
        out["plain_again"] = row_of(row | {"placed": (*_train(kind, placed=False)[:2], {})})["bit_equal"]
    return out


def row_of(row):
    """What is kept of two trainings, each (losses, weights, facts)."""
    import numpy as np

    out = {"kind": row["kind"]}
    if "placed" not in row:
        return out
    (losses, weights, _), (placed_losses, placed_weights, facts) = row["plain"], row["placed"]
    pairs = list(zip([*losses, *weights], [*placed_losses, *placed_weights], strict=True))
    numbers = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs if a.dtype.kind in "fiub"]
    return (
        out
        | facts
        | {
            "losses": [float(np.mean(loss)) for loss in losses],
            "weights": len(weights),
            "bit_equal": all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs),
            "largest_relative_difference": max(_difference(a, b) for a, b in numbers),
            "finite": all(bool(np.all(np.isfinite(b))) for _, b in numbers),
        }
    )


def _difference(a, b):
    """The largest difference of two arrays, relative to the largest number of the first."""
    import numpy as np

    return float(np.max(np.abs(a - b), initial=0.0) / max(np.max(np.abs(a), initial=0.0), 1e-30))


def _train(kind, *, placed):
    """Losses and weights, as arrays, of a model made from the seed; and facts of the placement."""
    import numpy as np

    from research.benchmarks import third_party_kinds as kinds

    kinds.seed(SEED)
    made = kinds.KINDS[kind]()
    losses, facts = (_fit if isinstance(made, kinds.Fit) else _steps)(made, placed)
    return [np.asarray(loss) for loss in losses], [np.asarray(w) for w in made.weights()], facts


def _placing():
    return {"placer": "round_robin", "budget": 1, "baselines": ()}


def _fit(made, placed):
    from tfplace.keras import PlacementCallback

    callbacks = [PlacementCallback(verbose=0, **_placing())] if placed else []
    history = made.model.fit(
        made.x, made.y, batch_size=made.batch, epochs=1, shuffle=False, verbose=0, callbacks=callbacks, **made.settings
    )
    return [loss for losses in history.history.values() for loss in losses], _facts(
        callbacks[0].placement if placed else None
    )


def _steps(made, placed):
    import tensorflow as tf

    import tfplace

    step, facts = made.step, {}
    if placed:
        graph = tfplace.extract(made.step, made.batch)
        placement = tfplace.place(graph, progress=False, **_placing())
        step, facts = tfplace.apply(graph, placement), _facts(placement)
    losses = [tf.nest.flatten(step(*made.batch)) for _ in range(STEPS)]
    found = [leaf.numpy() for row in losses for leaf in row]
    if placed:
        step.restore()
    return found, facts


def _facts(placement):
    import numpy as np

    if placement is None:
        return {}
    return {"ops": len(placement.op_names), "devices": len(np.unique(placement.op_device))}


# ---- the program -----------------------------------------------------------------------------------------------------


def versions():
    """Package -> its version, or that it is not installed."""
    out = {}
    for package in PACKAGES:
        try:
            out[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            out[package] = "not installed"
    return out


def text(rows):
    """A line a kind, and a last one with the counts."""
    lines = []
    for row in rows:
        if said := row.get("error") or row.get("not_run"):
            lines.append(f"{row['kind']:24} {'FAILED' if 'error' in row else 'not run'}: {said}")
        else:
            same = "bit-equal" if row["bit_equal"] else f"differs by {row['largest_relative_difference']:.1e}"
            same += "" if row.get("plain_again", True) else ", as from one plain training to the next"
            lines.append(f"{row['kind']:24} {same}, {row['ops']} ops on {row['devices']} devices")
    ran = [row for row in rows if "bit_equal" in row]
    equal = sum(row["bit_equal"] for row in ran)
    failed = sum("error" in row for row in rows)
    return "\n".join([*lines, f"{len(ran)} kinds ran, {equal} bit-equal; {failed} failed"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help="kinds to run; by default all")
    parser.add_argument("--jobs", type=int, default=1, help="kinds at a time (1)")
    parser.add_argument("--limit", type=int, default=LIMIT_S, help=f"seconds for a kind ({LIMIT_S})")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(compare(asked.child)), flush=True)
        return
    from research.benchmarks.third_party_kinds import KINDS

    old = json.loads(asked.out.read_text())["rows"] if asked.out.exists() and asked.kinds else []
    rows = {row["kind"]: row for row in old if row["kind"] in KINDS}
    with ThreadPoolExecutor(asked.jobs) as pool:
        for row in pool.map(lambda kind: run(kind, asked.limit), asked.kinds or KINDS):
            rows[row["kind"]] = row
            print(text([row]).splitlines()[0], file=sys.stderr, flush=True)
    found = {
        "command": COMMAND,
        "seed": SEED,
        "steps": STEPS,
        "devices": DEVICES,
        "versions": versions(),
        "not_installed": NOT_INSTALLED,
        "rows": [rows[name] for name in KINDS if name in rows],
    }
    asked.out.write_text(json.dumps(found, indent=1) + "\n")
    print(text(found["rows"]))


if __name__ == "__main__":
    main()
