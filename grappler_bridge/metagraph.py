"""What Grappler is given: a graph and the ops it must keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from grappler_bridge.check import check_graph


def fetching(graph_def: Any, fetches: Sequence[str]) -> Any:
    """A MetaGraphDef with a copy of `graph_def` and the names of the ops to keep in its `train_op` collection.

    Raises:
      GrapplerInputError: no fetches, or one that is not in the graph, unknown ops, absent functions or inputs, names
        that occur twice: Grappler would crash, drop everything, or pass them on.
    """
    meta = tf.compat.v1.MetaGraphDef()
    meta.graph_def.CopyFrom(graph_def)
    meta.collection_def["train_op"].node_list.value.extend(fetches)
    check_graph(meta, flat=False)
    return meta
