"""A cluster of two workers for the tests of a module."""

import pytest


@pytest.fixture(scope="module")
def cluster():
    from tests.measurement.clusters import CORES
    from tfplace.measurement.backends.cluster import Cluster

    with Cluster.start(2, cores=CORES, timeout_s=60) as cluster:
        yield cluster
