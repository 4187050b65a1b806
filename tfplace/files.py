"""Files that are there whole or not at all, and directories that belong to one process at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tfplace.errors import InputError, UnwrittenError

try:
    import fcntl
except ImportError:  # Windows has no such locks; a second process is then not refused
    fcntl = None  # type: ignore[assignment]

UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, AttributeError, RuntimeError)
"""What numpy and zipfile raise on archives that are not theirs, or are no longer whole."""

LOCK = "lock"
"""File by which a process has a directory to itself."""


def path_of(what: str, given: object) -> Path:
    """A path that somebody gave, as one.

    Args:
      what: the argument's name.
      given: what was given for it.

    Raises:
      InputError: it is no path.
    """
    if not isinstance(given, str | os.PathLike):
        raise InputError(f"{what}={given!r}", "a path")
    return Path(given)


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Writes a file beside its place first: a kill, or a power cut, in between leaves what was there before.

    Of a link it is the file it leads to. What is there and is no file, such as a pipe or `/dev/stdout`, is written to.

    Raises:
      UnwrittenError: the operating system refused.
    """
    path, data = Path(path), content.encode() if isinstance(content, str) else content
    with writing(path):
        if _is_no_file(path):
            path.write_bytes(data)
            return
        path = path.resolve()
        part = path.with_name(f"{path.name}.{os.getpid()}.part")  # others may write the same file
        try:
            with part.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # else the name may reach the disk before the content
            part.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink()
            raise


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Has the operating system's refusal to write results count as bad input, not as a fault of ours.

    Raises:
      UnwrittenError: it refused.
    """
    try:
        yield
    except OSError as error:
        raise UnwrittenError(
            f"{path}, which could not be written ({error.strerror or error})",
            "a place with room that you may write to",
        ) from error


def check_writable(path: str | Path) -> None:
    """Tries whether a file can be written, before what goes into it takes long; its directory is made.

    Raises:
      UnwrittenError: it cannot.
    """
    path = Path(path)
    with writing(path):
        if _is_no_file(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        path = path.resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=path.parent):  # permissions alone do not tell, of a full disk or of /proc
            pass


def _is_no_file(path: Path) -> bool:
    """Whether something is there that takes what is written, but is no file: a device, a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """A directory, which is made, is this process's own until the context or the process ends, however it ends.

    Raises:
      InputError: another process is at work there, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(
            f"directory {folder} ({error.strerror})", "a directory that can be made and written to"
        ) from error
    try:
        _lock(file, folder)
        yield
    finally:
        os.close(file)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process after the other: waits while another is in such a context of the same file, which is made."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        wait_for_lock(file)
        yield
    finally:
        os.close(file)


def wait_for_lock(file: int | IO[bytes]) -> None:
    """Has an open file to oneself until it is closed, once whoever else has it so has closed it."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)


def _lock(file: int, folder: Path) -> None:
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                f"directory {folder}, in which another process is at work",
                "a directory of this process's own",
                "Wait for the other one, or name another directory.",
            ) from error
