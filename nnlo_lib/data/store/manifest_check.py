"""Checks of a manifest that was read from a file, which can be damaged or written by hand."""

import json
import math
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from nnlo_lib.data.store.shard import LOCATORS

if TYPE_CHECKING:
    from nnlo_lib.data.store.manifest import ArraySpec, DataManifest, Shard

Parsed = TypeVar("Parsed")


def parse_json(kind: type[Parsed], fields: dict[str, Any]) -> Parsed:
    """Return the dataclass of its JSON form. Raises ValueError that names the field of a wrong type."""
    try:
        # As JSON text: only then does strict validation accept a list as a tuple.
        return TypeAdapter(kind).validate_json(json.dumps(fields), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(each) for each in first["loc"])
        raise ValueError(f"{place}: {first['msg']}, not {json.dumps(first['input'])[:80]}") from error


def check_manifest(manifest: "DataManifest") -> None:
    """Raise ValueError if values of the manifest contradict each other or cannot be."""
    for reason in _reasons(manifest):
        raise ValueError(reason)


def _reasons(manifest: "DataManifest") -> Iterator[str]:
    if not math.isfinite(manifest.scale):
        yield f"scale: {manifest.scale} is not a number"
    if not manifest.inputs:
        yield "inputs: the list is empty"
    for column in (*manifest.inputs, manifest.labels):
        yield from _array_reasons(column)
    yield from _class_reasons(manifest)
    if "train" not in manifest.splits:
        yield "splits: train is missing"
    for name, part in manifest.splits.items():
        if part.samples != sum(shard.samples for shard in part.shards):
            yield f"splits.{name}.samples: {part.samples:,}, but the shards have another number of samples"
        for shard in part.shards:
            yield from _shard_reasons(shard)
    if not isinstance(manifest.settings.get("reader"), dict):
        yield "settings.reader: not a section"
    if not isinstance(manifest.settings.get("shard_size"), int):
        yield "settings.shard_size: not a number"


def _array_reasons(column: "ArraySpec") -> Iterator[str]:
    if not _is_number_type(column.dtype):
        yield f"{column.name}: {column.dtype!r} is not a type of numbers"
    channels = (column.shape or (1,))[0]
    for name, moments in (("mean", column.mean), ("std", column.std)):
        if moments and (len(moments) != channels or not all(map(math.isfinite, moments))):
            yield f"{column.name}.{name}: {channels} finite values are needed"


def _is_number_type(name: str) -> bool:
    try:
        return np.dtype(name).kind in "biuf"
    except (TypeError, ValueError, SyntaxError):
        return False


def _class_reasons(manifest: "DataManifest") -> Iterator[str]:
    if manifest.classes is not None and (
        np.dtype(manifest.labels.dtype).kind not in "iu" or math.prod(manifest.labels.shape) != 1
    ):
        yield f"classes: {manifest.classes}, but the labels are {manifest.labels.shape} {manifest.labels.dtype}"
    if manifest.class_names and len(manifest.class_names) != manifest.classes:
        yield f"class_names: {len(manifest.class_names)} names, but `classes` is {manifest.classes}"


def _shard_reasons(shard: "Shard") -> Iterator[str]:
    path = PurePosixPath(shard.file)
    if path.is_absolute() or ".." in path.parts or "\0" in shard.file:
        yield f"{shard.file!r} is not a file in the folder of the store"
    if path.suffix not in LOCATORS:
        yield f"{shard.file!r} has none of the suffixes {', '.join(LOCATORS)}"
