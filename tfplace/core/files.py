"""Files that are there whole or not at all."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Writes a file beside its place first: a kill in between leaves what was there before."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    part.write_bytes(content.encode() if isinstance(content, str) else content)
    part.replace(path)
