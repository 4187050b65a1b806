"""Problems with everything an option can make a difference to, and options at random."""

import dataclasses

import numpy as np
from hypothesis import strategies as st

from tfplace.core.device import LINK_OVERHEADS
from tfplace.simulation.options import ORDERS, OVERHEAD_ORDERS, Options
from tfplace.testing.strategies import placed_problems


def with_overheads(problem, overheads):
    """The problem with `overheads[a, b]`, four numbers, on the link from a to b."""
    names = problem.topology.device_names
    links = []
    for link in problem.topology.links:
        four = overheads[names.index(link.src), names.index(link.dst)]
        links.append(dataclasses.replace(link, **dict(zip(LINK_OVERHEADS, four, strict=True))))
    topology = dataclasses.replace(problem.topology, links=tuple(links))
    return dataclasses.replace(problem, topology=topology)


def with_host_memory(problem, ops, shapes=()):
    """The problem with the results of `ops` in host memory and the ops of `shapes` of type "Shape"."""
    graph = problem.graph
    host = np.zeros(graph.num_ops, np.bool_)
    host[list(ops)] = True
    types = tuple("Shape" if v in shapes else kind for v, kind in enumerate(graph.op_types))
    return dataclasses.replace(problem, graph=dataclasses.replace(graph, host_memory=host, op_types=types))


def random_variation(rng, problem):
    """Overheads on most links, many of them 0, and some ops in host memory."""
    devices, ops = problem.num_devices, problem.graph.num_ops
    fixed = rng.choice([0.0, 0.0, 0.25, 0.5, 1.0], (devices, devices, 4))
    fixed[:, :, [1, 3]] *= rng.choice([0.0, 0.001, 0.01], (devices, devices, 2))
    varied = with_overheads(problem, fixed)
    plain = np.isin(problem.graph.op_types, ["MatMul", "Add", "Relu", "Split"])
    shapes = np.flatnonzero(plain & (rng.random(ops) < 0.1))
    return with_host_memory(varied, np.flatnonzero(rng.random(ops) < 0.3), shapes.tolist())


def random_options(rng):
    return Options(
        overheads=bool(rng.random() < 0.8),
        overhead_order=str(rng.choice(OVERHEAD_ORDERS)),
        order=str(rng.choice(ORDERS)),
        seed=int(rng.integers(100)),
        cheap_s=float(rng.choice([0.0, 0.5, 1.0])),
        parallel=int(rng.choice([1, 1, 2, 3, 4])),
        host_copies=bool(rng.random() < 0.5),
    )


@st.composite
def options(draw):
    return Options(
        overheads=draw(st.booleans()),
        overhead_order=draw(st.sampled_from(OVERHEAD_ORDERS)),
        order=draw(st.sampled_from(ORDERS)),
        seed=draw(st.integers(0, 3)),
        cheap_s=draw(st.sampled_from((0.5, 0.0, 1.0))),
        parallel=draw(st.integers(1, 3)),
        host_copies=draw(st.booleans()),
    )


@st.composite
def varied_problems(draw, max_ops=10, max_devices=4):
    """A problem with overheads and host memory, an allowed device for each unit, and options."""
    problem, unit_device = draw(placed_problems(max_ops, max_devices))
    devices = range(problem.num_devices)
    four = st.tuples(*[st.sampled_from(values) for values in ((0.5, 0.0, 1.0), (0.0, 0.01)) * 2])
    varied = with_overheads(problem, {(a, b): draw(four) for a in devices for b in devices if a != b})
    ops = draw(st.sets(st.integers(0, problem.graph.num_ops - 1), max_size=4))
    kinds = tuple(draw(st.sampled_from(("GPU", "CPU"))) for _ in devices)
    typed = tuple(dataclasses.replace(d, type=kind) for d, kind in zip(varied.topology.devices, kinds, strict=True))
    varied = dataclasses.replace(varied, topology=dataclasses.replace(varied.topology, devices=typed))
    return with_host_memory(varied, sorted(ops)), unit_device, draw(options())
