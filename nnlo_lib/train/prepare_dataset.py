"""Prepare the store of a data set for a training, without Snakemake."""

from pathlib import Path

from nnlo_lib.config.data import DataConfig
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.store.conversion import Conversion
from nnlo_lib.data.store.convert import convert


def prepare_dataset(data: DataConfig, target: Path) -> None:
    """Fetch a data set and convert it to the store in `target`."""
    raw, reader = target.parent / "raw", data.reader.model_dump(mode="json") if data.reader else None
    conversion = Conversion.from_settings(
        data.dataset, reader, raw, target, data.format, data.samples_per_shard
    )
    fetch(conversion.dataset, raw, data.source)
    convert(conversion)
