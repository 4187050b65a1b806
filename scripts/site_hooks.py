"""What the site needs beside docs/: the pictures that research pages show. Named by mkdocs.yml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

DATA = Path(__file__).resolve().parent.parent / "research" / "data"


def on_files(files: Files, config: Any) -> Files:
    """Adds the pictures of research/data, beside the research pages."""
    for picture in sorted(DATA.glob("*.png")):
        files.append(File.generated(config, f"research/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links pictures where the site has them; in a checkout they are in research/data."""
    return markdown.replace("](../../research/data/", "](")
