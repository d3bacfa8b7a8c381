"""Conversions of a stated data set, also of one that is not in the catalog."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnlo_lib.data.catalog import DIGITS, DatasetSpec
from nnlo_lib.data.store.convert import Conversion
from nnlo_lib.data.store_settings import ShardFormat, StoreSettings


@dataclass(frozen=True)
class StatedSettings(StoreSettings):
    """Settings of a store with a given specification of the data set."""

    stated: DatasetSpec = DIGITS

    @property
    def spec(self) -> DatasetSpec:
        """The given specification."""
        return self.stated


def conversion_for(
    dataset: DatasetSpec, raw: Path, target: Path, format: ShardFormat, shard_size: int
) -> Conversion:
    """Return the conversion of the files in `raw` to a store in `target`."""
    settings = StatedSettings(dataset.name, format=format, shard_size=shard_size, stated=dataset)
    return Conversion(settings, raw, target)


def own_conversion(
    raw: Path, target: Path, format: ShardFormat, shard_size: int, reader: Mapping[str, Any]
) -> Conversion:
    """Return the conversion of a data set of the user in `raw` to a store in `target`."""
    return Conversion(StoreSettings("mine", None, reader, format, shard_size), raw, target)
