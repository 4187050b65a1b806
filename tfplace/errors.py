"""Every error tfplace raises on purpose.

Each says what was received, what was expected and what to do next; all derive from `TfplaceError`, so a caller can
catch the family at once. At the end: how to tell errors that are somebody else's.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfplace.formatting import format_bytes

_HERE = str(Path(__file__).parent)


class TfplaceError(Exception):
    """Base of all tfplace errors.

    What to do: catch it to handle every error that tfplace raises on purpose. Any other exception is a bug.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Survives the way between processes, which an exception made from several values otherwise does not."""
        return _remake, (type(self), self.args, self.__dict__)


class InputError(TfplaceError, ValueError):
    """Something the user gave cannot be used.

    What to do: give what the message says was expected.

    Attributes:
      received: what was given, as text.
      expected: what would have been accepted, as text.
      hint: what to do about it; may be empty.
    """

    def __init__(self, received: str, expected: str, hint: str = "") -> None:
        self.received = received
        self.expected = expected
        self.hint = hint
        text = f"received {received}; expected {expected}"
        super().__init__(f"{text}. {hint}" if hint else f"{text}.")


class SourceError(InputError):
    """A model, file or function cannot be read as a TensorFlow graph.

    What to do: compile the model, pass a batch of the shapes that it takes, or pass the function that trains one step.
    """


class SplitError(SourceError):
    """A step cannot be split into slices of its batch.

    What to do: place it whole (`slices=1`), or remove what fixes the batch size; the message names the op.
    """


class FewExamplesError(SplitError):
    """A batch has fewer examples than slices were asked for.

    What to do: ask for fewer slices, or use a larger batch.

    Attributes:
      examples: that it has.
    """

    def __init__(self, slices: int, examples: int) -> None:
        self.examples = examples
        super().__init__(f"{slices} slices of a batch of {examples}", f"1 to {examples} slices")


class UnknownOpsError(SourceError):
    """A graph has ops that this TensorFlow does not know.

    What to do: load the library that registers them before you read the graph.

    Attributes:
      ops: their types.
    """

    def __init__(self, ops: Iterable[str]) -> None:
        self.ops = tuple(ops)
        super().__init__(
            f"a graph with unknown op {', '.join(self.ops)}",
            "ops that this TensorFlow knows",
            "Load the library that registers it first: tf.load_op_library(path), or import the package that does.",
        )


class GraphError(InputError):
    """A graph breaks its own rules (a cycle, an edge to nowhere, no ops).

    What to do: correct the arrays it was made from; if tfplace made it from a model, report a bug.
    """


class TopologyError(InputError):
    """A topology or topology file is wrong.

    What to do: correct the field that the message names; docs/reference/topology.md lists all fields.
    """


class ConstraintError(InputError):
    """A placement constraint cannot be honored or matches nothing.

    What to do: correct the pattern, or drop one of the two rules that the message names.
    `tfplace extract MODEL --layers` lists names.
    """


class PlacementError(InputError):
    """A placement does not fit the graph, the topology or the constraints.

    What to do: place again; the model, its batch or the devices differ from those that the placement was made for.
    """


class ApplyError(InputError):
    """A placement cannot be applied to this program on this machine.

    What to do: place for the devices that the message lists, or map names with `devices`.
    """


class ClusterError(InputError):
    """Worker processes cannot be started, reached or brought back.

    What to do: check that `tfplace worker` runs at the address, and that machines reach each other.
    """


class LostWorkerError(ClusterError):
    """A worker was lost while variables were on it.

    What to do: start it again, and call `fit` again; with `BackupAndRestore` it resumes.

    Attributes:
      addresses: "host:port" of the worker; several where it is not known which of them was lost.
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        self.addresses = tuple(addresses)
        super().__init__(
            f"the loss of the worker at {' or '.join(self.addresses)}",
            "workers that stay until the fit ends, or until restore()",
            "Variables have the values from before they were on workers. Start the worker again with `tfplace worker` "
            "and call fit again: with keras.callbacks.BackupAndRestore it resumes.",
        )


