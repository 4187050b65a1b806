"""Expert: the layers of a model over several devices, as a person would lay them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.passes import is_backward
from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.core.search_context import SearchContext
from tfplace.group.flow import flow
from tfplace.group.layers import join_neighbours, layers, scope_parts, unit_edges, vote
from tfplace.group.unit_graph import variable_bytes
from tfplace.local_search.devices import compute_devices, settle

_FULL = 0.9

_CELL = re.compile(r"(?:^|_)(?:lstm|gru|rnn)(?:_|\d|$)")
_STACK = re.compile(r"^(?:encoder|decoder)_?(\d+)(?:_|$)")
_GATES = {"Sigmoid", "Tanh"}
_FIRST = re.compile(r"embedding")
_LAST = re.compile(r"^(?:logits|softmax|readout|outputs?|projection|dense|predictions)(?:_|$)")
_TABLE = re.compile(r"(?:^|_)(?:table|embedding)(?:_?\d+)+$")
_FEWEST_TABLES = 4
_EXPERT = re.compile(r"(?:^|_)expert_?(\d+)(?:_|$)")

Scopes = Sequence[Sequence[str]]


class Expert(Placer):
    """What papers say of the model's family, or blocks of layers in the order of the forward pass, one per accelerator.

    Families are told by scopes and op types:

    - Recurrent layers: each on a device of its own, layer i of encoder and decoder on the same; embeddings with the
      first, attention inside the decoder's layer, softmax with the last. A. Mirhoseini et al.: Device Placement
      Optimization with Reinforcement Learning, ICML 2017, section 4.2; after I. Sutskever, O. Vinyals, Q. Le: Sequence
      to Sequence Learning with Neural Networks, NeurIPS 2014, section 3.5, and Y. Wu et al.: Google's Neural Machine
      Translation System, arXiv 1609.08144, section 3. With more layers than devices neighboring layers share one.
    - Four or more embedding tables and no recurrent layers: tables over the devices, the largest first to where least
      is; the perceptrons where least is then. M. Naumov et al.: Deep Learning Recommendation Model for Personalization
      and Recommendation Systems, arXiv 1906.00091, section 3; which copies the perceptrons to every device instead.
    - Mixture of experts: experts over the devices, the rest in blocks. N. Shazeer et al.: Outrageously Large Neural
      Networks, ICLR 2017, section 3; which copies the rest to every device instead.
    - All others, among them Inception, ResNet, NASNet and Transformers: blocks. Mirhoseini et al., as above: parts with
      about as many layers each.

    A model of one of the first three families is also cut into blocks, and the better of the two is returned.

    A layer is what a name scope says it is. Backward ops carry the scope of their layer inside their own; ops of
    variables and optimizers join the layer whose variable or gradient they touch. Where names tell nothing, layers are
    chunks of units in the order in which an unlimited machine would start them.

    Blocks are cut so that the slowest is quickest. A block's time is its compute and the transfers over its two
    borders, so cuts fall where little crosses.

    Papers leave their human experts' placements unspecified but for sketches. All rules here keep gradients and
    variables beside their layer, and no block overfills its device.
    """

    citation = (
        "The human expert's placement of A. Mirhoseini et al.: Device Placement Optimization with Reinforcement "
        "Learning. ICML 2017, section 4.2, generalized from its sketches."
    )

    def place(self, context: SearchContext) -> IntArray:
        """Cuts once; evaluates nothing, or two placements where the family has a rule of its own."""
        problem = context.problem
        blocks = contiguous(problem)
        ruled = by_family(problem, blocks)
        return blocks if ruled is None else min((ruled, blocks), key=context.key)


def contiguous(problem: Problem) -> IntArray:
    """[U] layers in contiguous blocks, one for each compute device."""
    devices = compute_devices(problem)
    layer = layers(problem, len(devices), devices)
    seconds, size_bytes = _layer_seconds(problem, layer, devices), _layer_bytes(problem, layer)
    block = _cut(seconds, _crossing_seconds(problem, layer), size_bytes, problem.memory_limit[devices])
    return settle(problem, devices[block[layer]])


def by_family(problem: Problem, blocks: IntArray) -> IntArray | None:
    """[U] what the rule of the model's family says; None if names tell of no family that has one.

    Args:
      problem: what is placed.
      blocks: [U] where a mixture's other layers go.
    """
    parts = scope_parts(problem)
    for found in (_experts(problem, parts, blocks), _recurrent(problem, parts), _tables(problem, parts)):
        if found is not None:
            return settle(problem, found)
    return None


def _named(parts: Scopes, *patterns: re.Pattern[str]) -> list[str]:
    """[V] the first part of each op's scope in which one of the patterns is found; "" if none is."""
    hit = {part: any(p.search(part) for p in patterns) for part in {part for path in parts for part in path}}
    return [next((part for part in path if hit[part]), "") for path in parts]


