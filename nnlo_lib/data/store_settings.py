"""Settings of an experiment that determine the contents of a store."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from nnlo_lib.core.atomic_file import file_sha256
from nnlo_lib.core.secrets import without_credentials
from nnlo_lib.core.user_code import imported_files, split_function_reference
from nnlo_lib.data.catalog import CATALOG, DatasetSpec, find_dataset

ShardFormat = Literal["hdf5", "npz"]


@dataclass(frozen=True)
class StoreSettings:
    """Data set, source, reader and layout of a store."""

    dataset: str
    source: str | None = None
    # name and options of the reader that differ from their defaults; empty: the reader of the catalog
    reader: Mapping[str, Any] = field(default_factory=dict)
    format: ShardFormat = "hdf5"
    shard_size: int = 10_000

    @property
    def spec(self) -> DatasetSpec:
        """Specification of the data set: of the catalog, or of a data set of the user with this reader."""
        is_own = self.reader and self.dataset not in CATALOG
        return (
            DatasetSpec(name=self.dataset, reader=self.reader["name"])
            if is_own
            else find_dataset(self.dataset)
        )

    @property
    def user_files(self) -> tuple[str, ...]:
        """Files of the user's code that reads or adapts the samples, with its imports and the files in its arguments."""
        named = {split_function_reference(text)[0] for text in _texts(dict(self.reader))}
        code = (path for path in named if path.endswith(".py") and Path(path).is_file())
        arguments = {text for text in _texts(self.reader.get("args", {})) if os.path.isfile(text)}
        return tuple(sorted({file for path in code for file in imported_files(path)} | arguments))

    def key(self, identity: str) -> str:
        """Return the key of the store of these settings, the user's files as they are now, and original files."""
        files = [file_sha256(path) for path in self.user_files]
        return short_hash([dict(self.reader), self.shard_size, files, identity])

    @property
    def hash(self) -> str:
        """Hash of all settings without passwords, and without the contents of the files that they name."""
        return short_hash(asdict(self) | {"source": self.source and without_credentials(self.source)})


def short_hash(value: Any) -> str:
    """Return the first 12 hexadecimal digits of the SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
