"""What a policy that has learned nothing draws."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.errors import InputError
from tfplace.local_search.sampling import device_share

NEVER = -1e9
"""The logit of what is never allowed: its probability is 0, and its gradient and entropy are 0 and no NaN."""

HOTTEST = 1e3
"""The highest temperature: divided by it, `NEVER` is still far below all other logits."""


def prior_logits(problem: Problem, start: IntArray | None = None, lean: float = 0.9) -> FloatArray:
    """[U, D] logits of the blind draw, which policies add to their own; `NEVER` for masks.

    The draw is that of `tfplace.local_search.sampling`.

    The papers' policies begin with equal probabilities of all devices. Here the host beside accelerators is a
    hundredth as likely, as it is for every other search, so that no method is given what another has to find out.

    Args:
      problem: what is placed.
      start: [U] devices which the draw leans towards, such as those of another placer.
      lean: probability of the start's device, the rest is the blind draw's.

    Raises:
      InputError: a `lean` that is no fraction below 1.
    """
    if not 0 <= lean < 1:
        raise InputError(f"lean {lean}", "at least 0 and below 1")
    share = device_share(problem)
    if start is not None:
        share = (1 - lean) * share
        share[np.arange(len(share)), start] += lean
    return np.where(share > 0, np.log(np.maximum(share, 1e-30)), NEVER)
