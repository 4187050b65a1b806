import os
import subprocess
import sys

import pytest

CODE = "from tfplace.cli.quiet import load_tensorflow; load_tensorflow(gpus=False); import sys; sys.stderr.write('end')"
NOT_INHERITED = ("TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH")
"""What commands that other tests run in this process leave in its environment."""


def run(code, **env):
    clean = {k: v for k, v in os.environ.items() if k not in NOT_INHERITED}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean | env, check=False)


@pytest.mark.parametrize(
    ("gpus", "growth", "threads"), [(False, "None", "1"), pytest.param(True, "true", "0", marks=pytest.mark.slow)]
)
def test_tensorflow_loads_without_a_word_and_takes_what_it_needs(gpus, growth, threads):
    """Memory of GPUs as needed; one thread for an op if nothing runs here, else (0) as many as there are cores."""
    told = "import os, tensorflow as tf; print(os.environ.get('TF_FORCE_GPU_ALLOW_GROWTH'), "
    told += "tf.config.threading.get_intra_op_parallelism_threads())"
    result = run(f"from tfplace.cli.quiet import load_tensorflow; load_tensorflow(gpus={gpus}); {told}")
    assert result.stdout.split() == [growth, threads]
    assert result.stderr == ""


def test_what_was_held_back_is_shown_if_loading_fails(tmp_path):
    (tmp_path / "tensorflow.py").write_text("import os; os.write(2, b'the reason'); raise ImportError('broken')")
    result = run(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {CODE}")
    assert "the reason" in result.stderr
    assert "broken" in result.stderr
