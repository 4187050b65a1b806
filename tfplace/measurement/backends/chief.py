"""This process's own TensorFlow server, the master of its sessions on workers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfplace.engines.sockets import hear_loopback_only, is_loopback, own_address, split_address
from tfplace.measurement.backends.worker import BOOT_JOB

_LOOPBACK = "127.0.0.1"


def chief_for(addresses: Sequence[str]) -> str:
    """Address of this process's server, as the workers find it: they fetch from it what steps are fed.

    With the master in this process, the loss of any worker is an error at once. A server cannot be ended, so there is
    one for each of this machine's addresses in use, to the end of the process.

    Args:
      addresses: "host:port" of the workers.
    """
    far = [host for host in (split_address(address)[0] for address in addresses) if not is_loopback(host)]
    return _serve(own_address(far[0]) if far else _LOOPBACK)[1]


@functools.cache
def _serve(host: str) -> tuple[Any, str]:
    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0}, intra_op_parallelism_threads=1)
    server = tf.distribute.Server({BOOT_JOB: [f"{host}:0"]}, config=config, start=False)
    port = int(server.target.rpartition(":")[2])
    if is_loopback(host):
        hear_loopback_only(port)
    server.start()
    return server, f"{host}:{port}"


def session_config(chief: str, addresses: Sequence[str], timeout_s: float) -> Any:
    """Of a session on workers: placed as asked or refused, nothing optimized after placing, state of its own.

    The servers know nothing of one another; who is which task is part of each session. So a worker may come back at
    another address.

    Args:
      chief: the master's address.
      addresses: the workers', in the order of their task numbers.
      timeout_s: seconds a run may take.
    """
    config = tf.compat.v1.ConfigProto(
        allow_soft_placement=False, isolate_session_state=True, operation_timeout_in_ms=max(1, round(1000 * timeout_s))
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    spec = tf.train.ClusterSpec({"chief": [chief], "worker": list(addresses)})
    config.cluster_def.CopyFrom(spec.as_cluster_def())
    return config
