"""Damaged graphs are refused before native code, which would end the process, is given them."""

from __future__ import annotations

import pytest
import tensorflow as tf

import tfplace
from tfplace.errors import SourceError


def graph_of(build):
    with tf.Graph().as_default() as graph:
        build()
    return graph.as_graph_def()


def whole():
    """A constant [2], a sum, its square, an op without outputs, a call of a function and a split into two."""

    def build():
        x = tf.constant([1.0, 2.0], name="c")
        square = tf.square(x + tf.compat.v1.placeholder(tf.float32, [2]), name="square")
        tf.no_op(name="nothing")
        tf.identity(tf.function(tf.exp)(square), name="called")
        tf.split(square, 2, name="split")

    return graph_of(build)


@pytest.fixture
def graph():
    return whole()


def node(graph, name):
    return next(n for n in graph.node if n.name == name)


def body(graph):
    return graph.library.function[0]


def receive_from_nowhere(g):
    g.node.add(name="r", op="_Recv")


def attribute_missing(g):
    del node(g, "square").attr["T"]


def attribute_of_another_kind(g):
    node(g, "square").attr["T"].i = 1


def attribute_without_value(g):
    node(g, "square").attr["T"].Clear()


def attribute_unknown(g):
    node(g, "square").attr["extra"].i = 1


def attribute_not_allowed(g):
    node(g, "square").attr["T"].type = tf.string.as_datatype_enum


def type_0(g):
    node(g, "square").attr["T"].type = 0


def type_99(g):
    node(g, "square").attr["T"].type = 99


def number_below_least(g):
    node(g, "split").attr["num_split"].i = 0


def number_without_end(g):
    node(g, "split").attr["num_split"].i = 2**40


def dimension(g):
    return node(g, "c").attr["value"].tensor.tensor_shape.dim


def negative_dimension(g):
    dimension(g)[0].size = -5


def open_constant(g):
    dimension(g)[0].size = -1


def product_over_int64(g):
    for _ in range(2):
        dimension(g).add().size = 2**40


def too_many_dimensions(g):
    for _ in range(255):
        dimension(g).add().size = 1


def content_too_short(g):
    dimension(g)[0].size = 3


def content_of_another_type(g):
    value = node(g, "c").attr["value"].tensor
    value.tensor_content = b""
    value.int_val.append(3)


def more_values_than_elements(g):
    value = node(g, "c").attr["value"].tensor
    value.tensor_content = b""
    value.float_val.extend([1, 2, 3])


def constant_over_2_gib(g):
    value = node(g, "c").attr["value"].tensor
    value.tensor_content = b""
    value.float_val.append(1)
    dimension(g)[0].size = 2**40


def tensor_on_another_op(g):
    node(g, "square").attr["_extra"].tensor.tensor_shape.dim.add().size = -5


def name_twice(g):
    node(g, "square").name = "c"


def name_with_a_line_break(g):
    g.node.add(name="a\nb", op="NoOp")


def name_in_other_letters(g):
    g.node.add(name="ä", op="NoOp")


def name_of_nothing(g):
    g.node.add(name="", op="NoOp")


def input_of_three_parts(g):
    node(g, "square").input[0] = "c:b:c"


def input_without_a_name(g):
    node(g, "square").input[0] = ":0"


def control_input_with_a_slot(g):
    node(g, "square").input.append("^c:0")


def slot_of_400_digits(g):
    node(g, "square").input[0] = "c:" + "9" * 400


def slot_beyond_the_outputs(g):
    node(g, "square").input[0] = "c:7"


def data_from_an_op_without_outputs(g):
    node(g, "square").input[0] = "nothing"


def input_of_another_type(g):
    node(g, "square").attr["T"].type = tf.int32.as_datatype_enum


def input_missing(g):
    del node(g, "square").input[:]


def input_too_many(g):
    node(g, "square").input.append("c")


def control_before_data(g):
    node(g, "square").input[:] = ["^nothing", "c"]


def function_twice(g):
    g.library.function.add().CopyFrom(body(g))


def function_with_a_damaged_op(g):
    del body(g).node_def[0].attr["T"]


def function_with_a_dangling_input(g):
    body(g).node_def[0].input[0] = "nowhere"


