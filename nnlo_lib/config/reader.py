"""How the user's own files are read; the data sets of the catalog know their reader."""

import inspect
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from nnlo_lib.config.base import ConfigModel
from nnlo_lib.config.user_class import BUILT_IN, USER_CLASS, UserClassConfig, user_class_tag

Files = str | tuple[str, ...]
OnCorrupt = Literal["error", "skip"]
Resize = Literal["pydtnn", "standard", "none"]
RESIZE = (
    "standard: shorter side to size*256/224, centre crop; pydtnn: as its converter, central 87.5 % stretched to "
    "the size; none: the images have the size."
)
ON_CORRUPT = "A damaged record or image ends the conversion, or is left out and counted."


class BaseReaderConfig(ConfigModel):
    """Options of nnlo_lib/data/readers/<name>.py."""

    samples_per_shard: ClassVar[int] = 10_000  # unless data.shard_size says otherwise


class IdxReaderConfig(BaseReaderConfig):
    """The four files of MNIST and its kin, plain or gzipped."""

    name: Literal["idx"] = "idx"


class CifarReaderConfig(BaseReaderConfig):
    """CIFAR-10 or CIFAR-100 in the binary or the python layout."""

    name: Literal["cifar"] = "cifar"
    labels: Literal["fine", "coarse"] = Field("fine", description="Which labels of CIFAR-100.")


class TFRecordReaderConfig(BaseReaderConfig):
    """ImageNet as TFRecords: files like train-00000-of-01024 and validation-00000-of-00128."""

    name: Literal["tfrecord"] = "tfrecord"
    resize: Resize = Field("pydtnn", description=RESIZE)
    size: int = Field(227, ge=1, description="Side of the stored square images in pixels.")
    on_corrupt: OnCorrupt = Field("error", description=ON_CORRUPT)


class FolderReaderConfig(BaseReaderConfig):
    """An image folder, class = folder: `<split>/<class>/*.jpg`, or `<class>/*.jpg` without splits."""

    name: Literal["folder"] = "folder"
    samples_per_shard = 1000
    resize: Resize = Field("standard", description=RESIZE)
    size: int = Field(224, ge=1, description="Side of the stored square images in pixels.")
    colour: Literal["rgb", "grey"] = Field("rgb", description="Channels that are stored.")
    test_fraction: float = Field(
        0.2, gt=0, lt=1, description="Images of each class for the test, where there are no split folders."
    )
    on_corrupt: OnCorrupt = Field("error", description=ON_CORRUPT)


class ArraysReaderConfig(BaseReaderConfig):
    """Lists of HDF5, NPZ or NPY files, as NNLO and mpi_learn read them."""

    name: Literal["arrays"] = "arrays"
    train: Files = Field(
        description="Text file with a path a line, pattern like train_*.h5, or list of files; below `source`. Or one of "
        "NNLO's modules, `path.py`: its get_train, get_val, get_features and get_labels then say these keys."
    )
    test: Files | None = Field(None, description="Test files, likewise; null: none.")
    validation: Files | None = Field(
        None, description="Validation files; use them by `validation: validation`."
    )
    features: Files = Field(
        "features", description="Key of the features; a group or a list of keys is several inputs."
    )
    labels: str = Field("labels", description="Key of the labels.")
    one_hot: bool = Field(True, description="Labels in rows with a single 1 become class numbers.")
    channels: Literal["first", "last"] = Field(
        "first",
        description="last: the last axis of images, after an adaptor, is moved to the front, where our networks have it.",
    )
    adaptor: str | None = Field(
        None, pattern=r"\.py:\w+$", description="`path.py:function` that is called on each block of features."
    )


class UserReaderConfig(UserClassConfig, BaseReaderConfig):
    """A reader of your own: a function of (folder, shard_size, **args) that returns nnlo_lib.DatasetContents."""

    base = "nnlo_lib.data.readers:read"

    def _misfit(self, found: Any) -> str | None:
        return None if callable(found) else f"{self.name} is not a function"

    def _bind_arguments(self, found: Any) -> None:
        inspect.signature(found).bind("folder", "shard_size", **self.args)


BuiltInReaderConfig = Annotated[
    IdxReaderConfig | CifarReaderConfig | TFRecordReaderConfig | FolderReaderConfig | ArraysReaderConfig,
    Field(discriminator="name"),
]
ReaderConfig = Annotated[
    Annotated[BuiltInReaderConfig, Tag(BUILT_IN)] | Annotated[UserReaderConfig, Tag(USER_CLASS)],
    Discriminator(user_class_tag),
]
