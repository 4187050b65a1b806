"""Colors of devices in pictures."""

from __future__ import annotations

from collections.abc import Sequence

PALETTE = ("#286ec8", "#f06400", "#7a3cf0", "#a05032", "#b482be", "#6ea06e", "#a03c96", "#1a96d2")
"""Each has a contrast of 3 and more to a white and to a black page, which WCAG 2.2, 1.4.11 asks of what is drawn.

Those who see no red, green or blue can tell them apart, the first ones best.
"""

_HOST = "#788282"


def device_colours(names: Sequence[str]) -> list[str]:
    """One for each device: the host's is gray; those after the palette's are lighter and darker ones."""
    found, used = [], 0
    for name in names:
        if name.rpartition("/")[2].removeprefix("device:").startswith("CPU") and len(names) > 1:
            found.append(_HOST)
        else:
            found.append(_shade(PALETTE[used % len(PALETTE)], used // len(PALETTE)))
            used += 1
    return found


def _shade(colour: str, again: int) -> str:
    """The color itself, then by turns lighter and darker, by more each time."""
    towards, share = (255 if again % 2 else 0), 1 - 1 / (1 + 0.4 * again)
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + share * (towards - part)):02x}" for part in parts)
