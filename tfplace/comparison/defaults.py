"""Who is compared on one's own problem, by objective. Loads nothing, so that a command can say it at once."""

from tfplace.core.stepcost import STEP_TIME, THROUGHPUT
from tfplace.options import COMPARED

ALWAYS = {
    STEP_TIME: ("single", "heft", "random_search", "local_search"),
    THROUGHPUT: ("single", "heft", "random_search", "load_search"),
}
"""Run in every comparison: without them nobody knows what a number is worth."""

PLACERS_BY_DEFAULT = COMPARED
"""Compared, beside those, if no others are named."""
