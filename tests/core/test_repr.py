"""What a person sees at the prompt: one line, however large the graph."""

import numpy as np

from tfplace.search.place import search_placement
from tfplace.testing import random_problem


def test_one_line_each():
    problem = random_problem(np.random.default_rng(0), num_ops=300, num_devices=3)
    placement = search_placement(problem, placer="round_robin", budget=5, baselines=())
    for thing in (placement, placement.timeline(), problem, problem.costs, problem.graph, problem.topology):
        text = repr(thing)
        assert text.startswith(type(thing).__name__)
        assert "\n" not in text
        assert len(text) < 300
    assert "300 ops" in repr(placement.timeline())
