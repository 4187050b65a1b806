"""The study of one model after the other: its variants made, their losses checked, their steps timed."""

from __future__ import annotations

import contextlib

import keras

import tfplace
from research.benchmarks.slices_running import losses
from research.benchmarks.slices_running.mirrored import Peer, PeerError
from research.benchmarks.slices_running.models import build
from research.benchmarks.slices_running.running import Turns, start, take_turns
from research.benchmarks.slices_running.variants import ONE, variants_of
from tfplace.core.slices import SYNCHRONIZED
from tfplace.core.topology import Topology
from tfplace.measurement.backends.cluster import Cluster
from tfplace.measurement.calibration.calibrate import calibrate
from tfplace.measurement.calibration.transfers import SIZES
from tfplace.measurement.protocol.interference import ProcessorWatch

PEER = "MultiWorkerMirroredStrategy"
LIMIT_S = {False: 240.0, True: 30.0}
"""By whether it is a quick run: seconds that the turns of a model may take."""


class Study:
    """Two workers, two processes of the peer if it runs here, and what is measured on them.

    Args:
      turns: that count.
      seed: of weights, batches, searches and orders.
      quick: whether to do less of everything.
      topology: a file; None to calibrate now.
      tell: called with what is being done.
    """

    def __init__(self, *, turns, seed, quick, topology, tell):
        self._turns, self._seed, self._quick, self._tell = turns, seed, quick, tell
        with contextlib.ExitStack() as opened:
            self._cluster = opened.enter_context(Cluster.start(2))
            tell("calibrating")
            sizes = SIZES[:: max(1, len(SIZES) // 3)] if quick else SIZES
            given = Topology.load(topology) if topology else None
            self.topology = given or calibrate(self._cluster, sizes=sizes).topology
            self._peer, self._no_peer = None, None
            try:
                self._peer = Peer(self._cluster.cores)
                opened.callback(self._peer.close)
            except PeerError as error:
                self._no_peer = str(error)
                tell(f"{PEER}: {error}")
            self._opened = opened.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._opened.close()

    def run(self, name):
        """Everything about one model, as plain data."""
        keras.backend.clear_session()
        model, batch = build(name, keras, self._seed)
        variants = variants_of(
            model,
            batch,
            self.topology,
            evaluations=300 if self._quick else 3000,
            rounds=1 if self._quick else 3,
            seed=self._seed,
            tell=self._tell,
        )
        checked = self._losses(name, model, batch, variants)
        found = self._measured(name, batch, variants, checked)
        out = {each.name: {**each.facts, **found[each.name].to_dict(self._turns)} for each in variants}
        out[PEER] = found[PEER].to_dict(self._turns)
        return {"model": name, "examples": len(batch[0]), "losses": checked, "variants": out}

    # ---- losses --------------------------------------------------------------------------------------------------

    def _losses(self, name, model, batch, variants):
        """By variant how far its losses are from the unsplit ones, as far as they should be equal: then asserted."""
        self._tell(f"{name}: checking losses")
        whole, *others = variants
        reset = losses.keep(model)
        expected = losses.losses_of(model, batch, whole.placement, reset)
        out = {"expected": expected}
        for variant in others:
            found = losses.losses_of(model, batch, variant.placement, reset)
            out[variant.name] = losses.difference(found, expected)
            if _same_numbers(variant.graph):
                losses.check(f"{name}, {variant.name}", out[variant.name])
            else:
                losses.check(f"{name}, {variant.name}", out[variant.name], losses.PER_SLICE)
                exact = self._synchronized(model, batch, variant)
                out[f"{variant.name}, synchronized"] = losses.difference(
                    losses.losses_of(model, batch, exact, reset), expected
                )
                losses.check(f"{name}, {variant.name}, synchronized", out[f"{variant.name}, synchronized"])
        reset()
        return out

    def _synchronized(self, model, batch, variant):
        """The same split with statistics of the batch."""
        slices = len(variant.graph.slices.sizes)
        graph = tfplace.extract(model, batch, slices=slices, batch_norm=SYNCHRONIZED)
        return tfplace.place(graph, self.topology, placer="data_parallel", progress=False)

    # ---- seconds -------------------------------------------------------------------------------------------------

    def _measured(self, name, batch, variants, checked):
        """Variant -> its turns, the peer's among them, how far whose losses are off is added to those checked."""
        self._tell(f"{name}: measuring")
        failed = {}
        with contextlib.ExitStack() as opened:
            steps = {}
            for variant in variants:
                try:
                    steps[variant.name] = opened.enter_context(contextlib.closing(start(variant, self._cluster, batch)))
                    steps[variant.name]()
                except Exception as error:
                    failure = self._cluster.failure_of(error)
                    if failure is None:
                        raise
                    failed[variant.name] = Turns(failed=str(failure))
                    steps.pop(variant.name, None)
            try:
                if self._peer is None:
                    raise PeerError(self._no_peer)
                checked[PEER] = losses.difference(self._peer.build(name, self._seed, losses.STEPS), checked["expected"])
                steps[PEER] = self._peer.step
            except PeerError as error:
                failed[PEER] = Turns(failed=str(error))
            pids = (*self._cluster.pids, *(self._peer.pids if self._peer else ()))
            watch = ProcessorWatch(pids, self._cluster.cores)
            took = take_turns(
                steps,
                steps[ONE],
                watch,
                self._cluster.failure_of,
                turns=self._turns,
                limit_s=LIMIT_S[self._quick],
                seed=self._seed,
            )
        return {**took, **failed}


def _same_numbers(graph):
    return graph.slices is None or not graph.slices.differences
