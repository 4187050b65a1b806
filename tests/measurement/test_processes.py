import contextlib
import signal
import threading
import time

import pytest

from tfplace.measurement.backends.processes import WorkerProcesses


@pytest.fixture(scope="module")
def processes():
    with contextlib.closing(WorkerProcesses()) as processes:
        yield processes


def test_ctrl_c_ends_a_wait_without_end_though_another_thread_has_it(processes):
    over = threading.Event()

    def interrupt():
        time.sleep(0.2)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        if not over.wait(20):  # ends the test where nothing else does
            with processes._changed:
                processes._changed.notify_all()

    thread, begin = threading.Thread(target=interrupt), time.monotonic()
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            processes.wait(1)
        assert time.monotonic() - begin < 10
    finally:
        over.set()
        thread.join()


def test_a_wait_for_some_time_ends_then(processes):
    begin = time.monotonic()
    assert processes.wait(1, timeout_s=0.7) is None
    assert 0.7 <= time.monotonic() - begin < 10
