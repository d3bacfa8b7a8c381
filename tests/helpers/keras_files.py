"""Networks in the JSON of Keras 1.0 to 2.15, with their numbers of parameters, counted by hand."""

from typing import NamedTuple

from helpers.keras_layers import (
    GLOROT,
    UNIFORM_2,
    batch_norm_2,
    convolution_2,
    dense_1,
    dense_2,
    functional,
    initializer,
    input_2,
    layer_1,
    layer_2,
    recurrent_1,
    recurrent_2,
    sequential,
    weights_1,
    weights_2,
    with_modules,
)


class KerasFile(NamedTuple):
    """A file of Keras: JSON, shape of a sample (images channels first), trainable parameters, has a regularizer."""

    text: str
    shape: tuple[int, ...]
    parameters: int
    penalty: bool = False


def conv_1(name, filters, size, shape=None, **options):
    usual = {"border_mode": "valid", "subsample": [1, 1], "dim_ordering": "tf", **weights_1()}
    sides = {"nb_filter": filters, "nb_row": size, "nb_col": size}
    return layer_1("Convolution2D", name, shape, **sides, **(usual | options))


def pool_1(name, ordering="tf"):
    return layer_1(
        "MaxPooling2D", name, pool_size=[2, 2], strides=[2, 2], border_mode="valid", dim_ordering=ordering
    )


def embedding_1(name, words, size, length):
    return layer_1(
        "Embedding", name, [length], input_dim=words, output_dim=size, init="uniform", input_length=length,
        mask_zero=False, activity_regularizer=None, W_regularizer=None, W_constraint=None, dropout=0.0,
    )  # fmt: skip


def l1l2_2(l1=0.0, l2=0.0):
    return {"class_name": "L1L2", "config": {"l1": l1, "l2": l2}}


