import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbformat: pip install 'tfplace[notebook]'")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install 'tfplace[notebook]'")
pytest.importorskip("ipykernel", reason="needs ipykernel: pip install 'tfplace[notebook]'")

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

# The Jupyter client's own warnings about event loops and sockets, not ours.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path):
    cells = [c for c in nbformat.read(path, 4).cells if c.cell_type == "code"]
    assert len(cells) >= 6
    assert all(not c.outputs and c.execution_count is None for c in cells)


@pytest.fixture
def executed(tmp_path, monkeypatch):
    """What the code cells of a notebook show."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def execute(name):
        notebook = nbformat.read(ROOT / "notebooks" / name, 4)
        client = nbclient.NotebookClient(
            notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        )
        client.execute()
        return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]

    return execute


def test_placing_a_model(executed, tmp_path):
    results = [output.data for output in executed("place_a_model.ipynb") if "data" in output]
    assert any("Step times (simulated)" in data.get("text/html", "") for data in results)
    losses = [float(text) for text in results[-1]["text/plain"].strip("[]").split(",")]
    assert len(losses) == 2
    assert losses[1] < losses[0]
    assert (tmp_path / "trace.json").exists()


def test_from_a_paper_to_a_placement(executed):
    shown = executed("from_a_paper_to_a_placement.ipynb")
    assert sum("image/png" in output.get("data", {}) for output in shown) == 1
    said = "".join(output.get("text", "") for output in shown)
    drew = re.findall(r"(\w+) +drew ([\d.]+) ms at first, ([\d.]+) ms at last", said)
    assert {placer for placer, *_ in drew} == {"seq2seq", "placeto_scratch"}
    assert all(float(last) < 0.75 * float(first) for _, first, last in drew)


@pytest.mark.slow
def test_from_one_device_to_a_learned_placement(executed):
    shown = executed("from_one_device_to_learned.ipynb")
    pages = [output.data.get("text/html", "") for output in shown if "data" in output]
    assert [page.count("<img ") for page in pages if "<img " in page] == [4, 4, 4, 4, 2]
    table = next(page for page in pages if "600 evaluations for each run" in page)
    assert all(name in table for name in ("post", "placeto", "auto", "local_search", "random_search"))
    said = [output.get("text", "") for output in shown]  # of a printed summary
    assert any(text.startswith("take ") and "times faster than GPU:0" in text for text in said)
    assert not any("Warning" in output.get("text", "") for output in shown)
