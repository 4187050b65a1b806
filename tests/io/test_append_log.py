"""Files of records that only grow."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys

import pytest

from tests.search.test_unwritten import no_file_longer_than
from tfplace.errors import InputError
from tfplace.io.append_log import AppendLog, whole_lines, whole_records


@pytest.fixture
def log(tmp_path):
    return AppendLog(tmp_path / "log", whole_lines)


def again(log):
    other = AppendLog(log.path, whole_lines)
    other.read()
    return other


def test_what_is_added_is_there_when_it_is_flushed(log):
    assert log.read() == (b"", b"")
    log.add(b"1\n")
    log.add(b"2\n")
    assert not log.path.exists()
    log.flush()
    log.flush()
    log.append(b"3\n")
    assert log.path.read_bytes() == b"1\n2\n3\n" and log.length == 6
    assert again(log).read() == (b"1\n2\n3\n", b"")


def test_a_torn_record_is_not_read_and_cut_off_with_the_next(log):
    log.path.write_bytes(b"1\n2")
    assert log.read() == (b"1\n", b"2")
    assert log.path.read_bytes() == b"1\n2"  # reading changes nothing
    log.append(b"3\n")
    assert log.path.read_bytes() == b"1\n3\n"
    log.path.write_bytes(b"1\n3\n4")
    log.cut()
    assert log.path.read_bytes() == b"1\n3\n"


def test_records_of_one_size(tmp_path):
    log = AppendLog(tmp_path / "log", whole_records(4))
    log.path.write_bytes(b"aaaabbbbcc")
    assert log.read() == (b"aaaabbbb", b"cc")
    log.append(b"dddd")
    assert log.path.read_bytes() == b"aaaabbbbdddd"


def test_what_another_has_added_or_taken_away_is_left_as_it_is(log):
    log.append(b"1\n")
    other = again(log)
    log.append(b"2\n")
    with pytest.raises(InputError, match="log, to which another process has added since it was read"):
        other.append(b"3\n")
    log.path.write_bytes(b"1\n")
    with pytest.raises(InputError, match="has lost results since it was read"):
        log.append(b"3\n")
    assert log.path.read_bytes() == b"1\n"
    other.append(b"4\n")  # what could not be appended is forgotten
    assert log.path.read_bytes() == b"1\n4\n"


def test_what_the_system_refuses_can_be_flushed_later(log):
    log.append(b"1\n")
    log.add(b"22\n")
    with no_file_longer_than(3), pytest.raises(OSError, match="File too large"):
        log.flush()
    assert again(log).read() == (b"1\n", b"2")
    log.add(b"3\n")
    log.flush()
    assert log.path.read_bytes() == b"1\n22\n3\n"


def test_what_was_written_before_the_system_refused_is_written_once(log):
    log.append(b"1\n")
    for line in (b"2\n", b"3\n", b"4\n"):
        log.add(line)
    with no_file_longer_than(5), pytest.raises(OSError, match="File too large"):
        log.flush()
    assert again(log).read() == (b"1\n2\n", b"3")
    log.flush()
    assert log.path.read_bytes() == b"1\n2\n3\n4\n"


def test_an_interrupt_when_all_is_written_leaves_it_usable(log, monkeypatch):
    class Interrupted(io.FileIO):
        def write(self, data):
            super().write(data)
            raise KeyboardInterrupt

    log.append(b"1\n")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(log.path), "open", lambda path, *_, **__: Interrupted(path, "a+b"))
        log.append(b"2\n")
    log.append(b"3\n")
    assert log.path.read_bytes() == b"1\n2\n3\n"


def test_a_kill_loses_at_most_what_was_being_written(tmp_path):
    code = """
import sys
from pathlib import Path
from tfplace.io.append_log import AppendLog, whole_records

log = AppendLog(Path(sys.argv[1]), whole_records(5000))
for i in range(10**6):
    log.append(b"%05d" % i * 1000)
    print(i, flush=True)
"""
    path = tmp_path / "log"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as process:
        said = -1
        while said < 200:
            said = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
    log = AppendLog(path, whole_records(5000))
    whole, _ = log.read()
    numbers = [whole[at : at + 5000] for at in range(0, len(whole), 5000)]
    assert len(numbers) > said and numbers == [b"%05d" % i * 1000 for i in range(len(numbers))]
    log.append(b"x" * 5000)
    assert path.stat().st_size == len(whole) + 5000
