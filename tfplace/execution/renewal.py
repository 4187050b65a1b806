"""What TensorFlow loses when it begins to listen for workers, which empties the containers of this process's resources.

Lookup tables, queues and the like are found there by name, and are gone. A variable's storage is also found by its
handle: it can still be read, but what is assigned to it goes to another one, which nobody reads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from tfplace.errors import ClusterError
from tfplace.execution.variables import copied, piped, rebind
from tfplace.extraction import tf_internals

_NAMED = (tf.saved_model.experimental.TrackableResource, tf.queue.QueueBase)
"""Classes of lookup tables, writers of summaries, and queues."""


@contextlib.contextmanager
def renewed() -> Iterator[None]:
    """Lets TensorFlow empty its containers inside, and then gives every variable new storage with its value.

    Functions that captured the old storage use the new one.

    Raises:
      ClusterError: something is there that would be lost.
    """
    variables = [v for v in tf_internals.live(tf.Variable) if tf_internals.has_storage(v)]
    read = piped(dict(enumerate(variables)))
    lost = [f"variable {v.name!r}, which an input pipeline reads" for v in read.values()]
    lost += [f"variable {v.name!r}, which has no value yet" for v in variables if not v.is_initialized()]
    lost += [f"a {type(thing).__name__}" for thing in tf_internals.live(*_NAMED)]
    if lost:
        raise ClusterError(
            f"{', '.join(dict.fromkeys(lost))} in a process that connects to a cluster, which loses them",
            "a process that connects before it makes them",
            "First create PlacementCallback(..., cluster=...), or call tfplace.execution.hosts.listen_for(cluster).",
        )
    yield
    old = [variable.handle for variable in variables]
    for variable in variables:
        tf_internals.swap_handle(variable, copied(variable, variable.handle.device))
    rebind(variables, old)
