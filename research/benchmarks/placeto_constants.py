"""What each constant of `placeto_scratch` that is not the published code's is worth: the step found without it.

    python -m research.benchmarks.placeto_constants --graphs=out/graphs  # a quarter of an hour; resumes
    python -m research.benchmarks.placeto_constants --page=docs/research/policies.md  # puts the table there

The graphs are made by `python scripts/make_zoo.py --nofacts --only=rnnlm_2,gnmt_2,resnet50 --graphs=out/graphs`. Step
times are simulated, and do not depend on the machine.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from absl import app, flags

from research.benchmarks.common import best_step_s, spread
from tfplace.cli.quiet import load_tensorflow
from tfplace.comparison.tables import Page, table
from tfplace.files import write_whole

ROOT = Path(__file__).resolve().parents[2]

MODELS = ("rnnlm_2", "gnmt_2", "resnet50")
TOPOLOGY, GROUPS, EVALUATIONS, SEEDS = "4xP100", 256, 20_000, 3
OURS = "placeto_scratch"
THEIRS = {"rate": 1e-3, "discount": 1.0, "entropy": 1.0, "episodes": 4}
"""The code's; of the workers the fewest."""

VARIANTS = {OURS: {}, **{f"with {name} {value:g}": {name: value} for name, value in THEIRS.items()}, "with all": THEIRS}
BESIDE = ("untrained", "random_search", "annealing")

_GRAPHS = flags.DEFINE_string("graphs", str(ROOT / "out" / "graphs"), "Directory of NAME.npz.")
_OUT = flags.DEFINE_string("out", str(ROOT / "research" / "data" / "placeto_constants.json"), "The results.")
_PAGE = flags.DEFINE_string("page", None, "A page whose table is rewritten; nothing is run.")


def main(argv: list[str]) -> None:
    del argv
    out = Path(_OUT.value)
    found = json.loads(out.read_text()) if out.exists() else {}
    if _PAGE.value:
        Page(_PAGE.value, "placeto-constants").write(text(found))
        return
    load_tensorflow(gpus=False)
    for model in MODELS:
        problem, single_s, bound_s = setting(model)
        known = found.setdefault(model, {"single_s": single_s, "bound_s": bound_s, "step_s": {}})
        for name in (*BESIDE, *VARIANTS):
            steps = known["step_s"].setdefault(name, [])
            for seed in range(len(steps), SEEDS):
                steps.append(step_of(problem, name, seed))
                write_whole(out, json.dumps(found, indent=1) + "\n")
            print(f"{model:<10} {name:<22} {' '.join(f'{s / single_s:.3f}' for s in steps)}", flush=True)
    print(text(found))


def setting(model):
    """The grouped problem, and simulated seconds of the best single device and of the bound."""
    from tfplace.comparison.cells import Case, problem_of
    from tfplace.core.graph import OpGraph
    from tfplace.simulation.evaluate import Simulator

    problem = problem_of(OpGraph.load(Path(_GRAPHS.value) / f"{model}.npz"), Case(model, TOPOLOGY, groups=GROUPS))
    return problem, search(problem, "single", 0), Simulator(problem).bound_s


def step_of(problem, name, seed):
    """Simulated seconds of the best step found by a placer, or by a variant of Placeto."""
    changes = VARIANTS.get(name)
    return search(problem, name if changes is None else OURS, seed, changes or {})


def search(problem, placer, seed, changes=None):
    from tfplace.registry import PLACERS

    method = PLACERS[placer]()
    if changes:
        method.settings = replace(method.settings, **changes)
    return best_step_s(problem, method, placer, EVALUATIONS, seed)


def text(found):
    """The table: medians over the seeds, and the least and the most."""
    head = (f"step over single, {TOPOLOGY}, {GROUPS} groups, {EVALUATIONS:,} evaluations, {SEEDS} seeds", *found)
    lines = [("bound", *(f"{facts['bound_s'] / facts['single_s']:.2f}" for facts in found.values()))]
    lines += [
        (name, *(spread(facts["step_s"].get(name), facts["single_s"]) for facts in found.values()))
        for name in (*BESIDE, *VARIANTS)
    ]
    return table(head, lines)


if __name__ == "__main__":
    app.run(main)
