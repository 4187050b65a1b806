"""Ways to run a model's training step, timed in turns."""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import time

import numpy as np
import tensorflow as tf

import tfplace
from research.benchmarks.never_slower.models import MODELS
from research.benchmarks.never_slower.page import COMPILED, PLACED_COMPILED, PLACED_PLAIN, PLAIN
from tfplace.keras import PlacementCallback

PLACED = {PLACED_PLAIN: {"compile": "none"}, PLACED_COMPILED: {"compile": "xla"}}
"""Name -> keyword arguments of `tfplace.apply` and `PlacementCallback`: a placed step that is compared."""

WARMUP = 3
"""Turns before those that count."""
LEAST_S = 8.0
"""Seconds for which turns are taken, if there are enough by then: short steps are disturbed the most."""
ROUNDS, BATCHES = 7, (12, 150)
"""Of `fit` that count, and the fewest and the most batches in each, by how many take a second."""


def measure_model(name, turns):
    """Everything about one model: seconds by way to run its step, called alone and in `fit`."""
    model, batch = MODELS[name]()
    given = tf.nest.map_structure(tf.constant, batch)
    autograph = not type(model).__module__.startswith("keras.")  # as each package's own train function has it
    steps = {
        PLAIN: tf.function(model.train_step, autograph=autograph),
        COMPILED: tf.function(model.train_step, autograph=autograph, jit_compile=True),
    }
    placed = {way: _placed(model, batch, **options) for way, options in PLACED.items()}
    called = take_turns({way: _call(step, given) for way, step in (steps | placed).items()}, turns)
    for step in placed.values():
        step.restore()
    batches = int(np.clip(1 / statistics.median(called[PLAIN]["wall_s"]), *BATCHES))
    ops = placed[PLACED_PLAIN].graph.num_ops
    return {"model": name, "ops": ops, "called": called, "fit": fit_in_turns(model, batch, batches)}


def _placed(model, batch, **options):
    """The step on one CPU, traced as the way to run it wants it."""
    model.jit_compile = options["compile"] == "xla"
    graph = tfplace.extract(model, batch)
    model.jit_compile = False
    placement = tfplace.place(graph, placer="single", progress=False)
    if {*placement.devices.values()} != {"CPU:0"}:
        raise SystemExit(f"received a machine with {placement.device_names}; expected one with CPU:0 alone.")
    return tfplace.apply(graph, placement, **options)


def _call(step, batch):
    return lambda: tf.nest.map_structure(lambda tensor: tensor.numpy(), step(batch))  # waits for the results


def take_turns(steps, turns, least_s=LEAST_S):
    """Way -> the wall and processor seconds of each turn, of which there are `turns` or more; every step runs once."""
    for step in [*steps.values()] * WARMUP:
        step()
    rng, started = random.Random(0), time.perf_counter()
    found = {way: {"wall_s": [], "processor_s": []} for way in steps}
    for turn in itertools.count():
        if turn >= turns and time.perf_counter() - started > least_s:
            return found
        for way in rng.sample(list(steps), len(steps)):
            began, used = time.perf_counter(), time.process_time()
            steps[way]()
            found[way]["wall_s"].append(time.perf_counter() - began)
            found[way]["processor_s"].append(time.process_time() - used)


def fit_in_turns(model, batch, batches):
    """Way -> the median wall and processor seconds of a batch, of each round of `fit`."""
    x, y = tf.nest.map_structure(lambda part: np.concatenate([part] * batches), batch)
    examples = len(tf.nest.flatten(y)[0]) // batches
    placing = {way: [PlacementCallback(placer="single", verbose=0, **options)] for way, options in PLACED.items()}
    found = {way: {"wall_s": [], "processor_s": []} for way in (PLAIN, COMPILED, *PLACED)}
    own = {}  # the train functions of the plain ways, which are kept
    for turn in range(-1, ROUNDS):
        for way, seconds in found.items():
            clock = _clock(model)
            model.jit_compile = way == COMPILED
            model.train_function = own.get(way)
            callbacks = [*placing.get(way, []), clock]
            model.fit(x, y, batch_size=examples, shuffle=False, verbose=0, callbacks=callbacks)
            own[way] = model.train_function
            if turn >= 0:
                for kind, seen in clock.seen.items():
                    later = seen[1:]  # the first batch is traced and placed
                    seconds[kind].append(statistics.median(b - a for a, b in itertools.pairwise(later)))
    return found


def _clock(model):
    """A callback of the model's own Keras that notes when each batch begins."""
    package = sys.modules[type(model).__module__.partition(".")[0]]

    class Clock(package.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.seen = {"wall_s": [], "processor_s": []}

        def on_train_batch_begin(self, batch, logs=None):
            self.seen["wall_s"].append(time.perf_counter())
            self.seen["processor_s"].append(time.process_time())

    return Clock()
