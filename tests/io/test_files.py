"""Files that are there whole or not at all."""

import io
import os
import stat
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from tfplace.errors import InputError, UnwrittenError
from tfplace.files import MOST_BYTES, UNREADABLE, check_writable, parse_json, path_of, read_arrays, write_whole


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


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "9" * 301, "-" + "9" * 5000, '["\\ud800"]', "", "x"]
)
def test_json_that_nothing_can_be_done_with_is_a_value_error(text):
    for given in (text, text.encode()):
        with pytest.raises(ValueError):  # of several kinds
            parse_json(given)


def test_json_is_read_as_it_is():
    assert parse_json('{"a": [1, 2.5, "\\ud83d\\ude00", null], "b": ' + "9" * 300 + "}")["b"] == 10**300 - 1


def claiming(path, shape, content, *, compression=zipfile.ZIP_DEFLATED):
    """An archive with an array of a header that claims a shape."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("x.npy", header.getvalue() + content)
    return path


@pytest.mark.parametrize("shape", [(10**13,), (10**30,), (10**15, 10**15), (5,), (3,)])
def test_arrays_that_claim_another_size_than_they_have(tmp_path, shape):
    with claiming(tmp_path / "x.npz", shape, b"abcd").open("rb") as file, pytest.raises(UNREADABLE, match="shape"):
        read_arrays(file)


def test_arrays_that_are_small_only_while_they_are_packed(tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": (MOST_BYTES,)})
        for _ in range(MOST_BYTES // 2**24):
            member.write(bytes(2**24))
    assert path.stat().st_size < 2**21
    with path.open("rb") as file, pytest.raises(UNREADABLE, match="it holds"):
        read_arrays(file)


def test_arrays_of_objects_and_of_one_name(tmp_path):
    np.savez(tmp_path / "objects.npz", x=np.array([{}], object))
    with zipfile.ZipFile(tmp_path / "twice.npz", "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        for _ in range(2):
            archive.writestr("x.npy", b"")
    for name in ("objects.npz", "twice.npz"):
        with (tmp_path / name).open("rb") as file, pytest.raises(UNREADABLE):
            read_arrays(file)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_come_back_the_same(tmp_path, save):
    arrays = {"a": np.arange(6.0).reshape(2, 3).T, "b": np.array("text"), "c": np.zeros((0, 3), np.int8)}
    save(tmp_path / "x.npz", **arrays)
    with (tmp_path / "x.npz").open("rb") as file:
        read = read_arrays(file)
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype
