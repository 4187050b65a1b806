"""The policies that are placers, with networks as small as they may be where those are large."""

from tfplace.core.placer import Placer
from tfplace.learned.policies.hierarchical import Hierarchical, HierarchicalSettings
from tfplace.learned.policies.seq2seq import Seq2Seq, Seq2SeqSettings
from tfplace.registry import PLACERS

POLICIES = ("gdp", "hierarchical", "placeto", "policy_gradient", "post", "post_ce", "post_ppo", "seq2seq")


def small_policy(name: str) -> Placer:
    """A new placer of that name."""
    if name == "hierarchical":
        return Hierarchical(settings=HierarchicalSettings(hidden=8, embedding=4, groups=8))
    if name == "seq2seq":
        return Seq2Seq(settings=Seq2SeqSettings(hidden=8, embedding=4))
    return PLACERS[name]()
