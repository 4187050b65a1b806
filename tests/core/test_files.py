"""Files that are there whole or not at all."""

import os

import pytest

from tfplace.core.files import check_writable, write_whole
from tfplace.errors import UnwrittenError


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
