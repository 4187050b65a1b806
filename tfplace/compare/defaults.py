"""Who is compared on one's own problem. Loads nothing, so that a command can say it at once."""

ALWAYS = ("single", "heft", "random_search", "local_search")
"""Run in every comparison: without them nobody knows what a number is worth."""

PLACERS_BY_DEFAULT = ("expert", "m_sct", "metis", "annealing", "placeto", "auto")
"""Compared, beside those, if no others are named."""
