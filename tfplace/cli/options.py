"""The flags of `tfplace place`."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from tfplace.cli.flagset import PLACING_CODES, describe_flags, read_only_flags
from tfplace.cli.problem import problem_flags

NAME = "tfplace place"


def place_flags() -> flags.FlagValues:
    """A fresh set of flags, apart from absl's global ones."""
    fv = flags.FlagValues()
    problem_flags(fv)
    text, switch = flags.DEFINE_string, flags.DEFINE_bool
    text("placer", "auto", "Name of a placer (see `tfplace placers`), or module:class of one's own.", flag_values=fv)
    text("init", None, "What to go on from: a file of a placement, or a placer's name.", flag_values=fv)
    text("run_dir", None, "Directory that keeps the search, which goes on there after any end.", flag_values=fv)
    switch("resume", True, "Go on with the search that is in --run_dir; --noresume refuses it.", flag_values=fv)
    flags.DEFINE_integer("controllers", 0, "Processes that train a policy together.", 0, flag_values=fv)
    switch("asynchronous", False, "Apply each controller's gradient when it comes.", flag_values=fv)
    text("weights", None, "A file of weights for a policy that was trained beforehand.", flag_values=fv)
    flags.DEFINE_integer("fine_tune", None, "Updates such a policy learns on this graph.", 0, flag_values=fv)
    text("tensorboard", None, "Directory for TensorBoard.", flag_values=fv)
    text("budget", "30s", "Time to search, such as 30s or 2min, or '500 evaluations'.", flag_values=fv)
    text("objective", "step_time", "What is made small: step_time or throughput.", flag_values=fv)
    text("evaluator", "simulated", "Who tells what a placement costs: simulated, grappler or measured.", flag_values=fv)
    flags.DEFINE_integer("workers", 0, "Measure on this many one-core workers.", 0, flag_values=fv)
    flags.DEFINE_list("cluster", [], "Measure on workers at host:port,host:port.", flag_values=fv)
    text("step_timeout", None, "What a measured step may take; by default 2min.", flag_values=fv)
    flags.DEFINE_integer("seed", 0, "Random seed.", 0, flag_values=fv)
    text("out", None, "Directory for placement, trace, placed graph, topology and report.", flag_values=fv)
    switch("json", False, "Print one JSON object instead of tables.", flag_values=fv)
    switch("quiet", False, "No progress and no notes on stderr.", flag_values=fv)
    return fv


def parse(argv: Sequence[str]) -> flags.FlagValues:
    """The flags given.

    Raises:
      InputError: an unknown flag, a wrong value, or something that is no flag.
    """
    fv = place_flags()
    read_only_flags(NAME, fv, argv)
    return fv


def usage() -> str:
    """All flags with their defaults."""
    return describe_flags(f"{NAME}: reads a model, places it and reports.", place_flags(), PLACING_CODES)
