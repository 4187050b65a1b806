"""What can be wrong with options, said before any model is read. Loads no TensorFlow."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tfplace.core.compilation import COMPILATIONS
from tfplace.core.constraints import Constraints
from tfplace.core.engine import Engine
from tfplace.core.placement import Placement
from tfplace.core.slices import AUTO, BATCH_NORMS, checked_slices
from tfplace.core.stepcost import SIMULATED
from tfplace.core.topology import Topology
from tfplace.cost.profile import Profile
from tfplace.engines.choose import chosen_engine
from tfplace.errors import InputError, MissingExtraError, UnknownNameError
from tfplace.files import path_of
from tfplace.options import GROUPS, CompareOptions, ProblemOptions, SearchOptions, SplitOptions
from tfplace.registry import EVALUATORS, GROUPERS, PLACERS, SERVICES
from tfplace.search.budget import Budget
from tfplace.search.capabilities import (
    check_controllers,
    check_extra,
    check_init,
    check_pretrained,
    check_warm_start,
    check_workers,
)
from tfplace.search.grouped import check_grouper
from tfplace.search.objective import check_objective
from tfplace.units import parse_bytes

_Options = TypeVar("_Options", bound=ProblemOptions)
_Splitting = TypeVar("_Splitting", bound=SplitOptions)

_MOST_SEEDS = 10_000
"""Each is a run of every placer."""


def checked_search(options: SearchOptions) -> SearchOptions:
    """See `SearchOptions.check`.

    Raises:
      InputError: an option is wrong, or two do not go together.
      MissingExtraError: a package that the placer or TensorBoard needs is not installed.
    """
    options = _checked_problem(options)
    _check_slices(options)
    _check_exact(options)
    _check_placer(options.placer)
    _check_names(options, "baselines")
    _check_evaluator(options)
    init = _checked_init(options)
    fine_tune = None if options.fine_tune is None else _whole(options, "fine_tune", 0)
    if options.weights is not None or fine_tune is not None:
        check_pretrained(options.placer, options.weights, fine_tune)
    _check_controllers(options)
    _check_files(options)
    return replace(options, seed=_whole(options, "seed", 0), init=init, fine_tune=fine_tune)


def checked_comparison(options: CompareOptions) -> CompareOptions:
    """See `CompareOptions.check`.

    Raises:
      InputError: an option is wrong, or two do not go together.
    """
    options = _checked_problem(options)
    check_objective(options.objective, SIMULATED)
    _check_names(options, "placers")
    if options.placers is not None and not options.placers:
        raise InputError(
            options.spelled("placers"), "at least one placer", "Leave it out to compare the default placers."
        )
    if options.folder is not None:
        path_of("folder", options.folder)
    seeds = _whole(options, "seeds", 1)
    if seeds > _MOST_SEEDS:
        raise InputError(options.spelled("seeds"), f"at most {_MOST_SEEDS:,}")
    return replace(options, seeds=seeds)


def checked_split(options: _Splitting) -> _Splitting:
    """The same options, with slices as Python's own numbers; None for a batch that stays whole, AUTO for a search.

    Raises:
      InputError: an option is wrong.
    """
    # An array is compared with a text element by element.
    if isinstance(options.slices, str) and options.slices == AUTO and isinstance(options, SearchOptions):
        return replace(options)
    _parsed(options, "slices", checked_slices)
    if options.batch_norm not in BATCH_NORMS:
        raise InputError(options.spelled("batch_norm"), " or ".join(map(repr, BATCH_NORMS)))
    return replace(options, slices=checked_slices(options.slices))


def _checked_problem(options: _Options) -> _Options:
    options.refuse_empty()
    options = checked_split(options)
    if options.compile not in COMPILATIONS:
        raise InputError(options.spelled("compile"), f"one of {', '.join(COMPILATIONS)}")
    topology = None if options.topology is None else Topology.load(options.topology)
    profile = None if options.profile is None else Profile.load(options.profile)
    if profile is not None and topology is not None:
        profile.check(topology)
    _check_rules(options, topology)
    _parsed(options, "budget", Budget.parse)
    engine = _checked_engine(options)
    return replace(options, topology=topology, profile=profile, groups=_groups(options), engine=engine)


def _checked_engine(options: ProblemOptions) -> Engine | None:
    """The engine that is meant, of which nothing runs yet; None for this process.

    Raises:
      InputError: it is none.
      WorkersError: there is no scheduler at its address.
    """
    if options.engine is None:
        return None
    try:
        engine = chosen_engine(options.engine)
    except MissingExtraError:
        raise
    except InputError as error:
        raise InputError(options.spelled("engine"), error.expected, error.hint) from error
    if isinstance(options.engine, str):
        _ = engine.count  # asks the scheduler: one that is not there is refused before a model is built
    return engine


def _check_rules(options: ProblemOptions, topology: Topology | None) -> None:
    """Refuses rules that are none, and devices that the topology lacks."""
    rules = Constraints() if options.constraints is None else options.constraints
    limits = {} if options.max_memory is None else options.max_memory
    if not isinstance(rules, Constraints):
        raise InputError(f"constraints of type {type(rules).__name__}", "tfplace.Constraints(pin=..., ...)")
    if not isinstance(limits, Mapping):
        raise InputError(options.spelled("max_memory"), 'a dict such as {"GPU:0": "10GiB"}')
    for device, size in limits.items():
        try:
            parse_bytes(size)
        except InputError as error:
            received = replace(options, max_memory={device: size}).spelled("max_memory")
            raise InputError(received, error.expected, error.hint) from error
    Constraints(max_memory=limits)
    if topology is None:
        return
    forbidden = [[devices] if isinstance(devices, str) else devices for devices in rules.forbid.values()]
    for device in (*limits, *rules.max_memory, *rules.pin.values(), *(name for names in forbidden for name in names)):
        topology.match(device)


def _groups(options: ProblemOptions) -> int | None:
    """How many groups are wanted; None without a grouper."""
    if options.grouper is None:
        if options.groups is not None:
            received = f"{options.spelled('groups')} without a grouper"
            raise InputError(received, "a grouper", f"One of {', '.join(GROUPERS)}.")
        return None
    groups = GROUPS if options.groups is None else _whole(options, "groups", 1)
    check_grouper(options.grouper, groups)
    return groups


def _check_slices(options: SearchOptions) -> None:
    """Refuses what is of one number of slices, where that is not known yet."""
    if options.slices != AUTO:
        return
    for name in ("run_dir", "init", "placement"):  # the last is of `FitOptions`
        if getattr(options, name, None) is not None:
            raise InputError(
                f"{options.spelled(name)} with {options.spelled('slices')}", f"a number of slices, or no {name}"
            )
    if options.evaluator != SIMULATED:
        raise InputError(
            f"{options.spelled('evaluator')} with {options.spelled('slices')}",
            f"the evaluator {SIMULATED!r}, or a number of slices",
            "Find the number by simulation, then measure placements with that.",
        )


def _check_exact(options: SearchOptions) -> None:
    """Refuses words, which would all count as true; of options for plans."""
    if not isinstance(getattr(options, "exact", False), bool):
        raise InputError(options.spelled("exact"), "True or False")


def _check_placer(name: str) -> None:
    if name not in PLACERS:
        raise UnknownNameError(PLACERS.kind, name, PLACERS)
    check_extra(name)


def _check_names(options: ProblemOptions, what: str) -> None:
    """Refuses what is no sequence of placers' names."""
    names: Sequence[str] | None = getattr(options, what)
    if isinstance(names, str):
        raise InputError(options.spelled(what), "a sequence of names", f"Write {what}=({names!r},).")
    for name in names or ():
        if name not in PLACERS:
            raise UnknownNameError(PLACERS.kind, name, PLACERS)


