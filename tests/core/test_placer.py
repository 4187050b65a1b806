"""A name in the registry of placers stands for a class that declares what it offers."""

from __future__ import annotations

import numpy as np
import pytest

from tfplace.core.placer import Placer, placer_class
from tfplace.errors import InputError
from tfplace.placers.heft import Heft
from tfplace.registry import PLACERS


class Plain:
    """Puts everything where it may be."""

    def place(self, context):
        return context.problem.allowed.argmax(axis=1)


class Leaning:
    accepts_starts = True
    citation = "mine"

    def __init__(self, fraction=0.5):
        self.fraction, self.notes = fraction, ("begun",)

    def place(self, context):
        return self.starts[0]


def test_a_placer_stands_for_itself():
    assert PLACERS["heft"] is placer_class("heft", Heft) is Heft
    assert not Heft.accepts_starts and Heft.extra is None and Heft().starts == () and Heft().notes == ()


def test_a_plain_class_gets_the_defaults():
    PLACERS.add("plain", Plain)
    made = PLACERS["plain"]
    assert issubclass(made, Plain) and issubclass(made, Placer)
    assert (made.__name__, made.__module__, made.__doc__) == (Plain.__name__, Plain.__module__, Plain.__doc__)
    assert not made.accepts_starts and made.citation == "" and made().proven_s == 0.0
    made.check_extra()
    assert "class Plain:" in PLACERS.source("plain")


def test_what_a_plain_class_declares_counts():
    made = placer_class("leaning", Leaning)
    assert made.accepts_starts and made.citation == "mine"
    placer = made(fraction=0.1)
    assert placer.fraction == 0.1 and placer.notes == ("begun",) and placer.starts == ()
    placer.starts = (np.zeros(3, np.int32),)
    assert placer.place(None).tolist() == [0, 0, 0]
    assert not hasattr(Leaning, "starts")


def test_a_module_and_a_class_stand_for_the_same_each_time():
    name = f"{__name__}:Plain"
    assert PLACERS[name] is PLACERS[name]


class Nothing:
    """Places nothing."""


class Unfinished(Placer):
    """Has not got that far."""


@pytest.mark.parametrize("wrong", [Nothing, Unfinished, len, int, bool, "tfplace"])
def test_what_places_nothing_is_refused(wrong):
    with pytest.raises(InputError, match="placer 'wrong', ") as error:
        placer_class("wrong", wrong)
    assert error.value.expected == "a class with a method `place(self, context)`"
    assert error.value.hint == "Derive it from tfplace.core.placer.Placer."


def test_what_places_nothing_is_not_registered():
    with pytest.raises(InputError, match="placer 'wrong'"):
        PLACERS.add("wrong", Nothing)
    assert "wrong" not in PLACERS


def test_a_module_with_something_else_is_refused_when_it_is_asked_for():
    with pytest.raises(InputError, match="placer 'math:sqrt'"):
        PLACERS["math:sqrt"]
