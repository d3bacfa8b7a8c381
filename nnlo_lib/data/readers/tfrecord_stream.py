"""Records of a TFRecord file, plain or compressed by gzip, and the parser of tf.train.Example.

A record consists of its length (8 bytes, little endian), the masked CRC-32C of the length, the data, and
their masked CRC-32C. The data are a tf.train.Example: named features of bytes, floats or integers.
"""

import gzip
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

import google_crc32c

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.archive import DEFLATE_LIMIT, GZIP_MAGIC

HEADER, FOOTER = 12, 4  # bytes before and after the data of a record
# First bytes of files of other formats, some of which TensorFlow and TensorFlow Datasets write, too.
OTHER_FORMATS = {
    b"BZh": "compressed by bzip2",
    b"\xfd7zXZ": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by Zstandard",
    **dict.fromkeys((b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), "compressed by ZLIB"),
    b"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f": "an ArrayRecord file",
    b"\x89HDF": "an HDF5 file",
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a ZIP archive",
}
# tensorflow/core/example/example.proto, as protobuf describes a file.
EXAMPLE = """
name: "nnlo_example.proto" package: "nnlo" syntax: "proto3"
message_type { name: "BytesList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "FloatList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Int64List" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type {
  name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".nnlo.BytesList" oneof_index: 0 }
  field { name: "float_list" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".nnlo.FloatList" oneof_index: 0 }
  field { name: "int64_list" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".nnlo.Int64List" oneof_index: 0 }
}
message_type {
  name: "Features"
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".nnlo.Features.FeatureEntry" }
  nested_type {
    name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".nnlo.Feature" }
  }
}
message_type {
  name: "Example"
  field { name: "features" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".nnlo.Features" }
}
"""


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
    if start[8:] == _masked_crc(start[:8]):
        return False
    for found in [text for magic, text in OTHER_FORMATS.items() if start.startswith(magic)]:
        raise UserError(f"{path}: {found}; write TFRecords, uncompressed or compressed by gzip")
    return start.startswith(GZIP_MAGIC)


def _record(file: BinaryIO, left: int) -> bytes | RecordError | None:
    """Return the data of the next record, a RecordError, or None at the end of the file.

    `left` is an upper bound of the bytes up to the end of the file.
    """
    try:
        if not (header := file.read(HEADER)):
            return None
        length = int.from_bytes(header[:8], "little")
        if len(header) < HEADER:
            reason = "truncated"
        elif header[8:] != _masked_crc(header[:8]):
            reason = "damaged length (the checksum differs)"
        elif length > left - HEADER - FOOTER:
            # Before reading, because a faulty writer can give a wrong length a right checksum.
            reason = f"declared length of {length:,} bytes, but the file ends earlier"
        else:
            data, footer = file.read(length), file.read(FOOTER)
            if len(footer) == FOOTER:
                damaged = RecordError("damaged (the checksum differs)")
                return data if footer == _masked_crc(data) else damaged
            reason = "truncated"
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = f"damaged gzip stream ({error})"
    return RecordError(reason, lost=True)


def _masked_crc(data: bytes) -> bytes:
    """Return TFRecord's masked checksum: CRC-32C, rotated right by 15 bits, plus a constant."""
    crc: int = google_crc32c.value(data)
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


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
    """Build the message without TensorFlow."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(EXAMPLE, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("nnlo.Example"))
