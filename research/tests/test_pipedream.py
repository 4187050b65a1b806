"""Layer profiles in PipeDream's format: what is read of them, and between which states stages are cut."""

import numpy as np
import pytest

from research.benchmarks.pipedream.profile import read_profile, states_of
from tfplace.errors import SourceError

ROWS = (
    "node1 -- Input -- forward_compute_time=9.0, backward_compute_time=0.0, activation_size=99.0, parameter_size=0.0",
    "node2 -- Conv2d(3, 64, kernel_size=(3, 3)) -- forward_compute_time=1.0, backward_compute_time=2.0, "
    "activation_size=8.0, parameter_size=16.000",
    "node3 -- LSTM(8, 8) -- forward_compute_time=0.5, backward_compute_time=0.5, activation_size=[4.0; 2.0], "
    "parameter_size=32.000",
    "node4 -- ReLU() -- forward_compute_time=1.0, backward_compute_time=0.0, activation_size=5.0, parameter_size=0.0",
    "node5 -- Add -- forward_compute_time=0.0, backward_compute_time=1.0, activation_size=1.0, parameter_size=0.0",
    "node6 -- __getitem__(1) -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=7.0, "
    "parameter_size=0.0 -- stage_id=1",
)
EDGES = ((1, 2), (2, 3), (2, 4), (3, 5), (4, 5), (3, 6))


def profile(tmp_path, rows=ROWS, edges=EDGES):
    path = tmp_path / "made.txt"
    path.write_text("\n".join([*rows, *(f"\tnode{a} -- node{b}" for a, b in edges)]))
    return read_profile(path)


def test_nodes_and_edges_are_read(tmp_path):
    found = profile(tmp_path)
    assert [round(node.seconds * 1e3, 6) for node in found.nodes] == [9.0, 3.0, 1.0, 1.0, 1.0, 0.0]
    assert [node.activation_bytes for node in found.nodes] == [99, 8, 6, 5, 1, 7]
    assert found.edges == tuple((a - 1, b - 1) for a, b in EDGES)


def test_states_grow_by_one_successor_and_all_before_it(tmp_path):
    """2; 2 3; 2 4; 2 3 4; all: without the input and without what nothing reads."""
    states = states_of(profile(tmp_path))
    np.testing.assert_allclose(states.seconds * 1e3, [3, 4, 4, 5, 6])
    np.testing.assert_allclose(states.parameter_bytes, [16, 48, 16, 48, 48])
    np.testing.assert_allclose(states.output_bytes, [8, 14, 13, 19, 1])  # node 2 counts until node 5 is there
    np.testing.assert_array_equal(states.within[:, 3], [True, True, True, False, False])
    assert not states.within[1, 2]


@pytest.mark.parametrize(
    "rows, edges",
    [
        ((), ()),
        ((ROWS[0], "node2 -- Conv2d"), ()),
        ((ROWS[0], ROWS[1].replace("2.0,", "two,")), ()),
        ((ROWS[0], ROWS[1].replace("16.000", "-16")), ()),
        ((ROWS[0], ROWS[0]), ()),
        (ROWS, [(1, 7)]),
        (ROWS, [(2, 3), (3, 2)]),
    ],
)
def test_damaged_files_are_refused(tmp_path, rows, edges):
    with pytest.raises(SourceError):
        profile(tmp_path, rows, edges)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SourceError, match="gone"):
        read_profile(tmp_path / "gone.txt")
