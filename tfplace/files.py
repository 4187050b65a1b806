"""Files that are there whole or not at all, and directories that belong to one process at a time."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tfplace.errors import InputError, UnwrittenError

try:
    import fcntl
except ImportError:  # Windows has no such locks; a second process is then not refused
    fcntl = None  # type: ignore[assignment]

UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    ValueError,
    KeyError,
    AttributeError,
    RuntimeError,
    TypeError,
    SyntaxError,
    NotImplementedError,
)
"""What numpy and zipfile raise on archives that are not theirs, or are no longer whole."""

MOST_BYTES = 2**30
"""More than this an archive of compressed arrays may not hold: a file of a megabyte can claim any size."""

_MOST_DIGITS = 300
"""A number of more is beyond what a float holds."""

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


def parse_json(text: str | bytes) -> Any:
    """What JSON text says.

    Raises:
      ValueError: it is none, nests too deeply to be read, or has texts or whole numbers that nothing can be done with.
    """
    try:
        data = json.loads(text, parse_int=_whole_number)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    told = text if isinstance(text, str) else text.decode(errors="replace")
    if "\\ud" in told.lower():  # perhaps half a character
        json.dumps(data, ensure_ascii=False).encode()
    return data


def _whole_number(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def read_arrays(file: IO[bytes]) -> dict[str, NDArray[Any]]:
    """The arrays of a `.npz` file, whose sizes are looked at before any of them is read.

    `numpy.load` makes room for whatever an array's header claims.

    Raises:
      UNREADABLE: it is none, it is damaged, it claims more than it holds, or it holds more than `MOST_BYTES`
        compressed.
    """
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        if size > max(MOST_BYTES, 2 * sum(member.compress_size for member in members)):
            raise ValueError(f"it holds {size} bytes")
        if len({member.filename for member in members}) < len(members):
            raise ValueError("it holds two arrays with the same name")
        return {member.filename.removesuffix(".npy"): _array(archive.read(member)) for member in members}


def _array(data: bytes) -> NDArray[Any]:
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
        raise ValueError(f"an array of shape {str(shape)[:80]} in {len(data)} bytes")
    stream.seek(0)
    array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array


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
            "a path that you may write to, with free space",
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
                f"directory {folder}, which another process is using",
                "a directory that no other process uses",
                "Wait for the other process, or use another directory.",
            ) from error
