import pytest

from tfplace.engines import cores


@pytest.mark.parametrize(
    ("siblings", "order"),
    [
        (["0-1", "0-1", "2-3", "2-3"], (0, 2, 1, 3)),
        (["0,2", "1,3", "0,2", "1,3"], (0, 1, 2, 3)),
        ([], (0, 1, 2, 3)),
    ],
)
def test_threads_of_one_core_come_after_those_of_others(tmp_path, monkeypatch, siblings, order):
    monkeypatch.setattr(cores, "own_cores", lambda: (0, 1, 2, 3))
    for core, text in enumerate(siblings):
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(text + "\n")
    assert cores.cores_apart(tmp_path) == order
