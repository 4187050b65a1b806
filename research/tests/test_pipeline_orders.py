"""The study of orders of a pipeline's slices: what it makes of traced memory, and what its table says."""

from types import SimpleNamespace

from research.benchmarks.pipeline_orders import ONE, held_bytes, text


def part(device, *nodes):
    """Records of a device: for each op its changes as (microsecond, bytes)."""
    stats = [
        SimpleNamespace(
            memory=[
                SimpleNamespace(allocation_records=[SimpleNamespace(alloc_micros=t, alloc_bytes=b) for t, b in changes])
            ]
        )
        for changes in nodes
    ]
    return SimpleNamespace(device=device, node_stats=stats)


def test_held_is_the_most_at_a_time_on_each_device():
    first = part("a", [(1, 100), (5, -100)], [(2, 30), (3, -30)], [(5, 50), (9, -50)])
    parts = [first, part("b", [(4, 70)]), part("other", [(1, 9)])]
    metadata = SimpleNamespace(step_stats=SimpleNamespace(dev_stats=parts))
    assert held_bytes(metadata, ["a", "b", "idle"]) == [130, 70, 0]


def test_the_table_has_ratios_to_one_worker_and_bytes_of_both():
    one = {"measured": [1.0] * 3, "failed": None, "simulated_s": 0.2, "held_bytes": [2**20, 0]}
    one["simulated_held_bytes"] = [2**21, 0]
    other = one | {"measured": [0.4, 0.5, 0.6], "simulated_s": 0.1}
    last = [line for line in text({"variants": {ONE: one, "x": other}}).splitlines() if "x" in line][-1]
    assert [cell.strip() for cell in last.split("|")[1:-1]] == ["x", "0.50 (0.45..0.55)", "0.50", "1 + 0", "2 + 0"]
