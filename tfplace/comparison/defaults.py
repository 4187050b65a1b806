"""Who is compared on one's own problem, by objective. Loads nothing, so that a command can say it at once."""

from tfplace.core.stepcost import STEP_TIME, THROUGHPUT

ALWAYS = {
    STEP_TIME: ("single", "heft", "random_search", "local_search"),
    THROUGHPUT: ("single", "heft", "random_search", "load_search"),
}
"""Run in every comparison: without them nobody knows what a number is worth."""

PLACERS_BY_DEFAULT = {
    STEP_TIME: ("expert", "m_sct", "metis", "annealing", "placeto", "auto"),
    THROUGHPUT: ("expert", "metis", "contiguous", "annealing", "auto"),
}
"""Compared, beside those, if no others are named."""
