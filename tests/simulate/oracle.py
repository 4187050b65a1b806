"""A second simulator, plain and slow, written from docs/simulator.md alone. Shares nothing with tfplace.simulate."""

from dataclasses import dataclass

# (op type, output slot or None for every slot) -> the aliased input position; None for the same one
ALIASES = {
    ("Identity", 0): 0,
    ("Reshape", 0): 0,
    ("ReadVariableOp", 0): 0,
    ("StopGradient", 0): 0,
    ("Switch", None): 0,
    ("IdentityN", None): None,
}


@dataclass
class Message:
    """A tensor (slot >= 0) or a completion (slot == -1)."""

    op: int
    slot: int
    size: int
    readers: set
    alias_of: tuple | None = None

    @property
    def key(self):
        return self.op, self.slot


@dataclass
class Transfer:
    message: Message
    src: int
    dst: int
    start: float
    end: float


class Oracle:
    def __init__(self, problem, op_device):
        graph, topology = problem.graph, problem.topology
        self.graph, self.topology, self.problem = graph, topology, problem
        self.where = [int(d) for d in op_device]
        self.devices = range(len(topology.devices))
        self.ops = [v for v in range(graph.num_ops) if not graph.replicable[v]]
        self.messages = self._find_messages()
        self.inputs = {v: {k for k, m in self.messages.items() if v in m.readers} for v in self.ops}
        self.start, self.finish, self.ready = {}, {}, {}
        self.available = {d: set() for d in self.devices}
        self.transfers, self.waiting = [], []
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
        for m in messages.values():
            kind = graph.op_types[m.op]
            for slot in (m.slot, None):
                if m.slot >= 0 and (kind, slot) in ALIASES:
                    position = ALIASES[kind, slot]
                    m.alias_of = sources.get((m.op, m.slot if position is None else position))
        return {k: m for k, m in messages.items() if not graph.replicable[m.op]}

    # ---- time ----------------------------------------------------------------------------------------------------

    def _simulate(self):
        now = 0.0
        self._find_ready(now)
        while True:
            while self._instant(now):
                pass
            later = [f for v, f in self.finish.items() if f > now] + [x.end for x in self.transfers if x.end > now]
            if not later:
                break
            now = min(later)
        assert set(self.finish) == set(self.ops)
        self.step_s = now

    def _instant(self, now):
        """One round of rule 6; whether anything happened."""
        happened = False
        for v in sorted(v for v in self.running() if self.finish[v] == now):
            happened = True
            self.done.add(v)
            for key in self._messages_of(v):
                self._offer(self.messages[key], now)
        for x in [x for x in self.transfers if x.end == now and id(x) not in self.landed]:
            happened = True
            self.landed.add(id(x))
            self.available[x.dst].add(x.message.key)
        self._find_ready(now)
        busy = {self.where[v] for v in self.running()}
        for d in self.devices:
            mine = [(t, v) for v, t in self.ready.items() if self.where[v] == d and v not in self.start]
            if d not in busy and mine:
                happened = True
                v = min(mine)[1]
                self.start[v] = now
                self.finish[v] = now + float(self.problem.costs.compute_s[v, d])
        return happened

    done: set
    landed: set

    def __new__(cls, *_):
        self = super().__new__(cls)
        self.done, self.landed = set(), set()
        return self

    def running(self):
        return [v for v in self.start if v not in self.done]

    def _messages_of(self, v):
        mine = [k for k in self.messages if k[0] == v]
        return sorted(mine, key=lambda k: (k[1] == -1, k[1]))

    def _offer(self, message, now):
        src = self.where[message.op]
        self.available[src].add(message.key)
        for dst in sorted({self.where[r] for r in message.readers} - {src}):
            names = [self.topology.channel_names[c] for c in self.topology.channels[src, dst] if c >= 0]
            start = max([now] + [self.free[name] for name in names])
            trips = float(self.graph.trips[message.op])
            latency = float(self.topology.latency_s[src, dst])
            lasts = trips * latency + trips * message.size / float(self.topology.bandwidth[src, dst])
            for name in names:
                self.free[name] = start + lasts
            self.transfers.append(Transfer(message, src, dst, start, start + lasts))

    def _find_ready(self, now):
        for v in self.ops:
            if v not in self.ready and self.inputs[v] <= self.available[self.where[v]]:
                self.ready[v] = now

    # ---- what comes back -----------------------------------------------------------------------------------------

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
        out = []
        for m in self.messages.values():
            home = self.where[m.op]
            if m.alias_of is None:
                out.append((home, self.start[m.op], self._freed(m, home), m.size))
            out += [(x.dst, x.start, self._freed(m, x.dst), m.size) for x in self.transfers if x.message is m]
        return out

    def _freed(self, m, device):
        ends = [self.finish[r] for r in m.readers if self.where[r] == device]
        if device == self.where[m.op]:
            ends += [self.finish[m.op]] + [x.end for x in self.transfers if x.message is m]
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
        for t in sorted({0.0} | {a for _, a, _, _ in lives} | {b for _, _, b, _ in lives}):
            for d in self.devices:
                now = held[d] + sum(size for where, a, b, size in lives if where == d and a <= t < b)
                if not out[d] or out[d][-1][1] != now:
                    out[d].append((t, now))
        return out
