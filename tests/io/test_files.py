"""Files that are there whole or not at all."""

import os
import stat
import subprocess
import sys

import pytest

from tfplace.errors import InputError, UnwrittenError
from tfplace.files import check_writable, path_of, write_whole


def test_content_is_on_disk_before_the_file_has_its_name(tmp_path, monkeypatch):
    path, seen = tmp_path / "x.json", []
    path.write_text("before")

    def fsync(file):
        seen.append((os.fstat(file).st_size, path.read_text()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(path, "after all")
    assert seen == [(len("after all"), "before")]
    assert path.read_text() == "after all"
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_what_a_link_leads_to_is_written(tmp_path):
    path, link = tmp_path / "x.json", tmp_path / "link.json"
    path.write_text("before")
    link.symlink_to(path)
    check_writable(link)
    write_whole(link, "after")
    assert link.is_symlink() and path.read_text() == "after"


def test_pipes_and_devices_stay_what_they_are(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_writable(path)
        write_whole(path, "through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]


def test_two_processes_may_write_the_same_file(tmp_path):
    path = tmp_path / "x.json"
    code = """
import sys
from tfplace.files import write_whole

for _ in range(200):
    write_whole(sys.argv[1], sys.argv[2] * 9999)
"""
    both = [subprocess.Popen([sys.executable, "-c", code, str(path), letter]) for letter in "ab"]
    assert [process.wait() for process in both] == [0, 0]
    assert path.read_text() in ("a" * 9999, "b" * 9999)


def test_what_cannot_be_written_is_told_before(tmp_path):
    path = tmp_path / "new" / "folder" / "x.json"
    check_writable(path)
    assert path.parent.is_dir() and not [*path.parent.iterdir()]
    path.write_text("before")
    check_writable(path)
    assert path.read_text() == "before"
    for wrong in (path / "x.json", path.parent, "/proc/nowhere/x.json"):
        with pytest.raises(UnwrittenError, match="could not be written"):
            check_writable(wrong)


def test_a_path_is_a_text_or_a_path(tmp_path):
    assert path_of("run_dir", str(tmp_path)) == path_of("run_dir", tmp_path) == tmp_path
    for wrong in (3, None, b"run"):
        with pytest.raises(InputError, match=r"run_dir=.*; expected a path"):
            path_of("run_dir", wrong)
