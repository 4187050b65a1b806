"""The network and its training step's graph."""

from __future__ import annotations

import pytest

import tfplace
from tests.execution.net import Net, X


@pytest.fixture
def net() -> Net:
    return Net()


@pytest.fixture
def graph(net):
    return tfplace.extract(net.train, (X,))
