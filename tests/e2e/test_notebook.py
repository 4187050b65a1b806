from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbformat: pip install 'tfplace[notebook]'")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install 'tfplace[notebook]'")
pytest.importorskip("ipykernel", reason="needs ipykernel: pip install 'tfplace[notebook]'")

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks/place_a_model.ipynb"

# The Jupyter client's own warnings about event loops and sockets, not ours.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]


def test_notebook_is_kept_without_outputs():
    cells = [c for c in nbformat.read(NOTEBOOK, 4).cells if c.cell_type == "code"]
    assert len(cells) == 6
    assert all(not c.outputs and c.execution_count is None for c in cells)


def test_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, 4)
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    results = [
        output.data
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "data" in output
    ]
    assert any("Step times (simulated)" in data.get("text/html", "") for data in results)
    losses = [float(text) for text in results[-1]["text/plain"].strip("[]").split(",")]
    assert len(losses) == 2
    assert losses[1] < losses[0]
    assert (tmp_path / "trace.json").exists()
