"""Names that are looked up late.

A registry maps a name to "module:attribute" and imports the module only when the name is asked for. It is how a user's
`placer="heft"` finds its file, how placers stay independent of one another, and how a noun in `core` offers a method
(`Placement.summary`) whose work is done on a higher floor without importing it.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

from tfplace.errors import InputError, UnknownNameError

_REFERENCE = re.compile(r"[\w.]+:\w+")


class Registry:
    """A mapping of names to lazily imported classes and functions; "module:attribute" is a name too.

    Args:
      kind: what the names stand for, used in error messages.
      entries: name -> "module:attribute".
      check: "module:function" that is called with a name and what was found under it, and returns what the name stands
        for, or raises an `InputError`.
    """

    def __init__(self, kind: str, entries: dict[str, str], *, check: str | None = None) -> None:
        self.kind = kind
        self._check = check
        self._targets: dict[str, str] = dict(entries)
        self._objects: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._targets, *self._objects}))

    def __contains__(self, name: str) -> bool:
        known = name in self._targets or name in self._objects
        return known or (isinstance(name, str) and _REFERENCE.fullmatch(name) is not None)

    def add(self, name: str, target: Any) -> None:
        """Registers a class or function, or its "module:attribute", under `name`; a later one replaces an earlier one.

        Raises:
          InputError: it is something else.
        """
        if isinstance(target, str):
            self._objects.pop(name, None)
            self._targets[name] = target
        else:
            self._objects[name] = self._made_by(name, target)

    @contextlib.contextmanager
    def named(self, name: str, target: Any) -> Iterator[str]:
        """Registers as `add` does for the length of a `with` statement, which gets the name."""
        kept = dict(self._targets), dict(self._objects)
        self.add(name, target)
        try:
            yield name
        finally:
            self._targets, self._objects = kept

    def __getitem__(self, name: str) -> Any:
        """What is called `name`.

        Raises:
          UnknownNameError: no such name; lists the known ones.
          InputError: its module cannot be imported, or does not have it.
        """
        if not isinstance(name, str) or name not in self:
            raise UnknownNameError(self.kind, name, self)
        if name in self._objects:
            return self._objects[name]
        target = self._targets.get(name, name)
        module, _, attribute = target.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise InputError(f"{self.kind} {target!r}: {error}", "an importable module and a name in it") from error
        found = self._made_by(name, found)
        if name in self._targets:
            self._objects[name] = found
        return found

    def source(self, name: str) -> str:
        """Text of what `name` stands for, if it is not one of tfplace's own and its text can be had; else empty."""
        found = self[name]
        if str(getattr(found, "__module__", "")).partition(".")[0] == "tfplace":
            return ""
        try:
            return inspect.getsource(found)
        except (OSError, TypeError):
            return ""

    def _made_by(self, name: str, target: Any) -> Any:
        if not callable(target):
            raise InputError(f"{self.kind} {name!r}, {target!r}", f"a class, or a function that makes a {self.kind}")
        if self._check is None:
            return target
        module, _, function = self._check.partition(":")
        return getattr(importlib.import_module(module), function)(name, target)


PLACERS = Registry(
    "placer",
    {
        "annealing": "tfplace.placers.annealing:Annealing",
        "auto": "tfplace.placers.auto:Auto",
        "brkga": "tfplace.placers.brkga:Brkga",
        "contiguous": "tfplace.placers.contiguous:Contiguous",
        "critical_path": "tfplace.placers.critical_path:CriticalPath",
        "cross_entropy": "tfplace.placers.cross_entropy:CrossEntropy",
        "data_parallel": "tfplace.placers.data_parallel:DataParallel",
        "etf": "tfplace.placers.etf:Etf",
        "exact": "tfplace.placers.exact:Exact",
        "expert": "tfplace.placers.expert:Expert",
        "gdp": "tfplace.learned.policies.gdp:Gdp",
        "gdp_scratch": "tfplace.learned.policies.gdp:GdpScratch",
        "gpipe": "tfplace.placers.gpipe:GPipe",
        "heft": "tfplace.placers.heft:Heft",
        "hierarchical": "tfplace.learned.policies.hierarchical:Hierarchical",
        "hill_climbing": "tfplace.placers.hill_climbing:HillClimbing",
        "load_search": "tfplace.placers.load_search:LoadSearch",
        "local_search": "tfplace.placers.local_search:LocalSearch",
        "m_etf": "tfplace.placers.m_etf:MEtf",
        "m_sct": "tfplace.placers.m_sct:MSct",
        "m_topo": "tfplace.placers.m_topo:MTopo",
        "metis": "tfplace.placers.metis:Metis",
        "min_cut": "tfplace.placers.min_cut:MinCut",
        "mixed": "tfplace.placers.mixed:Mixed",
        "one_f_one_b": "tfplace.placers.one_f_one_b:OneFOneB",
        "pipedream": "tfplace.placers.pipedream:PipeDream",
        "placeto": "tfplace.learned.policies.placeto:Placeto",
        "placeto_scratch": "tfplace.learned.policies.placeto:PlacetoScratch",
        "placeto_untrained": "tfplace.learned.policies.placeto:PlacetoUntrained",
        "policy_gradient": "tfplace.learned.policies.post:PolicyGradient",
        "post": "tfplace.learned.policies.post:Post",
        "post_ce": "tfplace.learned.policies.post:PostCrossEntropy",
        "post_ppo": "tfplace.learned.policies.post:PostPpo",
        "random": "tfplace.placers.random_placement:Random",
        "random_search": "tfplace.placers.random_search:RandomSearch",
        "round_robin": "tfplace.placers.round_robin:RoundRobin",
        "scotch": "tfplace.placers.scotch:Scotch",
        "seq2seq": "tfplace.learned.policies.seq2seq:Seq2Seq",
        "single": "tfplace.placers.single:Single",
        "untrained": "tfplace.placers.random_search:Untrained",
    },
    check="tfplace.core.placer:placer_class",
)

