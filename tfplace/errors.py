"""The errors that tfplace raises on purpose.

Each error says what was received, what was expected and what to do. All derive from `TfplaceError`, so one `except`
catches them. At the end of the module: functions that describe errors of other libraries.
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
    """The base class of all tfplace errors.

    What to do: catch it to handle every error that tfplace raises on purpose. Any other exception is a bug.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes the error picklable, which an exception with several constructor arguments otherwise is not."""
        return _remake, (type(self), self.args, self.__dict__)


class InputError(TfplaceError, ValueError):
    """An argument, option, file or model cannot be used.

    What to do: pass what the message says was expected.

    Attributes:
      received: what was received, in words.
      expected: what would have been accepted, in words.
      hint: what to do; may be empty.
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

    What to do: place the whole step (`slices=1`), or remove what fixes the batch size. The message names the op.
    """


class FewExamplesError(SplitError):
    """A batch has fewer examples than the requested number of slices.

    What to do: ask for fewer slices, or use a larger batch.

    Attributes:
      examples: number of examples in the batch.
    """

    def __init__(self, slices: int, examples: int) -> None:
        self.examples = examples
        super().__init__(f"{slices} slices of a batch of {examples}", f"1 to {examples} slices")


class UnknownOpsError(SourceError):
    """A graph has ops that this TensorFlow does not know.

    What to do: load the library that registers the ops before you read the graph.

    Attributes:
      ops: types of the unknown ops.
    """

    def __init__(self, ops: Iterable[str]) -> None:
        self.ops = tuple(ops)
        super().__init__(
            f"a graph with unknown op {', '.join(self.ops)}",
            "ops that this TensorFlow knows",
            "Load the library that registers it first: tf.load_op_library(path), or import the package that does.",
        )


class GraphError(InputError):
    """A graph is invalid: for example, it has a cycle, an edge to a missing op, or no ops.

    What to do: correct the arrays that it was made from. If tfplace made it from a model, report a bug.
    """


class TopologyError(InputError):
    """A topology or topology file is wrong.

    What to do: correct the field that the message names. docs/reference/topology.md lists all fields.
    """


class ConstraintError(InputError):
    """A placement rule cannot be satisfied, or matches nothing.

    What to do: correct the pattern, or drop one of the two rules that the message names.
    `tfplace extract MODEL --layers` lists names.
    """


class PlacementError(InputError):
    """A placement does not fit the graph, the topology or the constraints.

    What to do: place again. The model, its batch or the devices differ from those that the placement was made for.
    """


class ApplyError(InputError):
    """A placement cannot be applied to this program on this machine.

    What to do: place for the devices that the message lists, or map names with `devices`.
    """


class ClusterError(InputError):
    """Worker processes cannot be started, reached or restarted.

    What to do: check that `tfplace worker` runs at the address, and that the machines can reach each other.
    """


class LostWorkerError(ClusterError):
    """A worker was lost while it held variables.

    What to do: start the worker again, and call `fit` again. With `BackupAndRestore`, training resumes.

    Attributes:
      addresses: "host:port" of the worker; several if it is unknown which of them was lost.
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
    """Processes that share the work of a search cannot be started, or were lost.

    What to do: run the same command again to resume. Use fewer `controllers` if memory is short.
    """


class UnwrittenError(InputError):
    """A result cannot be written, for example because the disk is full or permission is missing.

    What to do: free space, or choose another directory.
    """


class UnknownNameError(InputError):
    """A name is unknown, such as the name of a placer, device or option.

    What to do: use one of the names that the message lists. It suggests the nearest one, if there is one.

    Attributes:
      known: the known names, sorted.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.known = tuple(sorted(known))
        near = near_names(str(name), self.known)
        hint = f"Did you mean {near[0]!r}?" if near else ""
        super().__init__(f"{kind} {name!r}", f"one of {', '.join(self.known)}", hint)


class UnknownOptionError(UnknownNameError, TypeError):
    """A keyword argument is not an option of the function.

    What to do: use one of the names that the message lists.
    """


class MissingExtraError(InputError):
    """An optional package is not installed.

    What to do: run the pip command in the message.
    """


@dataclass(frozen=True)
class Shortage:
    """The memory that one device lacks.

    Attributes:
      device: name of the device, or "all devices together".
      need_bytes: peak memory there of the placement that came nearest to fitting, or what every placement needs.
      limit_bytes: bytes that may be used there.
      largest: the largest tensors or variables held there at the peak, as (name, bytes), largest first.
    """

    device: str
    need_bytes: int
    limit_bytes: int
    largest: tuple[tuple[str, int], ...] = ()

    @property
    def over_bytes(self) -> int:
        """Number of bytes over the limit."""
        return self.need_bytes - self.limit_bytes


class InfeasibleError(TfplaceError):
    """No placement was found that fits the memory.

    What to do: try `ways_out`, in order. docs/how_to/does_not_fit.md explains them.

    Attributes:
      shortages: one for each device that is over its limit.
      ways_out: what you can do, the least effort first.
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
    """The known names with the most similar spelling, nearest first, then those that contain `name`."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=limit, cutoff=0.5)
    bare = name.strip("*?")
    near += [k for k in known if bare and bare.lower() in k.lower() and k not in near]
    return near[:limit]


def describe_error(error: BaseException) -> str:
    """Describes an error of another library, for use in a message."""
    converted = getattr(error, "ag_error_metadata", None)  # AutoGraph's, whose own text begins with where it was
    text: str = f"{type(error).__name__}: {error}" if converted is None else converted.cause_message
    return text.rstrip(".")


def error_location(error: BaseException) -> str:
    """The file and line in the user's code that an error comes from, even if a library or tfplace raised it."""
    converted = getattr(error, "ag_error_metadata", None)
    frames: list[Any] = [*traceback.extract_tb(error.__traceback__)]
    if converted is not None:  # in place of the code that AutoGraph made of the user's
        frames = [*reversed(converted.translated_stack)]
    users = [f for f in frames if "site-packages" not in f.filename and not f.filename.startswith(_HERE)]
    at = (users or frames)[-1]
    return f"{at.filename}:{at.lineno}"
