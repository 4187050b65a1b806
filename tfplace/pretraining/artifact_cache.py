"""What takes long to find, kept in a file each, so that a training that was stopped goes on."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfplace.errors import InputError
from tfplace.files import UNREADABLE, read_arrays, write_whole

Arrays = Mapping[str, NDArray[Any]]


def kept(path: Path, of: str, find: Callable[[], Arrays], names: tuple[str, ...]) -> Arrays:
    """What the file holds, or what is found, which it holds from then on.

    Args:
      path: of the file; its directory is made.
      of: what it is of, in words without a line's end.
      find: finds it if there is no file.
      names: of its arrays.

    Raises:
      InputError: the file is of something else, or damaged.
    """
    if path.exists():
        try:
            with path.open("rb") as file:
                kept: dict[str, Any] = read_arrays(file)
            said, arrays = str(kept["said"]), {name: kept[name] for name in names}
        except (OSError, *UNREADABLE) as error:
            raise InputError(f"{path}, which is damaged", f"{', '.join(names)} as written", "Delete it.") from error
        if said != of:
            raise InputError(f"{path}, made for {said}", f"a file made for {of}", "Use another directory.")
        return arrays
    found = find()
    data = io.BytesIO()
    arrays = {"said": np.array(of), **found}
    np.savez_compressed(data, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data.getvalue())
    return found
