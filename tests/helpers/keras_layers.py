"""Layers as Keras 1, Keras 2 and tf.keras wrote them to JSON, with all options of their time."""

import json


def initializer(name, dtype=None, **options):
    return {"class_name": name, "config": options | ({"dtype": dtype} if dtype else {})}


UNIFORM_2 = initializer("VarianceScaling", scale=1.0, mode="fan_avg", distribution="uniform", seed=None)
GLOROT = initializer("GlorotUniform", seed=None)
ZEROS = initializer("Zeros")


def layer_1(class_name, name, shape=None, **options):
    """Return a layer of Keras 1; with `shape`, the first one of a Sequential model."""
    first = {"batch_input_shape": [None, *shape], "input_dtype": "float32"} if shape else {}
    return {"class_name": class_name, "config": {"name": name, "trainable": True, **first, **options}}


def weights_1(init="glorot_uniform", **options):
    """Return the options that all layers with weights have in Keras 1."""
    return {
        "init": init, "activation": "linear", "W_regularizer": None, "b_regularizer": None, "activity_regularizer": None,
        "W_constraint": None, "b_constraint": None, "bias": True, **options,
    }  # fmt: skip


def dense_1(name, inputs, outputs, shape=None, **options):
    return layer_1("Dense", name, shape, output_dim=outputs, input_dim=inputs, **weights_1(**options))


def recurrent_1(class_name, name, units, inputs, **options):
    """Return a recurrent layer of Keras 1."""
    return layer_1(
        class_name, name, output_dim=units, init="glorot_uniform", inner_init="orthogonal", activation="tanh",
        inner_activation="hard_sigmoid", W_regularizer=None, U_regularizer=None, b_regularizer=None, input_dim=inputs,
        input_length=None, return_sequences=options.pop("return_sequences", False), go_backwards=False, stateful=False,
        unroll=False, consume_less="cpu", dropout_W=0.2, dropout_U=0.1,
        **({"forget_bias_init": "one"} if class_name == "LSTM" else {}), **options,
    )  # fmt: skip


def layer_2(class_name, name, shape=None, dtype="float32", **options):
    """Return a layer of Keras 2; with `shape`, the first one of a Sequential model."""
    first = {"batch_input_shape": [None, *shape]} if shape else {}
    return {
        "class_name": class_name,
        "config": {"name": name, "trainable": True, **first, "dtype": dtype, **options},
    }


def input_2(shape, name="input_1", **options):
    return {
        "class_name": "InputLayer",
        "config": {"batch_input_shape": [None, *shape], "dtype": "float32", "sparse": False, "name": name, **options},
    }  # fmt: skip


def weights_2(kernel=UNIFORM_2, bias=ZEROS, **options):
    return {
        "activation": "linear", "use_bias": True, "kernel_initializer": kernel, "bias_initializer": bias,
        "kernel_regularizer": None, "bias_regularizer": None, "activity_regularizer": None, "kernel_constraint": None,
        "bias_constraint": None, **options,
    }  # fmt: skip


def dense_2(name, outputs, shape=None, **options):
    return layer_2("Dense", name, shape, units=outputs, **weights_2(**options))


def convolution_2(class_name, name, filters, size, shape=None, **options):
    """Return a convolution of Keras 2; the number of sides is that of the class name."""
    sides = int(class_name[-2])
    ones = [1] * sides
    usual = {"strides": ones, "padding": "valid", "data_format": "channels_last", "dilation_rate": ones}
    options = weights_2(**(usual | options))
    return layer_2(class_name, name, shape, filters=filters, kernel_size=[size] * sides, **options)


def batch_norm_2(name, axis=-1, class_name="BatchNormalization", dtype=None, **options):
    """Return a batch normalization of Keras 2; with `dtype`, its initializers have one."""
    return layer_2(
        class_name, name, axis=axis, momentum=0.99, epsilon=0.001, center=True, scale=True,
        beta_initializer=initializer("Zeros", dtype), gamma_initializer=initializer("Ones", dtype),
        moving_mean_initializer=initializer("Zeros", dtype), moving_variance_initializer=initializer("Ones", dtype),
        beta_regularizer=None, gamma_regularizer=None, beta_constraint=None, gamma_constraint=None, **options,
    )  # fmt: skip


def recurrent_2(class_name, name, units, **options):
    """Return a recurrent layer of Keras 2."""
    return layer_2(
        class_name, name, return_sequences=False, return_state=False, go_backwards=False, stateful=False, unroll=False,
        units=units, recurrent_initializer=initializer("Orthogonal", gain=1.0, seed=None), recurrent_regularizer=None,
        recurrent_constraint=None, **({"unit_forget_bias": True} if "LSTM" in class_name else {}),
        **weights_2(**({"activation": "tanh"} | options)),
    )  # fmt: skip


def sequential(layers, version, as_list=False):
    """Return a Sequential model; until Keras 2.2.2 its configuration is the list of layers."""
    config = layers if as_list else {"name": "sequential", "layers": layers}
    return json.dumps(
        {"class_name": "Sequential", "config": config, "keras_version": version, "backend": "tensorflow"}
    )


def functional(layers, version, inbound, class_name="Model"):
    """Return a functional model; layers that are not in `inbound` follow the one before."""
    names = [layer["config"]["name"] for layer in layers]
    node = [0, 0] if version.startswith("1") else [0, 0, {}]
    nodes = {}
    for before, name, layer in zip([None, *names], names, layers, strict=False):
        sources = [] if layer["class_name"] == "InputLayer" else inbound.get(name, [before])
        nodes[name] = [[[source, *node] for source in sources]] if sources else []
    config = {
        "name": "model_1",
        "layers": [
            {**layer, "name": name, "inbound_nodes": nodes[name]}
            for name, layer in zip(names, layers, strict=True)
        ],
        "input_layers": [[name, 0, 0] for name in names if not nodes[name]],
        "output_layers": [[names[-1], 0, 0]],
    }
    return json.dumps(
        {"class_name": class_name, "config": config, "keras_version": version, "backend": "tensorflow"}
    )


def with_modules(text):
    """Return a model as Keras 2.13 and later wrote it: with the module of each object."""

    def named(each):
        if isinstance(each, list):
            return [named(item) for item in each]
        if not isinstance(each, dict) or "class_name" not in each:
            return {key: named(value) for key, value in each.items()} if isinstance(each, dict) else each
        usual = "keras.initializers" if set(each["config"]) <= {"seed", "gain"} else "keras.layers"
        place = {"Sequential": "keras", "Functional": "keras.src.engine.functional"}.get(
            each["class_name"], usual
        )
        return each | {"module": place, "registered_name": None, "config": named(each["config"])}

    return json.dumps(named(json.loads(text)))
