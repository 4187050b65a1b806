"""How each tensor of a step is divided among slices of the batch, and the rule of each kind of op for it."""

from tfplace.transforms.sharding import control, draws, elementwise, gathers, layout, products, reductions
from tfplace.transforms.sharding.registry import RULES

__all__ = ["RULES", "control", "draws", "elementwise", "gathers", "layout", "products", "reductions"]
