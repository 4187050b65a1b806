"""Placements measured on this process's devices."""

import contextlib
import gc
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.measurement.steps import file_problem, problem_of, two_towers
from tfplace.core.stepcost import UNKNOWN_BYTES, FailureKind
from tfplace.errors import ApplyError, InputError, PlacementError
from tfplace.execution.devices import match_devices
from tfplace.measurement.backends.local import ChainedLogicalDevices, LocalDevices
from tfplace.measurement.protocol.measured import MeasuredEvaluator
from tfplace.testing import make_topology

v1 = tf.compat.v1
QUICK = {"warmup": 1, "repeats": 2, "tolerance": 100.0}


@pytest.fixture(scope="module")
def problem(logical_cpus):
    return problem_of(two_towers())


@pytest.fixture(scope="module")
def evaluator(problem):
    evaluator = MeasuredEvaluator(problem, **QUICK)
    yield evaluator
    evaluator.close()


def _random(problem, seed=0):
    return np.random.default_rng(seed).integers(problem.num_devices, size=problem.num_units)


def test_a_cost_says_what_was_measured_and_what_is_not_known(problem):
    evaluator = MeasuredEvaluator(problem, warmup=1, repeats=4, tolerance=100.0)
    cost = evaluator(_random(problem))
    assert cost.source == evaluator.source == "measured"
    assert cost.failure is None and cost.feasible
    assert cost.samples.step_s.shape == cost.samples.reference_s.shape == (4,)
    assert (cost.samples.step_s > 0).all() and cost.samples.warmup == 1
    assert cost.step_s == pytest.approx(cost.samples.median_s)
    assert np.isnan(cost.compute_s).all() and np.isnan(cost.transfer_s).all()
    assert (cost.peak_bytes == UNKNOWN_BYTES).all() and cost.moved_bytes == UNKNOWN_BYTES
    assert (cost.limit_bytes == problem.memory_limit).all()
    evaluator.close()


def test_later_costs_are_in_seconds_of_the_first(problem):
    evaluator = MeasuredEvaluator(problem, **QUICK)
    first, second = evaluator(_random(problem)), evaluator(_random(problem, 1))
    assert second.step_s == pytest.approx(second.samples.ratio * np.median(first.samples.reference_s))
    evaluator.close()


def test_keys_of_many(evaluator, problem):
    over, step_s = evaluator.keys([_random(problem, seed) for seed in range(3)])
    assert over.tolist() == [0, 0, 0]
    assert (step_s > 0).all() and np.isfinite(step_s).all()
    assert evaluator.key(_random(problem))[0] == 0


def test_the_reference_measures_like_itself(problem):
    evaluator = MeasuredEvaluator(problem, warmup=3, repeats=15)
    ratios = [evaluator(np.zeros(problem.num_units, int)).samples.ratio for _ in range(3)]
    assert 0.5 < np.median(ratios) < 2
    assert evaluator.agreement.placements == 3
    evaluator.close()


def test_other_references(problem):
    without = MeasuredEvaluator(problem, reference=None, **QUICK)
    cost = without(_random(problem))
    assert cost.samples.ratio is None and cost.step_s == cost.samples.median_s
    given = MeasuredEvaluator(problem, reference=_random(problem, 5), **QUICK)
    assert given(_random(problem)).samples.ratio > 0
    with pytest.raises(PlacementError, match='"single"'):
        MeasuredEvaluator(problem, reference="expert")
    with pytest.raises(PlacementError, match="shape"):
        MeasuredEvaluator(problem, reference=[0])


@pytest.mark.parametrize("wrong", [[0], np.full(1000, 7)])
def test_wrong_placements_are_errors(evaluator, problem, wrong):
    units = wrong if len(wrong) == 1 else wrong[: problem.num_units]
    with pytest.raises(PlacementError, match="expected"):
        evaluator(units)


def test_says_what_it_is_in_one_line(evaluator):
    assert repr(evaluator) == "MeasuredEvaluator('step' on LocalDevices(4 devices))"
    with pytest.raises(InputError):
        _ = MeasuredEvaluator(evaluator.problem).agreement


def test_a_traced_step_names_ops_and_devices(evaluator, problem):
    stats = evaluator.step_stats(_random(problem, 3)).step_stats
    seen = {node.node_name for device in stats.dev_stats for node in device.node_stats}
    products = {n for n, t in zip(problem.graph.op_names, problem.graph.op_types, strict=True) if t == "MatMul"}
    assert len(products) == 4 and products <= seen
    assert {d.device for d in stats.dev_stats} == set(evaluator.device_names)


