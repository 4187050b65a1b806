"""PlacementCallback: places a Keras model for the time of one `fit`. See docs/reference/keras.md."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfplace.core.graph import OpGraph
from tfplace.core.placement import Placement
from tfplace.core.plan import Plan
from tfplace.core.problem import Problem
from tfplace.core.slices import AUTO, checked_slices
from tfplace.core.topology import Topology
from tfplace.errors import ApplyError, InfeasibleError, InputError, LostWorkerError
from tfplace.formatting import format_seconds
from tfplace.option_fields import described
from tfplace.options import FitOptions, SearchOptions

if TYPE_CHECKING:
    from tfplace.execution.actual import ActualPlacement
    from tfplace.execution.hosts import Hosts
    from tfplace.execution.keras_model import WithoutXla
    from tfplace.execution.placed import Placed
    from tfplace.execution.remote import WatchedTests
    from tfplace.execution.trial import Trial

__all__ = ["PlacementCallback"]

_MANY_SHAPES = 8
"""Shapes of batches besides the first for which a split step is read without a warning."""


def _ignore(*args: Any, **kwargs: Any) -> None:
    """A hook that does nothing."""


_ignore._is_default = True  # type: ignore[attr-defined]  # both families: such hooks may be left out


class _Hooks:
    """A callback for Keras 3 and tf_keras alike: every hook that a subclass leaves out does nothing.

    The two families have unrelated `Callback` classes, and neither needs to be installed for the other. Both ask a
    callback only for its methods.
    """

    _supports_tf_logs = True  # tf_keras: leaves logs as tensors
    params: Any = None
    model: Any = None

    def set_params(self, params: Any) -> None:
        """Keras tells its fit arguments."""
        self.params = params

    def set_model(self, model: Any) -> None:
        """Keras tells the model."""
        self.model = model

    on_train_begin = on_train_end = on_test_begin = on_test_end = on_predict_begin = on_predict_end = _ignore
    on_epoch_begin = on_epoch_end = on_batch_begin = on_batch_end = on_train_batch_begin = on_train_batch_end = _ignore
    on_test_batch_begin = on_test_batch_end = on_predict_batch_begin = on_predict_batch_end = _ignore

    def _implements_train_batch_hooks(self) -> bool:  # tf_keras asks for these three
        return self._implements("on_train_batch_", "on_batch_")

    def _implements_test_batch_hooks(self) -> bool:
        return self._implements("on_test_batch_")

    def _implements_predict_batch_hooks(self) -> bool:
        return self._implements("on_predict_batch_")

    def _implements(self, *kinds: str) -> bool:
        hooks = [getattr(self, kind + edge) for kind in kinds for edge in ("begin", "end")]
        return not all(getattr(hook, "_is_default", False) for hook in hooks)


@described(FitOptions)
class PlacementCallback(_Hooks):
    """Plans a model's training step at the first batch of `fit`, and trains that way.

        model.fit(x, y, callbacks=[PlacementCallback()])

    The callback reads the whole step (forward, loss, backward, optimizer, metrics) with the shapes of the first batch,
    makes a plan as `tfplace.plan` does, moves the variables, and lets Keras continue. It takes the fastest row that
    keeps the step's numbers (see `exact`) and that is compiled only if the model or `compile` asks for it. With a
    placer, a number of slices, or another option of a single search, it places without a plan; `slices=1` keeps the
    batch whole. After `fit`, the variables are back on their devices.

    Batches of another size, such as the last one of an epoch, are split and placed alike. Weights, optimizer state and
    metrics remain the model's. A second `fit` keeps the placement unless you compile the model again or the shape of
    the data changes.

    Args:
      **options: those of `FitOptions`.

    Attributes:
      placement: the placement in use; None before the first batch.
      graph: the training step as placed; None before the first batch.
      plan: the plan; None before the first batch, or if the options ask for a single search.

    Raises:
      InputError: an option is invalid, or two options conflict; raised when you create the callback.
      SourceError: in `fit`, if the model cannot be placed. The error says why, and what to do.
      ApplyError: in `fit`, if this machine lacks an accelerator of the topology (before the search), or another device
        of the placement.
      InfeasibleError: in `fit`, if no placement fits.
    """

    def __init__(
        self,
        topology: Topology | str | Path | None = None,
        placer: str = FitOptions.placer,
        budget: str | float | int = FitOptions.budget,
        **options: Any,
    ) -> None:
        first = {"topology": topology, "placer": placer, "budget": budget}
        asked = FitOptions.of("PlacementCallback", {**first, **options})
        self._plans, asked = asked.plans, asked.check()  # `fit` may come hours later
        if asked.devices is not None and not isinstance(asked.devices, Mapping):
            raise InputError(asked.spelled("devices"), 'a dict such as {"GPU:0": "CPU:0"}')
        self._options = asked.narrowed(SearchOptions, progress=bool(asked.verbose), slices=None)
        self._given = None if asked.placement is None else Placement.load(asked.placement)
        self.placement: Placement | None = self._given
        self.graph: OpGraph | None = None
        self.plan: Plan | None = None
        self._devices = asked.devices
        self._cluster = asked.cluster
        self._hosts: Hosts | None = None  # those of the cluster, from the first fit on
        self._tests: WatchedTests | None = None
        self._verbose = asked.verbose
        self._placed: Placed | None = None
        self._active = False
        self._taken: Any = None  # the model whose train function this callback stands in for
        self._own_function: Any = None  # that function
        self._in_between: Any = None  # the one for what other callbacks train
        self._is_next = False  # whether the fit of this callback goes on with a step
        self._without_xla: WithoutXla | None = None
        self._drawn: Any = None  # what TensorBoard draws of a tf_keras model
        self._key: Any = None  # the specs and shapes `graph` was read with
        self._fixed = False  # whether the graph takes batches of one shape only
        self._slices = AUTO if self._plans else asked.slices
        self._batch_norm, self._pack, self._exact = asked.batch_norm, asked.pack, asked.exact
        self._trial: Trial | None = None  # of compiling, while it goes on
        self._others: dict[tuple[Any, ...], Placed] = {}  # the split step for batches of other shapes

    @property
    def actual(self) -> ActualPlacement | None:
        """Where TensorFlow really ran each op; None before the first batch."""
        return None if self._placed is None else self._placed.actual()

    # ---- hooks -------------------------------------------------------------------------------------------------------

    def on_train_begin(self, logs: Any = None) -> None:
        """Stands in for the model's train function; placing waits for the first batch."""
        from tfplace.execution.keras_model import WithoutXla, check_placeable

        other = getattr(getattr(self.model, "train_function", None), "__self__", None)
        if isinstance(other, PlacementCallback) and other is not self and other.params is self.params:
            other.restore()
            raise ApplyError(
                "two PlacementCallbacks in one fit", "one PlacementCallback", "Remove one of them from callbacks."
            )
        with contextlib.suppress(LostWorkerError):  # by the earlier fit
            self.restore()  # what a fit that failed outside of a step has left
        check_placeable(self.model, self._options.compile)
        self._check_devices()
        if self.model.train_function is not self._own_function:
            self._placed = None  # another model, or compiled again
        self._taken, self._own_function = self.model, self.model.train_function
        self._without_xla = WithoutXla(self.model)
        self._in_between = self.model.train_function
        self._is_next = False
        self.model.train_function = self._train_function
        self._drawn = getattr(self.model, "train_tf_function", None)
        if self._drawn is not None:
            self.model.train_tf_function = None  # tf_keras has TensorBoard draw it, but it is not run

    def on_train_batch_begin(self, batch: Any, logs: Any = None) -> None:
        """The next step is this fit's: Keras calls no other fit's callbacks with it."""
        self._is_next = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Ends the fit if a worker is lost, before other callbacks wait for it."""
        if self._active and self._hosts is not None:
            self._hosts.check()

    def on_test_begin(self, logs: Any = None) -> None:
        """Watches the workers during validation."""
        from tfplace.execution.remote import WatchedTests

        if self._active and self._hosts is not None:
            self._tests = WatchedTests(self.model, self._hosts)

    def on_test_end(self, logs: Any = None) -> None:
        """Validation is over."""
        if self._tests is not None:
            self._tests.end()
            self._tests = None

    def on_train_end(self, logs: Any = None) -> None:
        """Brings back the variables and the model's own train function."""
        self.restore()

    def restore(self) -> None:
        """Brings back the variables and the model's own train function; does nothing where they are back."""
        try:
            if self._active and self._placed is not None:
                self._placed.restore()
            self._active = False
            if self._hosts is not None:
                self._hosts.drop_unused()
        finally:
            # The model taken over may not be `self.model`: Keras sets a new one before it says that training begins.
            # A method is a new object each time it is read, so it is known by whose it is.
            model, self._taken = self._taken, None
            if model is not None and getattr(model.train_function, "__self__", None) is self:
                model.train_function = self._own_function
                if self._drawn is not None:
                    model.train_tf_function = self._drawn
                if self._without_xla is not None:
                    self._without_xla.restore()

    # ---- training ----------------------------------------------------------------------------------------------------

    def _train_function(self, iterator: Any) -> Any:
        from tfplace.execution.keras_model import run_batches

        # What a callback trains in between is not placed, nor what comes after a fit that failed outside of a step. One
        # that trains on a batch in `on_train_batch_begin` comes between that of this one and the step.
        if not self._is_next or sys._getframe(1).f_code.co_name == "train_on_batch":
            return self._in_between(iterator)
        self._is_next = False
        try:
            with contextlib.nullcontext() if self._hosts is None else self._hosts.watched():
                return run_batches(self.model, iterator, lambda data: self._train_step(data, iterator))
        except StopIteration:
            raise
        except BaseException:
            self.restore()  # Keras calls no callback when a step fails
            raise

    def _train_step(self, data: Any, iterator: Any) -> Any:
        from tfplace.execution.keras_model import shapes_of
        from tfplace.execution.xla import warn_of_xla

        if self._active:
            assert self._placed is not None
            if self._by_shape and shapes_of(data) != self._key[1]:
                return self._for_shapes(data)(data)
            self._check_shapes(data)
            if not self._placed.stands:  # a placed fit in between, of layers that it shares, took its variables home
                self._placed.replace(self._placed.placement)
            return self._placed(data) if self._trial is None else self._tried(data)
        placed = self._place(data, iterator)
        self._active = True
        warn_of_xla(placed.graph, self._without_xla.aside if self._without_xla else ())
        if placed.clusters is not None:
            self._say(f"compiling {placed.clusters}; the first step takes longer for it")
        began = time.monotonic()
        logs = placed(data) if self._trial is None else self._tried(data)
        if placed.clusters is not None:
            self._say(f"compiled, with the first step, in {format_seconds(time.monotonic() - began)}")
        self._say(placed.actual().summary())
        return logs

    def _tried(self, data: Any) -> Any:
        """A step of the trial, and what comes out of that."""
        assert self._trial is not None
        assert self._placed is not None
        logs = self._trial(data)
        if self._trial.told:
            self._say(self._trial.told)
            self._trial, self.placement = None, self._placed.placement
            for other in self._others.values():
                other.replace(other.placement, compile=self.placement.compile)
        return logs

    def _place(self, data: Any, iterator: Any) -> Placed:
        """Places the model for a fit whose first batch is `data`; keeps an earlier placement if nothing changed."""
        from tfplace.execution.keras_model import plain, shapes_of
        from tfplace.execution.trial import Trial
        from tfplace.report.facts import shared_line

        spec = plain(iterator.element_spec)
        key = spec, shapes_of(data)
        if self._placed is not None and self.placement is not None and key == self._key:
            self._placed.replace(self.placement)
            return self._placed
        self._placed, self._key = None, key
        self._others.clear()
        if self._slices == AUTO and self._given is None:
            self.placement = self._decide_slices(spec, data)
            assert self.placement.problem is not None  # it was placed here
            self.graph = self.placement.problem.graph
        else:
            self.graph = self._read(spec, data, self._slices, pack=self._pack)
            self.placement = self._decide(self.graph) if self._given is None else self._fit_given(data)
        if self.plan is None:
            self._say(self.placement.summary())
        if (shared := shared_line(self.placement, self._devices)) != shared_line(self.placement):
            self._say(shared)  # devices that only the mapping makes one
        self._placed = self._apply(self.graph, self.placement)
        self._trial = Trial.of(self._placed, self._options.compile)
        return self._placed

    def _read(self, spec: Any, data: Any, slices: int | str | Sequence[int] | None, *, pack: bool) -> OpGraph:
        """The training step as traced from `spec`, its sizes those of the batch `data`; split, if that is wanted."""
        from tfplace.execution.keras_model import shapes_of
        from tfplace.extraction.function import graph_from_function
        from tfplace.extraction.keras_model import trace_keras_step

        assert self._without_xla is not None
        if (wanted := checked_slices(slices)) is not None:
            return self._split(data, wanted, pack=pack)
        name = self.model.name
        with self._without_xla.reading(self.model, self._options.compile):
            return graph_from_function(
                trace_keras_step(self.model, spec, training=True),
                name=name,
                description=f"Keras model {name!r}, training step",
                shapes=shapes_of(data),
                model=self.model,
            )

    def _split(self, data: Any, slices: int | Sequence[int], *, pack: bool) -> OpGraph:
        """The training step in slices of the batch `data`, which is left whole if it has fewer examples than slices."""
        from tfplace.extraction.batch import as_specs
        from tfplace.extraction.sources import extract_source
        from tfplace.transforms.batch_specs import batch_size
        from tfplace.transforms.split import slice_sizes, split_source

        if isinstance(slices, int):
            examples = batch_size(as_specs(data))
            slices = (examples,) if examples < slices else slice_sizes(slices, examples)
        assert self._without_xla is not None
        with self._without_xla.reading(self.model, self._options.compile):
            if len(slices) == 1:
                return extract_source(self.model, data, training=True)
            return split_source(self.model, data, slices, batch_norm=self._batch_norm, pack=pack, training=True)

    @property
    def _by_shape(self) -> bool:
        """Whether each shape of a batch has a step of its own; a step left whole by a search takes all of them."""
        assert self.graph is not None
        return self._slices is not None and (self._slices != AUTO or self.graph.slices is not None)

    def _for_shapes(self, data: Any) -> Placed:
        """The step for a batch of another shape than the first one's, placed like that."""
        from tfplace.execution.keras_model import shapes_of
        from tfplace.execution.other_batch import placement_for_other_batch
        from tfplace.extraction.batch import as_specs
        from tfplace.transforms.batch_specs import batch_size
        from tfplace.transforms.packing import is_packed
        from tfplace.transforms.split import sizes_alike

        assert self.graph is not None
        assert self.placement is not None
        shapes = tuple(shapes_of(data))
        if shapes not in self._others:
            self._say(f"reading the step for a batch of shapes {', '.join(map(str, shapes))}")
            if len(self._others) == _MANY_SHAPES:
                warnings.warn(
                    f"Batches have had {_MANY_SHAPES + 2} shapes so far; tfplace reads and keeps a split step for "
                    "each. Pad batches to a few lengths, or fit without slices.",
                    stacklevel=5,
                )
            whole = (batch_size(as_specs(data)),)
            sizes = whole if self.graph.slices is None else sizes_alike(self.graph.slices.sizes, whole[0])
            graph = self._split(data, sizes, pack=is_packed(self.graph))
            placement = placement_for_other_batch(self.placement, self.graph, graph)
            self._others[shapes] = self._apply(graph, placement)
        other = self._others[shapes]
        if not other.stands:
            other.replace(other.placement)
        return other

    def _apply(self, graph: OpGraph, placement: Placement) -> Placed:
        from tfplace.execution.placed import apply_placement

        return apply_placement(
            graph, placement, devices=self._devices, compile=self._options.compile, hosts=self._hosts
        )

    def _decide(self, graph: OpGraph) -> Placement:
        from tfplace.api import place

        return place(graph, **self._options.given())

    def _decide_slices(self, spec: Any, data: Any) -> Placement:
        """The best placement of all numbers of slices that are tried.

        Raises:
          InfeasibleError: nothing fits.
        """
        from tfplace.api import place_problem
        from tfplace.extraction.batch import as_specs
        from tfplace.report.plan_table import plan_summary, verdict
        from tfplace.search.over_slices import Sizes, place_over_slices
        from tfplace.search.planning import make_plan, plan_of_fit
        from tfplace.sources import made_to_fit, problem_of
        from tfplace.transforms.batch_specs import batch_size
        from tfplace.transforms.split import slice_sizes

        asked = self._options.check()

        def read(sizes: Sizes, *, pack: bool = self._pack) -> Problem:
            slices = None if sizes is None else slice_sizes(sizes, batch_size(as_specs(data)))  # refuses too many
            graph = self._read(spec, data, slices, pack=pack)
            return problem_of(
                graph,
                asked.topology,
                None,
                asked.constraints,
                asked.max_memory,
                profile=asked.profile,
                compile=asked.compile,
                some_slices=True,
            )

        if not self._plans:
            return place_over_slices(read, place_problem, asked)
        found = make_plan(
            read,
            partial(place_problem, both_ways=False),
            asked,
            made_to_fit,
            exact=self._exact,
            read_packed=None if self._pack else partial(read, pack=True),
        )
        self.plan = plan_of_fit(found, asked.compile)
        self._say(plan_summary(self.plan))
        if self.plan.placement is None:
            raise InfeasibleError(verdict(self.plan), [], ("Take a smaller batch.",))
        return self.plan.placement

    def _fit_given(self, data: Any) -> Placement:
        """The user's placement, with `graph` read the way that it was made for.

        Raises:
          PlacementError: it is for another model or batch.
        """
        from tfplace.extraction.batch import as_specs

        assert self._given is not None
        assert self.graph is not None
        self._fixed = False
        if self.graph.fingerprint != self._given.graph_fingerprint:
            # `tfplace.extract(model, (x, y))` reads the step for batches of exactly that shape.
            self.graph = self._read(as_specs(data), data, self._slices, pack=self._pack)
            self._fixed = True
        return Placement.load(self._given, graph=self.graph)

    def _check_devices(self) -> None:
        """Refuses to search placements that cannot run here.

        Raises:
          ApplyError: this machine, or the cluster, lacks an accelerator of the topology.
          ClusterError: a worker does not answer.
        """
        from tfplace.execution.devices import map_devices
        from tfplace.execution.hosts import connect_hosts

        wanted = self._options.topology if self._given is None else self._given
        if self._cluster is not None:
            assert isinstance(wanted, Topology | Placement)
            self._hosts = connect_hosts(self._cluster)
            self._hosts.devices_for(wanted.device_names, self._devices)
        elif isinstance(wanted, Topology):
            map_devices([d.name for d in wanted.devices if d.type != "CPU"], self._devices)

    def _check_shapes(self, data: Any) -> None:
        from tfplace.execution.keras_model import shapes_of

        if self._fixed and shapes_of(data) != self._key[1]:
            raise ApplyError(
                f"a batch of shapes {shapes_of(data)}",
                f"batches of shapes {self._key[1]}, for which the placement was made",
                "Drop the last partial batch, or let the callback place: PlacementCallback(topology=...).",
            )

    def _say(self, text: str) -> None:
        if self._verbose:
            sys.stdout.write(text + "\n")
