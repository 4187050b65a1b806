"""Networks of cells that were found by architecture search: NASNet's search space, which AmoebaNet shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_POOLS = {"avg_pool": "AveragePooling2D", "max_pool": "MaxPooling2D"}

Pair = tuple[tuple[str, int], tuple[str, int]]


@dataclass(frozen=True)
class Cell:
    """How a cell is wired.

    State 0 is the output of the cell before, state 1 that of the cell before it; every pair makes the next state.

    Attributes:
      pairs: two operations each, with the state either reads; their results are added.
      output: states that are concatenated.
    """

    pairs: tuple[Pair, ...]
    output: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """A network for ImageNet: a stem of a convolution and two reduction cells, then three stacks of normal cells.

    A reduction cell stands before the second and the third stack, halves height and width, and doubles the filters.

    Attributes:
      normal: the cell of the stacks.
      reduction: the cell between them.
      cells: normal cells of all stacks.
      filters: of every operation in the first stack.
      stem: filters of the first convolution.
      skip: the first cell of a stack reads, beside the reduction cell, what that read second instead of first.
    """

    normal: Cell
    reduction: Cell
    cells: int
    filters: int
    stem: int = 32
    skip: bool = False


def network(images: Any, plan: Plan, classes: int, dropout: float) -> Any:
    """[B, classes] probabilities for [B, height, width, 3] images.

    Args:
      images: a Keras input.
      plan: what the network is made of.
      classes: number of labels.
      dropout: rate before the last layer.
    """
    from keras import layers

    x = layers.Conv2D(plan.stem, 3, strides=2, use_bias=False, name="stem_conv")(images)
    x, before = _norm(x, "stem"), None
    for i in range(2):
        x, before = _cell((x, before), plan.reduction, plan.filters * (i + 1) // 4, 2, f"stem_{i}"), x
    borders = [plan.cells * i // 3 for i in (1, 2)]
    for i in range(plan.cells):
        filters = plan.filters << sum(i >= border for border in borders)
        last = before
        for _ in range(borders.count(i)):
            x, before = _cell((x, before), plan.reduction, filters, 2, f"reduction_{i}"), x
        x, before = _cell((x, last if plan.skip else before), plan.normal, filters, 1, f"cell_{i}"), x
    x = layers.GlobalAveragePooling2D(name="pool")(layers.ReLU(name="last_relu")(x))
    x = layers.Dropout(dropout, name="dropout")(x)
    return layers.Dense(classes, activation="softmax", name="predictions")(x)


def _cell(inputs: tuple[Any, Any], cell: Cell, filters: int, stride: int, name: str) -> Any:
    """The output of a cell that reads the last and the one before; only the reading of those two strides."""
    from keras import layers

    x, before = inputs
    states = [_conv(x, filters, 1, 1, f"{name}_input"), _match(before, x, filters, f"{name}_before")]
    for i, pair in enumerate(cell.pairs):
        sides = [
            _operate(states[state], operation, filters, stride if state < 2 else 1, f"{name}_{i}_{side}")
            for (operation, state), side in zip(pair, ("left", "right"), strict=True)
        ]
        states.append(layers.Add(name=f"{name}_{i}")(sides))
    return layers.Concatenate(name=f"{name}_output")([states[i] for i in cell.output])


def _match(before: Any, x: Any, filters: int, name: str) -> Any:
    """The cell before the last in the height and width of the last; the very first cell reads its input twice."""
    if before is None:
        return x
    if before.shape[1] != x.shape[1]:
        return _halve(before, filters, name)
    return before if before.shape[-1] == filters else _conv(before, filters, 1, 1, name)


def _halve(x: Any, filters: int, name: str) -> Any:
    """Every second pixel and, beside them, every second pixel from one further down and right."""
    from keras import layers

    x = layers.ReLU(name=f"{name}_relu")(x)
    shifted = layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"{name}_pad")(x)
    shifted = layers.Cropping2D(((1, 0), (1, 0)), name=f"{name}_crop")(shifted)
    halves = []
    for i, part in enumerate((x, shifted)):
        kept = layers.AveragePooling2D(1, 2, name=f"{name}_skip_{i}")(part)
        halves.append(layers.Conv2D((filters + i) // 2, 1, use_bias=False, name=f"{name}_conv_{i}")(kept))
    return _norm(layers.Concatenate(name=f"{name}_concat")(halves), name)


def _operate(x: Any, operation: str, filters: int, stride: int, name: str) -> Any:
    """One operation of a pair; `none` is the identity where that has the right shape."""
    kind, _, window = operation.rpartition("_")
    if operation == "none" and stride == 1 and x.shape[-1] == filters:
        return x
    if operation in ("none", "1x1"):
        return _conv(x, filters, 1, stride, name)
    if kind == "separable":
        for part, by in (("first", stride), ("second", 1)):
            x = _separable(x, filters, int(window[0]), by, f"{name}_{part}")
        return x
    if kind in _POOLS:
        return _pool(x, operation, filters, stride, name)
    return _bottleneck(x, operation, filters, stride, name)


def _bottleneck(x: Any, operation: str, filters: int, stride: int, name: str) -> Any:
    """A 3x3 convolution, or a 1x7 and a 7x1, on a quarter of the filters."""
    known: dict[str, dict[str, Any]] = {
        "3x3": {"3x3": (3, stride)},
        "1x7_7x1": {"1x7": ((1, 7), (1, stride)), "7x1": ((7, 1), (stride, 1))},
    }
    x = _conv(x, filters // 4, 1, 1, f"{name}_squeeze")
    for part, (window, by) in known[operation].items():
        x = _conv(x, filters // 4, window, by, f"{name}_{part}")
    return _conv(x, filters, 1, 1, name)


def _pool(x: Any, operation: str, filters: int, stride: int, name: str) -> Any:
    from keras import layers

    kind, _, window = operation.rpartition("_")
    pooled = getattr(layers, _POOLS[kind])(int(window[0]), stride, "same", name=f"{name}_pool")(x)
    if x.shape[-1] == filters:
        return pooled
    return _norm(layers.Conv2D(filters, 1, use_bias=False, name=f"{name}_conv")(pooled), name)


def _separable(x: Any, filters: int, window: int, stride: int, name: str) -> Any:
    """ReLU, depthwise and pointwise convolution, batch normalisation."""
    from keras import layers

    x = layers.ReLU(name=f"{name}_relu")(x)
    x = layers.SeparableConv2D(filters, window, stride, "same", use_bias=False, name=f"{name}_separable")(x)
    return _norm(x, name)


def _conv(x: Any, filters: int, window: Any, stride: Any, name: str) -> Any:
    """ReLU, convolution, batch normalisation."""
    from keras import layers

    x = layers.ReLU(name=f"{name}_relu")(x)
    return _norm(layers.Conv2D(filters, window, stride, "same", use_bias=False, name=f"{name}_conv")(x), name)


def _norm(x: Any, name: str) -> Any:
    from keras import layers

    return layers.BatchNormalization(momentum=0.9997, epsilon=1e-3, name=f"{name}_norm")(x)
