import time

import numba as nb

from tfplace.search import clock as clocks
from tfplace.search.clock import Clock, worked_s


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


def test_processor_seconds_of_compiling_are_those_of_the_processor(monkeypatch):
    """Of ten seconds the processor had one for this process, and that was compiling."""
    listener, worked = clocks._Compiling(), time.process_time()
    monkeypatch.setattr(clocks, "_COMPILING", listener)
    times = iter([(100.0, worked - 1.0), (110.0, worked)])
    monkeypatch.setattr(clocks, "_now", lambda: next(times))
    for call in (listener.on_start, listener.on_start, listener.on_end, listener.on_end):
        call(None)
    assert listener.spent == (10.0, 1.0)
    assert worked_s() >= worked - 1.0


def test_the_clock_runs_otherwise():
    clock = Clock()
    time.sleep(0.05)
    assert clock.seconds >= 0.05
