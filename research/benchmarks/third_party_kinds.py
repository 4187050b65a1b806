"""Small models of many kinds, from other packages where there is one: what `third_party` trains plainly and placed.

Nothing is downloaded: models are made from their configuration with random weights, and data are random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

STEPS = 3


@dataclass
class Fit:
    """A Keras model for `fit`, three batches of it.

    Attributes:
      model: compiled.
      x: inputs.
      y: targets.
      batch: examples of a step.
      settings: more arguments of `fit`.
    """

    model: Any
    x: Any
    y: Any = None
    batch: int = 4
    settings: Mapping[str, Any] = field(default_factory=dict)

    def weights(self) -> list[np.ndarray]:
        """Weights of the model, optimizer state included."""
        optimizer = getattr(self.model, "optimizer", None)
        slots = optimizer.variables if optimizer is not None else []
        return [np.array(v) for v in [*self.model.weights, *(slots() if callable(slots) else slots)]]


@dataclass
class Steps:
    """A `tf.function`, called with the same batch each time.

    Attributes:
      step: the function.
      batch: its arguments.
      variables: what it trains.
    """

    step: Any
    batch: tuple[Any, ...]
    variables: Sequence[Any]

    def weights(self) -> list[np.ndarray]:
        """The variables' values."""
        return [np.array(v) for v in self.variables]


KINDS: dict[str, Callable[[], Fit | Steps]] = {}
LEGACY: set[str] = set()
"""Kinds of packages that take `tf.keras` for Keras 2."""


def kind(made: Callable[[], Fit | Steps]) -> Callable[[], Fit | Steps]:
    """Registers a kind under the function's name."""
    KINDS[made.__name__] = made
    return made


def legacy(made: Callable[[], Fit | Steps]) -> Callable[[], Fit | Steps]:
    """Registers a kind that needs `TF_USE_LEGACY_KERAS`."""
    LEGACY.add(made.__name__)
    return kind(made)


def seed(number: int) -> None:
    """All random generators there are, of whichever Keras is in use."""
    keras = tf.keras
    keras.backend.clear_session()
    keras.utils.set_random_seed(number)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype("float32")


