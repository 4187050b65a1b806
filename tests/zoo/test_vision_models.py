import numpy as np
import pytest
from tfplace_zoo import amoebanet, efficientnet, nasnet, resnet, vit, zoo


def one_step(built, *, eagerly=True):
    """The loss of one real training step; eagerly, since tracing hundreds of layers takes longer."""
    built.model.run_eagerly = eagerly
    images, labels = built.batch
    rng = np.random.default_rng(0)
    return built.model.train_on_batch(
        rng.normal(size=images.shape).astype(np.float32), rng.integers(0, 2, labels.shape).astype(np.int32)
    )


@pytest.mark.parametrize(
    ("make", "params"),
    [
        pytest.param(resnet.build, {"size": 32}, marks=pytest.mark.slow, id="resnet50"),
        pytest.param(efficientnet.build, {"size": 32}, id="efficientnet"),
        pytest.param(nasnet.build, {"size": 32, "cells": 3, "filters": 8}, marks=pytest.mark.slow, id="nasnet"),
        pytest.param(
            nasnet.build,
            {"size": 32, "cells": 6, "filters": 8, "variant": "large"},
            marks=pytest.mark.slow,
            id="nasnet_large",
        ),
        pytest.param(amoebanet.build, {"size": 32, "cells": 3, "filters": 16}, id="amoebanet_d"),
        pytest.param(
            amoebanet.build,
            {"size": 32, "cells": 3, "filters": 16, "variant": "a"},
            marks=pytest.mark.slow,
            id="amoebanet_a",
        ),
        pytest.param(vit.build, {"size": 16, "patch": 8, "layers": 2, "width": 8, "heads": 2}, id="vit"),
    ],
)
def test_one_training_step(make, params):
    built = make(batch=2, classes=10, **params)
    before = [np.array(w) for w in built.model.trainable_weights]
    assert np.isfinite(one_step(built))
    assert any(not np.array_equal(b, w) for b, w in zip(before, built.model.trainable_weights, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["amoebanet", "efficientnet", "nasnet", "resnet50", "resnet152"])
def test_one_training_step_as_a_graph(name):
    small = {"cells": 3, "filters": 16} if name in ("amoebanet", "nasnet") else {}
    assert np.isfinite(one_step(zoo.build(name, batch=2, classes=10, size=32, **small), eagerly=False))


def test_wrong_parameters_are_refused():
    with pytest.raises(ValueError, match=r"depth=18.*50, 101, 152"):
        resnet.build(depth=18)
    with pytest.raises(ValueError, match=r"variant='huge'.*mobile, large"):
        nasnet.build(variant="huge")
    with pytest.raises(ValueError, match="variant='z'"):
        amoebanet.build(variant="z")
    with pytest.raises(ValueError, match="filters=8"):
        amoebanet.build(filters=8)
    with pytest.raises(ValueError, match=r"variant=8.*0 to 7"):
        efficientnet.build(variant=8)


# Numbers of parameters. Everywhere a convolution is followed by batch normalisation, which has 4 numbers a channel.


def conv(inputs, outputs, window=1, *, bias=False):
    return inputs * outputs * window + (outputs if bias else 0) + 4 * outputs


def resnet_parameters(blocks, classes=1000):
    total, width = conv(3, 64, 49, bias=True), 64
    for stage, count in enumerate(blocks):
        inner = 64 << stage
        for i in range(count):
            total += conv(width, inner, bias=True) + conv(inner, inner, 9, bias=True)
            total += conv(inner, 4 * inner, bias=True) + (conv(width, 4 * inner, bias=True) if i == 0 else 0)
            width = 4 * inner
    return total + width * classes + classes


@pytest.mark.parametrize(
    ("depth", "blocks", "published"),
    [(50, (3, 4, 6, 3), 25_636_712), pytest.param(152, (3, 8, 36, 3), 60_419_944, marks=pytest.mark.slow)],
)
def test_resnet_parameters(depth, blocks, published):
    assert resnet_parameters(blocks) == published
    assert resnet.build(depth=depth, size=32).model.count_params() == published


def test_efficientnet_parameters():
    # (kernel side, repeats, filters, expansion) of B0: Tan and Le 2019, table 1.
    stages = [
        (3, 1, 16, 1),
        (3, 2, 24, 6),
        (5, 2, 40, 6),
        (3, 3, 80, 6),
        (5, 3, 112, 6),
        (5, 4, 192, 6),
        (3, 1, 320, 6),
    ]
    total, width = conv(3, 32, 9), 32
    for side, repeats, filters, expansion in stages:
        for _ in range(repeats):
            inner, squeezed = width * expansion, width // 4
            total += conv(width, inner) if expansion > 1 else 0
            total += side * side * inner + 4 * inner
            total += inner * squeezed + squeezed + squeezed * inner + inner
            total += conv(inner, filters)
            width = filters
    total += conv(width, 1280) + 1280 * 1000 + 1000
    assert total == 5_330_564
    input_statistics = 7  # mean and variance of three channels, and a count
    assert efficientnet.build(size=32).model.count_params() == total + input_statistics


def vit_parameters(layers, width, patch=16, size=224, classes=1000):
    tokens = (size // patch) ** 2 + 1
    embedding = 3 * patch**2 * width + width + width + tokens * width
    return embedding + layers * (12 * width**2 + 13 * width) + 2 * width + width * classes + classes


def test_vit_parameters():
    assert vit_parameters(12, 768) == 86_567_656
    assert vit_parameters(24, 1024) == 304_326_632
    assert vit.build().model.count_params() == vit_parameters(12, 768)
    small = vit.build(layers=3, width=16, heads=4, patch=4, size=8, classes=7)
    assert small.model.count_params() == vit_parameters(3, 16, 4, 8, 7)


def test_nasnet_mobile_parameters():
    assert nasnet.build(size=32).model.count_params() == 5_326_716


@pytest.mark.slow
def test_nasnet_large_parameters():
    assert nasnet.build(variant="large", size=32).model.count_params() == 88_949_818


# What AmoebaNet's cells are made of, from the paper's figures (A: figure 5) and the authors' program (D), written down
# apart from the model: two operations of each pair with the state they read, then the states that come out.
SEPARABLE = {k: [f"separable {k}x{k}"] * 2 for k in (3, 5, 7)}
ONE, SEVEN = ["conv 1x1"], ["conv 1x1", "conv 1x7", "conv 7x1", "conv 1x1"]
THREE, AVERAGE, MOST, MOST_2, NONE = ["conv 1x1", "conv 3x3", "conv 1x1"], ["avg 3x3"], ["max 3x3"], ["max 2x2"], []
WIRING = {
    ("a", "cell_1"): (
        [
            (AVERAGE, 0, MOST, 0),
            (SEPARABLE[3], 1, NONE, 1),
            (NONE, 0, AVERAGE, 1),
            (SEPARABLE[3], 0, SEPARABLE[5], 2),
            (AVERAGE, 5, SEPARABLE[3], 0),
        ],
        [1, 3, 4, 6],
    ),
    ("a", "reduction_2"): (
        [
            (SEPARABLE[3], 1, AVERAGE, 0),
            (MOST, 0, SEPARABLE[7], 2),
            (MOST, 1, MOST, 0),
            (SEPARABLE[3], 4, SEVEN, 0),
            (AVERAGE, 1, SEPARABLE[7], 0),
        ],
        [2, 3, 4, 5, 6],
    ),
    ("d", "cell_1"): (
        [(ONE, 1, MOST, 1), (NONE, 1, SEVEN, 0), (ONE, 0, SEVEN, 0), (MOST, 2, NONE, 2), (AVERAGE, 1, ONE, 5)],
        [0, 3, 4, 6],
    ),
    ("d", "reduction_2"): (
        [(MOST_2, 0, MOST, 0), (NONE, 2, THREE, 1), (SEVEN, 2, MOST, 2), (NONE, 3, MOST_2, 1), (AVERAGE, 2, ONE, 3)],
        [4, 5, 6],
    ),
}


def layer_of(tensor):
    return tensor._keras_history.operation


def window(layer):
    """What a layer does, such as "conv 1x7"; nothing for activations and normalisations."""
    kinds = {"Conv2D": "conv", "SeparableConv2D": "separable", "AveragePooling2D": "avg", "MaxPooling2D": "max"}
    kind = kinds.get(type(layer).__name__)
    size = getattr(layer, "kernel_size", None) or getattr(layer, "pool_size", None)
    return [f"{kind} {size[0]}x{size[1]}"] if kind else []


def trace(tensor, prefix):
    """The operations of one side of a pair, first to last, their strides together, and the state that they read."""
    operations, stride = [], np.array([1, 1])
    while (layer := layer_of(tensor)).name.startswith(prefix):
        operations = window(layer) + operations
        stride = stride * getattr(layer, "strides", 1)
        tensor = layer.input
    return operations, stride.tolist(), tensor


@pytest.fixture(scope="module", params=["a", "d"])
def variant_and_model(request):
    return request.param, amoebanet.build(batch=2, variant=request.param, cells=6, filters=16, size=64).model


@pytest.mark.parametrize("name", ["cell_1", "reduction_2"])
def test_amoebanet_cells_are_wired_as_published(variant_and_model, name):
    variant, model = variant_and_model
    pairs, output = WIRING[variant, name]
    states = [model.get_layer(f"{name}_input_norm").output, model.get_layer(f"{name}_before_norm").output]
    for i, (left, left_state, right, right_state) in enumerate(pairs):
        added = model.get_layer(f"{name}_{i}")
        for side, tensor, operations, state in zip(
            ("left", "right"), added.input, (left, right), (left_state, right_state), strict=True
        ):
            got, stride, source = trace(tensor, f"{name}_{i}_{side}")
            assert got == operations
            assert source is states[state]
            if operations:
                assert stride == ([2, 2] if name.startswith("reduction") and state < 2 else [1, 1])
        states.append(added.output)
    joined = model.get_layer(f"{name}_output").input
    assert [next(i for i, s in enumerate(states) if s is t) for t in joined] == output


def test_amoebanet_stacks(variant_and_model):
    _, model = variant_and_model
    sides = {n: model.get_layer(f"{n}_output").output.shape[1] for n in ("stem_0", "stem_1", "cell_0", "cell_1")}
    assert sides == {"stem_0": 16, "stem_1": 8, "cell_0": 8, "cell_1": 8}
    for i, (side, filters) in enumerate([(8, 16), (8, 16), (4, 32), (4, 32), (2, 64), (2, 64)]):
        shape = model.get_layer(f"cell_{i}_4").output.shape
        assert (shape[1], shape[3]) == (side, filters)
    assert layer_of(model.get_layer("cell_3_before_relu").input).name == "reduction_2_output"
    assert layer_of(model.get_layer("cell_2_before_relu").input).name == "cell_1_output"


def operation_parameters(kinds, inputs, filters):
    total, inner = 0, filters // 4
    for kind in kinds:
        name, _, size = kind.partition(" ")
        high, wide = map(int, size.split("x"))
        if name == "separable":
            total += high * wide * inputs + inputs * filters + 4 * filters
            inputs = filters
    if kinds and kinds[0].startswith("conv"):
        middle = [int(k[5]) * int(k[7]) for k in kinds[1:-1]]
        if middle:
            return conv(inputs, inner) + sum(conv(inner, inner, m) for m in middle) + conv(inner, filters)
        return conv(inputs, filters)
    if kinds and kinds[0][:3] in ("avg", "max") and inputs != filters:
        return conv(inputs, filters)
    return total


def cell_parameters(variant, name, inputs, before, filters, *, halved):
    """Parameters of a cell and its number of output channels; `halved` if the cell before the last is larger."""
    pairs, output = WIRING[variant, name]
    total = conv(inputs, filters)
    if before is None:
        channels = [filters, inputs]
    else:
        total += conv(before, filters) if halved or before != filters else 0
        channels = [filters, filters]
    for pair in pairs:
        for kinds, state in (pair[:2], pair[2:]):
            strided = name.startswith("reduction") and state < 2
            if kinds or not strided:
                total += operation_parameters(kinds, channels[state], filters)
            else:
                total += conv(channels[state], filters)
        channels.append(filters)
    return total, filters * len(output)


def amoebanet_parameters(variant, cells, filters, classes=1000):
    total, last, before, halved = conv(3, 32, 9), 32, None, False
    for width in (filters // 4, filters // 2):
        more, out = cell_parameters(variant, "reduction_2", last, before, width, halved=halved)
        total, last, before, halved = total + more, out, last, True
    for i in range(cells):
        width = filters << sum(i >= cells * k // 3 for k in (1, 2))
        if i in (cells // 3, cells * 2 // 3):
            more, out = cell_parameters(variant, "reduction_2", last, before, width, halved=halved)
            total, last, before, halved = total + more, out, last, True
        more, out = cell_parameters(variant, "cell_1", last, before, width, halved=halved)
        total, last, before, halved = total + more, out, last, False
    return total + last * classes + classes


def test_amoebanet_parameters(variant_and_model):
    variant, model = variant_and_model
    assert model.count_params() == amoebanet_parameters(variant, 6, 16)


@pytest.mark.parametrize(
    ("variant", "filters", "published_millions"), [("a", 190, 86.7), ("d", 208, 82), ("d", 416, 318), ("d", 544, 542)]
)
def test_amoebanet_sizes_are_the_published_ones(variant, filters, published_millions):
    # Real et al. 2019, table 2 (A); Huang et al. 2019, table 1 (D).
    assert amoebanet_parameters(variant, 18, filters) / 1e6 == pytest.approx(published_millions, rel=0.01)
