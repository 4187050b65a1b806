"""A run directory: everything of a search that is to outlive its process."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.stepcost import Key
from tfplace.errors import InputError, UnwrittenError
from tfplace.files import LOCK, UNREADABLE, alone_in, parse_json, path_of, read_arrays, write_whole, writing
from tfplace.search.records import Lines, Records

_FORMAT = 1
_CHECKPOINT = "checkpoint.npz"
_DIGESTS = ("weights", "init")
"""What is told apart by a digest of its content, which tells nobody anything."""
_SCALE = "scale.json"
_START = "start.npz"
_CONFIG, _BEST = "config.json", "best.npz"

FLUSH_S = 0.2
"""No more than this much of a search's quick evaluations is lost with its process."""

KEEP_S = 5.0
"""How old a checkpoint gets before the next, if what follows it can be done again."""


class Best(NamedTuple):
    """The best placement of a run: [U] devices and their key."""

    unit_device: IntArray
    key: Key


class RunDirectory:
    """The files of one search. `kill -9` loses at most what was being evaluated, or 0.2 seconds of quick evaluations.

        config.json        what the run is of: problem, placer, budget, seed, versions
        evaluations.bin    a record for each evaluation; see `Records`
        improvements.jsonl a line for each placement better than all before
        metrics.jsonl      what a policy says of its training
        best.npz           the best placement so far
        checkpoint.npz     the state of a policy that is being trained
        scale.json         the seconds by which an evaluator multiplies the ratios that it measures
        start.npz          a placement from which a search by the clock went on without a checkpoint
        lock               held by the process that is at work

    Args:
      path: of the directory; made with its parents if it does not exist.
      config: what the run is of; equal for a run that goes on, but for "versions".
      resume: whether to go on with a run that is there.
      keep_s: see `keeps_now`.

    Attributes:
      records: every evaluation.
      best: the best placement found so far, or None.
      scale_s: see `keep_scale`; None if nothing was kept.
      start: see `keep_start`; the same.

    Raises:
      InputError: another process is at work there, the run there is of something else or not to go on, or a file is
        damaged or cannot be read.
      UnwrittenError: by whatever writes there.
    """

    def __init__(
        self, path: str | Path, config: Mapping[str, Any], *, resume: bool = True, keep_s: float = KEEP_S
    ) -> None:
        self._keep_s = keep_s
        self.path = path_of("run_dir", path)
        with _opening(self.path), contextlib.ExitStack() as opened:
            opened.enter_context(alone_in(self.path))
            self._claim({"format": _FORMAT, **config}, resume)
            for name in (_CONFIG, _BEST, _CHECKPOINT, _SCALE, _START):
                for left in self.path.glob(f"{name}.*.part"):  # what a process was writing that was killed
                    left.unlink()
            self.records = opened.enter_context(contextlib.closing(Records(self.path / "evaluations.bin")))
            self._improvements = opened.enter_context(contextlib.closing(Lines(self.path / "improvements.jsonl")))
            self._metrics = opened.enter_context(contextlib.closing(Lines(self.path / "metrics.jsonl")))
            self.best = self._read_best()
            self.scale_s = self._read_scale()
            start = self._read(_START)
            self.start = None if start is None else start["unit_device"]
            self._opened = opened.pop_all()
        self._unwritten = self._broken = False
        self._flushed = self._kept = time.monotonic()

    def _claim(self, config: dict[str, Any], resume: bool) -> None:
        """Writes the configuration, or finds the same one."""
        path = self.path / _CONFIG
        if not path.exists():
            others = [p.name for p in self.path.iterdir() if p.name != LOCK and p.suffix != ".part"]
            if others:
                raise InputError(
                    f"directory {self.path}, which has {others[0]!r} but no config.json",
                    "an empty directory, or the directory of a run",
                )
            with writing(path):
                write_whole(path, json.dumps(config, indent=1) + "\n")
            return
        if not resume:
            raise InputError(
                f"run directory {self.path}, which has a run already", "an empty directory", "Or resume that run."
            )
        before = _read_config(path)
        if differ := [k for k in {**before, **config} if k != "versions" and before.get(k) != config.get(k)]:
            what = differ[0]
            asked, begun = f"{what} {config.get(what)!r}", f"{before.get(what)!r}"
            if what in _DIGESTS:
                asked, begun = f"other {what}", f"the {what}"
            raise InputError(
                f"a run with {asked} in {self.path}",
                f"{begun}, as when the run began",
                "Use another directory for another run.",
            )

    def add(self, unit_devices: IntArray, over: LongArray, step_s: FloatArray, seconds: float, *, now: bool) -> None:
        """Keeps what [B] placements cost; see `Records.add` and `written`."""
        with self._writing():
            self.records.add(unit_devices, over, step_s, seconds)
        self.written(now=now)

    def keep_start(self, unit_device: IntArray) -> None:
        """Keeps what a search by the clock goes on from, until its policy has a checkpoint."""
        self._write(_START, {"unit_device": unit_device})
        self.start = unit_device

    def improved(self, unit_device: IntArray, key: Key, evaluations: int, seconds: float, stage: str) -> None:
        """Keeps a placement that is better than all before; on disk with the next `written`."""
        facts = {"seconds": round(seconds, 3), "over_bytes": key[0], "step_s": _plain(key[1]), "stage": stage}
        with self._writing():
            self._improvements.add(evaluations, facts)
        if self.best is None or key < self.best.key:
            self.best, self._unwritten = Best(unit_device.copy(), key), True

    def keep_scale(self, scale_s: float) -> None:
        """Keeps, once, the seconds by which an evaluator multiplies ratios: a run that goes on is to have the same."""
        if self.scale_s is None:
            with self._writing():
                write_whole(self.path / _SCALE, json.dumps(scale_s) + "\n")
            self.scale_s = scale_s

    def log(self, evaluations: int, metrics: Mapping[str, float]) -> None:
        """Keeps what a policy says of its training."""
        with self._writing():
            self._metrics.add(evaluations, {name: _plain(value) for name, value in metrics.items()})

    def written(self, *, now: bool = False) -> None:
        """Puts what has been kept on disk, if the last time is long enough ago or `now`."""
        if not now and time.monotonic() - self._flushed <= FLUSH_S:
            return
        with self._writing():
            self.records.flush()
            self._improvements.flush()
            self._metrics.flush()
        if self._unwritten and self.best is not None:
            over, step_s = self.best.key
            arrays = {"unit_device": self.best.unit_device, "over": np.int64(over), "step_s": np.float64(step_s)}
            self._write(_BEST, arrays)
            self._unwritten = False
        self._flushed = time.monotonic()

    @property
    def keeps_now(self) -> bool:
        """Whether the last checkpoint, or the opening of the directory, is `keep_s` seconds ago."""
        return time.monotonic() - self._kept >= self._keep_s

    @property
    def has_checkpoint(self) -> bool:
        """Whether a policy kept its state here."""
        return (self.path / _CHECKPOINT).exists()

    def save_checkpoint(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replaces the checkpoint, after everything that it follows from."""
        self.written(now=True)
        self._write(_CHECKPOINT, arrays)
        self._kept = time.monotonic()

    def load_checkpoint(self) -> dict[str, NDArray[Any]] | None:
        """The checkpoint; None if there is none."""
        return self._read(_CHECKPOINT)

    def close(self) -> None:
        """Writes what is left and lets another process go on.

        After a write that failed, and was told, the rest is not tried: what is on disk stays whole.
        """
        with contextlib.suppress(*([OSError] if self._broken else [])), self._opened:
            if not self._broken:
                self.written(now=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with writing(self.path):
                yield
        except UnwrittenError:
            self._broken = True
            raise

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_best(self) -> Best | None:
        best = self._read(_BEST)
        if best is None:
            return None
        return Best(best["unit_device"], (int(best["over"]), float(best["step_s"])))

    def _read_scale(self) -> float | None:
        path = self.path / _SCALE
        try:
            return float(parse_json(path.read_text(encoding="utf-8"))) if path.exists() else None
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"{path}, which is damaged", "a number of seconds", "Delete it.") from error

    def _write(self, name: str, arrays: Mapping[str, Any]) -> None:
        data = io.BytesIO()
        np.savez(data, **arrays)
        with self._writing():
            write_whole(self.path / name, data.getvalue())

    def _read(self, name: str) -> dict[str, NDArray[Any]] | None:
        path = self.path / name
        if not path.exists():
            return None
        try:
            with path.open("rb") as file:
                return read_arrays(file)
        except (OSError, *UNREADABLE) as error:
            raise InputError(f"{path}, which is damaged", "a file as tfplace wrote it", "Delete it.") from error


@contextlib.contextmanager
def _opening(path: Path) -> Iterator[None]:
    """Says which file of a run cannot be opened."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"run directory {path} with {Path(str(error.filename)).name!r} ({error.strerror})",
            "a directory whose files can be read and written",
        ) from error


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = parse_json(path.read_text(encoding="utf-8"))
        assert isinstance(config, dict)
    except (ValueError, AssertionError) as error:
        raise InputError(f"{path}, which is damaged", "the configuration of a run") from error
    return config


def _plain(value: float) -> float | None:
    """JSON knows no infinity."""
    return float(value) if np.isfinite(value) else None
