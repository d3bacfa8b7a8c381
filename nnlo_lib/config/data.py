"""Settings of the data set: source, store, splits, partition and preprocessing."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from nnlo_lib.config.base import (
    NAME_PATTERN,
    ConfigModel,
    EditEffect,
    Requires,
    UserPath,
    non_defaults,
    raise_config_error,
    suggest_name,
)
from nnlo_lib.config.reader import BaseReaderConfig, ReaderConfig, TableReaderConfig
from nnlo_lib.data.catalog import CATALOG
from nnlo_lib.data.fetch.record import is_remote
from nnlo_lib.data.store_settings import StoreSettings


class IidPartitionConfig(ConfigModel):
    """All samples are shuffled in each epoch and divided among the workers."""

    name: Literal["iid"] = "iid"


class ByClassPartitionConfig(ConfigModel):
    """Every worker has its own classes, and every class belongs to a worker (`hetero` in DiNNO)."""

    name: Literal["by_class"] = "by_class"


class SortedPartitionConfig(ConfigModel):
    """Samples are sorted by class, and every worker has a contiguous part."""

    name: Literal["sorted"] = "sorted"


class DirichletPartitionConfig(ConfigModel):
    """The samples of each class are divided among the workers in proportions from a Dirichlet distribution.

    Yurochkin et al. 2019, arXiv:1905.12022.
    """

    name: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(0.5, gt=0)
    """Concentration: a large value gives equal proportions, a small value few classes per worker."""


class ContiguousPartitionConfig(ConfigModel):
    """Every worker has a contiguous part of the samples in their stored order, such as the scans of one robot."""

    name: Literal["contiguous"] = "contiguous"


PartitionConfig = Annotated[
    IidPartitionConfig
    | ByClassPartitionConfig
    | SortedPartitionConfig
    | DirichletPartitionConfig
    | ContiguousPartitionConfig,
    Field(discriminator="name"),
]


class StreamConfig(ConfigModel):
    """A window that moves along the samples of a worker, from first to last once an epoch, as a robot moves along its path."""

    window: int = Field(ge=1, examples=[400_000])
    """Samples among which those of a step are chosen; each is used once in an epoch. For 800 scans of the data set
    lidar: 800 x `beams` x `points`."""
    mode: Literal["disjoint", "sliding"] = "disjoint"
    """disjoint: a window is used up before the next one begins, as in DiNNO; sliding: the window moves with each
    step."""


class NormalizationConfig(ConfigModel):
    """Subtract `mean` and divide by `std`, per channel; bytes are scaled to 0..1 before."""

    mean: tuple[float, ...]
    """Mean of each channel."""
    std: tuple[Annotated[float, Field(gt=0)], ...]
    """Standard deviation of each channel."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if len(self.mean) != len(self.std):
            raise_config_error(
                f"number of values is {len(self.std)}, but {len(self.mean)} in `mean`; write one value per channel",
                "std",
            )
        return self


class AugmentConfig(ConfigModel):
    """Random changes of training images, drawn from a separate random stream."""

    flip: float = Field(0.0, ge=0, le=1)
    """Probability of a horizontal flip."""
    pad: int = Field(0, ge=0)
    """Width in pixels of a zero border, added before a random crop to the original size (or `data.crop`)."""
    window: int | None = Field(None, ge=1)
    """Side in pixels of a random window that is kept and moved to a random position (--crop_images in PyDTNN); null: no
    window."""
    window_probability: float = Field(0.5, ge=0, le=1)
    """Probability of the window."""


