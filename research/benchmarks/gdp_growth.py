"""What `gdp` costs as graphs grow: GNMT of 8 layers, unrolled over more and more word pieces, on two cores.

    python -m research.benchmarks.gdp_growth  # rewrites gdp_growth.json; about 10 minutes, mostly extraction

An update draws 10 placements, has PPO's gradient once, and takes a step of Adam; nothing is evaluated. Medians of five,
after one that is traced. Each graph is extracted in a process of its own and learned from in another one, whose peak
memory is given.
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

from research.benchmarks import growth

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "research" / "data" / "gdp_growth.json"
PLACEMENTS, REPEATS = 10, 5


def learn(path, pipe):
    """In a process of its own: inputs, logits, and updates of one graph."""
    from tfplace.cli.quiet import load_tensorflow

    load_tensorflow(gpus=False)
    import numpy as np
    import sonnet as snt

    from tfplace import OpGraph
    from tfplace.learned.features.graph_inputs import graph_inputs
    from tfplace.learned.policies.gdp import GdpSettings, learner_of
    from tfplace.sources import formulate

    problem = formulate(OpGraph.load(path), growth.TOPOLOGY)
    graph_inputs(problem)  # compiles
    _, inputs_s = growth.clock(lambda: graph_inputs(problem))
    policy = learner_of(problem, GdpSettings(), np.random.default_rng(growth.SEED))
    optimizer, rng = snt.optimizers.Adam(1e-3), np.random.default_rng(growth.SEED)
    times = {"draw_s": [], "gradient_s": [], "update_s": []}
    for number in range(REPEATS + 1):
        drawn, draw_s = growth.clock(lambda n=number: policy.sample(PLACEMENTS, np.array([n, 0], np.int32), n))
        advantage = rng.standard_normal(PLACEMENTS)
        (found, _), gradient_s = growth.clock(lambda d=drawn, a=advantage: policy.gradients(d, a, np.ones(PLACEMENTS)))
        _, apply_s = growth.clock(lambda g=found: optimizer.apply(g, policy.variables))
        if number:
            for name, seconds in zip(times, (draw_s, gradient_s, draw_s + gradient_s + apply_s), strict=True):
                times[name].append(seconds)
    medians = {name: round(statistics.median(seconds), 4) for name, seconds in times.items()}
    pipe.send({"units": problem.num_units, "inputs_s": inputs_s, **medians, "peak_gb": growth.peak_gb()})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="*", default=list(growth.LENGTHS))
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for length in options.lengths:
            path = Path(folder) / f"{length}.npz"
            row = growth.child(growth.extract, length, path)
            row = {"length": length, "ops": row["ops"], **growth.child(learn, path)}
            rows.append(row)
            print(json.dumps(row), flush=True)
    slope = {name: round(growth.exponent(rows, name), 2) for name in ("inputs_s", "draw_s", "update_s")}
    facts = {"processors": len(os.sched_getaffinity(0)), "placements": PLACEMENTS, "exponent": slope, "rows": rows}
    options.out.write_text(json.dumps(facts, indent=1) + "\n")
    print("exponents of growth, 1 is linear:", slope)


if __name__ == "__main__":
    main()
