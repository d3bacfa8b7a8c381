"""Paths of stores as the workflow names them."""

from pathlib import Path

from nnlo_lib.config.data import DataConfig
from nnlo_lib.data.store_location import locate_store


def store_folder(dataset: str = "digits", **data: object) -> Path:
    """Return the folder of a store of the catalog, relative to the working directory."""
    return locate_store(DataConfig.model_validate({"dataset": dataset, **data}).store_settings).folder
