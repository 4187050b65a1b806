"""Small steps to be measured, and placements of them."""

import tensorflow as tf

import tfplace
from tfplace.core.problem import Problem
from tfplace.testing import make_topology

v1 = tf.compat.v1


def two_towers(size: int = 32, layers: int = 2):
    """Two towers of products, each with a variable of its own that grows by what comes out."""
    towers = [tf.Variable(tf.zeros((size, size)), name=f"tower{i}") for i in range(2)]

    @tf.function
    def step(x):
        for tower in towers:
            h = x
            for _ in range(layers):
                h = tf.tanh(tf.matmul(h, x) + tower)
            tower.assign_add(h / 100)

    step.towers = towers  # alive as long as the step
    return tfplace.extract(step, (tf.TensorSpec((size, size)),))


def problem_of(graph, num_devices: int = 2) -> Problem:
    """On CPU devices called CPU:0, CPU:1, ..."""
    return tfplace.formulate(graph, make_topology(num_devices, types="CPU"))


def file_problem(build, num_devices: int = 2) -> Problem:
    """Of a TensorFlow 1 graph; `build` makes an op "step"."""
    with tf.Graph().as_default() as graph:
        build()
        return problem_of(tfplace.extract(graph.as_graph_def(), fetches=("step",)), num_devices)
