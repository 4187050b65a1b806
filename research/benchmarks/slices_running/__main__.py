"""Do split steps run as fast as they are simulated, and faster than what TensorFlow has?

Training steps of four models, split into slices and placed by `data_parallel`, run on two one-core workers of this
machine, in turns with the unsplit step on one of them. Beside them run `auto`'s placement of the unsplit step, all
slices on one worker (gradient accumulation), and tf.distribute.MultiWorkerMirroredStrategy on two one-core processes.
Before, losses of every split step are checked against those of the unsplit one. Simulated are the same placements, with
costs of a profile of each graph and a calibrated topology. Nothing is fitted to the measured steps.

    python -m research.benchmarks.slices_running                        # some twelve minutes
    python -m research.benchmarks.slices_running --page=docs/research/split_steps.md
    python -m research.benchmarks.slices_running --models=cnn           # what is kept of the others stays
    python -m research.benchmarks.slices_running --quick --models=cnn --out=FILE  # some two minutes

The machine should do nothing else meanwhile, and have two cores.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

from absl import flags

from research.benchmarks.common import run
from research.benchmarks.slices_running.page import text
from tfplace.version import versions

MODELS = ("cnn", "transformer", "lstm", "embedding_mlp")
_MODELS = flags.DEFINE_list("models", list(MODELS), "Which models.")
_TURNS = flags.DEFINE_integer("turns", 15, "Turns that count.", 3)
_SEED = flags.DEFINE_integer("seed", 0, "Of weights, batches, searches and orders.")
_QUICK = flags.DEFINE_bool("quick", False, "A rougher calibration and less of everything.")
_TOPOLOGY = flags.DEFINE_string("topology", None, "A file of `tfplace calibrate`; by default calibrated now.")

flags.register_validator("models", lambda names: set(names) <= set(MODELS), f"expected some of {', '.join(MODELS)}")


def measure(_):
    if _QUICK.value and flags.FLAGS["out"].using_default_value:
        raise SystemExit("--quick needs --out: it is too rough to stand for the results that are kept.")
    from research.benchmarks.slices_running.losses import use_two_devices

    use_two_devices()
    from research.benchmarks.slices_running.study import Study

    found = _kept(Path(flags.FLAGS["out"].value))
    settings = {"turns": _TURNS.value, "seed": _SEED.value}
    how = {
        "command": " ".join(["python -m research.benchmarks.slices_running", *sys.argv[1:]]),
        "versions": versions(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        **settings,
    }
    with Study(**settings, quick=_QUICK.value, topology=_TOPOLOGY.value, tell=_tell) as study:
        how["topology"] = study.topology.to_dict()
        found |= {name: {**study.run(name), "how": how} for name in _MODELS.value}
    return {"models": [found[name] for name in MODELS if name in found]}


def _kept(out):
    """Results of other models that a file has, by name."""
    found = json.loads(out.read_text())["models"] if out.exists() else []
    return {model["model"]: model for model in found if model["model"] not in _MODELS.value}


def _tell(what):
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    run("slices_running", measure, text)