def _check_evaluator(options: SearchOptions) -> None:
    if isinstance(options.evaluator, str):
        check_objective(options.objective, options.evaluator)
        return
    check_objective(options.objective, SIMULATED)  # the evaluator decides, but an objective has a name
    given: object = options.evaluator
    if not callable(given):
        expected = f"an evaluator, a function that makes one for a problem, or one of {', '.join(EVALUATORS)}"
        raise InputError(options.spelled("evaluator"), expected, f"Leave it out for {SIMULATED!r}.")


def _checked_init(options: SearchOptions) -> Placement | str | None:
    """The placement to start from, or the name of a placer that makes it."""
    init = options.init
    if init is None:
        return None
    check_warm_start(options.placer)
    if isinstance(init, str) and init in PLACERS:
        check_extra(init)
        return init
    if not isinstance(init, Placement):
        check_init(init)
    return Placement.load(init)


def _check_controllers(options: SearchOptions) -> None:
    evaluator = options.evaluator if isinstance(options.evaluator, str) else SIMULATED
    if options.together is not None:
        check_controllers(options.placer, evaluator)
    elif options.asynchronous:
        received = f"{options.spelled('asynchronous')} without controllers"
        raise InputError(received, "at least 1 controller")
    elif options.engine is not None:
        check_workers(options.placer, evaluator)


def _check_files(options: SearchOptions) -> None:
    for name, path in (("run_dir", options.run_dir), ("tensorboard", options.tensorboard)):
        if path is not None:
            path_of(name, path)
    if not options.resume and options.run_dir is None:
        raise InputError(f"{options.spelled('resume')} without a run_dir", "a run_dir")
    if options.tensorboard is not None:
        SERVICES["tensorboard_writer"]()


def _whole(options: ProblemOptions, name: str, least: int) -> int:
    """An option as Python's own integer, which JSON knows."""
    expected = f"a whole number of at least {least}"
    try:
        number = operator.index(getattr(options, name))
    except TypeError:
        raise InputError(options.spelled(name), expected) from None
    if number < least:
        raise InputError(options.spelled(name), expected)
    return number


def _parsed(options: SplitOptions, name: str, parse: Callable[[Any], object]) -> None:
    """Refuses an option that cannot be read, by its own spelling."""
    try:
        parse(getattr(options, name))
    except InputError as error:
        raise InputError(options.spelled(name), error.expected, error.hint) from error
