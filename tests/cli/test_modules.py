"""Modules of the user, a package `models` among them."""

import os
import subprocess
import sys

import numpy as np
import pytest

from tfplace.cli import BAD_INPUT, PLACED, main, source
from tfplace.cli.modules import check_module
from tfplace.errors import SourceError
from tfplace.testing import random_problem

NET = "import tensorflow as tf\ndef build():\n    return tf.function(lambda: tf.random.normal((3, 3)) * {factor})\n"
QUICK = ["--topology=2xP100", "--placer=single", "--budget=3 evaluations", "--json"]


def run(folder, *argv, **env):
    return subprocess.run(
        [sys.executable, "-c", "import sys; from tfplace.cli import main; sys.exit(main(sys.argv[1:]))", *argv],
        cwd=folder,
        # -c puts the current directory first, as the installed command does not
        env=os.environ | {"PYTHONSAFEPATH": "1"} | env,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").write_text("from models.parts import build\n")
    (tmp_path / "models" / "parts.py").write_text(NET.format(factor=2))
    return tmp_path


@pytest.mark.parametrize("env", [{}, pytest.param({"PYTHONPATH": "."}, marks=pytest.mark.slow)])
def test_a_package_of_the_users_may_be_called_models(project, env):
    (project / "models" / "__init__.py").touch()
    done = run(project, "place", "--model=models.net:build", *QUICK, **env)
    assert done.returncode == PLACED, done.stderr
    assert '"step_s"' in done.stdout
    assert run(project, "models", "rnnlm_2", **env).returncode == PLACED


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").touch()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("raise RuntimeError('not to be loaded')")
    (tmp_path / "package" / "inside.py").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside.py").touch()
    return tmp_path


@pytest.mark.usefixtures("here")
def test_modules_are_found_without_being_loaded():
    for module in (
        "net",
        "package",
        "package.inside",
        "folder.inside",
        "os.path",
        "tfplace_zoo.rnnlm",
        "tfplace_zoo.families",
    ):
        check_module(module)
    for module in (
        "nett",
        "nett.inside",
        "package.outside",
        "folder.outside",
    ):
        with pytest.raises(SourceError, match="cannot be found"):
            check_module(module)


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ("net.py:build", "--model=net:build."),
        ("net.py", "--model=net:build. Write the name of your function"),
        ("mynet.py:step", "--model=mynet:step."),
        ("./package/inside.py:step", "--model=package.inside:step."),
        ("../elsewhere/net.py:step", "--model=net:step, in ../elsewhere."),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_file_of_python_is_named_as_a_module(model, wanted):
    with pytest.raises(SourceError) as caught:
        source.find(model)
    assert f"expected {wanted}" in str(caught.value)


def test_python_runs_the_package():
    done = subprocess.run([sys.executable, "-m", "tfplace", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("tfplace ")
    done = subprocess.run([sys.executable, "-m", "tfplace", "plase"], capture_output=True, text=True, check=False)
    assert done.returncode == BAD_INPUT and "Did you mean 'place'" in done.stderr


def test_a_placer_that_ends_the_process_is_told(tmp_path, monkeypatch, capsys):
    (tmp_path / "exiting.py").write_text(
        "import sys\nclass Exits:\n    citation = 'none'\n    def place(self, context):\n        sys.exit(0)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    random_problem(np.random.default_rng(0), 8, 2).save(tmp_path / "p.npz")
    argv = ["place", f"--model={tmp_path / 'p.npz'}", "--placer=exiting:Exits", "--budget=3 evaluations", "--quiet"]
    assert main(argv) == BAD_INPUT
    assert "placer 'exiting:Exits', which failed: SystemExit: 0" in capsys.readouterr().err