def function_without_its_result(g):
    body(g).ret.clear()


def function_of_an_unknown_type(g):
    body(g).signature.input_arg[0].type = 0


SPOILT = [
    (receive_from_nowhere, "'r'", "kind"),
    (attribute_missing, "without attribute 'T'", "type"),
    (attribute_of_another_kind, "'T', of kind i", "type"),
    (attribute_without_value, "'T', without a value", "a value"),
    (attribute_unknown, "attribute 'extra'", "T"),
    (attribute_not_allowed, "string", "float"),
    (type_0, "type 0", "type"),
    (type_99, "type 99", "type"),
    (number_below_least, "'num_split', of 0", "at least 1"),
    (number_without_end, str(2**40), "65536"),
    (negative_dimension, "-5", "-1"),
    (open_constant, "unknown shape", "known"),
    (product_over_int64, str(2**40), "2^63"),
    (too_many_dimensions, "256 dimensions", "254"),
    (content_too_short, "8 bytes", "12 bytes"),
    (content_of_another_type, "int_val", "float_val"),
    (more_values_than_elements, "3 values", "at most 2"),
    (constant_over_2_gib, str(2**40), "bytes"),
    (tensor_on_another_op, "'_extra'", "type"),
    (name_twice, "'c'", "unique"),
    (name_with_a_line_break, r"'a\nb'", "letters"),
    (name_in_other_letters, "'ä'", "letters"),
    (name_of_nothing, "''", "letters"),
    (input_of_three_parts, "'c:b:c'", "op:number"),
    (input_without_a_name, "':0'", "op:number"),
    (control_input_with_a_slot, "'^c:0'", "^op"),
    (slot_of_400_digits, "'c:99", "op:number"),
    (slot_beyond_the_outputs, "'c:7'", "1 outputs"),
    (data_from_an_op_without_outputs, "'nothing'", "0 outputs"),
    (input_of_another_type, "float32", "int32"),
    (input_missing, "0 inputs", "1"),
    (input_too_many, "2 inputs", "1"),
    (control_before_data, "control input", "first"),
    (function_twice, "two functions", "unique"),
    (function_with_a_damaged_op, "without attribute 'T'", "type"),
    (function_with_a_dangling_input, "'nowhere'", "argument"),
    (function_without_its_result, "result", "each"),
    (function_of_an_unknown_type, "type 0", "type"),
]


def test_the_graph_itself_is_read(graph):
    assert {"Square", "Exp", "Split"} <= set(tfplace.extract(graph).op_types)


@pytest.mark.parametrize(("spoil", "received", "expected"), SPOILT, ids=[spoil.__name__ for spoil, *_ in SPOILT])
def test_what_is_refused(graph, spoil, received, expected):
    spoil(graph)
    with pytest.raises(SourceError) as caught:
        tfplace.extract(graph)
    assert received in caught.value.received
    assert expected in caught.value.expected


def meta_of(graph):
    meta = tf.compat.v1.MetaGraphDef()
    meta.graph_def.CopyFrom(graph)
    return meta


def test_what_a_metagraph_says_besides(graph):
    meta = meta_of(graph)
    meta.collection_def["trainable_variables"].bytes_list.value.append(b"\xff\xff garbage")
    with pytest.raises(SourceError) as caught:
        tfplace.extract(meta)
    assert "trainable_variables" in caught.value.received and caught.value.expected == "VariableDefs"

    for result in ("square:3", "square:0:0", "square:" + "1" * 5000):
        meta = meta_of(graph)
        meta.signature_def["serving"].outputs["y"].name = result
        with pytest.raises(SourceError) as caught:
            tfplace.extract(meta)
        assert result[:20] in caught.value.received

    meta = meta_of(graph)
    meta.collection_def["train_op"].node_list.value.append("square:b:c")
    with pytest.raises(SourceError) as caught:
        tfplace.extract(meta)
    assert "square:b:c" in caught.value.received


@pytest.mark.parametrize("values", [[1.0], [1.0, 2.0], []])
def test_a_constants_last_value_stands_for_those_that_follow(graph, values):
    tensor = node(graph, "c").attr["value"].tensor
    tensor.tensor_content = b""
    tensor.float_val.extend(values)
    assert tfplace.extract(graph).num_ops
