"""Small graphs on devices that need not exist."""

from __future__ import annotations

import tensorflow as tf

from grappler_bridge.cluster import VirtualDevice

GPU_FLOPS, GPU_BANDWIDTH = 9.3e12, 732e9


def gpus(count: int, **changes) -> list[VirtualDevice]:
    """P100s, and a host."""
    rates = {"flops": GPU_FLOPS, "memory_bandwidth": GPU_BANDWIDTH} | changes
    return [VirtualDevice(f"GPU:{i}", "GPU", **rates) for i in range(count)] + [
        VirtualDevice("CPU:0", "CPU", 1.408e12, 76.8e9)
    ]


def metagraph(build, device: str | None = "GPU:0"):
    """A MetaGraphDef of what `build` makes; the op it returns is fetched, ops are on `device` or where `build` says."""
    graph = tf.Graph()
    with graph.as_default(), tf.device(device and f"/device:{device}"):
        fetch = build()
    meta = tf.compat.v1.MetaGraphDef()
    meta.graph_def.CopyFrom(graph.as_graph_def())
    meta.collection_def["train_op"].node_list.value.append(getattr(fetch, "op", fetch).name)
    return meta


def placeholder(*shape: int):
    return tf.compat.v1.placeholder(tf.float32, shape)


def node(meta, name: str):
    return next(n for n in meta.graph_def.node if n.name == name)
