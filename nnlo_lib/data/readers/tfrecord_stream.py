"""Records of a TFRecord file, plain or compressed by gzip, and the parser of tf.train.Example.

A record consists of its length (8 bytes, little endian), the masked CRC-32C of the length, the data, and
their masked CRC-32C. The data are a tf.train.Example: named features of bytes, floats or integers.
"""

import gzip
import struct
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

import google_crc32c

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.archive import CONTENT_CHUNK_BYTES, DEFLATE_LIMIT, GZIP_MAGIC

HEADER, FOOTER = 12, 4  # bytes before and after the data of a record
# Code of the type in protobuf's FieldDescriptorProto.Type, and name of the message.
NUMBERS = {
    "bytes": (12, "BytesList"),
    "float": (2, "FloatList"),
    "int64": (3, "Int64List"),
}
# Codes of FieldDescriptorProto.Type and of FieldDescriptorProto.Label.
MESSAGE, OPTIONAL, REPEATED = 11, 1, 3
# First bytes of files of other formats, some of which TensorFlow and TensorFlow Datasets write, too.
OTHER_FORMATS = {
    b"BZh": "compressed by bzip2",
    b"\xfd7zXZ": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by Zstandard",
    b"\x78\x01": "compressed by ZLIB",
    b"\x78\x5e": "compressed by ZLIB",
    b"\x78\x9c": "compressed by ZLIB",
    b"\x78\xda": "compressed by ZLIB",
    b"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f": "an ArrayRecord file",
    b"\x89HDF": "an HDF5 file",
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a ZIP archive",
}


class RecordError(ValueError):
    """Reason why a record cannot be used; `lost` is True if the next record cannot be located either."""

    def __init__(self, reason: str, lost: bool = False) -> None:
        super().__init__(f"{reason}; the rest of the file cannot be read" if lost else reason)
        self.lost = lost


def read_records(path: Path) -> Iterator[tuple[int, int, bytes | RecordError]]:
    """Yield (number, byte offset, data) of each record, with a RecordError in place of damaged data.

    The offset counts decompressed bytes. Raises UserError if the file cannot be read, or has another format.
    """
    offset = number = 0
    try:
        compressed = _is_compressed(path)
        end = path.stat().st_size * (DEFLATE_LIMIT if compressed else 1)
        with cast(BinaryIO, gzip.open(path)) if compressed else path.open("rb") as file:
            while (item := _record(file, end - offset)) is not None:
                yield number, offset, item
                # Records have no marks; only the length of a record leads to the next one.
                if isinstance(item, RecordError) and item.lost:
                    return
                offset, number = file.tell(), number + 1
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def _is_compressed(path: Path) -> bool:
    """Return True for gzip. Raises UserError if the file has another format.

    A file that starts like a record is one, because the length of a record can be the first bytes of any format.
    """
    with path.open("rb") as file:
        start = file.read(HEADER)
    if start[8:] == struct.pack("<I", _masked_crc(start[:8])):
        return False
    found = next((text for magic, text in OTHER_FORMATS.items() if start.startswith(magic)), None)
    if found is None and ".array_record" in path.name:
        found = "an ArrayRecord file"
    if found:
        raise UserError(f"{path}: {found}; write TFRecords, uncompressed or compressed by gzip")
    return start.startswith(GZIP_MAGIC)


def _record(file: BinaryIO, left: int) -> bytes | RecordError | None:
    """Return the data of the next record, a RecordError, or None at the end of the file.

    `left` is an upper bound of the bytes up to the end of the file.
    """
    try:
        header = file.read(HEADER)
        return _content(file, header, left) if header else None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        return RecordError(f"damaged gzip stream ({error})", lost=True)


def _content(file: BinaryIO, header: bytes, left: int) -> bytes | RecordError:
    """Return the data of a record, or a RecordError; the header has the length of the data and its checksum."""
    if len(header) < HEADER:
        return RecordError("truncated", lost=True)
    length, check = struct.unpack("<QI", header)
    if _masked_crc(header[:8]) != check:
        return RecordError("damaged length (the checksum differs)", lost=True)
    # Before reading, because a faulty writer can give a wrong length a right checksum.
    if length > left - HEADER - FOOTER:
        return RecordError(f"declared length of {length:,} bytes, but the file ends earlier", lost=True)
    data, footer = _bytes(file, length), file.read(FOOTER)
    if len(footer) < FOOTER:
        return RecordError("truncated", lost=True)
    whole = footer == struct.pack("<I", _masked_crc(data))
    return data if whole else RecordError("damaged (the checksum differs)")


def _bytes(file: BinaryIO, count: int) -> bytes:
    """Return the next `count` bytes, or fewer at the end; the memory follows what is there, not `count`."""
    chunks = []
    while count and (chunk := file.read(min(count, CONTENT_CHUNK_BYTES))):
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)


def _masked_crc(data: bytes) -> int:
    """Return TFRecord's masked checksum: CRC-32C, rotated right by 15 bits, plus a constant."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


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