KERAS_1 = {
    "1.0.8 Theano images": KerasFile(
        sequential([
            conv_1("c1", 4, 3, [1, 8, 8], dim_ordering="th", activation="relu"), pool_1("p1", "th"),
            layer_1("Flatten", "f"), layer_1("Dropout", "drop", p=0.2), dense_1("d", 36, 5),
            layer_1("Activation", "act", activation="softmax"),
        ], "1.0.8", as_list=True),
        (1, 8, 8), 4 * 9 + 4 + 36 * 5 + 5,
    ),
    "1.1.0 WeightRegularizer": KerasFile(
        sequential([
            dense_1("d1", 16, 8, [16], W_regularizer={"name": "WeightRegularizer", "l1": 0.0, "l2": 0.01},
                    activity_regularizer={"name": "ActivityRegularizer", "l1": 0.001, "l2": 0.0}),
            dense_1("d2", 8, 5, activation="softmax"),
        ], "1.1.0", as_list=True),
        (16,), 16 * 8 + 8 + 8 * 5 + 5, True,
    ),
    "1.2.1 Embedding and LSTM": KerasFile(
        sequential([
            embedding_1("e", 50, 8, 7), recurrent_1("LSTM", "l", 6, 8), dense_1("d", 6, 5, activation="softmax"),
        ], "1.2.1", as_list=True),
        (7,), 50 * 8 + 4 * 6 * (8 + 6 + 1) + 6 * 5 + 5,
    ),
    "1.2.1 GRU": KerasFile(
        sequential([
            layer_1("Masking", "m", [7, 3], mask_value=0.0),
            recurrent_1("GRU", "g", 6, 3, return_sequences=True),
            layer_1("TimeDistributedDense", "t", **weights_1(activation="relu"), output_dim=4, input_dim=6, input_length=7),
            layer_1("Flatten", "f"), dense_1("d", 28, 5, activation="softmax"),
        ], "1.2.1", as_list=True),
        (7, 3), 3 * 6 * (3 + 6 + 1) + 6 * 4 + 4 + 28 * 5 + 5,
    ),
    "1.2.2 functional Convolution1D and Merge": KerasFile(
        functional([
            {"class_name": "InputLayer", "config": {
                "batch_input_shape": [None, 10, 3], "input_dtype": "float32", "sparse": False, "name": "i"}},
            layer_1("Convolution1D", "c", [10, 3], nb_filter=4, filter_length=3, border_mode="same", subsample_length=1,
                    input_dim=3, input_length=10, **weights_1(activation="relu")),
            layer_1("MaxPooling1D", "p", stride=2, pool_length=2, border_mode="valid"), layer_1("Flatten", "f"),
            dense_1("a", 20, 4, activation="relu"), dense_1("b", 20, 3, activation="tanh"),
            layer_1("Merge", "m", mode="concat", concat_axis=-1, dot_axes=-1, output_shape=None, mode_type="raw",
                    output_shape_type="raw", output_mask=None, output_mask_type="raw", arguments={}),
            dense_1("d", 7, 5, activation="softmax"),
        ], "1.2.2", {"b": ["f"], "m": ["a", "b"]}),
        (10, 3), 3 * 3 * 4 + 4 + 21 * 4 + 21 * 3 + 8 * 5,
    ),
    "1.2.2 separable, dilated and padded, BatchNormalization": KerasFile(
        sequential([
            layer_1("ZeroPadding2D", "z", [8, 8, 2], padding=[1, 1, 1, 1], dim_ordering="tf"),
            layer_1("SeparableConvolution2D", "s", nb_filter=4, nb_row=3, nb_col=3, init="glorot_uniform",
                    activation="relu", border_mode="valid", subsample=[1, 1], depth_multiplier=1, dim_ordering="tf",
                    depthwise_regularizer=None, pointwise_regularizer=None, b_regularizer=None, bias=True,
                    activity_regularizer=None, depthwise_constraint=None, pointwise_constraint=None, b_constraint=None),
            layer_1("AtrousConvolution2D", "a", nb_filter=3, nb_row=3, nb_col=3, border_mode="valid", subsample=[1, 1],
                    dim_ordering="tf", atrous_rate=[2, 2], **weights_1()),
            layer_1("BatchNormalization", "b", gamma_regularizer=None, epsilon=0.001, mode=0, momentum=0.99, axis=-1,
                    beta_regularizer=None),
            layer_1("LeakyReLU", "r", alpha=0.1), layer_1("GaussianNoise", "n", sigma=0.1),
            layer_1("GlobalAveragePooling2D", "g", dim_ordering="tf"), dense_1("d", 3, 5, activation="softmax"),
        ], "1.2.2", as_list=True),
        (2, 8, 8), 2 * 9 + 2 * 4 + 4 + 4 * 3 * 9 + 3 + 2 * 3 + 3 * 5 + 5,
    ),
    "1.2.2 Bidirectional": KerasFile(
        sequential([
            layer_1("Bidirectional", "b", [7, 3], merge_mode="concat", layer=recurrent_1("LSTM", "l", 4, 3)),
            dense_1("d", 8, 5, activation="softmax"),
        ], "1.2.2", as_list=True),
        (7, 3), 2 * 4 * 4 * (3 + 4 + 1) + 8 * 5 + 5,
    ),
}  # fmt: skip
KERAS_2 = {
    "2.0.6 Conv1D with regularizers": KerasFile(
        functional([
            input_2([10, 3]),
            convolution_2("Conv1D", "c1", 4, 3, activation="relu", kernel_regularizer=l1l2_2(l1=0.01, l2=0.02),
                          bias_regularizer=l1l2_2(l2=0.1)),
            layer_2("Flatten", "f"), dense_2("d", 5, activation="softmax"),
        ], "2.0.6", {}),
        (10, 3), 3 * 3 * 4 + 4 + 32 * 5 + 5, True,
    ),
    "2.1.4 Theano Conv2D": KerasFile(
        sequential([
            convolution_2("Conv2D", "c1", 4, 3, [1, 8, 8], data_format="channels_first", activation="elu"),
            layer_2("MaxPooling2D", "p", pool_size=[2, 2], strides=[2, 2], padding="valid", data_format="channels_first"),
            layer_2("Flatten", "f"), dense_2("d", 5, activation="softmax"),
        ], "2.1.4", as_list=True),
        (1, 8, 8), 4 * 9 + 4 + 36 * 5 + 5,
    ),
    "2.2.4 CuDNN": KerasFile(
        sequential([
            layer_2("CuDNNLSTM", "l", [7, 3], return_sequences=True, return_state=False, go_backwards=False,
                    stateful=False, units=4, kernel_initializer=UNIFORM_2, recurrent_initializer=initializer(
                        "Orthogonal", gain=1.0, seed=None), bias_initializer=initializer("Zeros"), unit_forget_bias=True,
                    kernel_regularizer=None, recurrent_regularizer=None, bias_regularizer=None,
                    activity_regularizer=None, kernel_constraint=None, recurrent_constraint=None, bias_constraint=None),
            layer_2("SpatialDropout1D", "s", rate=0.1, noise_shape=None, seed=None),
            layer_2("GlobalMaxPooling1D", "g", data_format="channels_last"), dense_2("d", 5, activation="softmax"),
        ], "2.2.4"),
        (7, 3), 4 * 4 * (3 + 4 + 1) + 4 * 5 + 5,
    ),
    "2.3.1 activations": KerasFile(
        sequential([
            dense_2("d1", 8, [16]), layer_2("ThresholdedReLU", "t", theta=0.5),
            dense_2("d2", 8), layer_2("LeakyReLU", "l", alpha=0.30000001192092896),
            dense_2("d3", 8), layer_2("PReLU", "p", alpha_initializer=initializer("Zeros"), alpha_regularizer=None,
                                      alpha_constraint=None, shared_axes=None),
            dense_2("d4", 5), layer_2("Softmax", "s", axis=-1),
        ], "2.3.1"),
        (16,), 17 * 8 + 9 * 8 + 9 * 8 + 8 + 9 * 5,
    ),
}  # fmt: skip


