"""What is learned from: a data set, how it is stored, divided and fed."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from nnlo_lib.config.base import NAME_PATTERN, ConfigModel, raise_config_error, suggest_name
from nnlo_lib.config.reader import BaseReaderConfig, ReaderConfig
from nnlo_lib.data.catalog import CATALOG


class IidPartitionConfig(ConfigModel):
    """Every worker draws from all samples: one common shuffle each epoch, cut among the workers."""

    name: Literal["iid"] = "iid"


class ByClassPartitionConfig(ConfigModel):
    """Every worker has its own classes (DiNNO's hetero), divided so that no class is lost."""

    name: Literal["by_class"] = "by_class"


class SortedPartitionConfig(ConfigModel):
    """Every worker has a contiguous piece of the samples sorted by class."""

    name: Literal["sorted"] = "sorted"


class DirichletPartitionConfig(ConfigModel):
    """Every class is divided among the workers in proportions drawn from a Dirichlet distribution.

    Yurochkin et al. 2019, arXiv:1905.12022.
    """

    name: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(0.5, gt=0, description="Concentration: large is even, small gives few classes each.")


PartitionConfig = Annotated[
    IidPartitionConfig | ByClassPartitionConfig | SortedPartitionConfig | DirichletPartitionConfig,
    Field(discriminator="name"),
]


class NormalizationConfig(ConfigModel):
    """Subtract `mean` and divide by `std`, per channel, after bytes became 0..1."""

    mean: tuple[float, ...] = Field(description="One number a channel.")
    std: tuple[Annotated[float, Field(gt=0)], ...] = Field(description="One number a channel.")

    @model_validator(mode="after")
    def _as_many(self) -> Self:
        if len(self.mean) != len(self.std):
            raise_config_error(f"{len(self.mean)} means but {len(self.std)} deviations", "std")
        return self


class AugmentConfig(ConfigModel):
    """What is done to training images at random, with a stream of its own."""

    flip: float = Field(0.0, ge=0, le=1, description="Probability of a horizontal mirror.")
    pad: int = Field(
        0, ge=0, description="Zeros around the image before a random crop of its size (or `data.crop`)."
    )
    window: int | None = Field(
        None,
        ge=1,
        description="Keep a random window of this side, moved to a random place (PyDTNN's --crop_images).",
    )
    window_probability: float = Field(0.5, ge=0, le=1, description="Probability of the window.")


class DataConfig(ConfigModel):
    """What is learned from: a data set, converted once to the common store."""

    dataset: str = Field(
        "digits",
        pattern=NAME_PATTERN,
        description="Name in the catalog, or a name of your own for files that `source` and `reader` describe.",
        json_schema_extra={
            "anyOf": [{"enum": [*CATALOG]}, {"pattern": NAME_PATTERN, "description": "your own"}]
        },
    )
    source: str | None = Field(
        None, description="Folder, archive or URL of the original files; null: the documented mirrors."
    )
    reader: ReaderConfig | None = Field(
        None,
        description="How the files are read: idx, cifar, tfrecord, folder or arrays; null: as the catalog says.",
    )
    format: Literal["hdf5", "npz"] = Field("hdf5", description="File format of the store.")
    shard_size: int | None = Field(
        None,
        ge=1,
        description="Samples per shard of the store; a conversion holds one shard in memory. null: 10,000, of an "
        "image folder 1,000. A TFRecord file is always one shard.",
    )
    validation: Annotated[float, Field(ge=0, lt=1)] | Literal["test", "validation"] = Field(
        0.1,
        description="Fraction of the training samples held back for validation (without folds), or the split of "
        "the data set that serves: test, validation.",
    )
    stratify: bool = Field(True, description="Validation samples and folds have each class in proportion.")
    partition: PartitionConfig = Field(
        IidPartitionConfig(),
        description="How workers share the training samples: iid, by_class, sorted or dirichlet.",
    )
    normalize: Literal["unit", "standard"] | NormalizationConfig = Field(
        "unit",
        description="unit: bytes become 0..1; standard: also mean 0 and deviation 1 per channel over the training "
        "set; or your own mean and std.",
    )
    crop: int | None = Field(
        None, ge=1, description="Side of the square the model sees: at random in training, central otherwise."
    )
    augment: AugmentConfig = Field(AugmentConfig(), description="Random changes to training images.")
    stage_to: str | None = Field(
        None, description="Node-local folder, like $TMPDIR, that the store is copied to before training."
    )

    @property
    def samples_per_shard(self) -> int:
        """Return `shard_size`, or what it is by default."""
        return self.shard_size or (self.reader or BaseReaderConfig).samples_per_shard

    @field_validator("source")
    @classmethod
    def _not_empty(cls, source: str | None) -> str | None:
        if source is not None and not source.strip():
            raise_config_error("data.source is empty; null means the documented mirrors")
        return source

    @model_validator(mode="after")
    def _known_or_described(self) -> Self:
        if self.dataset in CATALOG:
            wanted = CATALOG[self.dataset].reader
            if self.reader and self.reader.name != wanted:
                raise_config_error(
                    f"{self.dataset} is read by the reader {wanted}; give files of another kind a name of your own",
                    "reader",
                )
        elif self.reader is None:
            raise_config_error(
                f"unknown data set '{self.dataset}'; {suggest_name(self.dataset, CATALOG)} "
                f"(files of your own need data.source and data.reader)",
                "dataset",
            )
        elif self.source is None:
            raise_config_error(
                "your own data set needs data.source: the folder, archive or URL of its files", "source"
            )
        return self
