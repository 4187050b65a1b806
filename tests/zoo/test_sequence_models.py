import re
from collections import deque

import numpy as np
import pytest
from tfplace_zoo import zoo

import tfplace

WORDS = 11
TINY = {
    "rnnlm": {"batch": 3, "steps": 5, "units": 6, "vocabulary": WORDS},
    "nmt": {"batch": 3, "source_length": 4, "target_length": 5, "units": 6, "vocabulary": WORDS},
    "gnmt": {"batch": 3, "length": 4, "units": 6, "vocabulary": WORDS},
    "transformer_xl": {
        "batch": 2, "length": 5, "memory": 3, "width": 8, "heads": 2, "inner": 12, "vocabulary": WORDS, "dropout": 0.0,
    },
    "wavenet": {"batch": 2, "stacks": 2, "layers": 4, "samples": 20, "residual": 4, "skip": 6, "classes": WORDS},
}  # fmt: skip
NAMES = ["rnnlm_2", "rnnlm_4", "nmt_2", "nmt_4", "gnmt_2", "gnmt_4", "gnmt_8", "transformer_xl_2", "wavenet_2x18"]
DEEPER = ("rnnlm_4", "nmt_4", "gnmt_4", "gnmt_8")
"""With more of the same layers."""


def tiny(name, **params):
    import keras

    keras.utils.set_random_seed(7)
    return zoo.build(name, **{**TINY[zoo.ENTRIES[name].module], **params})


def data(built, seed=0):
    import tensorflow as tf

    rng = np.random.default_rng(seed)
    return tf.nest.map_structure(lambda spec: rng.integers(0, WORDS, spec.shape).astype(np.int32), built.batch)


def losses(built, steps):
    x, y = data(built)
    return [float(built.model.train_on_batch(x, y)) for _ in range(steps)]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    x = np.exp(x - x.max())
    return x / x.sum()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in DEEPER else ()) for name in NAMES]
)
def test_training_steps_learn_a_batch(name):
    built = tiny(name)
    built.model.run_eagerly = True  # tracing unrolled steps takes longer
    built.model.optimizer.learning_rate = 0.02 if "adam" in built.model.optimizer.name else 1.0
    found = losses(built, 8)
    assert np.isfinite(found).all()
    assert found[0] == pytest.approx(np.log(WORDS), rel=0.6)
    assert found[-1] < found[0]


