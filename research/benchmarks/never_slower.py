"""Is a training step that tfplace places on one CPU slower than Keras's own?

Each model has a process of its own, in which all ways to run its step take turns, in another order each time. Compared
are the plain step with jit_compile=False, which Grappler optimizes, the same with jit_compile=True, and the step with
every op placed on CPU:0. Then `fit` runs in turns plainly and with a PlacementCallback; its time of a batch
includes Keras's own work between steps. Beside the wall clock stands the processor time of the whole process, which
other programs on the machine disturb less.

    python -m research.benchmarks.never_slower                     # some twenty minutes
    python -m research.benchmarks.never_slower --page=docs/fidelity.md
    python -m research.benchmarks.never_slower --models=gpt,lstm   # what is kept of the others stays
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import platform
import random
import statistics
import sys
import time
from pathlib import Path

from absl import flags

from research.benchmarks.common import run
from tfplace.comparison.tables import table
from tfplace.version import versions

MODELS = ("cnn", "transformer", "lstm", "embedding_mlp", "small_ops", "gpt", "vit", "dlrm", "wavenet")
MODELS += ("MobileNetV2", "ResNet50", "VGG16", "tf_keras cnn", "tf_keras transformer")

PLAIN, COMPILED = "plain", "plain, compiled"
PLACED = {"placed": {}}
"""Name -> keyword arguments of `tfplace.apply` and `PlacementCallback`: a placed step that is compared."""

WARMUP, ROUNDS, BATCHES = 3, 6, 12
"""Turns before those that count; rounds of `fit`, and batches in each."""

_MODELS = flags.DEFINE_list("models", list(MODELS), "Which models.")
_TURNS = flags.DEFINE_integer("turns", 30, "Turns of each step that count.", 3)

flags.register_validator("models", lambda names: set(names) <= set(MODELS), f"expected some of {', '.join(MODELS)}")


def measure(_):
    out = Path(flags.FLAGS["out"].value)
    kept = json.loads(out.read_text())["models"] if out.exists() else []
    found = {one["model"]: one for one in kept}
    how = {
        "command": " ".join(["python -m research.benchmarks.never_slower", *sys.argv[1:]]),
        "versions": versions(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
    }
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        asked = [(name, _TURNS.value) for name in _MODELS.value]
        for one in pool.imap(measure_model, asked, chunksize=1):
            found[one["model"]] = one | {"how": how}
            print(text({"models": [one]}), file=sys.stderr, flush=True)
    return {"models": [found[name] for name in MODELS if name in found]}


def measure_model(asked):
    """Everything about one model: seconds by way to run its step, called alone and in `fit`."""
    import tensorflow as tf

    import tfplace
    from research.benchmarks.never_slower_models import MODELS as BUILDERS

    name, turns = asked
    model, batch = BUILDERS[name]()
    graph = tfplace.extract(model, batch)
    placement = tfplace.place(graph, placer="single", progress=False)
    if {*placement.devices.values()} != {"CPU:0"}:
        raise SystemExit(f"received a machine with devices {placement.device_names}; expected CPU:0 alone.")
    given = tf.nest.map_structure(tf.constant, batch)
    autograph = not type(model).__module__.startswith("keras.")  # as each package's own train function has it
    steps = {
        PLAIN: tf.function(model.train_step, autograph=autograph),
        COMPILED: tf.function(model.train_step, autograph=autograph, jit_compile=True),
    }
    steps |= {way: tfplace.apply(graph, placement, **options) for way, options in PLACED.items()}
    called = take_turns({way: _call(step, given) for way, step in steps.items()}, turns)
    for way in PLACED:
        steps[way].restore()
    return {"model": name, "ops": graph.num_ops, "called": called, "fit": fit_in_turns(model, batch)}


def _call(step, batch):
    import tensorflow as tf

    return lambda: tf.nest.map_structure(lambda tensor: tensor.numpy(), step(batch))  # waits for the results


def take_turns(steps, turns):
    """Way -> the wall and processor seconds of each turn; in a turn every step runs once."""
    rng = random.Random(0)
    found = {way: {"wall_s": [], "processor_s": []} for way in steps}
    for turn in range(-WARMUP, turns):
        for way in rng.sample(list(steps), len(steps)):
            began, used = time.perf_counter(), time.process_time()
            steps[way]()
            if turn >= 0:
                found[way]["wall_s"].append(time.perf_counter() - began)
                found[way]["processor_s"].append(time.process_time() - used)
    return found


def fit_in_turns(model, batch):
    """Way -> the median wall and processor seconds of a batch, of each round of `fit`."""
    import numpy as np
    import tensorflow as tf

    from tfplace.keras import PlacementCallback

    x, y = tf.nest.map_structure(lambda part: np.concatenate([part] * BATCHES), batch)
    examples = len(tf.nest.flatten(y)[0]) // BATCHES
    callbacks = {PLAIN: []} | {
        way: [PlacementCallback(placer="single", verbose=0, **options)] for way, options in PLACED.items()
    }
    found = {way: {"wall_s": [], "processor_s": []} for way in callbacks}
    for turn in range(-1, ROUNDS):
        for way, placing in callbacks.items():
            clock = batch_clock(model)
            model.fit(x, y, batch_size=examples, shuffle=False, verbose=0, callbacks=[*placing, clock])
            if turn >= 0:
                found[way]["wall_s"].append(statistics.median(clock.between("wall_s")))
                found[way]["processor_s"].append(statistics.median(clock.between("processor_s")))
    return found


def batch_clock(model):
    """A callback of the model's own Keras that notes when each batch begins."""
    package = sys.modules[type(model).__module__.partition(".")[0]]

    class Clock(package.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self._seen = {"wall_s": [], "processor_s": []}

        def on_train_batch_begin(self, batch, logs=None):
            self._seen["wall_s"].append(time.perf_counter())
            self._seen["processor_s"].append(time.process_time())

        def between(self, clock):
            """Seconds from a batch to the next, without the first, which places and traces."""
            seen = self._seen[clock][1:]
            return [later - sooner for sooner, later in itertools.pairwise(seen)]

    return Clock()


def text(found):
    """A row for each model: how long the other ways take over the plain one."""
    ways = [COMPILED, *PLACED]
    rows = [
        [
            one["model"],
            str(one["ops"]),
            f"{1e3 * statistics.median(one['called'][PLAIN]['wall_s']):.0f} ms",
            *(_cell(one["called"], way) for way in ways),
            *(_cell(one["fit"], way) for way in PLACED),
        ]
        for one in found["models"]
    ]
    return table(["model", "ops", PLAIN, *ways, *(f"{way}, in fit" for way in PLACED)], rows)


def _cell(found, way):
    """Wall clock over the plain step's of the same turn, median and quartiles; then processor time likewise, median."""
    wall, processor = (ratios(found, way, clock) for clock in ("wall_s", "processor_s"))
    low, middle, high = statistics.quantiles(wall, n=4, method="inclusive")
    return f"{middle:.2f} ({low:.2f}..{high:.2f}), {statistics.median(processor):.2f}"


def ratios(found, way, clock):
    """Of each turn, a way's seconds over the plain one's."""
    return [own / plain for own, plain in zip(found[way][clock], found[PLAIN][clock], strict=True)]


if __name__ == "__main__":
    run("never_slower", measure, text)
