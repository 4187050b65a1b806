import math
import resource

import numpy as np
import pytest
from tfplace_zoo import bert, dlrm, gpt, moe, zoo

BERT = {"batch": 2, "length": 6, "masked": 2, "layers": 2, "width": 8, "heads": 2, "vocabulary": 50}
GPT = {"batch": 2, "length": 5, "layers": 2, "width": 8, "heads": 2, "vocabulary": 50}
MOE = {**GPT, "experts": 3}
DLRM = {"batch": 2, "most_rows": 20, "width": 4, "bottom": (6,), "top": (8,)}


def data(built, seed=0, most=20):
    import tensorflow as tf

    rng = np.random.default_rng(seed)

    def draw(spec):
        dtype = spec.dtype.as_numpy_dtype
        return (
            rng.normal(size=spec.shape).astype(dtype) if spec.dtype.is_floating else rng.integers(0, most, spec.shape)
        )

    return tf.nest.map_structure(draw, built.batch)


def randomise(model, seed=0):
    """Weights no two of which are alike, so that nothing hides behind zeros and ones."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape) * 0.5)


@pytest.mark.parametrize(
    ("make", "params"),
    [(gpt.build, GPT), (moe.build, MOE), pytest.param(moe.build, {**MOE, "top_k": 1}, marks=pytest.mark.slow)],
    ids=["gpt", "moe", "switch"],
)
def test_one_training_step_of_a_language_model(make, params):
    built = make(**params)
    built.model.run_eagerly = True  # tracing takes longer
    kinds = ("kernel", "embeddings", "table")
    watched = [w for w in built.model.weights if w.path.endswith(kinds) and "expert" not in w.path]
    before = [np.array(w) for w in watched]  # an expert that no token of so small a batch visits does not learn
    loss = built.model.train_on_batch(*data(built))
    assert loss == pytest.approx(math.log(50), rel=0.1)  # small weights know nothing of 50 words
    assert len(watched) > 10
    assert all(not np.array_equal(b, w) for b, w in zip(before, watched, strict=True))


def test_one_training_step_of_bert():
    built = bert.build(**{**BERT, "layers": 1})
    built.model.run_eagerly = True
    inputs, (words, _) = data(built, most=6)
    total, *parts = built.model.train_on_batch(
        [a % m for a, m in zip(inputs, (50, 2, 6), strict=True)], [words, np.array([0, 1])]
    )
    assert total == pytest.approx(sum(parts))
    assert parts[0] == pytest.approx(math.log(50), rel=0.1)
    assert 0 < parts[1] < 10


# Numbers of parameters.


def block_parameters(width):
    attention = 4 * (width * width + width)
    feed_forward = (width * 4 * width + 4 * width) + (4 * width * width + width)
    return attention + feed_forward + 2 * 2 * width


def gpt_parameters(layers, width, vocabulary=50257, length=1024):
    return vocabulary * width + length * width + layers * block_parameters(width) + 2 * width


def bert_parameters(layers, width, vocabulary=30522, positions=512):
    embedding = (vocabulary + positions + 2) * width + 2 * width
    pooler = width * width + width
    heads = (width * width + width + 2 * width + vocabulary) + (2 * width + 2)
    return embedding + layers * block_parameters(width) + pooler + heads


def moe_parameters(layers, width, experts, vocabulary, length):
    dense = 8 * width * width + 5 * width
    blocks = layers * (block_parameters(width) - dense + experts * dense + width * experts)
    return vocabulary * width + length * width + blocks + 2 * width


def test_gpt_parameters():
    published = {(12, 768): 124_439_808, (24, 1024): 354_823_168, (36, 1280): 774_030_080, (48, 1600): 1_557_611_200}
    assert {size: gpt_parameters(*size) for size in published} == published
    assert gpt.build(**GPT).model.count_params() == gpt_parameters(2, 8, 50, 5)
    assert zoo.build("gpt", batch=1).model.count_params() == published[12, 768]


def test_bert_parameters():
    published = {(12, 768): 110_106_428, (24, 1024): 336_226_108}
    assert {size: bert_parameters(*size) for size in published} == published
    assert bert.build(**BERT).model.count_params() == bert_parameters(2, 8, 50)
    assert zoo.build("bert_base", batch=1).model.count_params() == published[12, 768]


@pytest.mark.slow
def test_bert_large_parameters():
    assert zoo.build("bert_large", batch=1).model.count_params() == bert_parameters(24, 1024)


def test_moe_parameters():
    assert moe.build(**MOE).model.count_params() == moe_parameters(2, 8, 3, 50, 5)


def test_dlrm_parameters():
    tables = sum(min(rows, 10_000_000) for rows in dlrm.CRITEO) * 128
    layers = [(13, 512), (512, 256), (256, 128), (128 + 27 * 26 // 2, 1024), (1024, 1024), (1024, 512), (512, 256)]
    dense = sum(a * b + b for a, b in [*layers, (256, 1)])
    assert tables * 4 > 16 * 2**30  # bytes, more than one device of 16 GiB
    assert dlrm.build().model.count_params() == tables + dense


# What the models compute.


@pytest.mark.parametrize("make", [gpt.build, moe.build])
def test_no_token_sees_a_later_one(make):
    # Experts that have seats for everyone: who is turned away may depend on other tokens.
    model = make(**GPT, **({"experts": 3, "capacity_factor": 3.0} if make is moe.build else {})).model
    randomise(model)
    tokens = np.random.default_rng(0).integers(0, 50, (2, 5))
    base = np.array(model(tokens, training=False))
    for t in range(5):
        changed = tokens.copy()
        changed[:, t] = (changed[:, t] + 1) % 50
        moved = np.abs(np.array(model(changed, training=False)) - base).max(axis=(0, 2))
        np.testing.assert_allclose(moved[:t], 0.0, atol=1e-5)
        assert (moved[t:] > 1e-3).all()


def test_bert_sees_the_whole_text():
    model = bert.build(**{**BERT, "batch": 1}).model
    randomise(model)
    tokens, segments, masked = np.arange(6)[None], np.zeros((1, 6), int), np.array([[0, 3]])
    words, follows = (np.array(a) for a in model([tokens, segments, masked], training=False))
    assert words.shape == (1, 2, 50)
    for t in range(6):
        changed = tokens.copy()
        changed[0, t] += 7
        others = model([changed, segments, masked], training=False)
        assert (np.abs(np.array(others[0]) - words).max(axis=2) > 1e-3).all()
        assert np.abs(np.array(others[1]) - follows).max() > 1e-3
    swapped = model([tokens, segments, masked[:, ::-1]], training=False)
    np.testing.assert_allclose(swapped[0], words[:, ::-1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(swapped[1], follows, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "params", "head"), [(gpt.build, GPT, "logits"), (bert.build, BERT, "masked_words_logits")]
)
def test_words_are_scored_by_their_own_embedding(make, params, head):
    model = make(**params).model
    randomise(model)
    layer, embedding = model.get_layer(head), np.array(model.get_layer("tokens_embedding").embeddings)
    x = np.random.default_rng(1).normal(size=(2, 3, 8)).astype(np.float32)
    bias = 0.0 if layer.bias is None else np.array(layer.bias)
    np.testing.assert_allclose(layer(x), x @ embedding.T + bias, rtol=1e-4, atol=1e-5)


# Mixture of experts, against loops.


def route(x, kernel, top_k, capacity):
    """Guests, seats, gates and the balance loss, one token and one choice after the other."""
    logits = x @ kernel
    probability = np.exp(logits - logits.max(axis=1, keepdims=True))
    probability /= probability.sum(axis=1, keepdims=True)
    tokens, experts = probability.shape
    chosen = np.argsort(-probability, axis=1, kind="stable")[:, :top_k]
    guests, taken = np.zeros((experts, capacity), int), [0] * experts
    seats, gates = np.full((tokens, top_k), experts * capacity), np.zeros((tokens, top_k))
    for choice in range(top_k):
        for n in range(tokens):
            expert = chosen[n, choice]
            if taken[expert] < capacity:
                guests[expert, taken[expert]] = n
                seats[n, choice] = expert * capacity + taken[expert]
                gates[n, choice] = probability[n, expert]
                if top_k > 1:
                    gates[n, choice] /= probability[n, chosen[n]].sum()
                taken[expert] += 1
    share = [(chosen == e).mean() for e in range(experts)]
    return guests, seats, gates, experts * sum(share[e] * probability[:, e].mean() for e in range(experts))


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("capacity", [1, 3, 50])
def test_router_against_loops(top_k, capacity):
    from tfplace_zoo.routing import Router

    rng = np.random.default_rng(capacity * 10 + top_k)
    x = rng.normal(size=(3, 7, 5)).astype(np.float32)
    router = Router(4, top_k, capacity, 0.5, name="router")
    router.build(x.shape)
    router.kernel.assign(rng.normal(size=(5, 4)))
    got = router(x)
    guests, seats, gates, imbalance = route(x.reshape(21, 5), np.array(router.kernel), top_k, capacity)
    np.testing.assert_array_equal(got[0], guests)
    np.testing.assert_array_equal(got[1], seats)
    np.testing.assert_allclose(got[2], gates, rtol=1e-5)
    np.testing.assert_allclose(router.losses, [0.5 * imbalance], rtol=1e-5)
    turned_away = (np.array(got[1]) == 4 * capacity).mean()
    assert turned_away == 0 if capacity == 50 else turned_away > 0.2


def test_balance_loss_is_its_weight_where_tokens_spread_evenly():
    from tfplace_zoo.routing import Router

    router = Router(4, 2, 9, 0.25, name="router")
    router.build((1, 8, 3))
    router.kernel.assign(np.zeros((3, 4)))
    router(np.ones((1, 8, 3), np.float32))
    np.testing.assert_allclose(router.losses, [0.25], rtol=1e-6)


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


@pytest.mark.parametrize("top_k", [1, 2])
def test_mixture_against_loops(top_k):
    import tensorflow as tf
    from tfplace_zoo.routing import Combine, Expert, Router

    rng = np.random.default_rng(top_k)
    x = rng.normal(size=(2, 6, 5)).astype(np.float32)
    router, experts = Router(3, top_k, 3, 0.1, name="router"), [Expert(i, 7, name=f"e{i}") for i in range(3)]
    router.build(x.shape)
    randomise(router)
    for expert in experts:
        expert.build(x.shape, (3, 3))
        randomise(expert, seed=expert.index)
    watched = tf.Variable(x)
    with tf.GradientTape() as tape:
        guests, seats, gates = router(watched)
        answers = [expert(watched, guests) for expert in experts]
        got = Combine(name="combine")(answers, seats, gates, watched)
        loss = tf.reduce_sum(got**2)
    weights = [[np.array(w) for w in (e.wide.kernel, e.wide.bias, e.narrow.kernel, e.narrow.bias)] for e in experts]
    flat = x.reshape(12, 5)
    _, places, shares, _ = route(flat, np.array(router.kernel), top_k, 3)
    expected = np.zeros((12, 5))
    for n, choice in np.ndindex(12, top_k):
        if places[n, choice] < 9:
            w, b, v, c = weights[places[n, choice] // 3]
            expected[n] += shares[n, choice] * (gelu(flat[n] @ w + b) @ v + c)
    np.testing.assert_allclose(np.reshape(got, (12, 5)), expected, rtol=1e-3, atol=1e-4)
    nowhere = (places == 9).all(axis=1)
    assert nowhere.any()
    gradient = np.reshape(tf.convert_to_tensor(tape.gradient(loss, watched)), (12, 5))
    assert (np.abs(gradient[nowhere]).max(axis=1) == 0).all()
    assert (np.abs(gradient[~nowhere]).max(axis=1) > 0).all()


def test_balance_losses_are_part_of_the_training_loss():
    losses = []
    for balance in (0.0, 3.0):
        built = moe.build(**MOE, balance=balance, dropout=0.0)
        randomise(built.model)
        losses.append(built.model.evaluate(*data(built), verbose=0))
        assert len(built.model.losses) == 2
    assert losses[1] - losses[0] > 2 * 3.0 * 0.9  # each of two layers' loss is about its weight or more


def test_more_visits_than_experts_are_refused():
    with pytest.raises(ValueError, match="top_k=4 with 3 experts"):
        moe.build(**MOE, top_k=4)


def test_experts_are_layers_that_can_be_placed():
    import tfplace

    built = moe.build(**{**MOE, "layers": 1})
    names = tfplace.extract(built.model, built.batch).op_names
    for e in range(3):
        for end in ("wide", "narrow"):
            forward = [n for n in names if f"/block_0_expert_{e}" in n and f"/{end}" in n and "MatMul" in n]
            assert any(n.startswith("gradient_tape/") for n in forward)
            assert any(not n.startswith("gradient_tape/") for n in forward)


# DLRM.


def test_interaction_against_loops():
    from tfplace_zoo.interaction import Interaction

    rng = np.random.default_rng(0)
    vectors = [rng.normal(size=(3, 4)).astype(np.float32) for _ in range(5)]
    rows = []
    for b in range(3):
        products = [vectors[i][b] @ vectors[j][b] for i in range(5) for j in range(i)]
        rows.append([*vectors[0][b], *products])
    np.testing.assert_allclose(Interaction(name="interaction")(vectors), rows, rtol=1e-5, atol=1e-6)


def test_a_step_changes_only_the_rows_it_read():
    built = dlrm.build(**{**DLRM, "batch": 8})
    randomise(built.model)
    tables = [built.model.get_layer(f"table_{i}").embeddings for i in range(len(dlrm.CRITEO))]
    before = [np.array(t) for t in tables]
    (numbers, categories), clicks = data(built, most=3)
    assert np.isfinite(built.model.train_on_batch((numbers, categories), (clicks > 0).astype(np.float32)))
    for i, (old, new) in enumerate(zip(before, tables, strict=True)):
        changed = np.flatnonzero((old != np.array(new)).any(axis=1))
        assert set(changed.tolist()) == set(categories[:, i].tolist())


def test_gradients_of_tables_are_slices():
    import tensorflow as tf

    built = dlrm.build(**DLRM)
    x, y = data(built, most=3)
    with tf.GradientTape() as tape:
        loss = built.model.compute_loss(y=y, y_pred=built.model(x, training=True))
    tables = [built.model.get_layer(f"table_{i}").embeddings.value for i in range(26)]
    assert all(isinstance(g, tf.IndexedSlices) for g in tape.gradient(loss, tables))


def test_large_tables_take_no_memory_until_they_are_used():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = dlrm.build().model
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 2**30
    table = model.get_layer("table_0").embeddings
    assert table.shape == (10_000_000, 128)
    assert not np.any(table.value[::1_000_000])
