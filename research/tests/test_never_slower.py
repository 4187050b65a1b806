"""The comparison of a step placed on one CPU with Keras's own: what is timed, and what its table says."""

from research.benchmarks.never_slower.page import PLAIN, ratios, text
from research.benchmarks.never_slower.running import WARMUP, take_turns


def seconds(wall_s, processor_s):
    return {"wall_s": wall_s, "processor_s": processor_s}


def text_of(*models):
    return text({"models": models}).splitlines()


def test_in_each_turn_every_step_runs_once_and_warm_up_does_not_count():
    calls = []
    found = take_turns({way: lambda way=way: calls.append(way) for way in "ab"}, 4, least_s=0)
    assert [len(found[way]["wall_s"]) for way in "ab"] == [len(found[way]["processor_s"]) for way in "ab"] == [4, 4]
    assert [sorted(calls[i : i + 2]) for i in range(0, len(calls), 2)] == [["a", "b"]] * (WARMUP + 4)


def test_a_step_is_compared_to_the_plain_one_of_its_own_turn():
    found = {PLAIN: seconds([1.0, 2.0], [1.0, 1.0]), "placed": seconds([2.0, 4.0], [1.0, 3.0])}
    assert ratios(found, "placed", "wall_s") == [2.0, 2.0]
    assert ratios(found, "placed", "processor_s") == [1.0, 3.0]


def test_the_table_has_wall_clock_with_quartiles_then_processor_time():
    one = seconds([0.01, 0.01, 0.01], [0.02, 0.02, 0.02])
    way = seconds([0.008, 0.009, 0.010], [0.01, 0.02, 0.03])
    cnn = {"model": "cnn", "ops": 7, "called": {PLAIN: one, "compiled": way, "placed": way}, "fit": {PLAIN: one}}
    mlp = cnn | {"model": "mlp", "fit": {PLAIN: one, "placed": way}}
    header, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text_of(cnn, mlp)]
    cell = "0.90 (0.85..0.95), 1.00"
    assert header == ["model", "ops", PLAIN, "compiled", "placed", "placed, in fit"]
    assert rows == [["cnn", "7", "10 ms", cell, cell, "-"], ["mlp", "7", "10 ms", cell, cell, cell]]
