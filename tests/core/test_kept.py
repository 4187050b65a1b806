"""What is computed of an object once: for how long, and how many results."""

import gc
import weakref

from tfplace.core.kept import kept, kept_latest


class Thing:
    """Can be referred to weakly."""


def test_a_result_is_computed_once_for_each_object_and_argument():
    asked = []

    @kept
    def made(of, number, *, more=0):
        asked.append((number, more))
        return [number]

    one, other = Thing(), Thing()
    assert made(one, 1) is made(one, 1)
    assert made(one, 1) is not made(other, 1)
    assert made(one, 1, more=2) == [1]
    assert asked == [(1, 0), (1, 0), (1, 2)]


def test_of_many_results_those_used_last_are_kept():
    asked = []

    @kept_latest(2)
    def made(of, number):
        asked.append(number)
        return number

    one = Thing()
    for number in (1, 2, 1, 3, 1, 2):  # 3 takes the place of 2, which was used before 1
        made(one, number)
    assert asked == [1, 2, 3, 2]


def test_results_go_with_their_object():
    made = kept(lambda of: Thing())
    one = Thing()
    result = weakref.ref(made(one))
    assert result() is not None
    del one
    gc.collect()
    assert result() is None
