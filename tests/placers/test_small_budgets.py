"""What a budget of one evaluation goes to: the whole model on one accelerator, not on the host beside it."""

from __future__ import annotations

import numpy as np
import pytest

from tfplace.search.place import search_placement
from tfplace.testing import make_graph, make_problem, make_topology


@pytest.mark.parametrize("name", ["auto", "single"])
def test_one_evaluation_goes_to_the_fastest_device(name):
    graph = make_graph(dict.fromkeys("abcdefgh", 100), ["a -> b", "b -> c"], cpu_only=["d"])
    topology = make_topology(3, types=["CPU", "GPU", "GPU"])
    problem = make_problem(graph, topology, np.tile([10.0, 2.0, 1.0], (8, 1)))
    placement = search_placement(problem, placer=name, budget=1)
    assert placement.op_device.tolist() == [2, 2, 2, 0, 2, 2, 2, 2]
    assert placement.cost.key <= placement.best_single[1].key
