"""AmoebaNet-A or -D, cells found by evolution, on ImageNet-sized images."""

from __future__ import annotations

from tfplace_zoo.base import Model
from tfplace_zoo.cells import Cell, Plan, network
from tfplace_zoo.imagenet import classifier

NORMAL = {
    "a": Cell(
        (
            (("avg_pool_3x3", 0), ("max_pool_3x3", 0)),
            (("separable_3x3", 1), ("none", 1)),
            (("none", 0), ("avg_pool_3x3", 1)),
            (("separable_3x3", 0), ("separable_5x5", 2)),
            (("avg_pool_3x3", 5), ("separable_3x3", 0)),
        ),
        output=(1, 3, 4, 6),
    ),
    "d": Cell(
        (
            (("1x1", 1), ("max_pool_3x3", 1)),
            (("none", 1), ("1x7_7x1", 0)),
            (("1x1", 0), ("1x7_7x1", 0)),
            (("max_pool_3x3", 2), ("none", 2)),
            (("avg_pool_3x3", 1), ("1x1", 5)),
        ),
        output=(0, 3, 4, 6),
    ),
}
REDUCTION = {
    "a": Cell(
        (
            (("separable_3x3", 1), ("avg_pool_3x3", 0)),
            (("max_pool_3x3", 0), ("separable_7x7", 2)),
            (("max_pool_3x3", 1), ("max_pool_3x3", 0)),
            (("separable_3x3", 4), ("1x7_7x1", 0)),
            (("avg_pool_3x3", 1), ("separable_7x7", 0)),
        ),
        output=(2, 3, 4, 5, 6),
    ),
    "d": Cell(
        (
            (("max_pool_2x2", 0), ("max_pool_3x3", 0)),
            (("none", 2), ("3x3", 1)),
            (("1x7_7x1", 2), ("max_pool_3x3", 2)),
            (("none", 3), ("max_pool_2x2", 1)),
            (("avg_pool_3x3", 2), ("1x1", 3)),
        ),
        output=(4, 5, 6),
    ),
}


def build(
    batch: int = 32,
    *,
    variant: str = "d",
    cells: int = 18,
    filters: int = 208,
    size: int = 224,
    classes: int = 1000,
    dropout: float = 0.5,
) -> Model:
    """The training step of an AmoebaNet; AmoebaNet-D (18, 208) of GPipe by default.

    Args:
      batch: images in a step.
      variant: "a" or "d".
      cells: normal cells, in three stacks.
      filters: of every operation in the first stack, at least 16; twice as many in each further stack.
      size: height and width in pixels.
      classes: number of labels.
      dropout: rate before the last layer.

    Raises:
      ValueError: another variant, or too few filters.
    """
    import keras

    if variant not in NORMAL or filters < 16:
        raise ValueError(f"received variant={variant!r}, filters={filters}; expected 'a' or 'd' and at least 16.")
    images = keras.Input((size, size, 3), batch_size=batch, name="images")
    plan = Plan(NORMAL[variant], REDUCTION[variant], cells, filters)
    return classifier(
        "amoebanet",
        keras.Model(images, network(images, plan, classes, dropout), name="amoebanet"),
        batch,
        keras.optimizers.RMSprop(0.015, rho=0.9, momentum=0.9, epsilon=1.0),
        paper="Real et al. 2019; size as in GPipe (Huang et al. 2019); placed by GDP, which does not say at which size",
        departures="a cell's output is what the authors' published program concatenates, not, as in the paper, the "
        "states that nothing reads; no auxiliary classifier, drop path, label smoothing, clipping or weight decay",
    )
