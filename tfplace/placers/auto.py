"""Auto: every quick placer, then searches from the best of them at several granularities."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import BudgetSpentError, SearchContext
from tfplace.core.stepcost import FAILED_BYTES, THROUGHPUT, Key
from tfplace.errors import MissingExtraError, TfplaceError
from tfplace.formatting import format_bytes, format_seconds
from tfplace.local_search.batches import try_all
from tfplace.local_search.devices import single_devices
from tfplace.local_search.penalized_cost import PenalizedCost
from tfplace.registry import PLACERS

POLICY = "placeto"
"""What has learned on other graphs."""

MEMBERS = (
    "single",
    "expert",
    "metis",
    "scotch",
    "min_cut",
    "heft",
    "m_etf",
    "critical_path",
    "etf",
    "m_topo",
    "round_robin",
    POLICY,
    "m_sct",
)
"""In the order in which they run: what is most worth it for what it takes comes first.

List schedulers take far longer than partitioners where a graph is large and memory is tight.
"""

PIPELINE_MEMBERS = ("single", "contiguous", "expert", "metis", "scotch", "heft", "round_robin")
"""The same where the objective is throughput."""

SPLIT_MEMBERS = ("data_parallel", "mixed", "pipedream", "one_f_one_b")
"""Placers that need slices: they run before the others where the step is split."""

SEARCH, PIPELINE_SEARCH = "local_search", "load_search"
"""What goes on from their placements."""

SCOUTS = (0, -1, 1)
"""What short searches start from: the rank of a member, or -1 for one device."""

CONSTRUCTION = 0.2
"""Part of the budget after which no further member begins: on large graphs they would leave nothing to the searches."""

SCOUTING = 0.25
"""Part of the rest for all scouts: enough to rank their starts, so that most is left for the best of them."""

LEAST = 700
"""Evaluations without which a scout tells nothing."""

SURVIVORS, SECOND = 2, 0.25
"""How many scouts are searched on from, which guards against one lucky scout, and their part of what is left then. The
last search needs the rest in one piece, as it anneals over its whole budget."""

_TOLD = 5
"""Members in a note, the best first: more would not fit in a line."""

_TINY = 1e-6
"""Part of the bound by which rounding may keep a placement from it."""


class Auto(Placer):
    """A portfolio: placers that are quick, short searches from several of them, longer ones from the best of those.

    1. The members run one after the other, as long as a part of the budget suffices: the constructive placers (for a
       split step, first those that need slices), and Placeto at once, with the weights of the package. One whose extra
       is not installed is passed over, and one that fails.
    2. Scouts search for a short while each, as many as can do something in it: `local_search` from the two best members
       and from the best single device.
    3. It goes on from what the two best scouts found, then from the best of all with what is left; from the best member
       where there was no time for scouts.

    It is never worse than any member that ran, since every placement a member evaluates counts, nor than the starts it
    is given. It stops early when the best placement reaches the lower bound. With a budget in evaluations nothing
    depends on the clock. `notes` tells what each part found and what that took, and which member's placement the answer
    goes back to.

    Args:
      starts: [U] placements known beforehand, such as the present one.
      learned: whether what has learned on other graphs is a member.
    """

    citation = "Portfolio of tfplace's placers; see the citations of " + ", ".join(MEMBERS) + " and local_search."
    accepts_starts = True
    supports_workers = True

    def __init__(self, starts: Sequence[IntArray] = (), *, learned: bool = True) -> None:
        self.starts = tuple(starts)
        self.with_learned = learned

    def place(self, context: SearchContext) -> IntArray:
        """Spends the whole budget unless the bound is reached or all placements have been tried."""
        run = Portfolio(context, self.with_learned)
        try:
            run.construct(self.starts)
            if not run.settled() and not try_all(context):
                run.improve()
        except BudgetSpentError:
            pass
        finally:
            self.notes = run.notes()
        if context.best is None:
            raise BudgetSpentError
        return context.best


@dataclass(frozen=True)
class Found:
    """What a part of the portfolio came to.

    Attributes:
      name: of the part.
      key: of the placement.
      devices: [U].
      origin: the member whose placement it goes back to.
    """

    name: str
    key: Key
    devices: IntArray
    origin: str


@dataclass
class Portfolio:
    """One run of `Auto`.

    Attributes:
      context: of the whole.
      learned: of `Auto`.
      found: what the members placed, in the order in which they ran.
      searched: what the searches came to.
      log: lines for `Auto.notes`.
      missing: members whose extra is not installed.
    """

    context: SearchContext
    learned: bool = True
    found: list[Found] = field(default_factory=list)
    searched: list[Found] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def pipelined(self) -> bool:
        """Whether the objective is throughput."""
        return self.context.objective == THROUGHPUT

    def members(self) -> Sequence[str]:
        """Names of those that suit the problem, in the order in which they run."""
        members = PIPELINE_MEMBERS if self.pipelined else MEMBERS
        if self.context.problem.graph.slices is not None:
            members = (*SPLIT_MEMBERS, *members)
        return members if self.learned else [name for name in members if name != POLICY]

    def construct(self, starts: Sequence[IntArray]) -> None:
        """The given placements and the members, until the bound is reached or their part of the budget is spent."""
        for i, devices in enumerate(starts):
            name = f"given {i + 1}"
            self.found.append(Found(name, self.context.key(devices), devices, name))
        begun = len(self.found)
        for name in self.members():
            ran = len(self.found) > begun  # one always runs: what was given may be far from what suits the problem
            if self.found and (self.settled() or self.context.spent >= (CONSTRUCTION if ran else 1.0)):
                break
            part = (CONSTRUCTION - self.context.spent) / (1 - self.context.spent) if ran else 1.0
            try:
                found = run_member(member(name), self.context.share(part, name), name, name)
            except MissingExtraError:
                self.missing.append(name)
                continue
            except TfplaceError:
                raise  # such as the evaluator's
            except Exception as error:  # a member's own fault is no reason to lose what the others found
                self.log.append(f"{name} failed: {error!r}")
                continue
            self.found += [found] if found is not None else []

    def improve(self) -> None:
        """Scouts, survivors, and the best of all until the budget is spent."""
        spent = self.context.spent
        alone = self.alone()
        scouted = self._scout(alone, self.context.spent - spent)
        begin = self.context.spent
        best = sorted(scouted, key=lambda f: f.key)[:SURVIVORS]
        for i, found in enumerate(best):
            self._search(found, begin + (1 - begin) * SECOND * (i + 1) / len(best), "after")
        self._search(self.best_found() if best else self.start(0, alone), 1.0)

    def _scout(self, alone: Found, each: float) -> list[Found]:
        """What the first scouts find, as many as can do something in their time.

        Args:
          alone: everything on one device.
          each: part of the budget that it takes to evaluate that.
        """
        context = self.context
        end = context.spent + (1 - context.spent) * SCOUTING
        left = context.left.evaluations
        most = (end - context.spent) / max(each, _TINY) if left is None else SCOUTING * left
        scouts: Sequence[int] = SCOUTS[: int(most / LEAST)]
        found: list[Found | None] = []
        while len(scouts) > 1 or (found and scouts):  # a lone one would have none to be compared with
            rank, *scouts = scouts
            spent, made = context.spent, context.evaluations
            found.append(self._search(self.start(rank, alone), spent + (end - spent) / (len(scouts) + 1)))
            pace = (context.evaluations - made) / max(context.spent - spent, _TINY)
            scouts = scouts[: int((end - context.spent) * pace / LEAST)]
        return [f for f in found if f is not None]

    def alone(self) -> Found:
        """Everything on the fastest device, whether it fits or not."""
        devices, name = single_devices(self.context.problem)[0], "one device"
        return Found(name, self.context.key(devices), devices, name)

    def best_found(self) -> Found:
        """The best placement of all so far."""
        assert self.context.best is not None
        assert self.context.best_key is not None
        origin = min([*self.found, *self.searched], key=lambda f: f.key).origin
        return Found("the best", self.context.best_key, self.context.best, origin)

    def start(self, rank: int, alone: Found) -> Found:
        """What a scout starts from: the member of that rank, or everything on the fastest device if it is negative.

        Members are ranked by what a search would give for them, as one that is quick and slightly too large is a better
        start than one that fits because it leaves most to the host.
        """
        if rank < 0 or not self.found:
            return alone
        price = PenalizedCost(self.context, alone.key)
        ranked = sorted(self.found, key=lambda f: price(f.key))
        return ranked[min(rank, len(ranked) - 1)]

    def _search(self, start: Found, until: float, word: str = "from") -> Found | None:
        """A search that ends when `until` of the budget is spent."""
        spent, placer = self.context.spent, PIPELINE_SEARCH if self.pipelined else SEARCH
        if self.settled() or spent >= until:
            return None
        name = f"{placer} {word} {start.name}"
        share = self.context.share((until - spent) / (1 - spent), name)
        found = run_member(PLACERS[placer](starts=[start.devices]), share, name, start.origin)
        if found is not None:
            self.searched.append(found)
            self.log.append(f"{name}: {shown_key(found.key)}, {100 * (self.context.spent - spent):.0f} % of the budget")
        return found

    def settled(self) -> bool:
        """Whether the best placement fits and cannot be faster."""
        best = self.context.best_key
        return best is not None and best <= (0, self.context.bound_s * (1 + _TINY))

    def notes(self) -> tuple[str, ...]:
        """What each part found."""
        ranked = sorted(self.found, key=lambda f: f.key)
        shown = [f"{f.name} {shown_key(f.key)}" for f in ranked[:_TOLD]]
        shown += [f"{len(ranked) - _TOLD} more"] if len(ranked) > _TOLD else []
        lines = ["constructed: " + ", ".join(shown)] if ranked else []
        lines += [_skipped(self.missing)] if self.missing else []
        lines += [
            f"{f.name}, pretrained on other graphs, is number {i + 1} of {len(ranked)} with {shown_key(f.key)}"
            for i, f in enumerate(ranked)
            if f.name == POLICY
        ]
        lines += self.log
        lines += [f"the answer goes back to {self.best_found().origin}"] if self.searched else []
        lines += ["stopped early: the lower bound is reached"] if self.settled() else []
        return tuple(f"auto: {line}" for line in lines)


def member(name: str) -> Placer:
    """A member by its name; a policy without its moves, as the searches move."""
    made: Placer = PLACERS[name](moves=0) if name == POLICY else PLACERS[name]()
    return made


def run_member(placer: Placer, share: SearchContext, name: str, origin: str) -> Found | None:
    """What the placer found with its share of the budget; None if it evaluated nothing."""
    with contextlib.suppress(BudgetSpentError):
        devices = placer.place(share)
        if share.best is None or not np.array_equal(share.best, devices):
            share.key(devices)
    if share.best is None or share.best_key is None:
        return None
    return Found(name, share.best_key, share.best, origin)


def _skipped(missing: Sequence[str]) -> str:
    """Members that were not run, and how to install what they need."""
    extras = sorted({extra for name in missing if (extra := PLACERS[name].extra) is not None})
    return f"skipped {', '.join(missing)}" + (f" (pip install 'tfplace[{','.join(extras)}]')" if extras else "")


def shown_key(key: Key) -> str:
    """A step time, and what does not fit."""
    over, step_s = key
    if over >= FAILED_BYTES:
        return "failed"
    return format_seconds(step_s) + (f" ({format_bytes(over)} too much)" if over else "")
