"""Equal replicas of a step on the devices of equal hosts: their pieces, and all messages between them, simulated.

Each variable has an owner among the devices that read it, which holds its slots, adds the replicas' gradients up and
updates it; at the start of a step it sends the value to all. That moves as much as a reduce-scatter and an all-gather
of whole variables (`data_parallel`; M. Li et al., OSDI 2014; the first stage of ZeRO, S. Rajbhandari et al., SC 2020).
It is no ring of NCCL's: a variable is sent in one message and not in chunks, so that a large one takes longer.

`FLAT` has every device send to the owner and be sent to by it, which is what `data_parallel` places; over a network
card that all devices of a host share this sends each variable as often as there are devices. `BY_HOST` adds gradients
up on one device of each host first, and sends a value to one device of each host, which passes it on: reduce-scatter
within hosts, exchange between them and all-gather within (A. Sergeev and M. Del Balso: Horovod, 2018, section 4), with
whole variables for chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.stepcost import StepCost
from tfplace.core.topology import Topology
from tfplace.simulation.pieces import Pieces
from tfplace.simulation.replica import Kind, Message, Replica

FLAT, BY_HOST = "flat", "by host"
"""How replicas exchange what they share."""


@dataclass(frozen=True, eq=False)
class Hosts:
    """Equal hosts.

    Attributes:
      topology: all devices.
      devices: [H, A] the accelerators of each host, or its devices if it has none.
      cpu: [H] a CPU of each, or its first device where it has none.
    """

    topology: Topology
    devices: IntArray
    cpu: IntArray

    @property
    def count(self) -> int:
        """H."""
        return len(self.devices)

    @property
    def size(self) -> int:
        """A."""
        return int(self.devices.shape[1])

    def part(self, width: int) -> Topology:
        """The devices of a replica on `width` accelerators: the first of the first host, with its CPU."""
        chosen = {int(self.cpu[0]), *self.devices[0, :width].tolist()}
        return self.topology.part(sorted(chosen), f"{width} of {self.topology.name}")

    def beside(self, device: int, host: int) -> int:
        """The device of a host that is there what `device` is in its own."""
        inside = np.argwhere(self.devices == device)
        return int(self.devices[host, inside[0, 1]] if len(inside) else self.cpu[host])


class Layout:
    """Where replicas are, and what they share.

    Args:
      replica: one of them, on devices of `Hosts.part`.
      hosts: the devices.
      count: of replicas; they fill one host after the other.
      inputs_on_cpu: whether what is no replica's and goes with no variable, such as inputs, is on a host's CPU, or on
        its first accelerator.
    """

    def __init__(self, replica: Replica, hosts: Hosts, count: int, *, inputs_on_cpu: bool = True) -> None:
        self.replica, self.hosts, self.count = replica, hosts, count
        names = replica.problem.topology.device_names
        inside = [hosts.topology.device_names[d] for d in hosts.devices[0].tolist()]
        self._number = {d: inside.index(name) for d, name in enumerate(names) if name in inside}
        self.width = len(self._number)
        self.per_host = hosts.size // self.width
        self.inputs = hosts.cpu if inputs_on_cpu else hosts.devices[:, 0]
        self.host_of = [r // self.per_host for r in range(count)]

    def device(self, d: int, r: int) -> int:
        """Device of the topology that replica r has for device d of its own."""
        h = self.host_of[r]
        if d not in self._number:
            return int(self.hosts.cpu[h])
        return int(self.hosts.devices[h, (r % self.per_host) * self.width + self._number[d]])

    @cached_property
    def owner(self) -> Mapping[int, int]:
        """Variable -> the device that owns it; the largest first, each to the device that holds least."""
        held: dict[int, int] = {}
        chosen = {}
        for weight, size in sorted(self.replica.size_bytes.items(), key=lambda item: -item[1]):
            devices = [self.device(self.replica.home[weight], r) for r in range(self.count)]
            chosen[weight] = min(devices, key=lambda d: held.get(d, 0))
            held[chosen[weight]] = held.get(chosen[weight], 0) + size
        return chosen


def simulate_replicas(replica: Replica, hosts: Hosts, count: int, exchange: str = BY_HOST) -> StepCost:
    """A step of equal replicas, each with its part of the batch.

    Inputs are on the CPU of each host. If all exchange is `FLAT`, they are on that of the first host, or on its first
    accelerator, whichever is better, as `data_parallel` tries. Memory is not simulated: peaks are 0.

    Args:
      replica: one of them.
      hosts: the devices.
      count: of replicas.
      exchange: `FLAT` or `BY_HOST`.
    """
    costs = []
    for on_cpu in (True, False) if exchange == FLAT else (True,):
        pieces = _Step(Layout(replica, hosts, count, inputs_on_cpu=on_cpu), exchange).pieces
        costs.append(pieces.cost(hosts.topology))
    best = min(costs, key=lambda cost: cost.step_s)
    return replace(best, peak_bytes=np.zeros_like(best.peak_bytes))


class _Step:
    """All pieces of all replicas, written one by one, and the messages between them."""

    def __init__(self, layout: Layout, exchange: str) -> None:
        self.layout, self.replica = layout, layout.replica
        self.by_host = exchange == BY_HOST
        self.pieces = Pieces()
        self._of: dict[tuple[int, int], int] = {}
        self._relays: dict[tuple[int, int, int], int] = {}
        self._local_inputs = self._per_host()
        for n, kind in enumerate(self.replica.kind.tolist()):
            if kind == Kind.OWN:
                for r in range(layout.count):
                    self._of[n, r] = self._piece(n, layout.device(int(self.replica.device[n]), r))
            elif kind == Kind.LOOKUP:
                self._look_up(n)
            elif n in self._local_inputs:
                for h in sorted(set(layout.host_of)):
                    self._of[n, h] = self._piece(n, int(layout.inputs[h]))
            elif kind != Kind.SUM:
                self._of[n, -1] = self._piece(n, self._home(n))
        into = {n: [] for n in np.flatnonzero(self.replica.kind == Kind.SUM).tolist()}  # type: dict[int, list[Message]]
        for message in self.replica.messages:
            if message.reader in into:
                into[message.reader].append(message)
        for n, messages in into.items():
            self._sum(n, messages)
        for message in self.replica.messages:
            if message.reader not in into:
                self._deliver(message)
        self._chain()

    def _per_host(self) -> set[int]:
        """Pieces of which each host has its own: what inputs are made of, which go with no variable."""
        one = self.replica
        return set(np.flatnonzero((one.kind == Kind.GIVEN) & (one.weight < 0)).tolist()) if self.by_host else set()

    def _home(self, n: int) -> int:
        """Device of a piece that stands once."""
        weight = int(self.replica.weight[n])
        return int(self.layout.inputs[0]) if weight < 0 else self.layout.owner[weight]

    def _piece(self, n: int, device: int) -> int:
        rank, phase = int(self.replica.rank[n]), int(self.replica.phase[n])
        return self.pieces.add(self._seconds(n, device), device, rank, phase)

    def _seconds(self, n: int, device: int) -> float:
        """Seconds of a piece on a device of the topology, by one of the replica's devices of that type."""
        types = [one.type for one in self.replica.problem.topology.devices]
        wanted = self.layout.hosts.topology.devices[device].type
        own = int(self.replica.device[n])
        return float(self.replica.seconds[n, own if types[own] == wanted else types.index(wanted)])

    def _look_up(self, n: int) -> None:
        """Rows of a table where that is; or on a device of each host, if it is smaller than all rows of the host."""
        layout, home, one = self.layout, self._home(n), self.replica
        rows = sum(m.size_bytes for m in one.messages if m.maker == n)
        table = max(m.size_bytes for m in one.messages if m.reader == n and one.kind[m.maker] == Kind.GIVEN)
        apart = self.by_host and layout.per_host * rows > table
        for r in range(layout.count):
            device = layout.hosts.beside(home, layout.host_of[r]) if apart else home
            self._of[n, r] = self._piece(n, device)

    def _sum(self, n: int, messages: list[Message]) -> None:
        """The sum of every replica's tensor; by host, first of the tensors of each host."""
        hosts, home = self.layout.hosts, self._home(n)
        tensor, size = messages[0].tensor, messages[0].size_bytes
        terms = [[self._of[m.maker, r] for m in messages] for r in range(self.layout.count)]
        at_home = hosts.topology.hosts[home]
        read: list[int] = []
        for h in sorted(set(self.layout.host_of)):
            here = [op for r, ops in enumerate(terms) if self.layout.host_of[r] == h for op in ops]
            if self.by_host and h != at_home and len(here) > 1:
                here = [self._added(n, here, tensor, size, hosts.beside(home, h))]
            read += here
        self._of[n, -1] = self._added(n, read, tensor, size, home)

    def _added(self, n: int, terms: list[int], tensor: int, size: float, device: int) -> int:
        """An op that reads some tensors and writes their sum, as long as memory takes for that."""
        of = self.layout.hosts.topology.devices[device]
        seconds = of.op_overhead_s + (len(terms) + 1) * size / of.memory_bandwidth
        added = self.pieces.add(seconds, device, int(self.replica.rank[n]))
        for term in terms:
            self.pieces.read(added, term, tensor, size)
        return added

    def _deliver(self, message: Message) -> None:
        """Has the reader, or its copies, read what the maker, or the copy of it there, makes."""
        kind, maker, reader = self.replica.kind, message.maker, message.reader
        own = kind[reader] in (Kind.OWN, Kind.LOOKUP)
        if kind[maker] in (Kind.OWN, Kind.LOOKUP):
            pairs = [
                (self._of[reader, r] if own else self._of[reader, -1], self._of[maker, r])
                for r in range(self.layout.count)
            ]
        elif own:
            hosts = self.layout.hosts.topology.hosts
            readers = [self._of[reader, r] for r in range(self.layout.count)]
            pairs = [(op, self._source(message, hosts[self.pieces.device[op]])) for op in readers]
        elif reader in self._local_inputs:
            pairs = [(self._of[reader, h], self._source(message, h)) for h in sorted(set(self.layout.host_of))]
        else:
            pairs = [(self._of[reader, -1], self._of.get((maker, -1), self._of.get((maker, 0), -1)))]
        for to, source in pairs:
            self.pieces.read(to, source, message.tensor, message.size_bytes)

    def _source(self, message: Message, host: int) -> int:
        """The op from which devices of a host read what stands once: itself, or by host one that passes it on there."""
        if message.maker in self._local_inputs:
            return self._of[message.maker, host]
        maker = self._of[message.maker, -1]
        hosts, device = self.layout.hosts, self.pieces.device[maker]
        if not self.by_host or hosts.topology.hosts[device] == host:
            return maker
        key = (maker, message.tensor, host)
        if key not in self._relays:
            there = hosts.beside(device, host)
            seconds = hosts.topology.devices[there].op_overhead_s
            relay = self.pieces.add(seconds, there, int(self.replica.rank[message.maker]))
            self.pieces.read(relay, maker, message.tensor, message.size_bytes)
            self._relays[key] = relay
        return self._relays[key]

    def _chain(self) -> None:
        """Each cluster of a device's own after the one before."""
        one = self.replica
        own = np.flatnonzero(one.kind == Kind.OWN) if one.whole else np.zeros(0, np.int64)
        for before, after in zip(own[:-1].tolist(), own[1:].tolist(), strict=True):
            if one.device[before] == one.device[after]:
                for r in range(self.layout.count):
                    self.pieces.read(self._of[after, r], self._of[before, r], -1, 0.0)
