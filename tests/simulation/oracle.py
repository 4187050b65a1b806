"""A second simulator, plain and slow, written from docs/reference alone (Simulated time, phases, memory).

Shares nothing with tfplace.simulate.
"""

from dataclasses import dataclass, field

import numpy as np

# (op type, output slot or None for every slot) -> the aliased input position; None for the same one
ALIASES = {
    ("Identity", 0): 0,
    ("Reshape", 0): 0,
    ("ReadVariableOp", 0): 0,
    ("StopGradient", 0): 0,
    ("Switch", None): 0,
    ("LoopCond", 0): 0,
    ("Exit", 0): 0,
    ("IdentityN", None): None,
}

# op type -> input positions that output 0 may take over
FORWARDS = {"Add": (0, 1), "Relu": (0,), "SelectV2": (1, 2)}
HELD = {"Const", "Placeholder"}
KEEPS = {"AssignVariableOp"}
WRITES = {"AssignVariableOp", "AssignSubVariableOp"}
WRITES_ROWS = {"ResourceScatterAdd"}

# of the op types that tests use: input positions a kernel takes from host memory
FROM_HOST = {("Reshape", 1), ("Split", 0), ("Switch", 1)}
WITHOUT_DATA = {"Shape"}
HANDLES = {"resource", "variant", "string"}


@dataclass
class Message:
    """A tensor (slot >= 0) or a completion (slot == -1)."""

    op: int
    slot: int
    size: int
    readers: set
    alias_of: tuple | None = None
    offers: list = field(default_factory=list)  # messages whose memory it may take over
    variable: int | None = None  # whose handle it is
    read_of: int | None = None  # the variable whose memory it is
    held: bool = False  # until the step ends
    crossing: set = field(default_factory=set)  # readers that want it in the other memory

    @property
    def key(self):
        return self.op, self.slot


@dataclass
class Transfer:
    message: Message
    src: int
    dst: int
    copy: bool
    number: int  # in the order of requests
    order: int = -1  # on the wire
    start: float = -1.0
    end: float = -1.0
    landed: bool = False


@dataclass
class Work:
    transfer: Transfer
    seconds: float
    asked: float


@dataclass
class Place:
    """Where a task runs: an op (int) or Work."""

    task: object = None
    finish: float = float("inf")
    tasks: int = 1  # for which `finish` holds
    kept: list = field(default_factory=list)  # ops to run next, "inline"


class Device:
    def __init__(self, options):
        self.places = [Place() for _ in range(options.parallel)]
        self.interrupt = Place()
        self.waiting = []  # Work
        self.ready = []  # ops; for "inline" the pool in its order
        self.available = set()  # keys of messages
        self.copied = set()  # keys of messages of its own that are available in its other memory too
        self.work_s = 0.0

    @property
    def everywhere(self):
        return [*self.places, self.interrupt]

    @property
    def running(self):
        return [place for place in self.places if place.task is not None]