class DataConfig(ConfigModel):
    """The data set, which is converted once to a store that all runs share."""

    dataset: str = Field(
        "digits",
        pattern=NAME_PATTERN,
        json_schema_extra={
            "anyOf": [{"enum": [*CATALOG]}, {"pattern": NAME_PATTERN, "description": "a new name"}]
        },
    )
    """Name in the catalog, or a new name for files that are described by `source` and `reader`."""
    source: Annotated[UserPath | None, EditEffect.SAME_DATA] = None
    """Folder, archive or URL of the original files, or a file for the reader table; null: the mirrors in the catalog.
    `${VARIABLE}` is read from the environment and not stored, such as the password in
    https://me:${PASSWORD}@host/x.zip."""
    reader: ReaderConfig | None = None
    """Reader of the files; null: the reader in the catalog."""
    format: Literal["hdf5", "npz"] = "hdf5"
    """File format of the store."""
    shard_size: int | None = Field(None, ge=1)
    """Samples per shard of the store; the conversion holds one shard in memory. null: 10,000, or 1,000 for image
    folders. A shard has at most 256 MB; a TFRecord file is always one shard."""
    validation: Annotated[float, Field(ge=0, lt=1)] | Literal["test", "validation"] = 0.1
    """Fraction of the training samples that is used for validation (if `folds` is 1), or the split of the data set that
    is used: test, validation."""
    stratify: bool = True
    """Validation samples and folds have the same proportions of classes as all samples."""
    split_by: Literal["sample", "shard"] = "sample"
    """Unit of the validation samples and folds. shard: whole shards of the store, as NNLO's folds are whole files: set
    `shard_size` to the samples of a file; classes are then not in proportion."""
    partition: PartitionConfig = IidPartitionConfig()
    """Division of the training samples among workers."""
    stream: StreamConfig | None = None
    """Window along the samples of each worker, in their stored order; null: samples of a step are chosen among all."""
    normalize: Literal["unit", "standard"] | NormalizationConfig = "unit"
    """unit: bytes are scaled to 0..1; standard: also to mean 0 and standard deviation 1 per channel over the training
    samples, without the samples held out by `data.validation` or `folds`; or a section with `mean` and `std`."""
    crop: int | None = Field(None, ge=1)
    """Side in pixels of a square crop of images: random in training, else central; null: no crop."""
    augment: AugmentConfig = AugmentConfig()
    """Random changes of training images."""
    stage_to: Annotated[str | None, EditEffect.NEXT_ATTEMPT] = None
    """Node-local folder, such as $TMPDIR, to which the store is copied before training; null: no copy."""
    stage_command: Annotated[str | None, EditEffect.NEXT_ATTEMPT, Requires("stage_to")] = None
    """Command that copies one file to the folder of `stage_to`, such as `xrdcp root://host/{source} {target}`; {source}
    and {target} are absolute paths, `${VARIABLE}` is read from the environment; null: a plain copy."""
    placement: Annotated[Literal["host", "device"], EditEffect.NEXT_ATTEMPT] = "host"
    """Memory from which batches are gathered. host: batches are copied to the device; device: each rank copies its
    training samples to its GPU once, and gathers and augments batches there, to the same bits."""

    @property
    def samples_per_shard(self) -> int:
        """`shard_size`, or the default of the reader."""
        return self.shard_size or (self.reader or BaseReaderConfig).samples_per_shard

    @property
    def has_robots(self) -> bool:
        """Whether robots with a lidar take the samples."""
        return (self.reader.name if self.reader else CATALOG[self.dataset].reader) == "lidar"

    def missing_split(self, splits: Iterable[str]) -> str | None:
        """Return that the split of `validation` is none of these; None if it is, or is a fraction of the training samples."""
        if not isinstance(self.validation, str) or self.validation in splits:
            return None
        drawn = isinstance(self.reader, TableReaderConfig) and not (
            self.reader.test or self.reader.split_column
        )
        reason = (
            "data.reader.test_fraction gives no row of any class; "
            if drawn and self.validation == "test"
            else ""
        )
        return f"{self.dataset} has no split {self.validation}; {reason}it has {', '.join(splits)}"

    @property
    def store_settings(self) -> StoreSettings:
        """Settings that determine the contents of the store."""
        reader = non_defaults(self.reader) if self.reader else {}
        # The reader of the catalog, written out, is the same as none.
        if self.dataset in CATALOG and reader.keys() <= {"name"}:
            reader = {}
        # The address of a URL is not stored with its secrets; a path is the same data by any name.
        source = self.source
        if source and isinstance(self.reader, TableReaderConfig) and self.reader.train is None:
            source, reader["train"] = str(Path(source).parent), Path(source).name
        return StoreSettings(self.dataset, source, reader, self.format, self.samples_per_shard)

    @model_validator(mode="after")
    def _streams_in_stored_order(self) -> Self:
        if self.stream and self.partition.name != "contiguous":
            raise_config_error(
                f"a window moves along contiguous samples of a worker, not along those of {self.partition.name}; "
                "set `data.partition: {name: contiguous}`",
                "stream",
            )
        return self

    @field_validator("source")
    @classmethod
    def _not_empty(cls, source: str | None) -> str | None:
        if source is not None and not source.strip():
            raise_config_error(
                "must not be empty; set a folder, archive or URL, or null for the mirrors in the catalog"
            )
        return source

    @model_validator(mode="after")
    def _has_complete_copy_command(self) -> Self:
        if self.stage_command is None:
            return self
        if missing := [name for name in ("{source}", "{target}") if name not in self.stage_command]:
            raise_config_error(
                f"{missing[0]} is missing; write for example: cp {{source}} {{target}}", "stage_command"
            )
        try:
            shlex.split(self.stage_command)
        except ValueError as error:
            raise_config_error(f"{error}; close the quotation", "stage_command")
        return self

    @model_validator(mode="after")
    def _known_or_described(self) -> Self:
        for key, path in (("dataset", self.dataset), ("source", self.source)):
            if (
                self.reader is None
                and path
                and path.endswith((".csv", ".tsv", ".parquet", ".arrow", ".root"))
            ):
                raise_config_error(
                    f"{path} is a table; write `data: {{dataset: {Path(path).stem}, source: {path}, "
                    "reader: {name: table, label: COLUMN}}`",
                    key,
                )
        if self.dataset in CATALOG:
            expected = CATALOG[self.dataset].reader
            if self.reader and self.reader.name != expected:
                raise_config_error(
                    f"{self.dataset} requires the reader {expected}; for other files, set another name in `data.dataset`",
                    "reader",
                )
            if CATALOG[self.dataset].generated and self.source is not None:
                raise_config_error(
                    f"{self.dataset} reads no files; remove the key, or set `data.dataset` to a name of your own, and `data.reader`",
                    "source",
                )
        elif self.reader is None:
            raise_config_error(
                f"unknown data set '{self.dataset}'; {suggest_name(self.dataset, CATALOG)} "
                f"(for your own files, set `data.source` and `data.reader`)",
                "dataset",
            )
        elif self.source is None:
            raise_config_error(
                "required for a data set that is not in the catalog; set the folder, archive or URL of its files",
                "source",
            )
        elif (
            isinstance(self.reader, TableReaderConfig)
            and self.reader.train is None
            and is_remote(self.source)
        ):
            raise_config_error(
                "required, because `source` is a URL; name the files in the archive, or download the table and set `source` to it",
                "reader", "train",
            )  # fmt: skip
        return self
