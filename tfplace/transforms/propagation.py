"""How every tensor of a step is divided among slices of its batch, from its arguments on."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from tfplace.errors import SplitError
from tfplace.extraction.loops import frames
from tfplace.extraction.nodes import Nodes
from tfplace.extraction.tf_internals import op_def
from tfplace.transforms.own_segments import SEGMENT_SUM, keeps_to_examples
from tfplace.transforms.sharding import RULES
from tfplace.transforms.sharding.elementwise import extensive_result
from tfplace.transforms.sharding.layout import size_arithmetic
from tfplace.transforms.sharding.op_view import OpView, TensorView
from tfplace.transforms.sharding.registry import Result, words
from tfplace.transforms.sharding.state import COUNT, LOCAL, SIZE, WHOLE, ZERO, Kind, Sharding, rows
from tfplace.transforms.two_sizes import TwoSizes

_ENTERS = ("Enter", "RefEnter")
_SOURCES = ("Const", "Placeholder", "VarHandleOp")
_CHOICES = ("Switch", "RefSwitch", "Merge", "RefMerge")
_KEEP_ZERO = words("""
BroadcastTo Cast Enter Exit ExpandDims Identity NextIteration Reshape Squeeze Switch Tile Transpose
""")
_MAKE_ZERO = frozenset({"EmptyTensorList", "TensorListReserve", "ZerosLike"})
_DIVISIONS = {"Mul": (-1, (0, 1)), "RealDiv": (1, (1,)), "Div": (1, (1,))}
"""Op type -> the power of the batch size that a constant has which divides by it, and where that may stand."""
_LINEAR = frozenset({"Add", "AddV2", "Cast", "Identity", "Mul", "Neg", "RealDiv", "Reshape", "Squeeze", "Sub"})
"""Ops that are linear in their one input that is not known to be the same everywhere."""
_ONLY_READ = words("Assert Placeholder ReadVariableOp ResourceGather ResourceGatherNd VarHandleOp VariableShape")
"""Stateful ops that may run several times all the same."""
_REARRANGE = words("BroadcastTo ExpandDims Reshape Squeeze Sum Tile Transpose")
"""Ops besides elementwise ones that are linear in their first input."""
_MOST_PASSES = 20


@dataclass(frozen=True)
class Division:
    """How a step is divided.

    Attributes:
      outputs: [V] how each output is divided.
      readings: [V] how each input is read; where that is not how it is divided, it is made so first.
      copied: [V] whether each slice has the op; else it stands once.
    """

    outputs: Sequence[tuple[Sharding, ...]]
    readings: Sequence[tuple[Sharding, ...]]
    copied: Sequence[bool]


class UnsettledError(Exception):
    """A statistic of the slice is used as if it were one of the batch.

    Attributes:
      op: where.
    """

    def __init__(self, op: int) -> None:
        self.op = op


@dataclass(frozen=True)
class _Decision:
    """Of one op: how its outputs are divided, its inputs read, and whether each slice has it."""

    outputs: tuple[Sharding, ...]
    readings: tuple[Sharding, ...]
    copied: bool


def divide(two: TwoSizes, is_local: Callable[[str], bool]) -> Division:
    """Divides a step: what each op's rule allows is done by slices, anything else once, on the whole batch.

    Loops are divided as a whole, or stand once.

    Args:
      two: the step.
      is_local: by an op's name, whether statistics over the batch are to be the slice's own there.

    Raises:
      UnsettledError: that is wrong somewhere.
      SplitError: no division is found for a loop.
    """
    return _Propagation(two, is_local).run()


class _Propagation:
    """A step on its way to be divided."""

    def __init__(self, two: TwoSizes, is_local: Callable[[str], bool]) -> None:
        self._two, self._nodes = two, two.nodes
        innermost, parent = frames(self._nodes)
        self._frame = [_outermost(frame, parent) for frame in innermost]
        self._whole_frames: set[str] = set()
        self._local = [is_local(name) for name in self._nodes.names]
        self._views = [_views(two, v) for v in self._nodes.order]
        self._decided: list[_Decision | None] = [None] * len(self._nodes)

    def run(self) -> Division:
        for frame, ops in _regions(self._nodes, self._frame):
            self._settle(ops)
            if frame and not self._is_sound(ops):
                self._whole_frames.add(frame)
                for v in ops:
                    self._decided[v] = None
                self._settle(ops)
        self._average_early()
        self._copy_constants()
        self._copy_joints()
        decided = [decision for decision in self._decided if decision is not None]
        return Division(
            [one.outputs for one in decided], [one.readings for one in decided], [one.copied for one in decided]
        )

    def _settle(self, ops: Sequence[int]) -> None:
        """Decides ops, those of a loop again and again until what comes back around is as was taken."""
        for _ in range(_MOST_PASSES):
            changed = False
            for v in ops:
                decision = self._decide(v)
                changed |= self._decided[v] is not None and decision != self._decided[v]
                changed |= self._decided[v] is None and len(ops) > 1
                self._decided[v] = decision
            if not changed:
                return
        raise SplitError(
            f"a loop with {self._nodes.names[ops[0]]!r}, which tfplace cannot split", "a loop that can be split"
        )

    def _average_early(self) -> None:
        """Puts slices' own values together before the linear ops that lead to nothing but what stands once.

        A mean of sums is the sum of means; so a moving average is not sent to every slice to be averaged there.
        """
        for v in reversed(self._nodes.order):
            decision, kind = self._of(v), self._nodes.types[v]
            own = [i for i, s in enumerate(decision.readings) if s.kind is Kind.LOCAL]
            if not decision.copied or kind not in _LINEAR or len(own) != 1 or self._frame[v]:
                continue
            if kind == "RealDiv" and own[0] != 0:
                continue
            if any(
                s.kind not in (Kind.LOCAL, Kind.WHOLE) or s.divides for s in (*decision.readings, *decision.outputs)
            ):
                continue
            readers = [(reader, position) for _, reader, position in self._nodes.consumers[v]]
            if readers and all(self._of(reader).readings[position].is_whole for reader, position in readers):
                whole = (WHOLE,) * len(decision.outputs)
                self._decided[v] = _Decision(whole, (WHOLE,) * len(decision.readings), False)

    def _copy_constants(self) -> None:
        """Gives each slice its own of what is computed from constants alone, which costs less than to be sent it."""
        constant: list[bool] = [False] * len(self._nodes)
        for v in self._nodes.order:
            kind, producers = self._nodes.types[v], self._nodes.forward_producers(v)
            constant[v] = kind == "Const" or (bool(producers) and not self._frame[v] and not op_def(kind).is_stateful)
            constant[v] &= kind not in _CHOICES and all(constant[u] for u in producers)
            constant[v] &= all(s.is_whole for s in self._of(v).outputs)
            constant[v] &= not any(view.dtype in ("resource", "variant") for view in self._views[v])
        for v in reversed(self._nodes.order):
            if not constant[v] or self._nodes.types[v] == "Const":
                continue
            if any(self._of(reader).copied for _, reader, _ in self._nodes.consumers[v]):
                self._decided[v] = dataclasses.replace(self._of(v), copied=True)

    def _copy_joints(self) -> None:
        """Gives each slice its own of what only waits for ops of slices, so that no slice waits for another."""
        waited = {u for v in self._nodes.order for u in self._nodes.control_inputs[v] if self._of(v).copied}
        for v in self._nodes.order:
            before = self._nodes.control_inputs[v]
            joins = self._nodes.types[v] == "NoOp" and v in waited and not self._frame[v]
            if joins and any(self._of(u).copied for u in before):
                self._decided[v] = dataclasses.replace(self._of(v), copied=True)

    def _is_sound(self, ops: Sequence[int]) -> bool:
        """Whether a loop's ops are all of the slices or all once, and nothing is put together or written inside it."""
        if not any(self._of(v).copied for v in ops):
            return True
        for v in ops:
            decision = self._of(v)
            if not decision.copied and acts_once(self._nodes.types[v]):
                return False
            self._decided[v] = dataclasses.replace(decision, copied=True)
            for (u, slot), reading in zip(self._nodes.data_inputs[v], decision.readings, strict=True):
                held = self._of(u).outputs[slot]
                direct = held == reading or (held.is_whole and reading.is_whole)
                direct |= held.is_partial and reading.kind is Kind.LOCAL
                if not direct and self._nodes.types[v] not in _ENTERS:
                    return False
        return True

    def _of(self, v: int) -> _Decision:
        decision = self._decided[v]
        assert decision is not None
        return decision

    def _decide(self, v: int) -> _Decision:
        kind, inputs = self._nodes.types[v], self._nodes.data_inputs[v]
        if kind in _SOURCES and not inputs:
            return self._source(v)
        known = [self._of(u).outputs[slot] for u, slot in inputs if self._decided[u] is not None]
        if len(known) < len(inputs):  # what comes back around a loop is not known yet: taken to be as what enters
            first = next((s for s in known if not s.zero), ZERO)
            return _Decision((first, WHOLE), tuple(first for _ in inputs), not first.is_whole)
        given = tuple(known)
        if self._frame[v] in self._whole_frames:
            return self._once(v, given)
        if all(s.is_whole for s in given):
            return self._once(v, given)
        for reading in self._readings_of(v, given):
            if all(s.is_whole for s in reading):
                break
            result = self._ruled(v, reading)
            if result is not None:
                return _Decision(result, reading, True)
        return self._once(v, given)

    def _source(self, v: int) -> _Decision:
        """A constant, an argument or a variable."""
        view, differs = self._views[v][0], v in self._two.differing
        if view.varying:
            if len(view.varying) == 1 and view.even:
                return _Decision((rows(view.varying[0]),), (), differs)
        elif differs and self._two.is_size(v):
            return _Decision((SIZE,), (), True)
        elif self._two.is_zero(v):
            return _Decision((ZERO,), (), False)
        return _Decision((WHOLE,), (), False)

    def _whole(self, v: int, given: tuple[Sharding, ...]) -> tuple[Sharding, ...]:
        """Outputs of an op of which all inputs are whole."""
        kind, count = self._nodes.types[v], len(self._views[v])
        if kind in ("Merge", "RefMerge"):
            return (ZERO if all(s.zero for s in given) else WHOLE, WHOLE)
        zero = kind in _MAKE_ZERO or (kind in _KEEP_ZERO and bool(given) and given[0].zero)
        zero |= kind == "Fill" and given[1].zero
        return (ZERO if zero else WHOLE,) * count

    def _once(self, v: int, given: tuple[Sharding, ...]) -> _Decision:
        """An op on the whole batch; what it makes of each example can be divided again."""
        sums = [s for s in given if s.extensive]
        if sums and (self._local[v] or any(s.is_rows for s in sums)):
            raise UnsettledError(v)
        kind, read = self._nodes.types[v], tuple(s if s.is_whole else WHOLE for s in given)
        whole = self._whole(v, read)
        if (self._frame[v] and kind != "Exit") or kind in _CHOICES:
            return _Decision(whole, read, False)
        return _Decision(tuple(self._again(v, slot, s) for slot, s in enumerate(whole)), read, False)

    def _again(self, v: int, slot: int, whole: Sharding) -> Sharding:
        view = self._views[v][slot]
        if not view.varying or len(view.varying) != 1 or not view.even or view.dtype in ("resource", "variant"):
            return whole
        return rows(view.varying[0])

    def _readings_of(self, v: int, given: tuple[Sharding, ...]) -> list[tuple[Sharding, ...]]:
        """How an op might read its inputs, best first."""
        out = [self._settling(v, given)]
        if any(s.is_partial for s in given):
            # Terms that are added to a slice's own sums, as gradients are outside of any scope, are such sums too.
            local = self._local[v] or any(s.extensive for s in given)
            read = [dataclasses.replace(LOCAL, extensive=not s.mean) if local else WHOLE for s in given]
            own = tuple(r if s.is_partial else s for s, r in zip(given, read, strict=True))
            out.append(self._settling(v, own))
        if any(s.kind is Kind.SIZE for s in given):
            out += [tuple(WHOLE if s.kind is Kind.SIZE else s for s in one) for one in [*out]]
        return out

    def _settling(self, v: int, reading: tuple[Sharding, ...]) -> tuple[Sharding, ...]:
        """Reads a number of examples as the slice's where a sum over the slice is divided by it."""
        kind = self._nodes.types[v]
        if kind not in _DIVISIONS or len(reading) != 2 or sum(s.extensive for s in reading) != 1:
            return reading
        power, places = _DIVISIONS[kind]
        place = 0 if reading[1].extensive else 1
        producer = self._nodes.data_inputs[v][place][0]
        if place in places and producer in self._two.differing and self._two.power(producer) == power:
            return tuple(COUNT if i == place else s for i, s in enumerate(reading))
        return reading

    def _ruled(self, v: int, reading: tuple[Sharding, ...]) -> Result:
        """What an op's rule says, if its outputs are such as it says."""
        kind, inputs = self._nodes.types[v], self._nodes.data_inputs[v]
        view = OpView(
            self._nodes.defs[v],
            [self._views[u][slot] for u, slot in inputs],
            self._views[v],
            reading,
            [self._two.known(u, slot) for u, slot in inputs],
            batch=self._two.batches[0],
            local=self._local[v],
            own_segments=kind == SEGMENT_SUM and keeps_to_examples(self._two, v),
        )
        result = RULES[kind](view) if kind in RULES else None
        if result is None:
            result = size_arithmetic(view)
        if result is None:
            result = self._of_the_slice(v, view)
        if result is None or len(result) != len(self._views[v]):
            return None
        return result if all(map(_agree, result, self._views[v])) else None

    def _of_the_slice(self, v: int, view: OpView) -> Result:
        """Anything made of the slice's own statistics is the slice's own, but for what is written to variables."""
        found = [s for s in view.ins if s.kind is Kind.LOCAL]
        touches = any(self._views[u][slot].dtype == "resource" for u, slot in self._nodes.data_inputs[v])
        if not found or touches or not view.only(Kind.LOCAL, Kind.WHOLE):
            return None
        extensive = False
        if any(s.extensive for s in found) and not any(s.divides for s in found):
            if view.type not in _REARRANGE and not extensive_result(view):
                return None
            extensive = True
        return (dataclasses.replace(LOCAL, extensive=extensive),) * len(self._views[v])


