"""Grappler's graph optimizers, run on a MetaGraphDef outside of any session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.grappler import cluster as grappler_cluster
from tensorflow.python.grappler import tf_optimizer

from grappler_bridge.check import fetched_ops
from grappler_bridge.errors import GrapplerError, GrapplerInputError, grappler_errors
from grappler_bridge.metagraph import fetching


def optimize_graph(graph_def: Any, fetches: Sequence[str], passes: Sequence[str], kept: Sequence[str] = ()) -> Any:
    """Runs Grappler passes and returns the new `GraphDef`.

    The pass "function" inlines called functions and lowers While and If to Switch and Merge; "pruning" drops what no
    fetch needs; "constfold" and "dependency" fold constants and remove needless control edges. All keep the graph valid
    for any later placement; passes such as "remap" (fusions) or "memory" (which adds device-bound nodes) do not.

    Args:
      graph_def: the graph with its function library; every function it calls must be in it.
      fetches: names of the ops to keep, with all they depend on. Placeholders stay only if they are among them.
      passes: Grappler optimizer names, in order.
      kept: names of ops that are to stay what they are; fetches with one output may still become constants.

    Raises:
      GrapplerInputError: no fetches, or one or an op to keep that is not in the graph, unknown ops, absent functions
        or inputs, names that occur twice.
      GrapplerError: Grappler gave up, or lost what was to stay.
    """
    meta = fetching(graph_def, fetches)
    if kept:
        if absent := sorted({*kept} - {node.name for node in graph_def.node}):
            raise GrapplerInputError(f"ops to keep that the graph lacks: {absent[:3]}", "names of ops of the graph")
        meta.collection_def["table_initializer"].node_list.value.extend(kept)  # Grappler leaves such ops alone
    config = tf.compat.v1.ConfigProto()
    options = config.graph_options.rewrite_options
    options.min_graph_nodes = -1
    options.meta_optimizer_iterations = 1  # RewriterConfig.ONE
    options.optimizers.extend(passes)
    # It runs before all passes, whichever are asked for, and cannot write the types that it lacks, such as float8_e5m2.
    options.disable_tfg_optimizer = True
    with grappler_errors("optimize the graph"):
        # Without a cluster Grappler starts a session on this machine's devices, and logs two lines each time.
        cluster = grappler_cluster.Cluster(devices=[])
        optimised = tf_optimizer.OptimizeGraph(config, meta, verbose=False, cluster=cluster)
    if lost := sorted({*fetched_ops(meta)} - {node.name for node in optimised.node}):
        # A graph of 2 GiB comes back empty, without a word.
        raise GrapplerError(
            f"Grappler lost {len(lost)} ops that it was told to keep, such as {lost[0]!r}, by {', '.join(passes)}"
        )
    return optimised