def test_an_empty_step_is_quicker_than_a_full_one(evaluator, problem):
    assert 0 < evaluator.empty_step_s() < np.median(evaluator(_random(problem)).samples.step_s) + 0.005


def test_nothing_grows(problem):
    """Twenty-five placements, each in a session of its own, after five."""
    evaluator = MeasuredEvaluator(problem, warmup=0, repeats=1, tolerance=100.0)
    sizes, nodes, sessions = [], set(), set()
    for seed in range(30):
        evaluator(_random(problem, seed))
        if seed % 5 == 4:
            gc.collect()
            nodes.add(len(evaluator._program.tf_graph.get_operations()))
            sessions.add(sum(issubclass(type(thing), v1.Session) for thing in gc.get_objects()))
            sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    assert max(nodes) - min(nodes) == 0
    assert len(sessions) == 1
    assert sizes[-1] - sizes[0] < 20 * 2**20
    evaluator.close()


# ---- failures --------------------------------------------------------------------------------------------------------


class Faulty(LocalDevices):
    """Devices on which one session fails: at its opening, while written to, or at a step."""

    def __init__(self, error, number, stage):
        super().__init__()
        self.repairs, self.open = 0, 0
        self._error, self._number, self._stage = error, number, stage

    def session(self, graph, *, timeout_s=None):
        self._number -= 1
        breaks = self._stage if self._number == 0 else None
        if breaks == "opening":
            raise self._error
        self.open += 1
        session = super().session(graph, timeout_s=timeout_s)
        if breaks == "writing":
            session.run = self._break
        elif breaks is not None:
            steps = iter(range(int(breaks)))
            make = session.make_callable

            def make_callable(targets):
                step = make(targets)
                return lambda: step() if next(steps, None) is not None else self._break()

            session.make_callable = make_callable
        return session

    def end_session(self, session):
        self.open -= 1
        super().end_session(session)

    def repair(self):
        self.repairs += 1

    def _break(self, *_, **__):
        raise self._error