EVALUATORS = Registry(
    "evaluator",
    {
        "grappler": "tfplace.measurement.grappler:GrapplerEvaluator",
        "measured": "tfplace.measurement.protocol.measured:MeasuredEvaluator",
        "simulated": "tfplace.simulation.evaluate:Simulator",
    },
)

GROUPERS = Registry(
    "grouper",
    {
        "heavy_edge": "tfplace.group.heavy_edge:heavy_edge",
        "merge": "tfplace.group.co_placement:merge",
        "metis": "tfplace.group.metis:metis",
        "scope": "tfplace.group.scope:scope",
        "topological": "tfplace.group.topological:topological",
        "units": "tfplace.group.units:units",
    },
)

OBJECTIVES = Registry(
    "objective",
    {
        "step_time": "tfplace.simulation.evaluate:Simulator",
        "throughput": "tfplace.simulation.pipeline:PipelineLoads",
    },
)

# Work that methods of core nouns hand to higher floors.
SERVICES = Registry(
    "service",
    {
        "bottleneck": "tfplace.report.bottleneck:bottleneck",
        "check_comparison": "tfplace.search.checks:checked_comparison",
        "check_search": "tfplace.search.checks:checked_search",
        "comparison_html": "tfplace.comparison.comparison_table:comparison_html",
        "comparison_text": "tfplace.comparison.comparison_table:comparison_text",
        "detect_topology": "tfplace.measurement.calibration.detect:detect_topology",
        "explain_plan": "tfplace.report.explaining:explain",
        "explanation_summary": "tfplace.report.explanation_table:explanation_summary",
        "graph_layers": "tfplace.group.layer_ops:layers_of",
        "is_archive": "tfplace.io.archive:is_archive",
        "load_graph": "tfplace.io.archive:load_graph",
        "load_placement": "tfplace.io.placement_file:load",
        "load_preset": "tfplace.io.topology_file:preset",
        "load_problem": "tfplace.io.archive:load_problem",
        "load_topology": "tfplace.io.topology_file:load",
        "pictures_html": "tfplace.report.html:pictures_html",
        "placement_from_json": "tfplace.io.placement_file:from_json",
        "placement_html": "tfplace.report.html:placement_html",
        "placement_json": "tfplace.io.placement_file:to_json",
        "placement_summary": "tfplace.report.summary:placement_summary",
        "largest_batch_summary": "tfplace.report.largest_batch_table:largest_batch_summary",
        "plan_summary": "tfplace.report.plan_table:plan_summary",
        "load_plan": "tfplace.io.plan_files:load",
        "apply_plan": "tfplace.execution.plans:apply_plan",
        "measure_plan": "tfplace.execution.plans:measure_plan",
        "save_plan": "tfplace.io.plan_files:save",
        "save_archive": "tfplace.io.archive:save",
        "save_topology": "tfplace.io.topology_file:save",
        "simulate_timeline": "tfplace.search.clustered:timeline_as_run",
        "tensorboard_writer": "tfplace.report.tensorboard:load_writer",
        "timeline_save": "tfplace.report.trace:save_trace",
        "topology_from_dict": "tfplace.io.topology_file:from_dict",
        "topology_presets": "tfplace.io.topology_file:presets",
        "waits": "tfplace.report.waiting:waits",
    },
)
