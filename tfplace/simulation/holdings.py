"""What a device's memory holds at the step's peak, by the rules of docs/reference/simulated_memory.md."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from tfplace.simulation.event import CHANGES, SENT
from tfplace.simulation.program import Program, Scratch


class HoldingKind(StrEnum):
    """Why something is held."""

    VARIABLE = "variable"
    RESULT = "result"
    RECEIVED = "received"
    WORKSPACE = "workspace"
    COPY = "copy"


@dataclass(frozen=True)
class Holding:
    """A piece of memory.

    Attributes:
      op: index of the op whose result, variable or workspace it is; -1 for copies of variables that are written while
        they are still read, taken together.
      slot: of its result; -1 for anything else.
      size_bytes: bytes.
      kind: why it is held.
    """

    op: int
    slot: int
    size_bytes: int
    kind: HoldingKind


def holdings_at_peak(p: Program, s: Scratch, device: int) -> list[Holding]:
    """What a device holds when it first holds most, the largest first; their bytes add up to its peak.

    Args:
      p: the compiled problem.
      s: of a recorded step.
      device: index.
    """
    changes = s.changes[: s.counter[CHANGES]]
    changes = changes[changes["device"] == device]
    if not len(changes):
        return []
    top = int(changes["in_use"].argmax())
    when, peak = float(changes["when"][top]), int(changes["in_use"][top])
    out = _variables(p, s, device) + _tensors(p, s, device, when) + _workspaces(p, s, device, when)
    copies = peak - sum(holding.size_bytes for holding in out)
    if copies:
        out.append(Holding(-1, -1, copies, HoldingKind.COPY))
    return sorted(out, key=lambda holding: -holding.size_bytes)


def _variables(p: Program, s: Scratch, device: int) -> list[Holding]:
    held = p.ops["persistent"][:-1] * ((s.device == device) & (p.ops["reads"][:-1] >= 0))
    return [Holding(v, -1, int(held[v]), HoldingKind.VARIABLE) for v in np.flatnonzero(held).tolist()]


def _workspaces(p: Program, s: Scratch, device: int, when: float) -> list[Holding]:
    running = (s.device == device) & (s.start <= when) & (when < s.finish) & (p.ops["reads"][:-1] >= 0)
    taken = p.workspace[:, device] * running
    return [Holding(v, -1, int(taken[v]), HoldingKind.WORKSPACE) for v in np.flatnonzero(taken).tolist()]


def _tensors(p: Program, s: Scratch, device: int, when: float) -> list[Holding]:
    messages = p.messages[:-1]
    maker, count = messages["maker"], len(messages)
    made_here = (s.device[maker] == device) & (p.ops["reads"][maker] >= 0)
    transfers = s.transfers[: s.counter[SENT]]
    since = np.where(made_here, s.start[maker], np.inf)
    until = np.where(made_here, s.finish[maker], -np.inf)
    readers = np.repeat(np.arange(count), np.diff(p.messages["reader_first"]))
    here = s.device[p.reader] == device
    np.maximum.at(until, readers[here], s.finish[p.reader[here]])
    sent = made_here[transfers["message"]]
    np.maximum.at(until, transfers["message"][sent], transfers["end"][sent])
    came = (transfers["dst"] == device) & ~made_here[transfers["message"]]
    since[transfers["message"][came]] = transfers["start"][came]
    until[made_here & (messages["held"] > 0)] = np.inf
    alias = np.where(made_here, s.alias, -1)
    for m in np.flatnonzero(alias >= 0)[::-1].tolist():  # an alias is made after what it is an alias of
        until[alias[m]] = max(until[alias[m]], until[m])
    alive = (alias < 0) & (since <= when) & (when < until) & (messages["size"] > 0)
    return [
        Holding(
            int(maker[m]),
            int(m - p.ops["first"][maker[m]]),
            int(messages["size"][m]),
            HoldingKind.RESULT if made_here[m] else HoldingKind.RECEIVED,
        )
        for m in np.flatnonzero(alive).tolist()
    ]
