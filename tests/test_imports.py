import pkgutil
import subprocess
import sys

import pytest

import tfplace

HEAVY = ("tensorflow", "keras", "tf_keras", "sonnet", "numba", "matplotlib", "networkx")


def loaded_after(code):
    """Which of the heavy packages a fresh interpreter has loaded after running the code."""
    tail = f"; import sys; print('loaded', *[m for m in {HEAVY!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code + tail], capture_output=True, text=True, check=True)
    return result.stdout.splitlines()[-1].split()[1:]


@pytest.mark.parametrize(
    "code",
    [
        "import tfplace",
        "import tfplace; tfplace.Topology.preset('4xP100'); tfplace.Constraints(pin={'*': 'GPU:0'})",
        "from tfplace.cli import main; main(['--help'])",
        "from tfplace.cli import main; main(['place', '--help'])",
        "from tfplace.cli import main; main(['compare', '--help'])",
        "from tfplace.cli import main; main(['topologies'])",
        "from tfplace.cli import main; main(['models'])",
        "from tfplace.registry import PLACERS; [PLACERS[name]() for name in ('hierarchical', 'post', 'seq2seq')]",
        "from tfplace.cli import main; main(['place', '--model=inception_v33'])",
        "from tfplace.options import SearchOptions; SearchOptions(topology='2xP100', init='expert').check()",
    ],
)
def test_does_not_load_tensorflow(code):
    assert loaded_after(code) == []


@pytest.mark.tensorflow
def test_every_module_can_be_imported_under_a_name():
    """No public function hides the package that does its work."""
    for found in pkgutil.walk_packages(tfplace.__path__, "tfplace."):
        if found.name != "tfplace.__main__":
            exec(f"import {found.name} as module", names := {})
            assert names["module"].__name__ == found.name
    assert all(
        callable(getattr(tfplace, name)) for name in ("extract", "apply", "compare", "simulate", "split", "place")
    )
