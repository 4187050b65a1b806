"""The flags of `tfplace place`."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from tfplace.cli.flagset import describe_flags, once, pairs, read_only_flags
from tfplace.core.constraints import Constraints
from tfplace.errors import InputError

NAME = "tfplace place"

_EXIT_CODES = "Exit codes: 0 placed, 1 internal error, 2 bad input, 3 no placement fits, 130 interrupted."


def place_flags() -> flags.FlagValues:
    """A fresh set of flags, apart from absl's global ones."""
    fv = flags.FlagValues()
    text, repeated, switch = flags.DEFINE_string, flags.DEFINE_multi_string, flags.DEFINE_bool
    text("model", None, "A model of the zoo, a SavedModel directory or graph file, or module:function.", flag_values=fv)
    flags.DEFINE_integer("batch", None, "Examples in one step; by default the model's own.", flag_values=fv)
    repeated("param", [], "NAME=VALUE, passed to the zoo's or your function. Repeatable.", flag_values=fv)
    repeated("fetch", [], "Graph files: name of an op a step must run. Repeatable.", flag_values=fv)
    switch("inference", False, "Keras models: place inference instead of the training step.", flag_values=fv)
    text("topology", None, "A preset's name or a topology file; by default this machine.", flag_values=fv)
    text("placer", "auto", "Name of a placer; see `tfplace placers`.", flag_values=fv)
    text("grouper", None, "Name of a grouper whose groups are placed as a whole; by default none.", flag_values=fv)
    flags.DEFINE_integer("groups", 256, "How many groups the grouper is asked for.", flag_values=fv)
    text("init", None, "What to go on from: a file of a placement, or a placer's name.", flag_values=fv)
    text("run_dir", None, "Directory that keeps the search, which goes on there after any end.", flag_values=fv)
    switch("resume", True, "Go on with the search that is in --run_dir; --noresume refuses it.", flag_values=fv)
    flags.DEFINE_integer("controllers", 0, "Processes that train a policy together.", 0, flag_values=fv)
    switch("asynchronous", False, "Apply each controller's gradient when it comes.", flag_values=fv)
    text("weights", None, "A file of weights for a policy that was trained beforehand.", flag_values=fv)
    flags.DEFINE_integer("fine_tune", None, "Updates such a policy learns on this graph.", 0, flag_values=fv)
    text("tensorboard", None, "Directory for TensorBoard.", flag_values=fv)
    text("budget", "30s", "Time to search, such as 30s or 2min, or '500 evaluations'.", flag_values=fv)
    text("profile", None, "A file of `tfplace profile` with measured op times.", flag_values=fv)
    text("objective", "step_time", "What is made small: step_time or throughput.", flag_values=fv)
    text("evaluator", "simulated", "Who tells what a placement costs: simulated, grappler or measured.", flag_values=fv)
    flags.DEFINE_integer("workers", 0, "Measure on this many one-core workers.", 0, flag_values=fv)
    flags.DEFINE_list("cluster", [], "Measure on workers at host:port,host:port.", flag_values=fv)
    flags.DEFINE_integer("seed", 0, "Random seed.", 0, flag_values=fv)
    repeated("pin", [], "PATTERN=DEVICE: ops that must be on a device. Repeatable.", flag_values=fv)
    repeated("forbid", [], "PATTERN=DEVICE,...: devices ops must not be on. Repeatable.", flag_values=fv)
    repeated("colocate", [], "PATTERN,PATTERN,...: ops that stay together. Repeatable.", flag_values=fv)
    repeated("max_memory", [], "DEVICE=SIZE, such as GPU:0=10GiB. Repeatable.", flag_values=fv)
    flags.DEFINE_float("headroom", 0.0, "Fraction of every device's memory to keep free.", flag_values=fv)
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
    if not fv.model:
        raise InputError("no --model", "--model=NAME, PATH or module:function", "See tfplace models for names.")
    return fv


def usage() -> str:
    """All flags with their defaults."""
    return describe_flags(f"{NAME}: reads a model, places it and reports.", place_flags(), _EXIT_CODES)


def constraints(fv: flags.FlagValues) -> Constraints:
    """The constraints the flags state.

    Raises:
      InputError: a flag that is not of the form PATTERN=DEVICE or the like, or two that contradict each other.
    """
    forbid: dict[str, list[str]] = {}
    for pattern, devices in pairs("forbid", fv.forbid, "PATTERN=DEVICE,..."):
        forbid.setdefault(pattern, []).extend(devices.split(","))
    return Constraints(
        pin=once("pin", pairs("pin", fv.pin, "PATTERN=DEVICE")),
        forbid=forbid,
        colocate=tuple(text.split(",") for text in fv.colocate),
        max_memory=once("max_memory", pairs("max_memory", fv.max_memory, "DEVICE=SIZE")),
        headroom=fv.headroom,
    )
