"""Commands and code blocks of pages, and how they run in the order of a page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.pages import ROOT, text
from tfplace.cli import main

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"`(\w+\.(?:py|json))`[^`]*:\s*$")
_SETUP = ("python3.11 -m venv ", ". ", "pip install ")
"""How commands start that make an environment; CI runs the README's."""

SMALLER = (
    (r"--budget=('[^']*'|\S+)", "--budget='20 evaluations'"),
    (r"(--evaluator=measured .*)--budget='20 evaluations'", r"\1--budget='2 evaluations'"),
    (r'budget="[^"]*"', "budget=20"),
    (r"\b(inception_v3|resnet50|gpt|rnnlm_2|wide_mlp)\b", "two_tower"),
    (
        r"batch=32, words=1024, width=1024, layers=12, vocabulary=32_000",
        "batch=4, words=8, width=32, layers=1, vocabulary=50",
    ),
    (r"--batch=\d+", "--batch=4"),
    (r"batch_size=16", "batch_size=4"),
    (r"epochs=2", "epochs=1"),
    (r"--largest_batch", "--largest_batch --max_memory='*=8MiB'"),
)
"""What makes a page quick to run: small budgets, models and batches."""


@dataclass(frozen=True)
class Block:
    """A block of a page.

    Attributes:
      kind: of its fence: "sh", "python", "json" or "text", which is not run.
      code: what it says.
      file: its name, if the page says that it is a file; empty for none.
    """

    kind: str
    code: str
    file: str


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    whole = text(page)
    return [
        Block(found[1], found[2], named[1] if (named := _FILE.search(whole[: found.start()])) else "")
        for found in _FENCE.finditer(whole)
    ]


def commands_of(block: Block) -> list[str]:
    """The commands of a block for a shell, without comments and those that make an environment."""
    lines = block.code.replace("\\\n", " ").splitlines()
    return [line for line in lines if line and not line.startswith(("#", *_SETUP))]


def run_smaller(page: str, names: dict[str, object]) -> None:
    """Runs a page in this process and in the current directory, with small budgets, models and batches.

    Commands of other programs are left out.

    Args:
      page: its file.
      names: that its code finds, such as data.
    """
    import keras

    for block in blocks_of(page):
        code = block.code
        for pattern, small in SMALLER:
            code = re.sub(pattern, small, code)
        if block.file:
            Path(block.file).write_text(code)
        elif block.kind == "python":
            exec(compile(code, page, "exec"), names)
        elif block.kind == "sh":
            for command in commands_of(Block(block.kind, code, "")):
                done, _, otherwise = command.partition(" || ")
                program, *arguments = shlex.split(done)
                if program != "tfplace":
                    continue
                keras.utils.clear_session()  # names of layers are those of a process of its own
                code_of_exit = main(arguments)
                assert code_of_exit == 0 or otherwise, f"{command}: exit code {code_of_exit}"


def run_as_written(page: str, preamble: str) -> None:
    """Runs a page as it stands, its commands by a shell and its code in one Python process after the other blocks.

    Args:
      page: its file.
      preamble: Python that makes what its code finds, such as data.
    """
    environment = _environment()
    code = preamble
    for block in blocks_of(page):
        if block.file:
            Path(block.file).write_text(block.code)
        elif block.kind == "sh" and commands_of(block):
            script = "\n".join(commands_of(block))
            subprocess.run(["bash", "-euo", "pipefail", "-c", script], check=True, env=environment)
        elif block.kind == "python":
            code += block.code
    if code != preamble:
        Path("page.py").write_text(code)
        subprocess.run([sys.executable, "page.py"], check=True, env=environment)


def _environment() -> dict[str, str]:
    """Of a process that finds this checkout and the commands of this Python."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return os.environ | {"PATH": path, "PYTHONPATH": os.pathsep.join([".", str(ROOT), str(ROOT / "models")])}