def ints(high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(2).integers(0, high, shape).astype("int32")


def compiled(model: Any, loss: Any = "mse", optimizer: Any = "adam", **settings: Any) -> Any:
    model.compile(optimizer=optimizer, loss=loss, jit_compile=False, **settings)
    return model


def sparse(logits: bool = True) -> Any:
    import keras

    return keras.losses.SparseCategoricalCrossentropy(from_logits=logits)


def stepping(model: Any, loss: Callable[..., Any], *batch: Any, optimizer: Any = None) -> Steps:
    """A training step of a Keras model by hand."""
    import keras

    optimizer = optimizer or keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(*inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(model, *inputs)
        optimizer.apply_gradients(
            zip(tape.gradient(value, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return value

    return Steps(step, tuple(map(tf.constant, batch)), [*model.weights, *optimizer.variables])


# ---- transformers of keras-hub ---------------------------------------------------------------------------------------

SMALL = {"vocabulary_size": 64, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
GROUPED = {k: v for k, v in SMALL.items() if k != "num_heads"} | {"num_query_heads": 4, "num_key_value_heads": 2}


def tokens(segments: bool = False, length: int = 12) -> dict[str, np.ndarray]:
    out = {"token_ids": ints(64, 12, length), "padding_mask": np.ones((12, length), "int32")}
    return out | ({"segment_ids": np.zeros((12, length), "int32")} if segments else {})


def language_model(name: str, **settings: Any) -> Fit:
    import keras_hub

    backbone = getattr(keras_hub.models, f"{name}Backbone")(**settings)
    model = getattr(keras_hub.models, f"{name}CausalLM")(backbone, preprocessor=None)
    return Fit(compiled(model, sparse()), tokens(), ints(64, 12, 12))


def classifier_of(backbone: Any, inputs: Any) -> Fit:
    import keras

    out = backbone(backbone.input)
    out = out if not isinstance(out, dict) else out.get("sequence_output", next(iter(out.values())))
    model = keras.Model(backbone.input, keras.layers.Dense(3)(keras.layers.GlobalAveragePooling1D()(out)))
    return Fit(compiled(model, sparse()), inputs, ints(3, 12))


@kind
def bert() -> Fit:
    import keras_hub

    backbone = keras_hub.models.BertBackbone(**SMALL, max_sequence_length=12)
    model = keras_hub.models.BertTextClassifier(backbone, num_classes=3)
    return Fit(compiled(model, sparse()), tokens(segments=True), ints(3, 12))


@kind
def gpt2() -> Fit:
    return language_model("GPT2", **SMALL, max_sequence_length=12)


@kind
def llama() -> Fit:
    return language_model("Llama", **GROUPED)


@kind
def llama_lora() -> Fit:
    import keras_hub

    backbone = keras_hub.models.LlamaBackbone(**GROUPED)
    backbone.enable_lora(2)
    model = keras_hub.models.LlamaCausalLM(backbone, preprocessor=None)
    return Fit(compiled(model, sparse()), tokens(), ints(64, 12, 12))


@kind
def llama_int8() -> Steps:
    import keras_hub

    backbone = keras_hub.models.LlamaBackbone(**GROUPED)
    backbone.quantize("int8")
    data = tokens()
    step = tf.function(lambda ids, mask: backbone({"token_ids": ids, "padding_mask": mask}, training=False))
    return Steps(step, (tf.constant(data["token_ids"]), tf.constant(data["padding_mask"])), backbone.weights)


@kind
def mixtral_experts() -> Fit:
    return language_model("Mixtral", **GROUPED, num_experts=4)


@kind
def gemma_mixed_float16() -> Fit:
    return language_model("Gemma", **GROUPED, head_dim=8, dtype="mixed_float16")


@kind
def qwen3_bfloat16() -> Fit:
    return language_model("Qwen3", **GROUPED, head_dim=8, dtype="mixed_bfloat16")


@kind
def bloom() -> Fit:
    return language_model("Bloom", **SMALL)


@kind
def fnet() -> Fit:
    import keras_hub

    data = tokens(segments=True)
    del data["padding_mask"]
    settings = {k: v for k, v in SMALL.items() if k != "num_heads"}
    return classifier_of(keras_hub.models.FNetBackbone(**settings, max_sequence_length=12), data)


@kind
def albert() -> Fit:
    import keras_hub

    backbone = keras_hub.models.AlbertBackbone(**SMALL, embedding_dim=8, max_sequence_length=12)
    return classifier_of(backbone, tokens(segments=True))


@kind
def deberta() -> Fit:
    import keras_hub

    backbone = keras_hub.models.DebertaV3Backbone(**SMALL, max_sequence_length=12, bucket_size=8)
    return classifier_of(backbone, tokens())


@kind
def t5() -> Fit:
    import keras_hub

    backbone = keras_hub.models.T5Backbone(**SMALL)
    data = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in tokens().items()}
    import keras

    out = backbone(backbone.input)["decoder_sequence_output"]
    return Fit(compiled(keras.Model(backbone.input, keras.layers.Dense(64)(out)), sparse()), data, ints(64, 12, 12))


@kind
def whisper_speech() -> Fit:
    import keras
    import keras_hub

    backbone = keras_hub.models.WhisperBackbone(
        **SMALL, num_mels=8, max_encoder_sequence_length=24, max_decoder_sequence_length=12
    )
    data = {"encoder_features": floats(12, 24, 8)} | {f"decoder_{k}": v for k, v in tokens().items()}
    out = keras.layers.Dense(64)(backbone(backbone.input)["decoder_sequence_output"])
    return Fit(compiled(keras.Model(backbone.input, out), sparse()), data, ints(64, 12, 12))


@kind
def clip_contrastive() -> Steps:
    import keras
    import keras_hub

    vision = keras_hub.models.CLIPVisionEncoder(8, 16, 2, 2, 32, image_shape=(16, 16, 3))
    words = keras_hub.models.CLIPTextEncoder(64, 16, 16, 2, 2, 32, max_sequence_length=12)
    model = keras_hub.models.CLIPBackbone(vision, words, projection_dim=8)

    def loss(model: Any, images: Any, ids: Any) -> Any:
        out = model({"images": images, "token_ids": ids})
        labels = tf.range(4)
        return tf.reduce_mean(
            keras.losses.sparse_categorical_crossentropy(labels, out["vision_logits"], from_logits=True)
            + keras.losses.sparse_categorical_crossentropy(labels, out["text_logits"], from_logits=True)
        )

    return stepping(model, loss, floats(4, 16, 16, 3), ints(64, 4, 12))


# ---- images ----------------------------------------------------------------------------------------------------------


def resnet_backbone(size: int = 32) -> Any:
    import keras_hub

    return keras_hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64, 16, 16, 16],
        stackwise_num_blocks=[1, 1, 1, 1],
        stackwise_num_strides=[1, 2, 2, 2],
        block_type="basic_block",
        image_shape=(size, size, 3),
    )


@kind
def resnet() -> Fit:
    import keras_hub

    model = keras_hub.models.ResNetImageClassifier(resnet_backbone(), num_classes=3)
    return Fit(compiled(model, sparse()), floats(12, 32, 32, 3), ints(3, 12))


@kind
def vision_transformer() -> Fit:
    import keras_hub

    backbone = keras_hub.models.ViTBackbone((16, 16, 3), (8, 8), 2, 2, 16, 32)
    model = keras_hub.models.ViTImageClassifier(backbone, num_classes=3)
    return Fit(compiled(model, sparse()), floats(12, 16, 16, 3), ints(3, 12))


@kind
def deeplab_segmentation() -> Fit:
    import keras_hub

    backbone = keras_hub.models.DeepLabV3Backbone(
        resnet_backbone(64), "P5", (8, 8), [6, 12, 18], low_level_feature_key="P2", image_shape=(64, 64, 3)
    )
    model = keras_hub.models.DeepLabV3ImageSegmenter(backbone, num_classes=3)
    out = model(floats(1, 64, 64, 3)).shape
    return Fit(
        compiled(model, sparse(), metrics=["sparse_categorical_accuracy"]),
        floats(12, 64, 64, 3),
        ints(3, 12, *out[1:3]),
    )


@kind
def segformer_segmentation() -> Fit:
    import keras_hub

    encoder = keras_hub.models.MiTBackbone(
        layerwise_depths=[1, 1],
        num_layers=2,
        layerwise_num_heads=[1, 2],
        layerwise_sr_ratios=[2, 1],
        max_drop_path_rate=0.1,
        layerwise_patch_sizes=[7, 3],
        layerwise_strides=[4, 2],
        image_shape=(32, 32, 3),
        hidden_dims=[8, 16],
    )
    backbone = keras_hub.models.SegFormerBackbone(encoder, projection_filters=8)
    model = keras_hub.models.SegFormerImageSegmenter(backbone, num_classes=3)
    out = model(floats(1, 32, 32, 3)).shape
    return Fit(
        compiled(model, sparse(), metrics=["sparse_categorical_accuracy"]),
        floats(12, 32, 32, 3),
        ints(3, 12, *out[1:3]),
    )


@kind
def retinanet_detection() -> Fit:
    import keras_hub

    backbone = keras_hub.models.RetinaNetBackbone(resnet_backbone(64), 3, 5, use_p5=True, image_shape=(64, 64, 3))
    generator = keras_hub.layers.AnchorGenerator("yxyx", 3, 5, 1, [1.0], 4.0)
    model = keras_hub.models.RetinaNetObjectDetector(
        backbone, num_classes=3, anchor_generator=generator, pre_logits_num_conv_layers=1
    )
    model.compile(
        optimizer="adam",
        box_loss="mae",
        classification_loss="binary_crossentropy",
        jit_compile=False,
    )
    boxes = np.tile(np.array([[[4, 4, 30, 30], [20, 20, 60, 60]]], "float32"), (12, 1, 1))
    return Fit(model, floats(12, 64, 64, 3), {"boxes": boxes, "labels": ints(3, 12, 2)})


def application(name: str, size: int = 32, **settings: Any) -> Fit:
    import keras

    model = getattr(keras.applications, name)(
        weights=None, input_shape=(size, size, 3), classes=3, classifier_activation=None, **settings
    )
    return Fit(compiled(model, sparse(), "sgd"), floats(12, size, size, 3), ints(3, 12))


@kind
def mobilenet() -> Fit:
    return application("MobileNetV2", alpha=0.35)


@kind
def efficientnet() -> Fit:
    return application("EfficientNetB0")


@kind
def convnext() -> Fit:
    return application("ConvNeXtTiny")


@kind
def single_shot_detection() -> Steps:
    import keras

    layers = keras.layers
    x = image = keras.Input((32, 32, 3))
    heads = []
    for filters in (8, 16, 16):
        x = layers.Conv2D(filters, 3, 2, "same", activation="relu")(x)
        heads.append(layers.Reshape((-1, 7))(layers.Conv2D(2 * 7, 3, padding="same")(x)))
    model = keras.Model(image, layers.Concatenate(axis=1)(heads))

    def loss(model: Any, images: Any, boxes: Any, labels: Any) -> Any:
        out = model(images, training=True)
        n = tf.shape(out)[1]
        targets, classes = tf.repeat(boxes, n // 2, axis=1), tf.repeat(labels, n // 2, axis=1)
        error = tf.nn.sparse_softmax_cross_entropy_with_logits(classes, out[..., 4:])
        hardest = tf.math.top_k(error, 8).values
        kept = tf.image.non_max_suppression(out[0, :, :4], out[0, :, 4], 4)
        huber = keras.losses.Huber()(targets, out[..., :4])
        return tf.reduce_mean(hardest) + huber + 0.0 * tf.cast(tf.size(kept), tf.float32)

    return stepping(model, loss, floats(4, 32, 32, 3), floats(4, 2, 4), ints(3, 4, 2))


@kind
def diffusion_unet() -> Fit:
    import keras

    layers = keras.layers
    image, time = keras.Input((16, 16, 3)), keras.Input((1,))
    when = layers.Dense(8, "swish")(layers.Lambda(lambda t: tf.concat([tf.sin(t), tf.cos(t)], -1))(time))
    x, skips = layers.Conv2D(8, 3, padding="same")(image), []
    for width in (8, 16):
        x = layers.GroupNormalization(4)(x)
        x = layers.Conv2D(width, 3, padding="same", activation="swish")(x)
        x = layers.Add()([x, layers.Reshape((1, 1, width))(layers.Dense(width)(when))])
        skips.append(x)
        x = layers.AveragePooling2D(2)(x)
    tokens_ = layers.Reshape((16, 16))(x)
    x = layers.Reshape((4, 4, 16))(layers.MultiHeadAttention(2, 8)(tokens_, tokens_))
    for width in (16, 8):
        x = layers.Concatenate()([layers.UpSampling2D()(x), skips.pop()])
        x = layers.Conv2D(width, 3, padding="same", activation="swish")(x)
    model = keras.Model([image, time], layers.Conv2D(3, 3, padding="same")(x))
    return Fit(compiled(model), [floats(12, 16, 16, 3), floats(12, 1)], floats(12, 16, 16, 3))


# ---- recommenders ----------------------------------------------------------------------------------------------------


@kind
def deep_and_cross() -> Fit:
    import keras
    import keras_rs

    seed(0)  # the import draws random numbers
    ids, dense = keras.Input((6,), dtype="int32"), keras.Input((4,))
    reduced = keras_rs.layers.EmbedReduce(1000, 8, combiner="mean")(ids)
    x = keras.layers.Concatenate()([reduced, dense])
    for _ in range(2):
        x = keras_rs.layers.FeatureCross()(x)
    model = keras.Model([ids, dense], keras.layers.Dense(1)(x))
    return Fit(compiled(model, "mse", "adagrad"), [ints(1000, 12, 6), floats(12, 4)], floats(12, 1))


@kind
def dlrm_sparse_tables() -> Steps:
    import keras

    tables = [tf.Variable(floats(500, 8) * 0.1, name=f"table_{i}") for i in range(4)]
    top = keras.Sequential([keras.Input((4 * 8 + 6,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adagrad(0.1)
    variables = [*tables, *top.trainable_variables]
    optimizer.build(top.trainable_variables)

    @tf.function
    def step(ids: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            rows = [tf.nn.embedding_lookup(table, ids[:, i]) for i, table in enumerate(tables)]
            pairs = [tf.reduce_sum(a * b, 1, keepdims=True) for i, a in enumerate(rows) for b in rows[:i]]
            loss = tf.reduce_mean((top(tf.concat([*rows, *pairs], 1)) - y) ** 2)
        gradients = tape.gradient(loss, variables)
        for table, gradient in zip(tables, gradients, strict=False):
            table.scatter_sub(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))
        optimizer.apply_gradients(zip(gradients[len(tables) :], top.trainable_variables, strict=True))
        return loss

    return Steps(step, (tf.constant(ints(500, 12, 4)), tf.constant(floats(12, 1))), [*variables, *optimizer.variables])


@legacy
def retrieval_towers() -> Fit:
    import tensorflow_recommenders as tfrs
    import tf_keras

    class Towers(tfrs.Model):
        def __init__(self) -> None:
            super().__init__()
            self.user, self.item = tf_keras.layers.Embedding(50, 8), tf_keras.layers.Embedding(80, 8)
            self.task = tfrs.tasks.Retrieval()

        def compute_loss(self, inputs: Any, training: bool = False) -> Any:
            return self.task(self.user(inputs["user"]), self.item(inputs["item"]), compute_metrics=False)

    model = Towers()
    model.compile(optimizer=tf_keras.optimizers.Adagrad(0.1))
    model.user.build(None)
    model.item.build(None)
    return Fit(model, {"user": ints(50, 12), "item": ints(80, 12)})


# ---- sequences -------------------------------------------------------------------------------------------------------


def sequence_model(*stack: Any, shape: tuple[int, ...] = (10, 4), loss: Any = "mse", y: Any = None) -> Fit:
    import keras

    model = keras.Sequential([keras.Input(shape), *stack])
    return Fit(compiled(model, loss), floats(12, *shape), floats(12, 1) if y is None else y)


@kind
def gru_bidirectional() -> Fit:
    from keras import layers

    return sequence_model(layers.Bidirectional(layers.GRU(8, return_sequences=True)), layers.GRU(8), layers.Dense(1))


@kind
def lstm_dropout() -> Fit:
    from keras import layers

    return sequence_model(layers.LSTM(8, dropout=0.2, recurrent_dropout=0.2), layers.Dense(1))


@kind
def conv_lstm() -> Fit:
    from keras import layers

    return sequence_model(
        layers.ConvLSTM2D(4, 3, padding="same"), layers.Flatten(), layers.Dense(1), shape=(5, 8, 8, 2)
    )


@kind
def temporal_convolutions() -> Fit:
    import keras
    from tcn import TCN

    return sequence_model(TCN(8, dilations=(1, 2, 4)), keras.layers.Dense(1), shape=(16, 3))


@kind
def ctc_speech() -> Fit:
    import keras
    from keras import layers

    return sequence_model(
        layers.Conv1D(8, 3, padding="same", activation="relu"),
        layers.Bidirectional(layers.GRU(8, return_sequences=True)),
        layers.Dense(6),
        shape=(16, 8),
        loss=keras.losses.CTC(),
        y=1 + ints(4, 12, 5),
    )


# ---- graphs ----------------------------------------------------------------------------------------------------------


@legacy
def spektral_graph_convolutions() -> Fit:
    import tf_keras
    from spektral.layers import GATConv, GCNConv

    x, a = tf_keras.Input((10, 4)), tf_keras.Input((10, 10))
    h = GATConv(8, attn_heads=2)([GCNConv(8, activation="relu")([x, a]), a])
    model = tf_keras.Model([x, a], tf_keras.layers.Dense(1)(h))
    return Fit(compiled(model), [floats(12, 10, 4), np.ones((12, 10, 10), "float32")], floats(12, 10, 1))


@kind
def message_passing() -> Steps:
    import keras

    message, update = keras.layers.Dense(8, "relu"), keras.layers.GRUCell(8)
    message.build((None, 16))
    update.build((None, 8))
    readout = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.parts = [message, update, readout]

        def call(self, nodes: Any, source: Any, target: Any) -> Any:
            for _ in range(3):
                sent = message(tf.concat([tf.gather(nodes, source), tf.gather(nodes, target)], 1))
                nodes, _ = update(tf.math.unsorted_segment_sum(sent, target, 20), [nodes])
            return readout(tf.math.segment_mean(nodes, tf.range(20) // 5))

    model = Net()
    edges = (tf.constant(floats(20, 8)), ints(20, 60), ints(20, 60))
    model(*edges)
    return stepping(model, lambda m, n, s, t, y: tf.reduce_mean((m(n, s, t) - y) ** 2), *edges, floats(4, 1))


# ---- reinforcement learning ------------------------------------------------------------------------------------------


def mlp(inputs: int, outputs: int, width: int = 16) -> Any:
    import keras

    layers = keras.layers
    return keras.Sequential(
        [keras.Input((inputs,)), layers.Dense(width, "relu"), layers.Dense(width, "relu"), layers.Dense(outputs)]
    )


@kind
def dqn() -> Steps:
    online, target = mlp(4, 3), mlp(4, 3)

    def loss(model: Any, state: Any, action: Any, reward: Any, following: Any) -> Any:
        best = tf.argmax(model(following), 1)
        value = reward + 0.99 * tf.gather(target(following), best, batch_dims=1)
        for old, new in zip(target.variables, model.variables, strict=True):
            old.assign(0.99 * old + 0.01 * new)
        return tf.reduce_mean((tf.gather(model(state), action, batch_dims=1) - tf.stop_gradient(value)) ** 2)

    made = stepping(online, loss, floats(8, 4), ints(3, 8), floats(8), floats(8, 4) + 1)
    made.variables = [*made.variables, *target.variables]
    return made


@kind
def ppo() -> Steps:
    import keras

    shared = keras.Input((4,))
    hidden = keras.layers.Dense(16, "tanh")(shared)
    model = keras.Model(shared, [keras.layers.Dense(3)(hidden), keras.layers.Dense(1)(hidden)])

    def loss(model: Any, state: Any, action: Any, old: Any, gain: Any) -> Any:
        logits, value = model(state)
        policy = tf.nn.log_softmax(logits)
        ratio = tf.exp(tf.gather(policy, action, batch_dims=1) - old)
        clipped = tf.minimum(ratio * gain, tf.clip_by_value(ratio, 0.8, 1.2) * gain)
        entropy = -tf.reduce_sum(tf.exp(policy) * policy, 1)
        return tf.reduce_mean(-clipped + 0.5 * (value[:, 0] - gain) ** 2 - 0.01 * entropy)

    optimizer = keras.optimizers.Adam(1e-3, global_clipnorm=0.5)
    return stepping(model, loss, floats(8, 4), ints(3, 8), floats(8) - 1, floats(8), optimizer=optimizer)


@kind
def soft_actor_critic() -> Steps:
    import keras

    actor, critics = mlp(4, 4), [mlp(6, 1), mlp(6, 1)]
    temperature = tf.Variable(0.0)
    optimizers = [keras.optimizers.Adam(1e-3) for _ in range(2)]
    trained = [actor.trainable_variables, [v for critic in critics for v in critic.trainable_variables]]
    for optimizer, variables in zip(optimizers, trained, strict=True):
        optimizer.build(variables)

    def act(state: Any) -> tuple[Any, Any]:
        mean, scale = tf.split(actor(state), 2, axis=1)
        noise = tf.random.normal(tf.shape(mean))
        action = tf.tanh(mean + noise * tf.exp(scale))
        return action, tf.reduce_sum(-0.5 * noise**2 - scale - tf.math.log(1 - action**2 + 1e-6), 1, keepdims=True)

    def least(state: Any, action: Any) -> Any:
        return tf.minimum(*(critic(tf.concat([state, action], 1)) for critic in critics))

    @tf.function
    def step(state: Any, action: Any, reward: Any) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            sampled, likelihood = act(state)
            value = tf.stop_gradient(reward + least(state, sampled) - tf.exp(temperature) * likelihood)
            joined = tf.concat([state, action], 1)
            critic_loss = sum(tf.reduce_mean((critic(joined) - value) ** 2) for critic in critics)
            actor_loss = tf.reduce_mean(tf.exp(temperature) * likelihood - least(state, sampled))
        for optimizer, loss, variables in zip(optimizers, (actor_loss, critic_loss), trained, strict=True):
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        temperature.assign_sub(1e-3 * tf.reduce_mean(likelihood + 2))
        return actor_loss, critic_loss

    batch = tuple(map(tf.constant, (floats(8, 4), floats(8, 2), floats(8, 1))))
    return Steps(step, batch, [*trained[0], *trained[1], temperature, *(v for o in optimizers for v in o.variables)])


# ---- probability -----------------------------------------------------------------------------------------------------


@legacy
def bayesian_layers() -> Fit:
    import tensorflow_probability as tfp
    import tf_keras

    def divergence(q: Any, p: Any, _: Any) -> Any:
        return tfp.distributions.kl_divergence(q, p) / 12

    model = tf_keras.Sequential(
        [
            tf_keras.Input((4,)),
            tfp.layers.DenseFlipout(8, activation="relu", kernel_divergence_fn=divergence),
            tfp.layers.DenseReparameterization(1, kernel_divergence_fn=divergence),
        ]
    )
    return Fit(compiled(model), floats(12, 4), floats(12, 1))


@legacy
def mixture_density() -> Fit:
    import tensorflow_probability as tfp
    import tf_keras

    size = tfp.layers.MixtureNormal.params_size(3, (1,))
    model = tf_keras.Sequential(
        [
            tf_keras.Input((4,)),
            tf_keras.layers.Dense(8, "relu"),
            tf_keras.layers.Dense(size),
            tfp.layers.MixtureNormal(3, (1,)),
        ]
    )
    return Fit(compiled(model, lambda y, mixture: -mixture.log_prob(y)), floats(12, 4), floats(12, 1))


@kind
def normalizing_flow() -> Steps:
    import tensorflow_probability as tfp

    distributions, bijectors = tfp.distributions, tfp.bijectors
    weights = [tf.Variable(0.1 * floats(2, 4), name=f"w{i}") for i in range(4)]

    def shift(w: Any) -> Callable[..., Any]:
        return lambda x, units, **_: tuple(tf.split(tf.tanh(x @ w)[:, : 2 * units], 2, axis=-1))

    chain = [bijectors.RealNVP(num_masked=2, shift_and_log_scale_fn=shift(w)) for w in weights]
    chain = [b for flow in chain for b in (flow, bijectors.Permute([2, 3, 0, 1]))]
    flow = distributions.TransformedDistribution(
        distributions.MultivariateNormalDiag(tf.zeros(4)), bijectors.Chain(chain)
    )

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(flow.log_prob(x))
        for w, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            w.assign_sub(0.01 * gradient)
        return loss

    return Steps(step, (tf.constant(floats(12, 4)),), weights)


@kind
def hamiltonian_monte_carlo() -> Steps:
    import tensorflow_probability as tfp

    state = tf.Variable(floats(4, 3))
    kernel = tfp.mcmc.HamiltonianMonteCarlo(
        lambda x: -0.5 * tf.reduce_sum(x**2, -1), step_size=0.1, num_leapfrog_steps=3
    )

    @tf.function
    def step(seed_: Any) -> Any:
        after, results = kernel.one_step(state.read_value(), kernel.bootstrap_results(state.read_value()), seed=seed_)
        state.assign(after)
        return results.log_accept_ratio

    return Steps(step, (tf.constant([1, 2]),), [state])


# ---- Sonnet and tf_keras ---------------------------------------------------------------------------------------------


def sonnet_steps(module: Any, optimizer: Any, loss: Callable[..., Any], *batch: Any) -> Steps:
    batch = tuple(map(tf.constant, batch))
    loss(*batch)  # makes the variables

    @tf.function
    def step(*inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(*inputs)
        optimizer.apply(tape.gradient(value, module.trainable_variables), module.trainable_variables)
        return value

    return Steps(step, batch, module.variables)


@kind
def sonnet_convolutions() -> Steps:
    import sonnet as snt

    net = snt.Sequential(
        [snt.Conv2D(8, 3), tf.nn.relu, snt.LayerNorm(-1, True, True), snt.Flatten(), snt.nets.MLP([16, 3])]
    )
    return sonnet_steps(
        net,
        snt.optimizers.Momentum(0.01, 0.9),
        lambda x, y: tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, net(x))),
        floats(4, 8, 8, 3),
        ints(3, 4),
    )


@kind
def sonnet_lstm() -> Steps:
    import sonnet as snt

    class Net(snt.Module):
        def __init__(self) -> None:
            super().__init__()
            self.core, self.out = snt.LSTM(8), snt.Linear(1)

        def __call__(self, x: Any) -> Any:
            return self.out(snt.dynamic_unroll(self.core, x, self.core.initial_state(4))[0][-1])

    net = Net()
    return sonnet_steps(
        net, snt.optimizers.Adam(0.01), lambda x, y: tf.reduce_mean((net(x) - y) ** 2), floats(6, 4, 3), floats(4, 1)
    )


@kind
def sonnet_vector_quantization() -> Steps:
    import sonnet as snt

    class Net(snt.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.decode = snt.nets.MLP([16, 4]), snt.nets.MLP([16, 6])
            self.codes = snt.nets.VectorQuantizerEMA(4, 8, 0.25, 0.99)

        def __call__(self, x: Any) -> Any:
            coded = self.codes(self.encode(x), is_training=True)
            return tf.reduce_mean((self.decode(coded["quantize"]) - x) ** 2) + coded["loss"]

    net = Net()
    return sonnet_steps(net, snt.optimizers.Adam(0.01), net, floats(12, 6))


@legacy
def tf_keras_convolutions() -> Fit:
    import tf_keras

    layers = tf_keras.layers
    model = tf_keras.Sequential(
        [
            layers.Input((16, 16, 3)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(3),
        ]
    )
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Fit(compiled(model, loss, "rmsprop", metrics=["accuracy"]), floats(12, 16, 16, 3), ints(3, 12))


# ---- ways to train ---------------------------------------------------------------------------------------------------


@kind
def gradient_accumulation() -> Fit:
    import keras

    model = compiled(mlp(4, 1), "mse", keras.optimizers.AdamW(1e-3, gradient_accumulation_steps=2))
    return Fit(model, floats(12, 4), floats(12, 1))


@kind
def weight_averages() -> Fit:
    import keras

    model = compiled(mlp(4, 1), "mse", keras.optimizers.Lion(1e-3, use_ema=True, ema_overwrite_frequency=2))
    return Fit(model, floats(12, 4), floats(12, 1))


@kind
def quantization_aware() -> Steps:
    import keras

    class Quantized(keras.layers.Dense):
        def call(self, x: Any) -> Any:
            kernel = tf.quantization.fake_quant_with_min_max_vars(self.kernel, -1.0, 1.0)
            return tf.quantization.fake_quant_with_min_max_vars(x @ kernel + self.bias, -6.0, 6.0)

    model = keras.Sequential([keras.Input((4,)), Quantized(8), keras.layers.ReLU(), Quantized(1)])
    return stepping(model, lambda m, x, y: tf.reduce_mean((m(x) - y) ** 2), floats(12, 4), floats(12, 1))


@kind
def int8_dense() -> Steps:
    model = mlp(8, 3)
    model.quantize("int8")
    return Steps(tf.function(lambda x: model(x, training=False)), (tf.constant(floats(12, 8)),), model.weights)


@kind
def adversarial_two_optimizers() -> Fit:
    import keras

    class Adversarial(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.generator, self.critic = mlp(4, 6), mlp(6, 1)
            self.noise = keras.random.SeedGenerator(1)

        def call(self, x: Any) -> Any:
            return self.critic(x)

        def compile(self, optimizers: Any, **settings: Any) -> None:
            super().compile(optimizer=optimizers[0], loss="mse", **settings)
            self.second = optimizers[1]
            self.optimizer.build(self.critic.trainable_variables)
            self.second.build(self.generator.trainable_variables)

        def train_step(self, real: Any) -> dict[str, Any]:
            noise = keras.random.normal((4, 4), seed=self.noise)
            with tf.GradientTape() as tape:
                fake = self.generator(noise)
                mixed = 0.5 * (real + fake)
                with tf.GradientTape() as inner:
                    inner.watch(mixed)
                    value = self.critic(mixed)
                penalty = tf.reduce_mean((tf.norm(inner.gradient(value, mixed), axis=1) - 1) ** 2)
                loss = tf.reduce_mean(self.critic(fake) - self.critic(real)) + 10 * penalty
            variables = self.critic.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            with tf.GradientTape() as tape:
                second = -tf.reduce_mean(self.critic(self.generator(noise)))
            variables = self.generator.trainable_variables
            self.second.apply_gradients(zip(tape.gradient(second, variables), variables, strict=True))
            return {"critic": loss, "generator": second}

    model = Adversarial()
    model(floats(4, 6))
    model.compile([keras.optimizers.Adam(1e-3), keras.optimizers.RMSprop(1e-3)], jit_compile=False)
    return Fit(model, floats(12, 6))


@kind
def variational_autoencoder() -> Fit:
    import keras

    class Sampling(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.noise = keras.random.SeedGenerator(1)

        def call(self, inputs: Any) -> Any:
            mean, log_variance = tf.split(inputs, 2, axis=1)
            self.add_loss(-0.5 * tf.reduce_mean(1 + log_variance - mean**2 - tf.exp(log_variance)))
            return mean + tf.exp(0.5 * log_variance) * keras.random.normal(tf.shape(mean), seed=self.noise)

    model = keras.Sequential([keras.Input((8,)), *mlp(8, 6).layers, Sampling(), *mlp(3, 8).layers])
    return Fit(compiled(model), floats(12, 8), floats(12, 8))


@kind
def siamese() -> Fit:
    import keras

    tower, a, b = mlp(6, 4), keras.Input((6,)), keras.Input((6,))
    distance = keras.layers.Lambda(lambda pair: tf.norm(pair[0] - pair[1] + 1e-6, axis=1, keepdims=True))
    model = keras.Model([a, b], distance([tower(a), tower(b)]))
    return Fit(compiled(model, "hinge"), [floats(12, 6), floats(12, 6) + 1], np.sign(floats(12, 1)))


@kind
def contrastive() -> Steps:
    def loss(model: Any, x: Any, y: Any) -> Any:
        codes = tf.math.l2_normalize(tf.concat([model(x), model(y)], 0), 1)
        logits = codes @ tf.transpose(codes) / 0.1 - 1e9 * tf.eye(16)
        labels = tf.concat([tf.range(8, 16), tf.range(8)], 0)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    return stepping(mlp(6, 8), loss, floats(8, 6), floats(8, 6) + 0.1)


@kind
def distillation() -> Fit:
    import keras

    teacher = mlp(6, 3, 32)
    teacher.trainable = False

    class Student(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.teacher = mlp(6, 3, 8), teacher

        def call(self, x: Any) -> Any:
            return self.net(x)

        def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *rest: Any, **more: Any) -> Any:
            soft = keras.losses.kl_divergence(tf.nn.softmax(self.teacher(x) / 3), tf.nn.softmax(y_pred / 3))
            return tf.reduce_mean(soft) + super().compute_loss(x, y, y_pred, *rest, **more)

    model = Student()
    model(floats(4, 6))
    return Fit(compiled(model, sparse()), floats(12, 6), ints(3, 12))


@kind
def tabular_features() -> Fit:
    import keras

    layers = keras.layers
    number, category, word = keras.Input((3,)), keras.Input((1,), dtype="int32"), keras.Input((1,), dtype="int32")
    scaled = layers.Normalization(mean=[0.0] * 3, variance=[1.0] * 3)(number)
    one_hot = layers.CategoryEncoding(5, "one_hot")(category)
    hashed = layers.Flatten()(layers.Embedding(20, 4)(layers.Hashing(20)(word)))
    binned = layers.Flatten()(layers.Embedding(6, 2)(layers.Discretization([-1.0, -0.5, 0.0, 0.5, 1.0])(number)))
    model = keras.Model(
        [number, category, word], layers.Dense(1)(layers.Concatenate()([scaled, one_hot, hashed, binned]))
    )
    return Fit(compiled(model), [floats(12, 3), ints(5, 12, 1), ints(99, 12, 1)], floats(12, 1))


@kind
def class_and_sample_weights() -> Fit:
    import keras

    model = compiled(mlp(4, 3), sparse(), keras.optimizers.SGD(0.1, 0.9, nesterov=True), metrics=["accuracy"])
    return Fit(model, floats(12, 4), ints(3, 12), settings={"class_weight": {0: 1.0, 1: 2.0, 2: 0.5}})


@kind
def neural_ode() -> Steps:
    net = mlp(3, 3)

    def loss(model: Any, x: Any, y: Any) -> Any:
        for _ in tf.range(6):
            x = x + 0.1 * model(x + 0.05 * model(x))
        return tf.reduce_mean((x - y) ** 2)

    return stepping(net, loss, floats(8, 3), floats(8, 3))


@kind
def numpy_in_the_loss() -> Steps:
    def loss(model: Any, x: Any, y: Any) -> Any:
        weight = tf.numpy_function(lambda a: np.abs(a).astype("float32"), [y], tf.float32)
        weight.set_shape(y.shape)
        return tf.reduce_mean(weight * (model(x) - y) ** 2)

    return stepping(mlp(4, 1, 64), loss, floats(12, 4), floats(12, 1))