ERRORS = {
    FailureKind.OUT_OF_MEMORY: tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"),
    FailureKind.TIME_OUT: tf.errors.DeadlineExceededError(None, None, "deadline"),
    FailureKind.WORKER_LOST: tf.errors.UnavailableError(None, None, "gone: /job:worker/replica:0/task:1/device:CPU:0"),
    FailureKind.NO_KERNEL: tf.errors.InvalidArgumentError(None, None, "No OpKernel was registered"),
    FailureKind.ERROR: tf.errors.InvalidArgumentError(None, None, "shapes differ"),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_failures_are_typed(problem, kind):
    backend = Faulty(ERRORS[kind], 2, "0")
    evaluator = MeasuredEvaluator(problem, backend, **QUICK)
    cost = evaluator(_random(problem))
    assert cost.failure.kind is kind and cost.step_s == np.inf and not cost.feasible
    assert cost.failure.message in ERRORS[kind].message
    assert (cost.failure.device == "/job:worker/replica:0/task:1/device:CPU:0") == (kind is FailureKind.WORKER_LOST)


@pytest.mark.parametrize("stage", ["opening", "writing", "0", "2"])
def test_a_failure_costs_one_evaluation_and_leaves_nothing_open(problem, stage):
    """The reference has the first session, the first placement the second."""
    backend = Faulty(ERRORS[FailureKind.WORKER_LOST], 2, stage)
    evaluator = MeasuredEvaluator(problem, backend, **QUICK)
    costs = [evaluator(_random(problem, seed)) for seed in range(3)]
    assert [cost.failure is None for cost in costs] == [False, True, True]
    assert backend.repairs == 1 and backend.open == 1
    evaluator.close()
    assert backend.open == 0


def test_a_reference_that_is_lost_comes_back(problem):
    backend = Faulty(ERRORS[FailureKind.WORKER_LOST], 1, "3")
    evaluator = MeasuredEvaluator(problem, backend, **QUICK)
    costs = [evaluator(_random(problem, seed)) for seed in range(2)]
    assert [cost.failure is None for cost in costs] == [False, True]
    assert costs[1].samples.ratio is not None


def test_a_bug_is_no_failure_of_the_placement(problem):
    backend = Faulty(ZeroDivisionError("bug"), 2, "1")
    evaluator = MeasuredEvaluator(problem, backend, **QUICK)
    with pytest.raises(ZeroDivisionError, match="bug"):
        evaluator(_random(problem))
    assert backend.open == 1


def _waits():
    tf.identity(tf.queue.FIFOQueue(1, [tf.float32]).dequeue(), name="step")


def _huge():
    x = v1.get_variable("x", (), initializer=v1.zeros_initializer(), use_resource=True)
    tf.reduce_max(tf.fill((2**22, 2**22), x), name="step")


def _without_kernel():
    x = v1.get_variable("x", (4,), initializer=v1.zeros_initializer(), use_resource=True)
    tf.identity(tf.raw_ops.NcclAllReduce(input=x, reduction="sum", num_devices=1, shared_name="n"), name="step")


def test_a_step_that_waits_for_ever_is_ended():
    problem = file_problem(_waits)
    evaluator = MeasuredEvaluator(problem, reference=None, timeout_s=0.5)
    assert evaluator(np.zeros(problem.num_units, int)).failure.kind is FailureKind.TIME_OUT


@pytest.mark.slow  # TensorFlow waits 10 s for memory before it gives up; `test_measured_cluster` waits for the same
def test_a_tensor_too_big_for_this_machine():
    problem = file_problem(_huge)
    evaluator = MeasuredEvaluator(problem, reference=None)
    assert evaluator(np.zeros(problem.num_units, int)).failure.kind is FailureKind.OUT_OF_MEMORY


@pytest.fixture
def gpu_only(logical_cpus):
    """An op with kernels for GPUs only, to be mapped to a CPU."""
    with tf.Graph().as_default() as graph:
        _without_kernel()
        extracted = tfplace.extract(graph.as_graph_def(), fetches=("step",))
    return tfplace.formulate(extracted, make_topology(1, types="GPU"))


def test_an_op_without_a_kernel(gpu_only):
    evaluator = MeasuredEvaluator(gpu_only, reference=None, devices={"GPU:0": "CPU:1"})
    units = np.zeros(gpu_only.num_units, int)
    assert evaluator(units).failure.kind is FailureKind.NO_KERNEL
    with pytest.raises(ApplyError, match="no kernel"):
        evaluator.step_stats(units)


def test_a_reference_that_fails_is_an_error(gpu_only):
    evaluator = MeasuredEvaluator(gpu_only, devices={"GPU:0": "CPU:1"})
    with pytest.raises(ApplyError, match=r"reference placement that failed \(no kernel.*reference=None"):
        evaluator(np.zeros(gpu_only.num_units, int))


# ---- devices and searches --------------------------------------------------------------------------------------------

LOCAL = tuple(f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(3))
WORKERS = tuple(f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(2))


def matched(topology, have, given=None):
    return match_devices(topology.device_names, [device.type for device in topology.devices], have, given)


def test_devices_are_found_by_name_else_in_order():
    two = make_topology(2, types="CPU")
    assert matched(two, LOCAL[::-1]) == list(LOCAL[:2])
    assert matched(two, WORKERS) == list(WORKERS)
    assert matched(two, LOCAL, {"CPU:0": "CPU:2"}) == [LOCAL[2], LOCAL[1]]
    assert matched(two, WORKERS, dict(zip(two.device_names, WORKERS[::-1], strict=True))) == list(WORKERS[::-1])


@pytest.mark.parametrize(
    ("types", "given"), [(["CPU"] * 3, None), (["CPU", "GPU"], None), (["CPU"] * 2, {"CPU:0": "what"})]
)
def test_devices_that_are_not_there_are_an_error(types, given):
    with pytest.raises(ApplyError, match=r"devices among .*task:1"):
        matched(make_topology(len(types), types=types), WORKERS, given)


@pytest.mark.parametrize("how", ["measured", lambda problem: MeasuredEvaluator(problem, **QUICK)])
def test_a_search_that_measures(problem, how):
    placement = tfplace.place(
        problem,
        placer="local_search",
        budget=6,
        baselines=("single",),
        progress=False,
        evaluator=how,
    )
    assert placement.cost.source == "measured" and placement.cost.samples is not None
    assert placement.simulated is not None


def test_compiled_steps_are_measured_in_clusters(problem):
    with contextlib.closing(MeasuredEvaluator(problem, compile="xla", **QUICK)) as evaluator:
        assert evaluator(_random(problem)).step_s > 0
        ops = evaluator._program.tf_graph.get_operations()
    assert any("_XlaMustCompile" in op.node_def.attr for op in ops)


def test_ops_one_after_the_other_cannot_be_compiled(problem):
    with contextlib.closing(ChainedLogicalDevices()) as backend, pytest.raises(InputError) as refused:
        MeasuredEvaluator(problem, backend, compile="xla", **QUICK)
    assert "'xla'" in refused.value.received
