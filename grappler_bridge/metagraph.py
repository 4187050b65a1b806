"""What Grappler is given: a graph and the ops it must keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def fetching(graph_def: Any, fetches: Sequence[str]) -> Any:
    """A MetaGraphDef with a copy of `graph_def` and the names of the ops to keep in its `train_op` collection.

    Raises:
      ValueError: no fetches, or a fetch that is not in the graph: Grappler would crash, or drop everything.
    """
    names = {node.name for node in graph_def.node}
    absent = [name for name in fetches if name not in names]
    if absent or not fetches:
        raise ValueError(f"Grappler needs fetches that are in the graph; received {fetches[:3]}, absent {absent[:3]}.")
    meta = tf.compat.v1.MetaGraphDef()
    meta.graph_def.CopyFrom(graph_def)
    meta.collection_def["train_op"].node_list.value.extend(fetches)
    return meta
