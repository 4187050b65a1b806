"""What every engine does."""

from __future__ import annotations

import contextlib
import functools
import operator

import pytest

from tests.engines import tasks
from tfplace.errors import InputError


class EngineConformance:
    """Give it a fixture `engine` with two workers."""

    @pytest.fixture
    def workers(self, engine):
        with contextlib.closing(engine.start(functools.partial(dict, a=1))) as workers:
            yield workers

    def test_tasks_get_what_the_worker_made(self, workers):
        assert workers.count == 2
        futures = [workers.submit(operator.or_, {"b": i}) for i in range(6)]
        assert [f.result(30) for f in futures] == [{"a": 1, "b": i} for i in range(6)]

    def test_what_a_task_raises_comes_back(self, workers):
        with pytest.raises(InputError) as caught:
            workers.submit(tasks.refuse, "a word").result(30)
        assert caught.value.received == "a word"
        with pytest.raises(Exception, match="nothing"):
            workers.submit(operator.getitem, "nothing").result(30)
        assert workers.submit(operator.getitem, "a").result(30) == 1  # it goes on
