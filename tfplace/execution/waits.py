"""What ops of a graph wait for besides their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Waits:
    """What ops wait for besides their inputs.

    Attributes:
      after: op -> ops that it waits for; both may be joints.
      joints: name of an op that does nothing but wait -> its TensorFlow device. Between n ops and m that wait for all
        of them a joint needs n + m edges instead of n * m.
    """

    after: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    joints: Mapping[str, str] = field(default_factory=dict)


NO_WAITS = Waits()
