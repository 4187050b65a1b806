"""Critical path: CPOP, critical path on a processor."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import SearchContext
from tfplace.schedule.list_scheduling.ranks import downward_rank, ready_first
from tfplace.schedule.list_scheduling.scheduler import Schedule, Scheduler
from tfplace.schedule.list_scheduling.tasks import PREFERRED
from tfplace.schedule.list_scheduling.variants import Variants, best_plan

_SLOWER = (1.0, 4.0, 16.0, 64.0)
_GROUPS = (("units", 0), ("topological", 1000), ("topological", 300), ("heavy_edge", 100))


class CriticalPath(Placer):
    """The longest path of mean costs on the device that runs it fastest, everything else by earliest finish.

    Ops are planned from a list of ready ones, that of highest upward plus downward rank first, with insertion.

    Departures: the ops of one unit share a device, and a unit with an op on the path goes with it where it may and
    while that takes no more than half of the device's memory. The host CPU is a last resort. The paper's plan is the
    first of up to 20, of which the simulated best is returned. The others take links to be 4, 16 or 64 times slower, or
    plan groups of units as single tasks (`tfplace.schedule.list_scheduling.fuse`).
    """

    citation = (
        "H. Topcuoglu, S. Hariri, M.-Y. Wu: Performance-effective and low-complexity task scheduling for heterogeneous "
        "computing. IEEE Transactions on Parallel and Distributed Systems 13(3), 2002, section 4.2 (CPOP)."
    )

    def place(self, context: SearchContext) -> IntArray:
        """Plans and evaluates up to 20 times, more if memory is short; the best of these."""
        variants = Variants(context.problem)
        return best_plan(lambda: variants.plans(_plan, _GROUPS, _SLOWER), context.key)


def _plan(scheduler: Scheduler, memory: float) -> IntArray:
    return schedule(scheduler, memory).unit_device


def schedule(scheduler: Scheduler, memory: float = 1.0) -> Schedule:
    """Plans every task.

    Args:
      scheduler: of ops or groups.
      memory: fraction of every device's limit that may be planned with; the critical path may take half of that.
    """
    of_op = scheduler.units.of_op
    priority = scheduler.rank + downward_rank(scheduler.tasks)
    order = ready_first(scheduler.tasks, of_op, priority)
    fixed = _fix(scheduler, critical_path(scheduler, priority), memory)
    return scheduler.by_order(scheduler.units._replace(fixed=fixed), order=order, memory=memory)


def critical_path(scheduler: Scheduler, priority: FloatArray) -> IntArray:
    """Tasks of one path, each with the highest priority there is but for rounding; empty without tasks."""
    t = scheduler.tasks
    inside = np.flatnonzero(scheduler.units.of_op >= 0)
    if not len(inside):
        return np.zeros(0, np.int32)
    first, reader_first = t.ops["first"], t.messages["reader_first"]
    starts = inside[np.diff(t.ops["input_first"])[inside] == 0]
    v = int(starts[np.argmax(priority[starts])])
    path = [v]
    while True:
        readers = t.reader[reader_first[first[v]] : reader_first[first[v + 1]]]
        if not len(readers):
            return np.array(path, np.int32)
        v = int(readers[np.argmax(priority[readers])])
        path.append(v)


def _fix(scheduler: Scheduler, path: IntArray, memory: float) -> IntArray:
    """[units] the path's device for units on the path, as many as half of its memory holds; -1 for the others.

    What they make counts as if it were all held at once, as in training much of it is.
    """
    units, t = scheduler.units, scheduler.tasks
    fixed = np.full(len(units.fixed), -1, np.int32)
    if not len(path):
        return fixed
    on_path, first = np.unique(units.of_op[path], return_index=True)
    on_path = on_path[np.argsort(first)]
    may = (units.tier[on_path] == PREFERRED).sum(axis=0)
    seconds = t.seconds[path].sum(axis=0)
    device = int(np.lexsort((seconds, -may))[0])
    on_path = on_path[units.tier[on_path, device] == PREFERRED]
    held = np.cumsum(units.persistent[on_path] + _made_bytes(scheduler, path)[on_path])
    fixed[on_path[held <= 0.5 * memory * float(t.limit[device])]] = device
    return fixed


def _made_bytes(scheduler: Scheduler, path: IntArray) -> LongArray:
    """[units] bytes of all that the path's tasks of each unit make."""
    t = scheduler.tasks
    sizes = np.where(t.root == np.arange(len(t.root)), t.messages["size"][:-1], 0)
    made = np.bincount(t.messages["maker"][:-1], sizes, len(t.mean_s))
    out = np.zeros(len(scheduler.units.fixed), np.int64)
    np.add.at(out, scheduler.units.of_op[path], made[path].astype(np.int64))
    return out
