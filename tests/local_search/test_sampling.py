"""Draws by shares."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tfplace.local_search.sampling import pick


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_pick_finds_the_interval(seed):
    rng = np.random.default_rng(seed)
    share = rng.random((5, 4)) * (rng.random((5, 4)) < 0.6)
    share[:, rng.integers(4)] += 0.1
    keys = np.concatenate([rng.random((6, 5)), np.zeros((1, 5)), np.full((1, 5), np.nextafter(1.0, 0.0))])
    for row, devices in zip(keys, pick(keys, share), strict=True):
        for key, lengths, device in zip(row, share, devices, strict=True):
            below, upto = lengths[:device].sum() / lengths.sum(), lengths[: device + 1].sum() / lengths.sum()
            assert lengths[device] > 0
            assert below - 1e-12 <= key <= upto + 1e-12