def tf_input(shape, name="input_1"):
    return input_2(shape, name, ragged=False)


def tf_conv(name, filters, size=3, shape=None, **options):
    return convolution_2("Conv2D", name, filters, size, shape, kernel=GLOROT, groups=1, **options)


TF_KERAS = {
    "tf 1.15 functional, UnifiedLSTM, BatchNormalizationV1": KerasFile(
        functional([
            tf_input([7, 3]),
            recurrent_2("UnifiedLSTM", "l", 4, recurrent_activation="sigmoid", implementation=2, time_major=False,
                        dropout=0.0, recurrent_dropout=0.0),
            batch_norm_2("b", class_name="BatchNormalizationV1", dtype="float32"),
            dense_2("d", 5, activation="softmax", kernel=initializer("GlorotUniform", "float32", seed=None),
                    bias=initializer("Zeros", "float32")),
        ], "2.2.4-tf", {}),
        (7, 3), 4 * 4 * (3 + 4 + 1) + 2 * 4 + 5 * 5,
    ),
    "tf 2.4 mobile network": KerasFile(
        functional([
            tf_input([8, 8, 2]), tf_conv("c", 4, 1, use_bias=False), batch_norm_2("b", axis=[3]),
            layer_2("ReLU", "r", max_value=6.0, negative_slope=0.0, threshold=0.0),
            layer_2("DepthwiseConv2D", "w", kernel_size=[3, 3], strides=[1, 1], padding="same",
                    data_format="channels_last", dilation_rate=[1, 1], groups=1, activation="linear", use_bias=False,
                    bias_initializer=initializer("Zeros"), bias_regularizer=None, activity_regularizer=None,
                    bias_constraint=None, depth_multiplier=1, depthwise_initializer=GLOROT, depthwise_regularizer=None,
                    depthwise_constraint=None),
            layer_2("Add", "plus"),
            convolution_2("SeparableConv2D", "s", 3, 3, kernel=GLOROT, groups=1, depth_multiplier=1,
                          depthwise_initializer=GLOROT, pointwise_initializer=GLOROT, depthwise_regularizer=None,
                          pointwise_regularizer=None, depthwise_constraint=None, pointwise_constraint=None),
            layer_2("GlobalAveragePooling2D", "g", data_format="channels_last", keepdims=False),
            dense_2("d", 5, kernel=GLOROT, activation="softmax"),
        ], "2.4.0", {"plus": ["r", "w"]}, "Functional"),
        (2, 8, 8), 2 * 4 + 2 * 4 + 4 * 9 + 4 * 9 + 4 * 3 + 3 + 3 * 5 + 5,
    ),
    "tf 2.14 jet tagger with modules, L1": KerasFile(
        with_modules(sequential([
            tf_input([16], "fc1_input"),
            dense_2("fc1", 64, [16], kernel=initializer("LecunUniform", seed=None),
                    kernel_regularizer={"class_name": "L1", "config": {"l1": 9.999999747378752e-05}}),
            layer_2("Activation", "relu1", activation="relu"),
            dense_2("fc2", 5, kernel_regularizer={"class_name": "L2", "config": {"l2": 0.01}}, activation="softmax"),
        ], "2.14.0")),
        (16,), 17 * 64 + 65 * 5, True,
    ),
    "tf 2.8 Policy and Bidirectional": KerasFile(
        sequential([
            tf_input([7, 3], "bidirectional_input"),
            layer_2("Bidirectional", "b", [7, 3], merge_mode="concat", layer=recurrent_2(
                "GRU", "g", 4, recurrent_activation="sigmoid", implementation=2, reset_after=True, time_major=False,
                dropout=0.0, recurrent_dropout=0.0)),
            layer_2("Dense", "d", dtype={"class_name": "Policy", "config": {"name": "float32"}}, units=5,
                    **weights_2(kernel=GLOROT, activation="softmax")),
        ], "2.8.0"),
        (7, 3), 2 * 3 * 4 * (3 + 4 + 2) + 8 * 5 + 5,
    ),
    "tf 2.13 functional with modules": KerasFile(
        with_modules(functional([
            tf_input([16]), dense_2("d1", 8, kernel=GLOROT, activation="relu"),
            layer_2("Dropout", "o", rate=0.1, noise_shape=None, seed=None), layer_2("Concatenate", "j", axis=-1),
            dense_2("d2", 5, kernel=GLOROT, activation="softmax"),
        ], "2.13.1", {"j": ["input_1", "o"]}, "Functional")),
        (16,), 17 * 8 + 25 * 5,
    ),
}  # fmt: skip
KERAS_FILES = {**KERAS_1, **KERAS_2, **TF_KERAS}
