"""Placements and timelines written by hand, so that reports are tested without a search or a simulator."""

import numpy as np

from tfplace.core.placement import Placement
from tfplace.core.stepcost import StepCost
from tfplace.core.timeline import Timeline

GIB = 2**30


def cost(step_s, peak=(1, 1), limit=(4, 4), moved=3 * 2**20):
    compute = np.array([0.6, 0.3]) * step_s
    return StepCost(
        step_s,
        compute,
        np.array([0.1, 0.2]) * step_s,
        step_s - compute,
        (np.array(peak) * GIB).astype(np.int64),
        (np.array(limit) * GIB).astype(np.int64),
        moved,
    )


def placement(step_s=0.010, baselines=None, bound_s=0.008, placer="auto", **fields):
    return Placement(
        op_names=("a", "b", "c"),
        device_names=("GPU:0", "GPU:1"),
        op_device=np.array([0, 0, 1], np.int32),
        cost=cost(step_s),
        bound_s=bound_s,
        placer=placer,
        seed=7,
        graph_fingerprint="0123456789abcdef",
        topology_fingerprint="fedcba9876543210",
        topology_name="2xTest",
        baselines=baselines if baselines is not None else {},
        **fields,
    )


def timeline():
    def times(*values):
        return np.array(values, float)

    return Timeline(
        device_names=("GPU:0", "GPU:1"),
        op_names=("a", "const", "b", "c"),
        op_types=("MatMul", "Const", "Add", "Relu"),
        op_device=np.array([0, 0, 0, 1], np.int32),
        start_s=times(0.0, 0.0, 1 / 3e3, 2 / 3e3),
        finish_s=times(1 / 3e3, 0.0, 2 / 3e3, 1e-3),
        moved=("a",),
        moved_bytes=np.array([4096]),
        moved_src=np.array([0], np.int32),
        moved_dst=np.array([1], np.int32),
        moved_start_s=times(1 / 3e3),
        moved_finish_s=times(2 / 3e3),
        memory_s=times(0.0, 1 / 3e3),
        memory_device=np.array([0, 1], np.int32),
        memory_bytes=np.array([4096, 4096]),
        replicated=np.array([False, True, False, False]),
    )
