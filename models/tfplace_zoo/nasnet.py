"""NASNet-A, cells found by architecture search, on ImageNet-sized images."""

from __future__ import annotations

from dataclasses import replace

from tfplace_zoo.base import Model
from tfplace_zoo.cells import Cell, Plan, network
from tfplace_zoo.imagenet import classifier

NORMAL = Cell(
    (
        (("separable_5x5", 0), ("separable_3x3", 1)),
        (("separable_5x5", 1), ("separable_3x3", 1)),
        (("avg_pool_3x3", 0), ("none", 1)),
        (("avg_pool_3x3", 1), ("avg_pool_3x3", 1)),
        (("separable_3x3", 0), ("none", 0)),
    ),
    output=(1, 2, 3, 4, 5, 6),
)
REDUCTION = Cell(
    (
        (("separable_5x5", 0), ("separable_7x7", 1)),
        (("max_pool_3x3", 0), ("separable_7x7", 1)),
        (("avg_pool_3x3", 0), ("separable_5x5", 1)),
        (("avg_pool_3x3", 2), ("none", 3)),
        (("separable_3x3", 2), ("max_pool_3x3", 0)),
    ),
    output=(3, 4, 5, 6),
)
_PLANS = {
    "mobile": (224, Plan(NORMAL, REDUCTION, cells=12, filters=44)),
    "large": (331, Plan(NORMAL, REDUCTION, cells=18, filters=168, stem=96, skip=True)),
}


def build(
    batch: int = 32,
    *,
    variant: str = "mobile",
    cells: int | None = None,
    filters: int | None = None,
    size: int | None = None,
    classes: int = 1000,
    dropout: float = 0.5,
) -> Model:
    """The training step of NASNet-A.

    Args:
      batch: images in a step.
      variant: "mobile" (NASNet-A 4 @ 1056) or "large" (6 @ 4032), which says what the following are by default.
      cells: normal cells, in three stacks.
      filters: of every operation in the first stack; twice as many in each further stack.
      size: height and width in pixels.
      classes: number of labels.
      dropout: rate before the last layer.

    Raises:
      ValueError: another variant.
    """
    import keras

    if variant not in _PLANS:
        raise ValueError(f"received variant={variant!r}; expected one of {', '.join(_PLANS)}.")
    side, plan = _PLANS[variant]
    given = {"cells": cells, "filters": filters}
    plan = replace(plan, **{name: value for name, value in given.items() if value is not None})
    side = side if size is None else size
    images = keras.Input((side, side, 3), batch_size=batch, name="images")
    return classifier(
        "nasnet",
        keras.Model(images, network(images, plan, classes, dropout), name="nasnet"),
        batch,
        keras.optimizers.RMSprop(0.045, rho=0.9, momentum=0.9, epsilon=1.0),
        paper="Zoph et al. 2018 (NASNet-A); placed by Placeto, which does not say at which size",
        departures="no auxiliary classifier after the second stack; no ScheduledDropPath, label smoothing, clipping or "
        "weight decay",
    )