class WorkersError(InputError):
    """Processes that do a part of a search cannot be started, or do not come back.

    What to do: run the same command again to resume; use fewer `controllers` if memory is short.
    """


class UnwrittenError(InputError):
    """The operating system does not take a result: no room, no permission.

    What to do: free space, or choose another directory.
    """


class UnknownNameError(InputError):
    """A name that is in no registry.

    What to do: use one of the names that the message lists, nearest first.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.known = tuple(sorted(known))
        near = near_names(str(name), self.known)
        hint = f"Did you mean {near[0]!r}?" if near else ""
        super().__init__(f"{kind} {name!r}", f"one of {', '.join(self.known)}", hint)


class UnknownOptionError(UnknownNameError, TypeError):
    """A keyword that a function does not have.

    What to do: use one of the names that the message lists.
    """


class MissingExtraError(InputError):
    """An optional package is not installed.

    What to do: run the pip command in the message.
    """


@dataclass(frozen=True)
class Shortage:
    """Memory missing on one device.

    Attributes:
      device: device name.
      need_bytes: the least peak memory any tried placement reached there.
      limit_bytes: what the device may use.
      largest: the biggest tensors or variables held there at the peak, as (name, bytes), largest first.
    """

    device: str
    need_bytes: int
    limit_bytes: int
    largest: tuple[tuple[str, int], ...] = ()

    @property
    def over_bytes(self) -> int:
        """Bytes over the limit."""
        return self.need_bytes - self.limit_bytes


class InfeasibleError(TfplaceError):
    """No placement that fits was found.

    What to do: try `ways_out`, in order; docs/how_to/does_not_fit.md explains them.

    Attributes:
      shortages: one per device that is over its limit.
      ways_out: what the user can do, in order of effort.
    """

    def __init__(self, reason: str, shortages: Sequence[Shortage], ways_out: Sequence[str]) -> None:
        self.shortages = tuple(shortages)
        self.ways_out = tuple(ways_out)
        lines = [reason]
        for s in self.shortages:
            lines.append(
                f"  {s.device}: needs {format_bytes(s.need_bytes)}, may use {format_bytes(s.limit_bytes)}, "
                f"{format_bytes(s.over_bytes)} over"
            )
            lines += [f"    {format_bytes(size):>10}  {name}" for name, size in s.largest]
        if self.ways_out:
            lines.append("Ways out:")
            lines += [f"  {i}. {way}" for i, way in enumerate(self.ways_out, 1)]
        super().__init__("\n".join(lines))


def _remake(kind: type[TfplaceError], args: tuple[Any, ...], attributes: dict[str, Any]) -> TfplaceError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


def near_names(name: str, known: Iterable[str], limit: int = 5) -> list[str]:
    """The known names closest to `name` by spelling, nearest first, then those that contain it."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=limit, cutoff=0.5)
    bare = name.strip("*?")
    near += [k for k in known if bare and bare.lower() in k.lower() and k not in near]
    return near[:limit]


def describe_error(error: BaseException) -> str:
    """An error that is not ours, for a message about what it comes from."""
    converted = getattr(error, "ag_error_metadata", None)  # AutoGraph's, whose own text begins with where it was
    text: str = f"{type(error).__name__}: {error}" if converted is None else converted.cause_message
    return text.rstrip(".")


def error_location(error: BaseException) -> str:
    """The file and line it comes from: the user's, though a library or tfplace may have raised it."""
    converted = getattr(error, "ag_error_metadata", None)
    frames: list[Any] = [*traceback.extract_tb(error.__traceback__)]
    if converted is not None:  # in place of the code that AutoGraph made of the user's
        frames = [*reversed(converted.translated_stack)]
    users = [f for f in frames if "site-packages" not in f.filename and not f.filename.startswith(_HERE)]
    at = (users or frames)[-1]
    return f"{at.filename}:{at.lineno}"
