"""Whatever is damaged, tfplace says so: no traceback, no abort, no hang, and nothing accepted that makes no sense.

The long run is `python -m pytest -m slow tests/fuzz`. A failure names kinds and seeds. To read one of them again:
`python -c "from tests.fuzz import reading; print(reading.ended('topology', 7)[1])"`.
"""

from __future__ import annotations

import pickle
from collections import Counter

import pytest

from tests.fuzz import reading
from tests.fuzz.reading import GRAPHS, serve
from tfplace.engines.child_process import ChildEndedError, ChildProcess, ChildTimeoutError

CASE_S = 60.0
"""In which every case has to end, on a busy machine."""

SHORT = {
    "topology": 50,
    "profile": 30,
    "placement": 50,
    "workload": 20,
    "archive bytes": 30,
    "archive parts": 40,
    "flags": 25,
    "GraphDef": 15,
    "MetaGraphDef": 8,
}
LONG = {
    "topology": 400,
    "profile": 250,
    "placement": 400,
    "workload": 150,
    "archive bytes": 250,
    "archive parts": 400,
    "flags": 400,
    "GraphDef": 600,
    "MetaGraphDef": 400,
    "graph text": 100,
    "SavedModel": 200,
}


def run(counts, first_seed):
    """(how many ended how, what should not have happened)."""
    ended, wrong = Counter(), []
    child = None
    for kind, count in counts.items():
        for seed in range(first_seed, first_seed + count):
            if child is None:
                child = ChildProcess(serve)
                child.ask()
            try:
                right, how = pickle.loads(child.ask(pickle.dumps((kind, seed)), timeout_s=CASE_S))
            except (ChildEndedError, ChildTimeoutError) as error:
                child, right, how = None, False, f"{type(error).__name__}: {error}"
            ended[kind, how if right else "wrong"] += 1
            if not right:
                wrong.append(f"{kind}, seed {seed}: {how}")
    if child is not None:
        child.close()
    return ended, wrong


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("counts", "first_seed"),
    [pytest.param(SHORT, 0, id="short"), pytest.param(LONG, 10_000, id="long", marks=pytest.mark.slow)],
)
def test_nothing_that_is_damaged_does_harm(counts, first_seed):
    ended, wrong = run(counts, first_seed)
    assert not wrong, "\n\n".join(wrong[:10])
    assert sum(ended.values()) == sum(counts.values())
    for kind in counts:  # damage is mostly noticed
        accepted = ended[kind, "accepted"]
        assert accepted < counts[kind], f"all {accepted} of kind {kind} were accepted"


@pytest.mark.parametrize("kind", [kind for kind in reading.KINDS if kind not in (*GRAPHS, "flags")])
def test_what_is_whole_is_accepted(kind, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("damaged_bytes", "damaged_json"):
        monkeypatch.setattr(reading, name, lambda data, rng: data)
    for name in ("damage_message", "damage_arrays"):
        monkeypatch.setattr(reading, name, lambda held, rng: None)
    for seed in range(3):
        assert reading.ended(kind, seed) == (True, "accepted")
