"""Is a training step that tfplace places on one CPU slower than Keras's own?

Each model has a process of its own, in which all ways to run its step take turns, in another order each time. Compared
are the plain step with jit_compile=False, which Grappler optimizes, the same with jit_compile=True, and the step with
every op placed on CPU:0. Then `fit` runs in turns plainly and with a PlacementCallback; its time of a batch includes
Keras's own work between steps. Beside the wall clock stands the processor time of the whole process, which other
programs on the machine disturb less.

    python -m research.benchmarks.never_slower                        # some half an hour
    python -m research.benchmarks.never_slower --page=docs/research/one_device.md
    python -m research.benchmarks.never_slower --models=gpt,lstm      # what is kept of the others stays
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import sys
from pathlib import Path

from absl import flags

from research.benchmarks.common import run
from research.benchmarks.never_slower.page import text
from tfplace.version import versions

MODELS = ("cnn", "transformer", "lstm", "embedding_mlp", "small_ops", "gpt", "vit", "dlrm", "wavenet")
MODELS += ("MobileNetV2", "ResNet50", "VGG16", "tf_keras cnn", "tf_keras transformer")
_MODELS = flags.DEFINE_list("models", list(MODELS), "Which models.")
_TURNS = flags.DEFINE_integer("turns", 30, "Turns of each step that count.", 3)

flags.register_validator("models", lambda names: set(names) <= set(MODELS), f"expected some of {', '.join(MODELS)}")


def measure(_):
    from research.benchmarks.never_slower.running import measure_model

    out = Path(flags.FLAGS["out"].value)
    found = {one["model"]: one for one in json.loads(out.read_text())["models"]} if out.exists() else {}
    how = {
        "command": " ".join(["python -m research.benchmarks.never_slower", *sys.argv[1:]]),
        "versions": versions(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
    }
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for name in _MODELS.value:
            one = pool.apply(measure_model, (name, _TURNS.value))
            found[name] = one | {"how": how}
            print(text({"models": [one]}), file=sys.stderr, flush=True)
    return {"models": [found[name] for name in MODELS if name in found]}


if __name__ == "__main__":
    run("never_slower", measure, text)
