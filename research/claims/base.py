"""A claim of a paper, and what is run to see whether it holds here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from research.suites.suite_runs import held_out_members
from research.suites.suites import Suite
from tfplace.comparison.case_results import CaseResults


@dataclass(frozen=True)
class Claim:
    """A claim.

    Attributes:
      paper: whose.
      says: the claim, with how sure its numbers are.
      suite: what is run.
      quick: the same in minutes, to see that it works; its numbers say nothing.
      tables: what was found, beside what the paper found, and how far the claim holds; Markdown.
      methods: the placers that it is about.
    """

    paper: str
    says: str
    suite: Suite
    quick: Suite
    tables: Callable[[Sequence[CaseResults]], str]
    methods: tuple[str, ...]

    def run_of(self, *, quick: bool) -> Suite:
        """What is run: `suite` or `quick`, and of models that are held out quickly one of each family."""
        if not quick:
            return self.suite
        return replace(self.quick, models=held_out_members(1)) if self.quick.held_out else self.quick