def _over_devices(numbers: Sequence[int], devices: IntArray) -> dict[int, int]:
    """A device for each number: the next one each, or the same for neighbors where there are too few."""
    order = sorted({*numbers})
    share = max(len(order), len(devices))
    return {n: int(devices[i * len(devices) // share]) for i, n in enumerate(order)}


def _experts(problem: Problem, parts: Scopes, blocks: IntArray) -> IntArray | None:
    scopes = _named(parts, _EXPERT)
    number = {scope: int(found[1]) for scope in {*scopes} if (found := _EXPERT.search(scope))}
    if len({*number.values()}) < 2:
        return None
    device_of = _over_devices([*number.values()], compute_devices(problem))
    placed = _by_scope(problem, scopes, {scope: device_of[n] for scope, n in number.items()})
    return np.where(placed >= 0, placed, blocks).astype(np.int32)


def _recurrent(problem: Problem, parts: Scopes) -> IntArray | None:
    number = _cells(problem, _named(parts, _CELL, _STACK))
    if len({*number.values()}) < 2:
        return None
    device_of = _over_devices([*number.values()], compute_devices(problem))
    at = {scope: device_of[n] for scope, n in number.items()}
    scopes = _named(parts, *(re.compile(f"^{re.escape(scope)}$") for scope in number))
    for pattern, layer in ((_LAST, max(device_of)), (_FIRST, min(device_of))):
        others = _named(parts, pattern)
        scopes = [mine or other for mine, other in zip(scopes, others, strict=True)]
        at |= dict.fromkeys({*others} - {"", *number}, device_of[layer])
    src, dst, _ = unit_edges(problem)
    label = join_neighbours(_by_scope(problem, scopes, at), src, dst)
    return np.where(label >= 0, label, device_of[max(device_of)]).astype(np.int32)


def _cells(problem: Problem, scopes: Sequence[str]) -> dict[str, int]:
    """Scope of each recurrent layer -> its number; those of encoder and decoder count separately, others together."""
    kinds: dict[str, set[str]] = {}
    for scope, kind in zip(scopes, problem.graph.op_types, strict=True):
        kinds.setdefault(scope, set()).add(kind)
    cells = sorted(scope for scope, found in kinds.items() if scope and found >= _GATES)
    stacked = {scope: int(found[1]) for scope in cells if (found := _STACK.search(scope))}
    # Keras adds numbers of its own to names, so it is their order that counts
    plain = sorted((s for s in cells if s not in stacked), key=lambda s: [int(n) for n in re.findall(r"\d+", s)])
    return stacked | {scope: i for i, scope in enumerate(plain)}


def _tables(problem: Problem, parts: Scopes) -> IntArray | None:
    scopes = _named(parts, _TABLE)
    tables = sorted({*scopes} - {""})
    if len(tables) < _FEWEST_TABLES:
        return None
    devices = compute_devices(problem)
    label = vote(problem, scopes, tables)
    held, home = np.zeros(len(devices)), np.zeros(len(tables), np.int32)
    size = np.bincount(label[label >= 0], variable_bytes(problem)[label >= 0], len(tables))
    for table in np.argsort(-size, kind="stable").tolist():
        home[table] = held.argmin()
        held[home[table]] += size[table]
    return devices[np.where(label >= 0, home[label], held.argmin())]


def _by_scope(problem: Problem, scopes: Sequence[str], device_of: Mapping[str, int]) -> IntArray:
    """[U] the device of the scope in which each unit spends the most seconds; -1 for units in none of them."""
    known = sorted(device_of)
    return np.append([device_of[scope] for scope in known], -1)[vote(problem, list(scopes), known)].astype(np.int32)


def _layer_seconds(problem: Problem, layer: IntArray, devices: IntArray) -> FloatArray:
    """[L, K] seconds of each layer on each device; units that cannot be there take nothing."""
    seconds = problem.unit_seconds[:, devices]
    out = np.zeros((int(layer.max()) + 1, len(devices)))
    np.add.at(out, layer, np.where(np.isfinite(seconds), seconds, 0.0))
    return out


def _crossing_seconds(problem: Problem, layer: IntArray) -> FloatArray:
    """[L + 1] seconds of the transfers between the layers before and from each border on, forward and backward."""
    src, dst, seconds = unit_edges(problem)
    ends = np.sort(np.stack([layer[src], layer[dst]]), axis=0)
    steps = np.zeros(int(layer.max()) + 2)
    np.add.at(steps, ends[0] + 1, seconds)
    np.add.at(steps, ends[1] + 1, -seconds)
    crossing: FloatArray = np.maximum(np.cumsum(steps), 0.0)
    return crossing


def _layer_bytes(problem: Problem, layer: IntArray) -> FloatArray:
    """[L] bytes a layer is taken to need at once: its variables and every tensor that its backward pass reads."""
    graph, unit_of = problem.graph, problem.grouping.unit_of
    out: FloatArray = np.bincount(layer, variable_bytes(problem), int(layer.max()) + 1).astype(np.float64)
    backward = np.array([is_backward(name) for name in graph.base_names])
    kept = np.zeros(graph.num_tensors, bool)
    edges = flow(problem)
    rows = (edges.tensor >= 0) & backward[edges.dst] & ~backward[edges.src]
    kept[edges.tensor[rows]] = True
    tensors = np.flatnonzero(kept)
    np.add.at(out, layer[unit_of[graph.tensor_op[tensors]]], graph.tensor_bytes[tensors])
    return out


def _cut(seconds: FloatArray, crossing: FloatArray, size_bytes: FloatArray, limit: LongArray) -> IntArray:
    """[L] the block of each layer: contiguous blocks whose largest time is least (dynamic programming).

    A block over 90 % of its device's memory counts as slower than any that fits, the more so the more it is over.

    Args:
      seconds: [L, K] of each layer on each device.
      crossing: [L + 1] seconds of the transfers over each border.
      size_bytes: [L].
      limit: [K] bytes.
    """
    count, blocks = seconds.shape
    time = np.concatenate([np.zeros((1, blocks)), np.cumsum(seconds, axis=0)])
    size = np.concatenate([[0.0], np.cumsum(size_bytes)])
    borders = crossing[None, :] + crossing[:, None]
    np.fill_diagonal(borders, 0.0)  # an empty block
    worst = float(seconds.sum()) + 1.0
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    cuts = np.zeros((blocks, count + 1), np.int64)
    for k in range(blocks):
        over = np.maximum((size[None, :] - size[:, None]) / max(_FULL * limit[k], 1.0) - 1.0, 0.0)
        cost = time[None, :, k] - time[:, None, k] + borders + worst * over
        reach = np.maximum(best[:, None], cost)
        reach[np.tril_indices(count + 1, -1)] = np.inf
        cuts[k] = reach.argmin(axis=0)
        best = reach.min(axis=0)
    block = np.zeros(count, np.int32)
    end = count
    for k in reversed(range(blocks)):
        begin = int(cuts[k, end])
        block[begin:end] = k
        end = begin
    return block