def acts_once(kind: str) -> bool:
    """Whether it makes a difference how often an op runs: it writes to a variable, draws, prints."""
    return bool(op_def(kind).is_stateful) and kind not in _ONLY_READ


def names_in(scopes: Collection[str]) -> Callable[[str], bool]:
    """Whether an op is in one of some name scopes, or is the gradient of one that is."""
    tails = [f"/{scope}/" for scope in scopes]
    return lambda name: any(tail in f"/{name}" for tail in tails)


def _agree(sharding: Sharding, view: TensorView) -> bool:
    """Whether a tensor's shapes with two batch sizes are such as its division says; lists show none.

    Sizes of unknown rank are refused: they may be made of numbers of examples, which have the batch's axis.
    """
    if view.dtype == "variant":
        return True
    if sharding.is_rows:
        return view.varying == (sharding.axis,) and view.even
    return not view.varying and (sharding.kind is not Kind.SIZE or view.rank is not None)


def _views(two: TwoSizes, v: int) -> list[TensorView]:
    return [
        TensorView(two.shapes(v, slot)[0], *two.varying(v, slot), dtype) for slot, dtype in enumerate(two.dtypes(v))
    ]


def _outermost(frame: str, parent: dict[str, str]) -> str:
    while frame and parent[frame]:
        frame = parent[frame]
    return frame


def _regions(nodes: Nodes, frame: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """Outermost loops, each with all its ops, and single ops outside of them, so that producers come first."""
    members: dict[int, list[int]] = {}
    first: dict[str, int] = {}
    region = [first.setdefault(frame[v], v) if frame[v] else v for v in nodes.order]
    for v in nodes.order:
        members.setdefault(region[v], []).append(v)
    waiting = dict.fromkeys(members, 0)
    readers: dict[int, list[int]] = {r: [] for r in members}
    for v in nodes.order:
        for u in nodes.forward_producers(v):
            if region[u] != region[v]:
                waiting[region[v]] += 1
                readers[region[u]].append(region[v])
    ready = [r for r, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    while ready:
        r = heapq.heappop(ready)
        yield frame[r], members[r]
        del members[r]
        for reader in readers[r]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    if members:
        raise SplitError(
            f"a loop that reads its own result through {nodes.names[min(members)]!r}",
            "loops that run one after another",
        )
