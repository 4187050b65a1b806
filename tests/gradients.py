"""Gradients against differences, and how they are added."""

import itertools

import numpy as np
import pytest

STEP = 2e-3


def assert_gradients(variables, gradients, loss, rng, *, abs_tolerance):
    """Along a random direction of each variable, a gradient is what `loss()` says when that is moved."""
    for variable, gradient in zip(variables, gradients, strict=True):
        value, way = variable.numpy(), rng.standard_normal(variable.shape).astype(np.float32)
        way /= max(float(np.linalg.norm(way)), 1e-9)
        ends = []
        for sign in (1, -1):
            variable.assign(value + sign * STEP * way)
            ends.append(loss())
        variable.assign(value)
        slope = (ends[0] - ends[1]) / (2 * STEP)
        found = float((np.asarray(gradient) * way).sum())
        assert found == pytest.approx(slope, rel=0.05, abs=abs_tolerance), variable.name


def widest_sum(function):
    """Inputs of the AddN that has most, in a traced function and in those that it calls; 0 without any."""
    graph = function.graph.as_graph_def()
    nodes = itertools.chain(graph.node, *(called.node_def for called in graph.library.function))
    return max((node.attr["N"].i for node in nodes if node.op == "AddN"), default=0)
