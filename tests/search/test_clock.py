import time

import numba as nb

from tfplace.search.clock import Clock


def test_the_clock_stands_still_while_a_kernel_is_compiled():
    @nb.njit
    def total(numbers):
        found = 0.0
        for i in range(len(numbers)):
            found += numbers[i] ** 0.5
        return found

    clock, begin = Clock(), time.perf_counter()
    total((1.0, 4.0))
    took = time.perf_counter() - begin
    assert clock.seconds < took / 4, "nearly all of a first call is compiling"


def test_the_clock_runs_otherwise():
    clock = Clock()
    time.sleep(0.05)
    assert clock.seconds >= 0.05
