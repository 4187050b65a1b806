import numpy as np
import pytest

from tfplace.testing import make_graph, make_problem, make_topology, synthetic


@pytest.mark.parametrize("number", range(10))
def test_candidates_are_as_described(number):
    problem = synthetic.candidate(number)
    assert problem.graph.name == f"synthetic_{number}"
    assert 50 <= problem.graph.num_ops <= 200
    assert problem.num_units == problem.graph.num_ops
    assert problem.num_devices in (2, 4)
    pairs = list(zip(problem.graph.edge_src.tolist(), problem.graph.edge_dst.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    assert 0.8 < len(pairs) / problem.graph.num_ops < 4
    assert problem.costs.compute_s.min() > 0


def test_the_same_number_gives_the_same_problem():
    a, b, c = (synthetic.candidate(n) for n in (3, 3, 8))
    assert a.graph.fingerprint == b.graph.fingerprint != c.graph.fingerprint
    assert a.topology.fingerprint == b.topology.fingerprint
    assert a.costs.fingerprint == b.costs.fingerprint
    np.testing.assert_array_equal(a.memory_limit, b.memory_limit)


@pytest.mark.parametrize("shape", synthetic.SHAPES)
def test_shapes_are_acyclic_without_repetition_at_any_size(shape):
    for ops in (1, 2, 3, 50, 200):
        edges = synthetic.SHAPES[shape](np.random.default_rng(ops), ops)
        assert len(set(edges)) == len(edges)
        assert all(0 <= a < b < ops for a, b in edges)


def test_barabasi_albert_has_hubs_and_blocks_have_few_edges_between():
    rng = np.random.default_rng(0)
    degrees = {s: np.bincount(np.ravel(synthetic.SHAPES[s](rng, 200))) for s in ("barabasi_albert", "watts_strogatz")}
    assert degrees["barabasi_albert"].max() > 2 * degrees["watts_strogatz"].max()


def test_some_memory_is_too_little_for_one_device():
    tight = [p for p in map(synthetic.candidate, range(12)) if p.memory_limit[0] < p.topology.devices[0].memory_bytes]
    assert 0 < len(tight) < 12
    for problem in tight:
        alone = synthetic.Simulator(problem)(synthetic.single_device(problem, 0))
        assert not alone.feasible


def test_a_chain_has_no_headroom():
    chain = make_graph({f"op{i}": 1 for i in range(6)}, [f"op{i} -> op{i + 1}" for i in range(5)])
    assert synthetic.headroom(make_problem(chain, make_topology(2), 1e-3)) == 0


def test_headroom_is_one_where_only_the_search_fits_and_zero_where_nothing_does(monkeypatch):
    keys = {"single": (5, 1.0), "heft": (9, 0.5), "local_search": (0, 2.0)}
    monkeypatch.setattr(synthetic, "CONSTRUCTIVE", ("single", "heft"))
    monkeypatch.setattr(synthetic, "_key", lambda problem, name, budget: keys[name])
    problem = synthetic.candidate(0)
    assert synthetic.headroom(problem) == 1
    keys["local_search"] = (1, 2.0)
    assert synthetic.headroom(problem) == 0
    keys |= {"single": (0, 2.0), "heft": (0, 4.0), "local_search": (0, 1.5)}
    assert synthetic.headroom(problem) == 0.25
    keys["local_search"] = (0, 3.0)
    assert synthetic.headroom(problem) == 0


def test_what_is_kept_passes_the_filter():
    kept = synthetic.kept()
    assert kept["filter"] == {
        "constructive": list(synthetic.CONSTRUCTIVE),
        "search": synthetic.SEARCH,
        "evaluations": synthetic.EVALUATIONS,
        "margin": synthetic.MARGIN,
    }
    assert kept["numbers"] == sorted(set(kept["numbers"]))
    assert max(kept["numbers"]) == kept["tried"] - 1
    assert min(kept["headroom"]) >= synthetic.MARGIN
    for index in (0, 5, 17):  # by how much a search is ahead depends on the search
        assert synthetic.headroom(synthetic.synthetic(index)) >= synthetic.MARGIN


@pytest.mark.slow
def test_most_of_what_is_kept_still_has_room():
    rooms = [synthetic.headroom(synthetic.synthetic(i)) for i in range(synthetic.size())]
    assert sum(room >= synthetic.MARGIN for room in rooms) >= 0.9 * len(rooms)


def test_a_quarter_is_for_testing():
    train, test = synthetic.split()
    assert sorted(train + test) == list(range(synthetic.size()))
    assert len(test) == synthetic.size() // 4
    with pytest.raises(IndexError):
        synthetic.synthetic(synthetic.size())
