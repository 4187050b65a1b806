"""Files of records that only grow, and lose at most what was being written when their process was killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tfplace.errors import InputError
from tfplace.files import wait_for_lock


def whole_lines(data: bytes) -> int:
    """How many of the bytes are whole lines."""
    return data.rfind(b"\n") + 1


def whole_records(size_bytes: int) -> Callable[[bytes], int]:
    """How many of the bytes are whole records of one size."""
    return lambda data: len(data) - len(data) % size_bytes


class AppendLog:
    """An append-only file of records, of which one process at a time is the writer.

    The last record may be torn, if its process was killed: it is not read, and cut off when the next one is written.
    The file is open, and locked, only while it is written. The caller says which file the system refused to write.

    Args:
      path: of the file; made when something is written.
      whole: how many bytes at the beginning of some are whole records, as `whole_lines`.

    Attributes:
      path: as given.
      length: bytes of the whole records that were read or written.
    """

    def __init__(self, path: Path, whole: Callable[[bytes], int]) -> None:
        self.path = path
        self.length = 0
        self._whole = whole
        self._added = bytearray()

    def read(self) -> tuple[bytes, bytes]:
        """All whole records, and what is left of a torn one. Changes nothing; a file that is not there is empty.

        Raises:
          OSError: it cannot be read.
        """
        data = self.path.read_bytes() if self.path.exists() else b""
        self.length = self._whole(data)
        return data[: self.length], data[self.length :]

    def append(self, data: bytes) -> None:
        """Writes whole records, at once; those that cannot be written are forgotten.

        Raises:
          InputError: as `flush`.
          OSError: as `flush`.
        """
        self.add(data)
        try:
            self.flush()
        except BaseException:
            self._added.clear()
            raise

    def add(self, data: bytes) -> None:
        """Keeps whole records for the next `flush`."""
        self._added += data

    def flush(self) -> None:
        """Writes what was added. If that fails, the records that were not written wait for the next time.

        Raises:
          InputError: the file is not as it was read or written: another process has written it, or it was moved.
          OSError: the system refused.
        """
        if self._added:
            self._write()

    def cut(self) -> None:
        """Cuts off a torn record at once, and makes the file if it is not there; raises what `flush` raises."""
        self._write()

    def _write(self) -> None:
        with self.path.open("a+b", buffering=0) as file:
            wait_for_lock(file)  # until it is closed
            shorter = file.seek(0, os.SEEK_END) < self.length
            file.seek(self.length)
            if shorter or self._whole(file.read()):
                raise InputError(
                    f"{self.path.name}, {'which has lost results' if shorter else 'to which another process has added'}"
                    " since it was read",
                    "a file that only this process writes",
                    "Wait for the other process or use another file, and start again.",
                )
            file.truncate(self.length)
            rest = memoryview(bytes(self._added))
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            finally:  # an interrupt may come when all is written, a full disk when some of it is
                written = self._whole(bytes(self._added[: os.fstat(file.fileno()).st_size - self.length]))
                self.length += written
                del self._added[:written]
