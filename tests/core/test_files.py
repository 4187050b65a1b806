"""Files that are there whole or not at all."""

import os

from tfplace.core.files import write_whole


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
