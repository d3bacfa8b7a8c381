"""Options of layers in Keras 1 and 2, and their names in Keras 3."""

from typing import Any

CLASSES = {  # classes whose name changed
    "Model": "Functional", "Convolution1D": "Conv1D", "Convolution2D": "Conv2D", "Convolution3D": "Conv3D",
    "AtrousConvolution1D": "Conv1D", "AtrousConvolution2D": "Conv2D", "SeparableConvolution2D": "SeparableConv2D",
    "TimeDistributedDense": "Dense", "ThresholdedReLU": "ReLU", "CuDNNGRU": "GRU", "CuDNNLSTM": "LSTM",
    "UnifiedGRU": "GRU", "UnifiedLSTM": "LSTM", "BatchNormalizationV1": "BatchNormalization",
    "BatchNormalizationV2": "BatchNormalization",
    "WeightRegularizer": "L1L2", "ActivityRegularizer": "L1L2", "L1L2Regularizer": "L1L2",
}  # fmt: skip
OPTIONS = {  # options of any layer
    "nb_filter": "filters", "output_dim": "units", "p": "rate", "sigma": "stddev", "border_mode": "padding",
    "subsample": "strides", "subsample_length": "strides", "filter_length": "kernel_size", "pool_length": "pool_size",
    "stride": "strides", "atrous_rate": "dilation_rate", "bias": "use_bias", "init": "kernel_initializer",
    "inner_init": "recurrent_initializer", "gamma_init": "gamma_initializer", "beta_init": "beta_initializer",
    "inner_activation": "recurrent_activation", "forget_bias_init": "unit_forget_bias", "dropout_W": "dropout",
    "dropout_U": "recurrent_dropout", "dim_ordering": "data_format", "W_regularizer": "kernel_regularizer",
    "U_regularizer": "recurrent_regularizer", "b_regularizer": "bias_regularizer",
    "W_constraint": "kernel_constraint", "U_constraint": "recurrent_constraint", "b_constraint": "bias_constraint",
}  # fmt: skip
OPTIONS_OF_CLASS = {  # options with another name in layers of this class
    "Embedding": {
        "input_dim": "input_dim", "output_dim": "output_dim", "init": "embeddings_initializer",
        "W_regularizer": "embeddings_regularizer", "W_constraint": "embeddings_constraint",
    },
    "InputLayer": {"batch_input_shape": "batch_shape", "input_dtype": "dtype"},
    "LeakyReLU": {"alpha": "negative_slope"}, "PReLU": {"init": "alpha_initializer"},
    "ReLU": {"theta": "threshold"}, "UpSampling1D": {"length": "size"},
    "MaxNorm": {"m": "max_value"},
}  # fmt: skip
VALUES: dict[str, dict[Any, Any]] = {
    "data_format": {"tf": "channels_last", "th": "channels_first"},
    "distribution": {"normal": "truncated_normal"},
}
FORGET_BIAS = {
    "one": True,
    "zero": False,
}  # initializers of the forget gate's bias in Keras 1, as unit_forget_bias
# Options that never had an effect on the values, or repeat what the shape of the input says.
WITHOUT_EFFECT = {
    "batch_input_shape", "input_shape", "input_dtype", "input_dim", "input_length", "consume_less", "implementation",
    "fused", "trainable", "dtype",
}  # fmt: skip
WITHOUT_EFFECT_OF_CLASS = {
    # TensorFlow writes the options of ordinary convolutions, too, which these layers do not read.
    "SeparableConv1D": {"kernel_initializer", "kernel_regularizer", "kernel_constraint"},
    "SeparableConv2D": {"kernel_initializer", "kernel_regularizer", "kernel_constraint"},
    "DepthwiseConv2D": {"kernel_initializer", "kernel_regularizer", "kernel_constraint", "filters"},
    "MultiHeadAttention": {"query_shape", "key_shape", "value_shape"},  # follow from the inputs
}
# Options that Keras 3 does not have, and their values that mean what Keras 3 does anyway.
NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "mode": (0,), "groups": (1,), "dropout": (0, 0.0), "time_major": (False,), "ragged": (False,), "sparse": (False,),
    "renorm": (False,), "zero_output_for_mask": (False,), "adjustment": (None,), "keepdims": (False,),
}  # fmt: skip
# Defaults that differ in Keras 3, for files without the option; by class in the file.
DEFAULTS: dict[str, dict[str, Any]] = {"GRU": {"reset_after": False}}
MERGE_LAYERS = {
    "concat": "Concatenate", "sum": "Add", "mul": "Multiply", "ave": "Average", "max": "Maximum", "dot": "Dot",
}  # fmt: skip
