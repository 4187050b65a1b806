"""`python -m research.results_page`."""

import subprocess
import sys

from tests.comparison.test_page import results
from tests.pages import ROOT
from tfplace.comparison.journal import Journal


def test_the_script_writes_the_page_of_some_files(tmp_path):
    journal = Journal(tmp_path / "runs.jsonl", {"budget": "2 s", "simulated": True})
    for row in (results("one"), results("other")):
        journal.add(row.facts)
        for each in row.runs.values():
            for one in each:
                journal.add(one)
    command = [
        sys.executable,
        "-m",
        "research.results_page",
        str(journal.path),
        "--cases=one",
        f"--out={tmp_path / 'p.html'}",
    ]
    subprocess.run(command, cwd=ROOT, check=True, timeout=200)
    text = (tmp_path / "p.html").read_text()
    assert "one on 2xP100" in text and "other on" not in text
    assert "Each run had a budget of 2 s." in text
    (tmp_path / "notes.txt").write_text("mine\n")
    (tmp_path / "taken").write_text("mine\n")
    damaged = journal.path.read_text().replace('"step_s": 0.0025', '"step_s": "abc"')
    (tmp_path / "damaged.jsonl").write_text(damaged)
    for source, out, said in (
        ("none.jsonl", "p.html", "none.jsonl"),
        ("notes.txt", "p.html", "notes.txt, which begins with b'mine"),
        ("damaged.jsonl", "p.html", "in damaged.jsonl (step_s='abc')"),
        ("runs.jsonl", "taken/p.html", "could not be written"),
    ):
        failed = subprocess.run(
            [*command[:3], str(tmp_path / source), f"--out={tmp_path / out}"],
            cwd=ROOT,
            check=False,
            text=True,
            capture_output=True,
            timeout=200,
        )
        assert failed.returncode == 1 and said in failed.stderr and "Traceback" not in failed.stderr
