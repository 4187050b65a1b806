"""A placed training step computes what the plain one does, on three or more devices, and where it was told to."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "compare_steps.py"
ROOT = SCRIPT.parent.parent.parent
MODELS = (
    "inception_like",
    "lstm_while",
    "lstm_unrolled",
    "transformer",
    "nested_inputs",
    "custom_train_step",
    "tf_keras_cnn",
    "sonnet_mlp",
)
SLOW = ("inception_like", "lstm_unrolled", "transformer")
"""Take longer to trace and to place than all others."""
WITH_DEFAULTS = ("transformer",)
"""One of each kind that kernels are fused for: convolutions, and products with what follows them."""
# Without oneDNN and Grappler results are the same to the bit. With TensorFlow's defaults kernels are fused differently
# at device borders, and Adam's first steps turn a gradient's last bit into a part of the learning rate (0.01 here).
TOLERANCE = 0.01


def run(mode: str, onednn: str = "1", visible: str = "", models: tuple[str, ...] = MODELS) -> dict[str, dict]:
    """What compare_steps.py prints, by model; `visible` are the GPUs it sees."""
    environment = {
        **os.environ,
        "TF_ENABLE_ONEDNN_OPTS": onednn,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": visible,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    command = [sys.executable, str(SCRIPT), mode, *models]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["model"]: row for row in rows}


@pytest.fixture(scope="module")
def exact() -> dict[str, dict]:
    return run("exact", onednn="0", models=tuple(model for model in MODELS if model not in SLOW))


@pytest.fixture(scope="module")
def slow() -> dict[str, dict]:
    return run("exact", onednn="0", models=SLOW)


@pytest.fixture(scope="module")
def default() -> dict[str, dict]:
    return run("default", models=WITH_DEFAULTS)


@pytest.mark.parametrize(
    "model", [pytest.param(model, marks=[pytest.mark.slow] if model in SLOW else []) for model in MODELS]
)
def test_the_placed_step_is_the_plain_one_and_runs_where_it_was_asked(
    model: str, request: pytest.FixtureRequest
) -> None:
    """Bit-identical without oneDNN and Grappler; variables move and come back."""
    row = request.getfixturevalue("slow" if model in SLOW else "exact")[model]
    assert row["steps"] >= 5 and row["variables"] >= 6
    assert row["different"] == 0
    assert row["finite"]
    assert row["moved"] == []
    assert min(row["devices"]) >= 3
    assert (row["control_flow"] > 0) == (model == "lstm_while")
    placed, restored = row["variable_devices"]
    assert placed >= 3 and restored == 1


@pytest.mark.slow  # as `tests/e2e/test_fit.py` says of a fit
@pytest.mark.parametrize("model", WITH_DEFAULTS)
def test_equal_to_tolerance_with_the_defaults(default: dict[str, dict], model: str) -> None:
    assert default[model]["largest"] < TOLERANCE
