"""What policies log of their training, and what each name means."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray, LongArray
from tfplace.learned.training.rewards import failed

TAGS = {
    "reward": "mean reward of the batch",
    "step_s": "mean step seconds of the batch's placements that fit and run",
    "failed": "part of the batch's placements that do not fit or do not run",
    "baseline": "what rewards were compared with",
    "entropy": "mean entropy of a group's choice when the batch was drawn, in nats",
    "grouping_entropy": "mean entropy of a unit's group, in nats; `hierarchical` only",
    "divergence": "mean KL divergence of a group's choice from before the update to after it, in nats",
    "loss": "the objective that was descended, before the update",
    "gradient": "norm of its gradient before clipping",
}


def batch_metrics(over: LongArray, step_s: FloatArray, rewards: FloatArray) -> dict[str, float]:
    """What there is to say of a batch: [B] bytes over the limits, step seconds and rewards."""
    bad = failed(over, step_s)
    mean_s = float(step_s[~bad].mean()) if not bad.all() else float("nan")
    return {"reward": float(np.mean(rewards)), "step_s": mean_s, "failed": float(bad.mean())}
