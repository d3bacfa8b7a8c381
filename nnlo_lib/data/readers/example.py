"""Parser of tf.train.Example, the record in TFRecords: named features of bytes, floats or integers."""

from functools import cache
from typing import Any

# Code of the type in protobuf's FieldDescriptorProto.Type, and name of the message.
NUMBERS = {
    "bytes": (12, "BytesList"),
    "float": (2, "FloatList"),
    "int64": (3, "Int64List"),
}
# Codes of FieldDescriptorProto.Type and of FieldDescriptorProto.Label.
MESSAGE, OPTIONAL, REPEATED = 11, 1, 3


def parse(data: bytes) -> dict[str, list[Any]]:
    """Return the values of each feature. Raises ValueError if the bytes are not a tf.train.Example."""
    from google.protobuf.message import DecodeError

    try:
        features = _message_class().FromString(data).features.feature
    except DecodeError as error:
        raise ValueError(f"not a tf.train.Example ({error})") from error
    return {
        name: list(getattr(value, kind).value) if (kind := value.WhichOneof("kind")) else []
        for name, value in features.items()
    }


@cache
def _message_class() -> Any:
    """Build the message from its definition in tensorflow/core/example/example.proto, without TensorFlow."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="nnlo_example.proto", package="nnlo", syntax="proto3")
    for number, name in NUMBERS.values():
        _field(file.message_type.add(name=name), "value", 1, number, REPEATED)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for index, (kind, (_, name)) in enumerate(NUMBERS.items(), start=1):
        _field(feature, f"{kind}_list", index, MESSAGE, OPTIONAL, f".nnlo.{name}").oneof_index = 0
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    # 9 is the type code of a string.
    _field(entry, "key", 1, 9, OPTIONAL)
    _field(entry, "value", 2, MESSAGE, OPTIONAL, ".nnlo.Feature")
    _field(features, "feature", 1, MESSAGE, REPEATED, ".nnlo.Features.FeatureEntry")
    _field(file.message_type.add(name="Example"), "features", 1, MESSAGE, OPTIONAL, ".nnlo.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("nnlo.Example"))


def _field(message: Any, name: str, number: int, kind: int, label: int, type_name: str | None = None) -> Any:
    return message.field.add(name=name, number=number, type=kind, label=label, type_name=type_name)
