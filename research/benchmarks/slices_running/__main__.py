"""Do split steps run as fast as they are simulated, and faster than what TensorFlow has?

Training steps of four models, split into slices and placed by `data_parallel`, run on two one-core workers of this
machine, in turns with the unsplit step on one of them. Beside them run `auto`'s placement of the unsplit step, all
slices on one worker (gradient accumulation), and tf.distribute.MultiWorkerMirroredStrategy on two one-core processes.
Before, losses of every split step are checked against those of the unsplit one. Simulated are the same placements, with
costs of a profile of each graph and a calibrated topology. Nothing is fitted to the measured steps.

    python -m research.benchmarks.slices_running                        # some twelve minutes
    python -m research.benchmarks.slices_running --page=docs/fidelity.md
    python -m research.benchmarks.slices_running --quick --out=FILE     # one model, some two minutes

The machine should do nothing else meanwhile, and have two cores.
"""

from __future__ import annotations

import os
import platform
import sys

from absl import flags

from research.benchmarks.common import run
from research.benchmarks.slices_running.page import text
from tfplace.version import versions

MODELS = ("cnn", "transformer", "lstm", "embedding_mlp")
_MODELS = flags.DEFINE_list("models", list(MODELS), "Which models.")
_TURNS = flags.DEFINE_integer("turns", 15, "Turns that count.", 3)
_SEED = flags.DEFINE_integer("seed", 0, "Of weights, batches, searches and orders.")
_QUICK = flags.DEFINE_bool("quick", False, "One model, few turns and a rougher calibration.")
_TOPOLOGY = flags.DEFINE_string("topology", None, "A file of `tfplace calibrate`; by default calibrated now.")

flags.register_validator("models", lambda names: set(names) <= set(MODELS), f"expected some of {', '.join(MODELS)}")


def measure(_):
    if (_QUICK.value or set(_MODELS.value) != set(MODELS)) and flags.FLAGS["out"].using_default_value:
        raise SystemExit("A run of some models needs --out, or the results of the others would be gone.")
    from research.benchmarks.slices_running.losses import use_two_devices

    use_two_devices()
    from research.benchmarks.slices_running.study import Study

    names = _MODELS.value[:1] if _QUICK.value else _MODELS.value
    with Study(turns=_TURNS.value, seed=_SEED.value, quick=_QUICK.value, topology=_TOPOLOGY.value, tell=_tell) as study:
        return {
            "command": " ".join(["python -m research.benchmarks.slices_running", *sys.argv[1:]]),
            "versions": versions(),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}",
            "seed": _SEED.value,
            "turns": _TURNS.value,
            "topology": study.topology.to_dict(),
            "models": [study.run(name) for name in names],
        }


def _tell(what):
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    run("slices_running", measure, text)
