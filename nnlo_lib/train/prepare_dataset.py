"""Prepare the store of a data set for a training, without Snakemake."""

from pathlib import Path

from nnlo_lib.config.data import DataConfig
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.identity.store_location import StoreLocation
from nnlo_lib.data.store.conversion import Conversion
from nnlo_lib.data.store.convert import convert


def prepare_store(store: StoreLocation) -> Path:
    """Fetch and convert the data of a store unless it exists; return the path of its manifest."""
    if not store.manifest.exists():
        fetch(store.settings.spec, store.raw, store.settings.source)
        convert(Conversion.of(store))
    return store.manifest


def prepare_dataset(data: DataConfig, target: Path) -> None:
    """Fetch a data set and convert it to a store in the folder `target`, which the caller names."""
    prepare_store(StoreLocation.at(data.store_settings, target))
