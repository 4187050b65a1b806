"""Every command and code block of README, Get started and How-to pages runs, in the order of the page."""

import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from tests.examples import blocks_of, commands_of, run_as_written, run_smaller
from tests.pages import ROOT, text

PAGES = sorted(
    path.relative_to(ROOT).as_posix() for part in ("get_started", "how_to") for path in ROOT.glob(f"docs/{part}/*.md")
)
DATA = {
    "docs/how_to/does_not_fit.md": "x = y = np.zeros((32, 1024), np.int32)",
    "docs/how_to/several_gpus.md": "x, y = np.ones((64, 8), np.float32), np.arange(64) % 10",
}
"""What the code of a page takes for granted."""
LONG = {
    "docs/get_started/first_plan.md",
    "docs/how_to/does_not_fit.md",
    "docs/how_to/measure.md",
    "docs/how_to/profile_and_calibrate.md",
    "docs/how_to/several_gpus.md",
}
"""Pages that take minutes with small models, too."""


@pytest.mark.tensorflow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "page", [pytest.param(one, marks=pytest.mark.slow if one in LONG else ()) for one in [*PAGES, "README.md"]]
)
def test_what_a_page_shows_runs_with_small_budgets_and_models(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names = {"__name__": "page"}
    exec("import numpy as np; " + DATA.get(page, "").replace("1024", "8"), names)
    try:
        run_smaller(page, names)
    finally:
        for name in [name for name, module in sys.modules.items() if _is_in(tmp_path, module)]:
            del sys.modules[name]  # another page has a net.py of its own


def _is_in(directory, module):
    return Path(getattr(module, "__file__", None) or "/").is_relative_to(directory)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_runs_as_it_stands(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_as_written(page, f"import numpy as np\n{DATA.get(page, '')}\n")


@pytest.mark.parametrize("page", PAGES)
def test_only_tfplace_and_pytest_are_called_beside_what_makes_an_environment(page):
    programs = {command.split()[0] for block in blocks_of(page) if block.kind == "sh" for command in commands_of(block)}
    assert programs <= {"tfplace", "pytest"}


def test_every_extra_that_can_be_installed_is_in_the_list():
    extras = tomllib.loads(text("pyproject.toml"))["project"]["optional-dependencies"]
    rows = re.findall(r"^\| (`[^|]+`) \|", text("docs/get_started/install.md"), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == {*extras}


def test_data_are_arrays():
    for code in DATA.values():
        exec(code, found := {"np": np})
        assert len(found["x"]) == len(found["y"])
