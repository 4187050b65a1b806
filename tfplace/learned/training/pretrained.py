"""What a policy has learned, as a file: its parameters, and all that is needed to use them."""

from __future__ import annotations

import functools
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tfplace.errors import InputError
from tfplace.files import UNREADABLE, parse_json, read_arrays, write_whole

FORMAT = "tfplace-policy/1"

SHIPPED = "shipped"
"""Stands for the weights that come with the package."""

_FOLDER = "weights"
_OTHER_VERSION = "They come from another version of tfplace: train again with scripts/train_policy.py."

Settings = TypeVar("Settings", bound=Any)
"""Of a policy: a dataclass."""


@dataclass(frozen=True, eq=False)
class Pretrained:
    """Parameters of a policy that was trained on many graphs; equal to those of the same policy, settings and values.

    Attributes:
      policy: which one, such as "placeto".
      settings: the constants its network was built with.
      values: of its variables, in their order.
      card: how it was trained: the command, graphs, seeds, versions. For people, and for those who repeat it.
    """

    policy: str
    settings: Mapping[str, Any]
    values: Sequence[NDArray[Any]]
    card: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pretrained) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @functools.cached_property
    def _content(self) -> tuple[str, str, str]:
        return self.policy, repr(sorted(self.settings.items())), self.digest()

    @classmethod
    def find(cls, weights: str | Path, policy: str) -> Pretrained:
        """What a policy's `weights` stand for: `SHIPPED`, or a file.

        Raises:
          InputError: there are none, or they are of another policy.
        """
        return cls.shipped(policy) if weights == SHIPPED else cls.load(weights, policy)

    @classmethod
    @functools.cache
    def shipped(cls, policy: str) -> Pretrained:
        """That of the package, read once.

        Raises:
          InputError: there is none for this policy.
        """
        file = resources.files("tfplace.learned").joinpath(_FOLDER, f"{policy}.npz")
        if not file.is_file():
            raise InputError(
                f"{policy} without weights, which the package does not have",
                "weights, a file that scripts/train_policy.py wrote",
                f"Or use a policy that starts untrained, such as {policy}_scratch.",
            )
        with file.open("rb") as opened:
            return _read(opened, policy, f"the package's weights of {policy}")

    @classmethod
    def load(cls, path: str | Path, policy: str) -> Pretrained:
        """That of a file which `save` wrote.

        Raises:
          InputError: no such file, or it is none of this policy.
        """
        try:
            with Path(path).open("rb") as opened:
                return _read(opened, policy, str(path))
        except OSError as error:
            raise InputError(f"{path} ({error.strerror})", "a file that scripts/train_policy.py wrote") from error

    def save(self, path: str | Path) -> None:
        """Writes the file, whole or not at all.

        Raises:
          UnwrittenError: the operating system refused.
        """
        head = {"format": FORMAT, "policy": self.policy, "settings": dict(self.settings), "card": dict(self.card)}
        arrays = {f"value{i}": np.asarray(value, np.float32) for i, value in enumerate(self.values)}
        data = io.BytesIO()
        np.savez_compressed(data, head=np.array(json.dumps(head)), **arrays)  # type: ignore[arg-type]
        write_whole(path, data.getvalue())

    def digest(self, use: str = "") -> str:
        """SHA-256 of the values, and of what is done with them."""
        content = hashlib.sha256(use.encode())
        for value in self.values:
            content.update(np.ascontiguousarray(value).tobytes())
        return content.hexdigest()

    def settle(self, settings: Settings) -> Settings:
        """A policy's settings with those its network was built with.

        Raises:
          InputError: the policy has no such settings, or not with these values.
        """
        try:
            for name, value in self.settings.items():
                if type(value) is not type(getattr(settings, name, value)):
                    raise TypeError(f"{name} {value!r}")
            return replace(settings, **self.settings)
        except TypeError as error:
            raise InputError(
                f"weights of {self.policy} with settings {dict(self.settings)} ({error})",
                f"settings of {type(settings).__name__}",
                _OTHER_VERSION,
            ) from error

    def give(self, variables: Sequence[Any]) -> None:
        """Assigns the parameters.

        Raises:
          InputError: the network has others.
        """
        ours, theirs = ([tuple(x.shape) for x in each] for each in (variables, self.values))
        if ours != theirs:
            raise InputError(
                f"weights of {self.policy} with {len(theirs)} arrays of shapes {theirs[:3]}...",
                f"{len(ours)} arrays of shapes {ours[:3]}...",
                _OTHER_VERSION,
            )
        for variable, value in zip(variables, self.values, strict=True):
            variable.assign(value)


def _read(file: IO[bytes], policy: str, name: str) -> Pretrained:
    try:
        data = read_arrays(file)
        head = parse_json(str(data["head"]))
        values = [data[f"value{i}"] for i in range(len(data) - 1)]
        if not isinstance(head, dict) or not all(isinstance(head.get(key, {}), dict) for key in ("settings", "card")):
            raise ValueError("it has no header")
    except (*UNREADABLE, OSError) as error:
        raise InputError(
            f"{name}, which cannot be read ({error})", "a file that scripts/train_policy.py wrote"
        ) from error
    if head.get("format") != FORMAT or head.get("policy") != policy:
        raise InputError(
            f"{name}, of format {head.get('format')!r} for {head.get('policy')!r}", f"{FORMAT!r} for {policy!r}"
        )
    if not all(value.dtype == np.float32 and np.isfinite(value).all() for value in values):
        raise InputError(f"{name}, with weights that are not finite float32 numbers", "trained weights")
    return Pretrained(policy, head.get("settings", {}), values, head.get("card", {}))


def cut_short(updates: int, wanted: int) -> tuple[str, ...]:
    """What there is to say of fine-tuning that the budget ended early."""
    if updates >= wanted:
        return ()
    return (f"fine-tuning made {updates} of {wanted} updates before the budget was spent",)
