"""Simulated against measured step times on one-core TensorFlow workers of this machine.

    python -m research.measure_fidelity   # all models; rewrites results, tables and plot
    python -m research.measure_fidelity --models=two_tower --out=towers.json --nopages --plot=
    python -m research.measure_fidelity --compile=xla --models=transformer,two_tower,wide_mlp,lstm_small \
        --nopages --plot= --out=research/data/fidelity_compiled.json
    python -m research.measure_fidelity --show=research/data/fidelity_compiled.json   # two tables

The machine should do nothing else meanwhile. About half a minute to calibrate, then some minutes a model.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

from absl import app, flags

from tfplace.cli.quiet import load_tensorflow
from tfplace.cli.scripts import script
from tfplace.core.compilation import NONE, XLA
from tfplace.core.topology import Topology
from tfplace.files import check_writable, write_whole, writing
from tfplace.report.progress import Stages

ROOT = Path(__file__).resolve().parent.parent

MODELS = {
    "inception_v3": {"batch": 4, "size": 139, "classes": 100},
    "rnnlm_4": {"batch": 16, "steps": 12, "layers": 4, "units": 384, "vocabulary": 1000},
    "lstm_small": {"batch": 16, "steps": 12, "layers": 2, "units": 128, "vocabulary": 1000},
    "transformer": {"batch": 8, "length": 64, "layers": 4, "width": 256, "heads": 4, "vocabulary": 1000},
    "two_tower": {"batch": 128},
    "wide_mlp": {"batch": 128},
}
ZOO = {"lstm_small": "rnnlm_4"}

_MODELS = flags.DEFINE_list("models", list(MODELS), "Which models.")
flags.register_validator("models", lambda names: set(names) <= set(MODELS), f"expected some of {', '.join(MODELS)}")
_WORKERS = flags.DEFINE_integer("workers", 2, "Workers, each on a core of its own.", 2)
_TOPOLOGY = flags.DEFINE_string("topology", None, "A file of `tfplace calibrate`; by default calibrated now.")
_REPEATS = flags.DEFINE_integer("repeats", 10, "Steps measured for each placement.", 2)
_SEED = flags.DEFINE_integer("seed", 0, "Of the placements.")
_COMPILE = flags.DEFINE_enum("compile", NONE, [NONE, XLA], "Whether steps are compiled.")
_OUT = flags.DEFINE_string("out", str(ROOT / "research" / "data" / "fidelity.json"), "The results.")
_PAGES = flags.DEFINE_bool("pages", True, "Whether to rewrite the table of docs/research/fidelity.md.")
_SHOW = flags.DEFINE_string("show", None, "Results of compiled steps; measures nothing and rewrites their table.")
_PLOT = flags.DEFINE_string(
    "plot", str(ROOT / "docs" / "research" / "fidelity.png"), "The scatter plot; empty for none."
)


def main(argv: list[str]) -> None:
    """Runs the experiment and writes results after every model, so that nothing measured is lost."""
    with script(argv, stopped=f"Stopped; every model that was measured by now is in {_OUT.value}."):
        _measure()


def _measure() -> None:
    if _SHOW.value:
        from research.fidelity.bands import bands_table
        from tfplace.comparison.tables import Page, agreement_table

        page = Page(ROOT / "docs" / "research" / "compiled_steps.md", "fidelity-compiled")
        page.write(agreement_table(json.loads(Path(_SHOW.value).read_text())))
        Page(ROOT / "docs" / "concepts" / "plans.md", "error-bands").write(bands_table())
        return
    replaced = [flag for flag in (_OUT, _PAGES, _PLOT) if flag.value == flag.default]
    if set(_MODELS.value) != set(MODELS) and replaced:
        raise SystemExit(
            f"--models={','.join(_MODELS.value)}: a run of some models needs --out, --nopages and --plot, or the "
            "results of the others would be gone."
        )
    out = Path(_OUT.value)
    for path in (_OUT.value, _PLOT.value):
        if path:
            check_writable(path)
    topology = Topology.load(_TOPOLOGY.value) if _TOPOLOGY.value else None
    load_tensorflow(gpus=False)
    from research.fidelity.experiment import run_experiment
    from tfplace.measurement.backends.cluster import Cluster
    from tfplace.measurement.calibration.calibrate import calibrate

    with Stages(quiet=False) as stages, Cluster.start(workers=_WORKERS.value) as cluster:
        if topology is None:
            stages.stage("calibrating")
            topology = calibrate(cluster).topology
        results = {
            "command": " ".join(["python -m research.measure_fidelity", *sys.argv[1:]]),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
            "repeats": _REPEATS.value,
            "seed": _SEED.value,
            "compile": _COMPILE.value,
            "topology": topology.to_dict(),
            "experiments": [],
        }
        for name in _MODELS.value:
            graph = _graph(name)
            experiment = run_experiment(
                graph,
                topology,
                cluster,
                seed=_SEED.value,
                repeats=_REPEATS.value,
                compile=_COMPILE.value,
                tell=stages.stage,
                progress=stages.part,
            )
            results["experiments"].append(experiment.to_dict())
            with writing(out):
                write_whole(out, json.dumps(results, indent=1) + "\n")
    _show(results)


def _graph(name: str):
    from tfplace_zoo import zoo

    import tfplace

    built = zoo.build(ZOO.get(name, name), **MODELS[name])
    return tfplace.extract(built.model, built.batch, name=name)


def _show(results: dict) -> None:
    from research.tables.plots import scatter
    from tfplace.comparison.tables import Page, fidelity_tables

    print(fidelity_tables(results))
    if _PAGES.value:
        Page(ROOT / "docs" / "research" / "fidelity.md", "fidelity").write(fidelity_tables(results))
    if _PLOT.value:
        panels = {}
        for e in results["experiments"]:
            rows = e["placements"]
            panels[e["graph"]] = ([r["simulated_ratio"] for r in rows], [r["measured_ratio"] for r in rows])
        scatter(_PLOT.value, panels, axes=("simulated ratio", "measured ratio"))


if __name__ == "__main__":
    app.run(main)
