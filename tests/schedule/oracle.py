"""List scheduling in slow, plain Python, from the words of tfplace/schedule/list_scheduling/kernel.py: no heaps, no
sums kept.

Works on the graph's own edges. Everything that can be worked out from what was planned so far is worked out anew.
"""

from __future__ import annotations

import math

import numpy as np

from tfplace.core.buffers import HELD_BY_VARIABLE, aliased_input

NOWHERE = math.inf


class Oracle:
    def __init__(self, problem, *, serial=False, whole=False, memory=1.0, favourites=None):
        self.problem, self.graph, self.topology = problem, problem.graph, problem.topology
        self.serial, self.whole, self.favourites = serial, whole, favourites
        self.devices = range(problem.num_devices)
        self.limit = [math.floor(x * memory) for x in problem.memory_limit.tolist()]
        self.unit_of = [-1 if r else u for u, r in zip(problem.grouping.unit_of, self.graph.replicable, strict=True)]
        self._read_edges()
        self.unit_device, self.start, self.finish, self.device = {}, {}, {}, {}
        self.sent = {}  # (message, device) -> when
        self.busy_until = {}  # channel -> when
        self.forced = 0

    # ---- the problem -------------------------------------------------------------------------------------------------

    def _read_edges(self):
        g = self.graph
        self.reads, self.readers, self.alias_of = {}, {}, {}
        taken = {}
        for e in range(g.num_edges):
            src, dst, tensor = int(g.edge_src[e]), int(g.edge_dst[e]), int(g.edge_tensor[e])
            if g.edge_back[e] or g.replicable[src] or g.replicable[dst]:
                continue
            slot = int(g.tensor_slot[tensor]) if tensor >= 0 else math.inf
            message = (src, slot, tensor)
            self.reads.setdefault(dst, set()).add(message)
            self.readers.setdefault(message, set()).add(dst)
            if tensor >= 0:
                taken[dst, int(g.edge_slot[e])] = message
        for message in self.readers:
            op, slot, tensor = message
            position = aliased_input(g.op_types[op], slot) if tensor >= 0 else None
            if (op, position) in taken:
                self.alias_of[message] = taken[op, position]

    def inputs(self, v):
        return sorted(self.reads.get(v, ()))

    def outputs(self, v):
        return sorted(m for m in self.readers if m[0] == v)

    def root(self, message):
        while message in self.alias_of:
            message = self.alias_of[message]
        return message

    def size(self, message):
        held = self.graph.op_types[message[0]] in HELD_BY_VARIABLE
        return 0 if message[2] < 0 or held else int(self.graph.tensor_bytes[message[2]])

    def seconds(self, v, d):
        return float(self.problem.costs.compute_s[v, d])

    def transfer_seconds(self, message, a, b):
        trips = float(self.graph.trips[message[0]])
        per_byte = 1.0 / float(self.topology.bandwidth[a, b])
        return trips * float(self.topology.latency_s[a, b]) + trips * self.size(message) * per_byte

    def tier(self, unit):
        types = [d.type for d in self.topology.devices]
        compute = [t != "CPU" for t in types] if any(t != "CPU" for t in types) else [True] * len(types)
        may = self.problem.allowed[unit].tolist()
        if any(m and c for m, c in zip(may, compute, strict=True)):
            return [(0 if c else 1) if m else 2 for m, c in zip(may, compute, strict=True)]
        return [0 if m else 2 for m in may]

    def members(self, unit):
        return [v for v, u in enumerate(self.unit_of) if u == unit]

    # ---- transfers ---------------------------------------------------------------------------------------------------

    def arrivals(self, v, d):
        """When each input of v is on d if it is planned now, and the channels as they are then."""
        channel = dict(self.busy_until)
        when = {}
        for message in self.inputs(v):
            if (message, d) in self.sent:
                when[message] = self.sent[message, d]
                continue
            a = self.device[message[0]]
            begin = self.finish[message[0]]
            if self.serial:
                wires = [c for c in self.topology.channels[a, d].tolist() if c >= 0]
                begin = max([begin, *(channel.get(c, 0.0) for c in wires)])
                channel.update(dict.fromkeys(wires, begin + self.transfer_seconds(message, a, d)))
            when[message] = begin + self.transfer_seconds(message, a, d)
        return when, channel

    def arrival(self, v, d):
        return max(self.arrivals(v, d)[0].values(), default=0.0)

    # ---- memory ------------------------------------------------------------------------------------------------------

    def held(self, d):
        """Bytes on a device, of everything planned so far."""
        total = sum(
            int(self.graph.persistent_bytes[v])
            for unit, where in self.unit_device.items()
            if where == d
            for v in self.members(unit)
        )
        waited_for = {}
        for message, readers in self.readers.items():
            left = any(w not in self.finish for w in readers)
            waited_for[self.root(message)] = waited_for.get(self.root(message), False) or left
            copied = (message, d) in self.sent and self.device.get(message[0]) != d
            total += self.size(message) * (copied and left)
        for message, waited in waited_for.items():
            total += self.size(message) * (waited and self.device.get(message[0]) == d)
        return total

    def fits(self, v, d):
        unit = self.unit_of[v]
        need = sum(int(self.graph.persistent_bytes[w]) for w in self.members(unit))
        need += sum(self.size(m) for m in self.outputs(v) if self.root(m) == m)
        need += sum(self.size(m) for m in self.inputs(v) if (m, d) not in self.sent)
        return self.limit[d] - self.held(d) >= need

    def roomiest(self, unit):
        tier = self.tier(unit)
        return max((d for d in self.devices if tier[d] < 2), key=lambda d: (self.limit[d] - self.held(d), -d))

    # ---- planning ----------------------------------------------------------------------------------------------------

    def plan(self, v, d, start):
        when, channel = self.arrivals(v, d)
        self.busy_until = channel
        for message, at in when.items():
            self.sent[message, d] = at
        self.unit_device[self.unit_of[v]] = d
        self.device[v] = d
        self.start[v] = max([start, *when.values()])
        self.finish[v] = self.start[v] + self.seconds(v, d)
        for message in self.outputs(v):
            self.sent[message, d] = self.finish[v]

    def tail(self, d):
        return max((self.finish[v] for v in self.finish if self.device[v] == d), default=0.0)

    def gap(self, d, ready, seconds):
        """The earliest idle start: the device is busy from one op to the next if they touch."""
        busy = sorted((self.start[v], self.finish[v]) for v in self.finish if self.device[v] == d)
        joined = []
        for begin, end in (b for b in busy if b[1] > b[0]):
            if joined and joined[-1][1] == begin:
                joined[-1][1] = end
            else:
                joined.append([begin, end])
        starts = [ready, *(end for _, end in joined if end > ready)]
        return min(s for s in starts if not any(b < s + seconds and s < e for b, e in joined))

    def by_order(self, order):
        for v in order:
            unit = self.unit_of[v]
            d = self.unit_device[unit] if unit in self.unit_device else self.earliest_finish(v)
            self.plan(v, d, self.gap(d, self.arrival(v, d), self.seconds(v, d)))
        return self

    def earliest_finish(self, v):
        unit = self.unit_of[v]
        tier = self.tier(unit)
        for wanted in (0, 1):
            scores = {d: self.score(v, d) for d in self.devices if tier[d] == wanted and self.fits(v, d)}
            if scores:
                return min(scores, key=lambda d: (scores[d], d))
        self.forced += 1
        return self.roomiest(unit)

    def score(self, v, d):
        seconds = self.seconds(v, d)
        score = self.gap(d, self.arrival(v, d), seconds) + seconds
        if self.whole:
            score += self.promised(d) + sum(self.seconds(w, d) for w in self.members(self.unit_of[v])) - seconds
            for w in self.members(self.unit_of[v]):
                for m in self.inputs(w) if w != v else ():
                    a = self.unit_device.get(self.unit_of[m[0]], d)
                    if a != d and (m, d) not in self.sent:
                        score += self.transfer_seconds(m, a, d)
        return score

    def promised(self, d):
        units = [u for u, where in self.unit_device.items() if where == d]
        return sum(self.seconds(w, d) for u in units for w in self.members(u) if w not in self.finish)

    # ---- by the earliest start ---------------------------------------------------------------------------------------

    def by_start(self, order):
        self.place = {v: i for i, v in enumerate(order)}
        self.queue = {d: [] for d in self.devices}  # [estimate, place, op]
        self.chances, self.stage = {}, {}
        self.awaited, self.until = dict.fromkeys(self.devices, -1), {}
        for v in order:
            if self.ready(v):
                self.offer(v, 0)
        while len(self.finish) < len(order):
            best = (NOWHERE, math.inf, -1)
            for d in self.devices:
                if self.first(d)[0] > best[0] or not self.refresh(d):
                    continue
                estimate, place, entry = self.first(d)
                estimate = max(estimate, self.hold(entry[2], d))
                if (estimate, place) < best[:2]:
                    best = (estimate, place, d)
            v, d = order[best[1]], best[2]
            waits = self.expected(best[0])
            if waits >= 0:
                v, d = self.awaited[waits], waits
            if self.unit_of[v] not in self.unit_device and self.stage[v] < 2 and not self.fits(v, d):
                self.queue[d].remove(self.first(d)[2])
                self.chances[v] -= 1
                while self.chances[v] == 0:
                    self.offer(v, self.stage[v] + 1)
            else:
                self.run(v, d)
        return self

    def ready(self, v):
        return v not in self.finish and all(m[0] in self.finish for m in self.inputs(v))

    def first(self, d):
        rows = [(max(row[0], self.tail(d)), row[1], row) for row in self.queue[d]]
        return min(rows, key=lambda row: row[:2], default=(NOWHERE, math.inf, None))

    def refresh(self, d):
        while self.queue[d]:
            estimate, _, row = self.first(d)
            v = row[2]
            gone = v in self.finish or self.unit_device.get(self.unit_of[v], d) != d
            if not gone and self.arrival(v, d) <= estimate:
                return True
            self.queue[d].remove(row)
            if not gone:
                self.queue[d].append([self.arrival(v, d), row[1], v])
        return False

    def offer(self, v, tier):
        unit = self.unit_of[v]
        self.stage[v], self.chances[v] = tier, 0
        for d in self.devices:
            wanted = self.tier(unit)[d] == tier if tier < 2 else d == self.roomiest(unit)
            if self.unit_device.get(unit, d if wanted else None) == d:
                self.chances[v] += 1
                self.queue[d].append([self.arrival(v, d), self.place[v], v])

    def run(self, v, d):
        unit = self.unit_of[v]
        start = max(self.tail(d), self.hold(v, d))
        if unit not in self.unit_device:
            self.forced += self.stage[v] == 2 and not self.fits(v, d)
            others = [w for w in self.members(unit) if w != v and self.ready(w)]
        else:
            others = []
        before = {w for w in self.place if self.ready(w)}
        self.plan(v, d, start)
        for w in others:
            self.queue[d].append([self.arrival(w, d), self.place[w], w])
        self.watch(v, d)
        fresh = [w for m in self.outputs(v) for w in sorted(self.readers[m]) if self.ready(w) and w not in before]
        for w in dict.fromkeys(fresh):
            self.offer(w, 0)

    # ---- favourite children ------------------------------------------------------------------------------------------

    def watch(self, v, d):
        self.awaited[d] = -1
        child = int(self.favourites.child[v]) if self.favourites else -1
        if child >= 0 and child not in self.finish:
            unit = self.unit_of[child]
            if self.unit_device.get(unit) == d or (unit not in self.unit_device and self.tier(unit)[d] == 0):
                self.awaited[d], self.until[d] = child, self.finish[v] + float(self.favourites.seconds[v])

    def hold(self, v, d):
        child = self.awaited[d]
        if child in self.finish:
            self.awaited[d] = -1
        if self.awaited[d] < 0 or child == v:
            return 0.0
        tier = self.tier(self.unit_of[v])
        urgent = max([0.0, *(self.arrival(v, e) for e in self.devices if tier[e] == 0)])
        return min(self.until[d], urgent)

    def expected(self, best_s):
        found = []
        for d in self.devices:
            child = self.awaited[d]
            if child < 0 or not self.ready(child):
                continue
            unit = self.unit_of[child]
            start = max(self.tail(d), self.arrival(child, d))
            if unit in self.unit_device:
                stays = self.unit_device[unit] == d
            else:
                others = [e for e in self.devices if e != d and self.tier(unit)[e] == 0]
                stays = self.fits(child, d)
                stays &= all(start <= max(self.tail(e), self.arrival(child, e)) for e in others)
            if not stays:
                self.awaited[d] = -1
            elif start <= best_s:
                found.append((start, d))
        return min(found)[1] if found else -1


def upward_ranks(oracle):
    """{op: rank}, by recursion."""
    problem = oracle.problem
    types = [d.type for d in problem.topology.devices]
    compute = [i for i, t in enumerate(types) if t != "CPU"] or list(range(len(types)))
    pairs = [(a, b) for a in compute for b in compute if a != b]
    memo = {}

    def rank(v):
        if v not in memo:
            tier = oracle.tier(oracle.unit_of[v])
            own = np.mean([oracle.seconds(v, d) for d in oracle.devices if tier[d] == 0])
            after = [0.0]
            for m in oracle.outputs(v):
                mean = np.mean([oracle.transfer_seconds(m, a, b) for a, b in pairs]) if pairs else 0.0
                after += [mean + rank(w) for w in oracle.readers[m]]
            memo[v] = own + max(after)
        return memo[v]

    return {v: rank(v) for v, unit in enumerate(oracle.unit_of) if unit >= 0}