class Oracle:
    def __init__(self, problem, op_device, options, phases=None):
        graph, topology = problem.graph, problem.topology
        self.graph, self.topology, self.problem, self.options = graph, topology, problem, options
        self.where = [int(d) for d in op_device]
        self.devices = range(len(topology.devices))
        self.state = [Device(options) for _ in self.devices]
        self.ops = [v for v in range(graph.num_ops) if not graph.replicable[v]]
        self.phases, self.parked, self.remains = phases, [], {}
        self.rank = np.random.default_rng(options.seed).permutation(graph.num_ops)
        self.messages = self._find_messages()
        self.inputs = {v: [k for k, m in self.messages.items() if v in m.readers] for v in self.ops}
        self.start, self.finish, self.ready = {}, {}, {}
        self.copied, self.copies = {}, []  # variable -> since when; (device, from, until, bytes)
        self.transfers, self.wired = [], 0
        self.free = dict.fromkeys(topology.channel_names, 0.0)
        self._simulate()

    def _find_messages(self):
        graph = self.graph
        messages = {}
        for t in range(graph.num_tensors):
            op, slot = int(graph.tensor_op[t]), int(graph.tensor_slot[t])
            size = 0 if graph.op_types[op] == "VariableV2" else int(graph.tensor_bytes[t])
            messages[op, slot] = Message(op, slot, size, set())
        sources = {}
        for e in range(graph.num_edges):
            src, dst, tensor = int(graph.edge_src[e]), int(graph.edge_dst[e]), int(graph.edge_tensor[e])
            if graph.edge_back[e] or graph.replicable[src] or graph.replicable[dst]:
                continue
            if tensor < 0:
                messages.setdefault((src, -1), Message(src, -1, 0, set())).readers.add(dst)
            else:
                key = src, int(graph.tensor_slot[tensor])
                messages[key].readers.add(dst)
                sources[dst, int(graph.edge_slot[e])] = key
                if self._crosses(e):
                    messages[key].crossing.add(dst)
        for v in [v for v in range(graph.num_ops) if graph.op_types[v] == "LoopCond"]:
            messages[v, 0].readers |= self._body(v)
        tensors = [m for _, m in sorted(messages.items()) if m.slot >= 0]
        for m in tensors:
            if any(variable.op == m.op for variable in graph.variables):
                m.variable = m.op
        # what an op reads in loops counts here too
        data = np.flatnonzero(graph.edge_tensor >= 0).tolist()
        reads = {(int(graph.edge_dst[e]), int(graph.edge_slot[e])): e for e in data}
        handles = {}  # op -> variables whose handles it reads
        for (op, position), e in reads.items():
            key = int(graph.edge_src[e]), int(graph.tensor_slot[graph.edge_tensor[e]])
            if messages[key].variable is not None:
                handles.setdefault(op, {})[position] = messages[key].variable
        self.handles = handles
        self.scattered = {
            w for op, found in handles.items() if graph.op_types[op] in WRITES_ROWS for w in found.values()
        }
        for m in tensors:
            kind = graph.op_types[m.op]
            first = handles.get(m.op, {}).get(0)
            copies = kind == "ReadVariableOp" and first in self.scattered
            for slot in (m.slot, None):
                if (kind, slot) in ALIASES and not copies:
                    position = ALIASES[kind, slot]
                    m.alias_of = sources.get((m.op, m.slot if position is None else position))
            if kind == "ReadVariableOp" and m.alias_of is not None:
                m.read_of = messages[m.alias_of].variable
            m.held = kind in HELD and m.alias_of is None

        def root(m):
            return m if m.alias_of is None else root(messages[m.alias_of])

        kept = {root(messages[key]).key for (op, _), key in sources.items() if graph.op_types[op] in KEEPS}
        for m in tensors:
            kind = graph.op_types[m.op]
            for position in FORWARDS.get(kind, ()) if m.slot == 0 and m.size else ():
                offered = messages.get(sources.get((m.op, position)))
                if offered is None or offered.size != m.size:
                    continue
                base = root(offered)
                of_variable = base.variable is not None or graph.op_types[base.op] == "VariableV2"
                same_memory = graph.host_memory[offered.op] == graph.host_memory[m.op]
                if not of_variable and base.key not in kept and same_memory:
                    m.offers.append(offered)
        return {k: m for k, m in messages.items() if not graph.replicable[m.op]}

    def _body(self, v):
        """What comes after an op, up to the exits of its loop."""
        graph, found = self.graph, set()
        for u in graph.edge_dst[(graph.edge_src == v) & ~graph.edge_back].tolist():
            if graph.op_types[u] != "Exit" and not graph.replicable[u]:
                found |= {u} | self._body(u)
        return found

    # ---- who holds what ------------------------------------------------------------------------------------------

    def _holders(self, m, d):
        """How many hold the copy of a message on a device."""
        count = sum(self.where[r] == d and r not in self.finish for r in m.readers)
        if self.where[m.op] == d:
            count += (m.op not in self.finish) + m.held
            count += sum(x.message is m and not x.landed for x in self.transfers)
        return count + sum(
            a.alias_of == m.key and self.where[a.op] == d and a.op in self.start and self._holders(a, d) > 0
            for a in self.messages.values()
        )

    def _take_over(self, m):
        """Makes a message that an op makes now an alias of what only the op itself still holds."""
        d = self.where[m.op]
        for offered in m.offers:
            held = offered
            while self._holders(held, d) == 1:
                if self.where[held.op] != d or held.alias_of is None:
                    m.alias_of = offered.key
                    return
                held = self.messages[held.alias_of]

    def _is_read(self, variable):
        d = self.where[variable]
        return any(
            m.read_of == variable and self.where[m.op] == d and m.op in self.start and self._holders(m, d) > 0
            for m in self.messages.values()
        )

    def _allocate(self, v, now):
        if self.graph.op_types[v] in WRITES:
            for w in set(self.handles.get(v, {}).values()):
                if self.where[w] == self.where[v] and self._is_read(w):
                    self.copied.setdefault(w, now)
        for m in self.messages.values():
            if m.op == v:
                self._take_over(m)

    def _let_go(self, now):
        for w in [w for w in self.copied if not self._is_read(w)]:
            self.copies.append((self.where[w], self.copied.pop(w), now, self._bytes_of(w)))

    def _bytes_of(self, variable):
        return sum(v.size_bytes for v in self.graph.variables if v.op == variable)

    def _crosses(self, e):
        """Whether a data edge goes from one of a device's two memories to the other."""
        graph, src, dst = self.graph, self.graph.edge_src[e], self.graph.edge_dst[e]
        kind = graph.op_types[dst]
        if kind in WITHOUT_DATA or graph.tensor_dtype[graph.edge_tensor[e]] in HANDLES:
            return False
        from_host = graph.host_memory[dst] or (kind, int(graph.edge_slot[e])) in FROM_HOST
        return bool(graph.host_memory[src]) != bool(from_host)

    def _host(self, d):
        """The device whose memory is the second one of d, or None."""
        types = [device.type for device in self.topology.devices]
        if not self.options.host_copies or types[d] == "CPU" or "CPU" not in types:
            return None
        return types.index("CPU")

    # ---- time ----------------------------------------------------------------------------------------------------

    def _simulate(self):
        now = 0.0
        for v in self.ops:
            if not self.inputs[v] and not self._parks(v):
                self._is_ready(v, now)
        while True:
            while self._instant(now):
                pass
            self._share(now)
            ends = [place.finish for state in self.state for place in state.everywhere if place.task is not None]
            ends += [x.end for x in self.transfers if x.order >= 0 and not x.landed]
            if not ends:
                break
            now = min(ends)
        assert set(self.finish) == set(self.ops) or self.parked
        self.step_s = float("inf") if self.parked else now

    def _instant(self, now):
        """One round of rule 6; whether anything happened."""
        ended = [(d, place) for d in self.devices for place in self.state[d].everywhere]
        ended = [(d, place, place.task) for d, place in ended if place.task is not None and place.finish == now]
        for _, place, _ in ended:
            place.task = None
        for d, place, v in sorted((end for end in ended if isinstance(end[2], int)), key=lambda end: end[2]):
            self._finish(d, place, v, now)
        works = [(work.transfer, d) for d, _, work in ended if isinstance(work, Work)]
        for x, d in sorted(works, key=lambda end: end[0].number):
            if d == x.src:
                self._wire(x, now)
            else:
                self._deliver(x, now)
        landing = [x for x in self.transfers if x.order >= 0 and x.end == now and not x.landed]
        for x in sorted(landing, key=lambda x: x.order):
            x.landed = True
            if not self._ask_for_work(x, x.dst, now):
                self._deliver(x, now)
            self._let_go(now)
        started = [self._fill(d, now) for d in self.devices]
        return bool(ended) or bool(landing) or any(started)

    def _finish(self, d, place, v, now):
        self._pass_on(d, place, v, now)
        self.finish[v] = now
        for u in [u for u in reversed(self.parked) if not self._waits(u)]:
            self.parked.remove(u)
            self._is_ready(u, now)
        self._let_go(now)

    def _pass_on(self, d, place, v, now):
        expensive = []
        for key in sorted((k for k in self.messages if k[0] == v), key=lambda k: (k[1] == -1, k[1])):
            message = self.messages[key]
            self.state[d].available.add(key)
            host = self._host(d)
            for u in self._made_ready(message, d, message.readers - message.crossing if host is not None else None):
                if self._parks(u):
                    continue
                if self.options.order != "inline":
                    self._is_ready(u, now)
                    continue
                self.ready[u] = now
                if self._cheap(u, d):
                    place.kept.append(u)
                else:
                    expensive.append(u)
            if host is not None and any(self.where[r] == d for r in message.crossing):
                ends = (host, d) if self.graph.host_memory[v] else (d, host)
                self._request(message, *ends, True, now)
            for dst in sorted({self.where[r] for r in message.readers} - {d}):
                self._request(message, d, dst, False, now)
        if expensive and not place.kept:
            place.kept.append(expensive.pop())
        for u in expensive:
            self.state[d].ready.insert(0, u)

    def _cheap(self, v, d):
        seconds = float(self.problem.costs.compute_s[v, d])
        return self.topology.devices[d].type != "CPU" or seconds <= self.options.cheap_s * float(self.graph.trips[v])

    def _made_ready(self, message, d, readers=None):
        """Ops on d that wait for nothing more, now that this message is available to some of its readers."""
        readers = message.readers if readers is None else readers
        return [r for r in sorted(readers) if self.where[r] == d and r not in self.ready and self._has_all(r)]

    def _has_all(self, v):
        d = self.where[v]
        state = self.state[d]
        for key in self.inputs[v]:
            message = self.messages[key]
            crosses = self.where[message.op] == d and self._host(d) is not None and v in message.crossing
            if key not in (state.copied if crosses else state.available):
                return False
        return True

    def _waits(self, v):
        """Whether an op of an earlier phase has not finished on the device of v."""
        if self.phases is None or self.phases[v] < 0:
            return False
        before = [u for u in self.ops if self.where[u] == self.where[v] and 0 <= self.phases[u] < self.phases[v]]
        return any(u not in self.finish for u in before)

    def _parks(self, v):
        if self._waits(v):
            self.parked.append(v)
        return v in self.parked

    def _is_ready(self, v, now):
        self.ready[v] = now
        self.state[self.where[v]].ready.append(v)

    def _request(self, message, src, dst, copy, now):
        x = Transfer(message, src, dst, copy, len(self.transfers))
        self.transfers.append(x)
        if not self._ask_for_work(x, src, now):
            self._wire(x, now)

    def _ask_for_work(self, x, d, now):
        if x.copy or not self.options.overheads:
            return False
        send_s, send_s_per_byte, receive_s, receive_s_per_byte = self.topology.link_overheads[:, x.src, x.dst].tolist()
        trips = float(self.graph.trips[x.message.op])
        if d == x.src:
            seconds = trips * send_s + trips * x.message.size * send_s_per_byte
        else:
            seconds = trips * receive_s + trips * x.message.size * receive_s_per_byte
        if seconds > 0:
            self.state[d].waiting.append(Work(x, seconds, now))
        return seconds > 0

    def _wire(self, x, now):
        names = [self.topology.channel_names[c] for c in self.topology.channels[x.src, x.dst] if c >= 0]
        trips = float(self.graph.trips[x.message.op])
        latency = float(self.topology.latency_s[x.src, x.dst])
        lasts = trips * latency + trips * x.message.size / float(self.topology.bandwidth[x.src, x.dst])
        x.start = max([now] + [self.free[name] for name in names])
        x.end = x.start + lasts
        x.order = self.wired
        self.wired += 1
        for name in names:
            self.free[name] = x.end

    def _deliver(self, x, now):
        d = self.where[x.message.op] if x.copy else x.dst
        (self.state[d].copied if x.copy else self.state[d].available).add(x.message.key)
        for v in self._made_ready(x.message, d, x.message.crossing if x.copy else None):
            if not self._parks(v):
                self._is_ready(v, now)

    # ---- what a device does next ---------------------------------------------------------------------------------

    def _fill(self, d, now):
        """Starts what device d can start; whether anything."""
        state, started = self.state[d], False
        if self.options.overhead_order == "preempt":
            if state.interrupt.task is None and state.waiting:
                started = True
                self._share_device(state, now)
                self._start_work(state, state.interrupt, now)
                for place in state.running:
                    place.finish += state.interrupt.task.seconds
            if state.interrupt.task is not None:
                return started
        for place in state.places:
            if place.task is None:
                started |= self._start_next(state, place, now)
        return started

    def _start_next(self, state, place, now):
        v = self._next_op(state, place)
        if state.waiting and (
            self.options.overhead_order == "first" or v is None or state.waiting[0].asked <= self.ready[v]
        ):
            self._start_work(state, place, now)
            return True
        if v is None:
            return False
        (place.kept if v in place.kept else state.ready).remove(v)
        self._allocate(v, now)
        self.start[v] = now
        self._start(place, v, float(self.problem.costs.compute_s[v, self.where[v]]), now)
        return True

    def _next_op(self, state, place):
        order = self.options.order
        if order == "inline":
            return next(iter(place.kept + state.ready), None)
        keys = {
            "fifo": lambda v: (self.ready[v], v),
            "lifo": lambda v: (-self.ready[v], v),
            "random": lambda v: self.rank[v],
            "critical_path": lambda v: (-self._remains(v), v),
        }
        return min(state.ready, key=keys[order], default=None)

    def _remains(self, v):
        graph, seconds = self.graph, self.problem.costs.compute_s.min(axis=1)
        if v not in self.remains:
            after = graph.edge_dst[(graph.edge_src == v) & ~graph.edge_back].tolist()
            own = [0.0 if graph.replicable[u] else float(seconds[u]) for u in after]
            self.remains[v] = max((s + self._remains(u) for s, u in zip(own, after, strict=True)), default=0.0)
        return self.remains[v]

    def _start_work(self, state, place, now):
        work = state.waiting.pop(0)
        state.work_s += work.seconds
        self._start(place, work, work.seconds, now)

    def _start(self, place, task, seconds, now):
        place.task, place.finish, place.tasks = task, now + seconds, 1

    def _share(self, now):
        for state in self.state:
            self._share_device(state, now)

    def _share_device(self, state, now):
        tasks = len(state.running)
        for place in state.running:
            if place.tasks != tasks:
                place.finish = now + (place.finish - now) * tasks / place.tasks
                place.tasks = tasks

    # ---- what comes back -----------------------------------------------------------------------------------------

    @property
    def work_s(self):
        return [state.work_s for state in self.state]

    @property
    def compute_s(self):
        seconds = self.problem.costs.compute_s
        return [sum(float(seconds[v, d]) for v in self.ops if self.where[v] == d) for d in self.devices]

    @property
    def transfer_s(self):
        return [self._union([(x.start, x.end) for x in self.transfers if d in (x.src, x.dst)]) for d in self.devices]

    @staticmethod
    def _union(intervals):
        total, reach = 0.0, 0.0
        for start, end in sorted(intervals):
            total += max(0.0, end - max(start, reach))
            reach = max(reach, end)
        return total

    @property
    def moved(self):
        return [round(float(self.graph.trips[x.message.op]) * x.message.size) for x in self.transfers]

    def lifetimes(self):
        """(device, from, until, bytes) of every copy of every tensor."""
        assert not self.copied
        out = [*self.copies]
        for v in self.ops:
            written = set(self.handles.get(v, {}).values()) if self.graph.op_types[v] in WRITES else set()
            workspace = sum(self._bytes_of(w) for w in written & self.scattered)
            out.append((self.where[v], self.start[v], self.finish[v], workspace))
        for m in self.messages.values():
            home = self.where[m.op]
            if m.alias_of is None:
                out.append((home, self.start[m.op], self._freed(m, home), m.size))
            mine = [x for x in self.transfers if x.message is m and not x.copy]
            out += [(x.dst, x.start, self._freed(m, x.dst), m.size) for x in mine]
        return out

    def _freed(self, m, device):
        ends = [self.finish[r] for r in m.readers if self.where[r] == device]
        if device == self.where[m.op]:
            ends += [self.finish[m.op]] + [x.end for x in self.transfers if x.message is m]
        if m.held and device == self.where[m.op]:
            return float("inf")
        aliases = [a for a in self.messages.values() if a.alias_of == m.key and self.where[a.op] == device]
        return max(ends + [self._freed(a, device) for a in aliases])

    def memory(self):
        """[D] lists of (time, bytes from then on), at time 0 and at each change."""
        lives = self.lifetimes()
        held = [0] * len(self.devices)
        for variable in self.graph.variables:
            if not self.graph.replicable[variable.op]:
                held[self.where[variable.op]] += variable.size_bytes
        out = [[] for _ in self.devices]
        for t in sorted({0.0} | {a for _, a, _, _ in lives} | {b for _, _, b, _ in lives} - {float("inf")}):
            for d in self.devices:
                now = held[d] + sum(size for where, a, b, size in lives if where == d and a <= t < b)
                if not out[d] or out[d][-1][1] != now:
                    out[d].append((t, now))
        return out