@pytest.mark.parametrize(
    "name", ["nmt_2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("rnnlm_2", "nmt_4", "gnmt_4"))]
)
def test_unrolled_and_loop_train_alike(name):
    unrolled, loop = tiny(name), tiny(name, unroll=False)
    assert [w.path for w in unrolled.model.weights] == [w.path for w in loop.model.weights]
    loop.model.set_weights(unrolled.model.get_weights())
    assert losses(unrolled, 3) == pytest.approx(losses(loop, 3), rel=1e-5)


def lstm_size(inputs, units):
    return (inputs + units) * 4 * units + 4 * units


def encoder_size(layers, u):
    if layers == 1:
        return 2 * lstm_size(u, u)
    return 2 * lstm_size(u, u) + lstm_size(2 * u, u) + (layers - 2) * lstm_size(u, u)


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_weights_of_rnnlm(layers):
    u = TINY["rnnlm"]["units"]
    model = tiny("rnnlm_2", layers=layers).model
    assert model.count_params() == WORDS * u + layers * lstm_size(u, u) + u * WORDS + WORDS


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_weights_of_nmt(layers):
    u = TINY["nmt"]["units"]
    seen = 2 * u if layers == 1 else u
    attention = u * u + seen * u + u
    decoder = lstm_size(u + seen, u) + (layers - 1) * lstm_size(u, u)
    rest = 2 * WORDS * u + (u + seen) * u + u * WORDS + WORDS
    assert tiny("nmt_2", layers=layers).model.count_params() == encoder_size(layers, u) + attention + decoder + rest


@pytest.mark.parametrize("layers", [2, 8])
def test_weights_of_gnmt(layers):
    u = TINY["gnmt"]["units"]
    attention = 2 * u * u + u
    rest = 2 * WORDS * u + 2 * u * WORDS + WORDS
    wanted = encoder_size(layers, u) + attention + layers * lstm_size(2 * u, u) + rest
    assert tiny("gnmt_8", layers=layers).model.count_params() == wanted


@pytest.mark.parametrize("name", ["transformer_xl_2", "transformer_xl_4", "transformer_xl_8"])
def test_weights_of_transformer_xl(name):
    w, inner = TINY["transformer_xl"]["width"], TINY["transformer_xl"]["inner"]
    block = 5 * w * w + 2 * w + (w * inner + inner) + (inner * w + w) + 4 * w
    model = tiny(name).model
    assert sum(v.value.shape.num_elements() for v in model.trainable_weights) == (
        WORDS * w + int(name[-1]) * block + WORDS
    )


def test_weights_of_wavenet():
    r, s, layers = 4, 6, 4
    block = 2 * (2 * r * r + r) + (r * s + s) + (r * r + r)
    wanted = WORDS * r + (2 * r * r + r) + layers * block - (r * r + r) + (s * s + s) + (s * WORDS + WORDS)
    assert tiny("wavenet_2x18").model.count_params() == wanted


def test_wavenet_stacks_divide_layers():
    with pytest.raises(ValueError, match="5 layers in 2 stacks"):
        tiny("wavenet_2x18", layers=5)


def slow_cell(inputs, h, c, kernel, bias):
    i, j, f, o = np.split(np.concatenate([*inputs, h], axis=1) @ kernel + bias, 4, axis=1)
    c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
    return sigmoid(o) * np.tanh(c), c


@pytest.mark.parametrize("unroll", [True, False])
@pytest.mark.parametrize("backward", [True, False])
@pytest.mark.parametrize("residual", [True, False])
def test_lstm_equals_numpy(unroll, backward, residual):
    from tfplace_zoo.recurrent import LSTM, stacked

    rng = np.random.default_rng(1)
    x, h, c = (rng.normal(size=s).astype(np.float32) for s in ((2, 4, 3), (2, 3), (2, 3)))
    layer = LSTM(3, unroll=unroll, backward=backward, residual=residual, name="layer")
    layer.build([x.shape])
    layer.bias.assign(rng.normal(size=12))
    outputs, last = layer([x], state=[h, c])
    wanted = np.zeros((2, 4, 3))
    for t in reversed(range(4)) if backward else range(4):
        h, c = slow_cell([x[:, t]], h, c, layer.kernel.numpy(), layer.bias.numpy())
        wanted[:, t] = h + x[:, t] if residual else h
    np.testing.assert_allclose(stacked(outputs), wanted, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(last[0], h, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(last[1], c, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("unroll", [True, False])
def test_attention_equals_numpy(unroll):
    from tfplace_zoo.recurrent import AttentionLSTM, stacked

    rng = np.random.default_rng(2)
    batch, steps, sources, units, width = 2, 3, 4, 5, 6
    x = rng.normal(size=(batch, steps, 2)).astype(np.float32)
    memory = rng.normal(size=(batch, sources, width)).astype(np.float32)
    layer = AttentionLSTM(units, unroll=unroll, name="layer")
    outputs, contexts, _ = layer([x], memory)
    query, key, score, kernel, bias = (
        w.numpy() for w in (layer.query, layer.key, layer.score, layer.kernel, layer.bias)
    )
    h, c = np.zeros((batch, units)), np.zeros((batch, units))
    for t in range(steps):
        context = np.zeros((batch, width))
        for b in range(batch):
            scores = np.array([score @ np.tanh(h[b] @ query + memory[b, s] @ key) for s in range(sources)])
            context[b] = sum(weight * memory[b, s] for s, weight in enumerate(softmax(scores)))
        h, c = slow_cell([x[:, t], context], h, c, kernel, bias)
        np.testing.assert_allclose(stacked(contexts)[:, t], context, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(stacked(outputs)[:, t], h, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("length", "seen"), [(1, 1), (1, 4), (4, 4), (3, 5), (5, 9)])
def test_relative_shift_puts_each_distance_at_its_position(length, seen):
    import tensorflow as tf
    from tfplace_zoo.relative_attention import relative_shift

    by_distance = np.random.default_rng(3).normal(size=(2, 3, length, seen))
    found = relative_shift(tf.constant(by_distance)).numpy()
    for i in range(length):
        for j in range(seen - length + i + 1):
            distance = seen - length + i - j
            np.testing.assert_array_equal(found[:, :, i, j], by_distance[:, :, i, seen - 1 - distance])


def test_relative_attention_equals_numpy():
    import tensorflow as tf
    from tfplace_zoo.relative_attention import RelativeAttention

    rng = np.random.default_rng(4)
    batch, length, memory, width, heads = 2, 3, 2, 6, 2
    each, seen_length = width // heads, length + memory
    layer = RelativeAttention(width, heads, name="attention")
    layer.build()
    for bias in (layer.content_bias, layer.position_bias):
        bias.assign(rng.normal(size=bias.shape))
    seen = rng.normal(size=(batch, seen_length, width)).astype(np.float32)
    positions = rng.normal(size=(seen_length, width)).astype(np.float32)
    found = layer(tf.constant(seen[:, memory:]), tf.constant(seen), tf.constant(positions)).numpy()
    wanted = np.zeros((batch, length, width))
    for b in range(batch):
        q, k, v = (seen[b] @ w.numpy() for w in (layer.to_query, layer.to_key, layer.to_value))
        r = positions @ layer.to_position.numpy()
        for n in range(heads):
            part = slice(n * each, (n + 1) * each)
            u, by_position = layer.content_bias.numpy()[n], layer.position_bias.numpy()[n]
            for i in range(length):
                mine = q[memory + i, part]
                distances = [memory + i - j for j in range(memory + i + 1)]
                scores = [
                    ((mine + u) @ k[j, part] + (mine + by_position) @ r[seen_length - 1 - d, part]) / each**0.5
                    for j, d in enumerate(distances)
                ]
                wanted[b, i, part] = softmax(np.array(scores)) @ v[: memory + i + 1, part]
    np.testing.assert_allclose(found, wanted @ layer.to_output.numpy(), rtol=1e-4, atol=1e-5)


def test_distances_are_sinusoids_from_far_to_near():
    import tensorflow as tf
    from tfplace_zoo.relative_attention import Distances

    found = Distances(2, name="positions")(tf.zeros((1, 3, 4))).numpy()
    for row, distance in enumerate([4, 3, 2, 1, 0]):
        angles = [distance, distance / 100]
        np.testing.assert_allclose(found[row], [*np.sin(angles), *np.cos(angles)], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("taps", "dilation"), [(1, 1), (2, 1), (2, 4), (3, 2), (2, 16)])
def test_causal_convolution_equals_numpy(taps, dilation):
    import tensorflow as tf
    from tfplace_zoo.residual_block import causal_convolution

    rng = np.random.default_rng(5)
    x, kernel, bias = (rng.normal(size=s).astype(np.float32) for s in ((2, 12, 3), (taps, 3, 4), (4,)))
    found = causal_convolution(*map(tf.constant, (x, kernel, bias)), dilation).numpy()
    for t in range(12):
        wanted = np.tile(bias, (2, 1))
        for tap in range(taps):
            before = t - (taps - 1 - tap) * dilation
            wanted = wanted + (x[:, before] @ kernel[tap] if before >= 0 else 0)
        np.testing.assert_allclose(found[:, t], wanted, rtol=1e-4, atol=1e-5)


def logits(built, tokens):
    import tensorflow as tf

    memories = [v for v in built.model.non_trainable_weights if v.name == "memory"]
    for v in memories:
        v.assign(np.random.default_rng(6).normal(size=v.shape))
    return built.model(tf.constant(tokens)).numpy()


@pytest.mark.parametrize("name", ["rnnlm_2", "transformer_xl_2", "wavenet_2x18"])
def test_future_does_not_reach_the_past(name):
    built = tiny(name)
    tokens, _ = data(built)
    before = logits(built, tokens)
    for t in range(1, tokens.shape[1]):
        changed = tokens.copy()
        changed[:, t] = (changed[:, t] + 1) % WORDS
        after = logits(built, changed)
        np.testing.assert_allclose(after[:, :t], before[:, :t], atol=1e-6)
        assert np.abs(after[:, t] - before[:, t]).max() > 1e-5


@pytest.mark.parametrize("name", ["nmt_2", "gnmt_2"])
def test_translations_read_all_of_the_source_and_the_past_of_the_target(name):
    import tensorflow as tf

    built = tiny(name)
    (source, target), _ = data(built)
    before = built.model([tf.constant(source), tf.constant(target)]).numpy()
    for s in range(source.shape[1]):
        changed = source.copy()
        changed[:, s] = (changed[:, s] + 1) % WORDS
        after = built.model([tf.constant(changed), tf.constant(target)]).numpy()
        assert (np.abs(after - before).max(axis=(0, 2)) > 1e-7).all()
    target[:, 2] = (target[:, 2] + 1) % WORDS
    after = built.model([tf.constant(source), tf.constant(target)]).numpy()
    np.testing.assert_allclose(after[:, :2], before[:, :2], atol=1e-6)


def test_wavenet_sees_as_far_as_its_dilations():
    built = tiny("wavenet_2x18")  # two stacks of dilations 1 and 2, after one convolution of two taps
    tokens, _ = data(built)
    reach = 2 * (1 + 2) + 1
    before = logits(built, tokens)
    for back in range(reach + 3):
        changed = tokens.copy()
        changed[:, -1 - back] = (changed[:, -1 - back] + 1) % WORDS
        differs = np.abs(logits(built, changed)[:, -1] - before[:, -1]).max() > 1e-7
        assert differs == (back <= reach)


def test_memory_stands_for_the_segment_before():
    import tensorflow as tf

    built = tiny("transformer_xl_2", layers=1, length=3, memory=3)
    whole = tiny("transformer_xl_2", layers=1, length=6, memory=0)
    for ours, theirs in zip(whole.model.trainable_weights, built.model.trainable_weights, strict=True):
        ours.assign(theirs)
    tokens, _ = data(whole)
    built.model(tf.constant(tokens[:, :3]))
    second = built.model(tf.constant(tokens[:, 3:]))
    np.testing.assert_allclose(second, whole.model(tf.constant(tokens))[:, 3:], rtol=1e-4, atol=1e-5)


def test_memory_keeps_the_last_inputs_of_a_block():
    import tensorflow as tf

    built = tiny("transformer_xl_2", length=2, memory=3)
    first, second = (data(built, seed)[0] for seed in (1, 2))
    for tokens in (first, second):
        built.model(tf.constant(tokens))
    table = built.model.get_layer("embedding").embeddings.numpy()
    wanted = table[np.concatenate([first, second], axis=1)[:, 1:]] * 8**0.5
    np.testing.assert_allclose(built.model.get_layer("block_0").memory.numpy(), wanted, rtol=1e-5)


def test_training_step_moves_the_memory_on():
    built = tiny("transformer_xl_2")
    memory = built.model.get_layer("block_1").memory
    assert not memory.numpy().any()
    losses(built, 1)
    assert memory.numpy().any()


def ancestors(op):
    found, queue = set(), deque([op])
    while queue:
        for tensor in queue.popleft().inputs:
            if tensor.op.name not in found:
                found.add(tensor.op.name)
                queue.append(tensor.op)
    return found


def test_unrolled_steps_wait_for_nothing_but_their_inputs():
    import tensorflow as tf

    built = tiny("rnnlm_4")
    graph = tf.function(built.model).get_concrete_function(built.batch[0]).graph
    (last,) = [op for op in graph.get_operations() if re.search(r"lstm_3[^/]*/step_2/MatMul$", op.name)]
    needed = ancestors(last)
    for layer in range(3):
        steps = {int(t) for name in needed for t in re.findall(rf"lstm_{layer}[^/]*/step_(\d+)/", name)}
        assert steps == {0, 1, 2}


@pytest.fixture(scope="module")
def short_gnmt(logical_cpus):  # which must be made before TensorFlow starts
    """Graphs of GNMT with 8 layers, by length."""
    del logical_cpus
    built = {length: tiny("gnmt_8", length=length) for length in (2, 3)}
    return {length: tfplace.extract(b.model, b.batch) for length, b in built.items()}


def ops_of_full_gnmt(graphs):
    ops = {length: graph.num_ops for length, graph in graphs.items()}
    return ops[3] + (zoo.parameters("gnmt_8")["length"] - 3) * (ops[3] - ops[2])


@pytest.mark.slow
def test_gnmt_8_will_have_over_50_000_ops(short_gnmt):
    assert ops_of_full_gnmt(short_gnmt) > 50_000


@pytest.mark.slow
def test_gnmt_8_has_over_50_000_ops(short_gnmt):
    built = zoo.build("gnmt_8")
    graph = tfplace.extract(built.model, built.batch)
    # TensorFlow adds gradients up in several AddN where one would hold too many bytes at once, as at this width.
    assert graph.num_ops >= ops_of_full_gnmt(short_gnmt) > 50_000


def test_layers_are_scopes_of_forward_and_backward_ops(short_gnmt):
    found = {True: set(), False: set()}
    for name in short_gnmt[2].op_names:
        backward = name.startswith("gradient_tape/")
        scopes = name.removeprefix("gradient_tape/").split("/")
        if len(scopes) > 2:
            found[backward].add(scopes[1].removesuffix("_1"))  # which Keras appends where it calls a layer for real
    encoder = {"encoder_0_forward", "encoder_0_backward", *(f"encoder_{i}" for i in range(1, 8))}
    assert encoder | {f"decoder_{i}" for i in range(8)} | {"logits"} <= found[True] & found[False]
