"""Settings of the readers of source files; data sets of the catalog have a fixed reader."""

import inspect
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from nnlo_lib.config.base import (
    USER_CLASS_PATTERN,
    BuiltInOr,
    ConfigModel,
    UserClassConfig,
    UserPath,
    raise_config_error,
    refuse_missing_file,
)

Files = str | tuple[str, ...]
StoredType = Literal["float16", "float32", "float64", "uint8", "int32", "int64"]
Resize = Annotated[
    Literal["pydtnn", "standard", "none"],
    Field(
        description="Method of resizing. standard: scale the shorter side to size*256/224, then crop the center; pydtnn: stretch "
        "the central 87.5 % to the size, as PyDTNN's converter does; none: the images already have the size."
    ),
]
# British spelling as in version 0.1: fingerprints of runs and stores contain the key.
Colour = Annotated[Literal["rgb", "grey"], Field(description="Stored channels: rgb (3) or grey (1).")]
OnCorrupt = Annotated[
    Literal["error", "skip"],
    Field(description="Damaged records or images: error ends the conversion; skip omits and counts them."),
]


class BaseReaderConfig(ConfigModel):
    """Options of the reader nnlo_lib/data/readers/<name>.py."""

    samples_per_shard: ClassVar[int] = 10_000  # default of `data.shard_size`


class IdxReaderConfig(BaseReaderConfig):
    """The four files of MNIST and data sets of the same format, plain or gzipped, also of other types."""

    name: Literal["idx"] = "idx"


class CifarReaderConfig(BaseReaderConfig):
    """CIFAR-10 or CIFAR-100 in the binary or the Python layout."""

    name: Literal["cifar"] = "cifar"
    labels: Literal["fine", "coarse"] = "fine"
    """Labels of CIFAR-100."""


class TFRecordReaderConfig(BaseReaderConfig):
    """Images in TFRecord files of ImageNet, TensorFlow Datasets, or your own, plain or compressed by gzip."""

    name: Literal["tfrecord"] = "tfrecord"
    resize: Resize = "pydtnn"
    size: int = Field(227, ge=1)
    """Side of the stored square images in pixels."""
    colour: Colour = "rgb"
    image_key: str = Field("image/encoded", min_length=1)
    """Name of the feature with the encoded image (JPEG, PNG, ...); TensorFlow Datasets: `image`."""
    label_key: str = Field("image/class/label", min_length=1)
    """Name of the feature with the class number; TensorFlow Datasets: `label`."""
    first_class: int = Field(1, ge=0)
    """Number of the first class; ImageNet: 1, TensorFlow Datasets: 0."""
    train: str | None = Field(None, min_length=1)
    """Pattern of the training files in `source`, such as data_*.tfrec; null: the files are named like
    train-00000-of-01024 or imagenet2012-train.tfrecord-00000-of-01024."""
    validation: str | None = Field(None, min_length=1)
    """Pattern of the validation files, used by `data.validation: validation`; null: none."""
    test: str | None = Field(None, min_length=1)
    """Pattern of the test files; null: none."""
    on_corrupt: OnCorrupt = "error"


class FolderReaderConfig(BaseReaderConfig):
    """Images in one folder per class: `<split>/<class>/*.jpg`, or `<class>/*.jpg` without splits."""

    name: Literal["folder"] = "folder"
    samples_per_shard = 1000
    resize: Resize = "standard"
    size: int = Field(224, ge=1)
    """Side of the stored square images in pixels."""
    colour: Colour = "rgb"
    test_fraction: float = Field(0.2, gt=0, lt=1)
    """Fraction of the images of each class in the test split, if there are no split folders."""
    splits: dict[Literal["train", "validation", "test"], str] | None = None
    """Folder of each split in `source`, such as {train: fold1, test: fold2}; {}: the folders in `source` are the
    classes; null: folders of the usual names, also as words (seg_train), are the splits."""
    on_corrupt: OnCorrupt = "error"

    @field_validator("splits")
    @classmethod
    def _has_training(cls, splits: dict[str, str] | None) -> dict[str, str] | None:
        if splits and "train" not in splits:
            raise_config_error("train is missing; name the folder of the training images")
        return splits


class TextsReaderConfig(BaseReaderConfig):
    """Texts in one folder per class, `<split>/<class>/*.txt`, as word numbers by frequency in the training texts."""

    name: Literal["texts"] = "texts"
    words: int = Field(10_000, ge=3)
    """Size of the vocabulary, with 0 for padding and 1 for all other words."""
    length: int = Field(500, ge=1)
    """Words of a text that are kept: the first ones."""


class ArraysReaderConfig(BaseReaderConfig):
    """Lists of HDF5, NPZ or NPY files, as in NNLO and mpi_learn."""

    name: Literal["arrays"] = "arrays"
    train: Files
    """Training files in `source`: a text file with one path per line, a pattern such as train_*.h5, or a list. Or a
    data module of NNLO, `path.py`: its get_train, get_val, get_features and get_labels set these keys."""
    test: Files | None = None
    """Test files, in the same form; null: none."""
    validation: Files | None = None
    """Validation files, in the same form, used by `data.validation: validation`; null: none."""
    features: Files = "features"
    """Key of the features; a group or a list of keys gives several inputs."""
    labels: str = "labels"
    """Key of the labels."""
    one_hot: bool = True
    """All labels are classes, and one-hot rows are converted to class numbers; false: labels are numbers to learn,
    except class numbers and text."""
    first_class: int | None = None
    """Number of the first class in the labels, such as 1; null: 0."""
    channels: Literal["first", "last"] = "first"
    """Axis of the channels in images, after the adaptor; last: it is moved to the front, as the models require."""
    adaptor: UserPath | None = Field(None, pattern=r"\.py:\w+$")
    """`path.py:function` that is called with each block of features; null: none."""
    label_adaptor: UserPath | None = Field(None, pattern=r"\.py:\w+$")
    """`path.py:function` that is called with each block of labels, before `one_hot` and `first_class` apply; null:
    none."""
    dtype: StoredType | None = None
    """Type of the features in the store, after the adaptor. null: floats and uint8 keep their type, booleans and other
    integers become float32 or, from 32 bits on, float64. int64 and int32 are indices, for models with an embedding."""
    non_finite: Literal["error", "allow"] = "error"
    """NaN, infinity and numbers beyond float32 in features or targets: error ends the conversion with file and sample;
    allow counts them in the manifest, and mean and deviation are computed from the finite values."""
    unwritten: Literal["error", "fill"] = "error"
    """Values of HDF5 arrays that were never written, as a writer that was stopped leaves them: error, or fill: they
    have the fill value of their array, as masks and sparse arrays mean it."""

    @field_validator("adaptor", "label_adaptor")
    @classmethod
    def _adaptor_exists(cls, adaptor: str | None, info: ValidationInfo) -> str | None:
        if adaptor:
            refuse_missing_file(adaptor.rpartition(":")[0], info)
        return adaptor


class TableReaderConfig(BaseReaderConfig):
    """Tables (CSV, Parquet, Arrow, ROOT, folders of `datasets`) with one row per sample; numbers are inputs, and texts are categories."""

    name: Literal["table"] = "table"
    train: Files | None = None
    """Training files in `source`: a file, a pattern such as train_*.csv, a folder of `datasets`, or a list; null:
    `source` is it."""
    test: Files = ()
    """Test files, in the same form; empty: see `test_fraction`."""
    validation: Files = ()
    """Validation files, in the same form, used by `data.validation: validation`."""
    test_fraction: float = Field(0.2, ge=0, lt=1)
    """Fraction of the rows in the test split, drawn by a fixed seed and of each class, without other files and
    `split_column`; 0: no test split."""
    split_column: str | None = None
    """Column with train, validation or test in each row; null: none."""
    label: str = Field(min_length=1)
    """Column of the class, or of the number to learn."""
    target: Literal["classes", "numbers"] = "classes"
    """Meaning of the label. classes: each different text or whole number is a class; numbers: regression."""
    weight: str | None = Field(None, min_length=1)
    """Column of the weight of each row, at least 0, in the loss and the metrics; null: all rows count the same."""
    features: Files = ("*",)
    """Names or patterns of the columns to use, such as pixel_*; never the label or the weight."""
    exclude: Files = ()
    """Names or patterns of the columns to leave out."""
    categorical: Files = ()
    """Names or patterns of the columns whose numbers denote categories, such as postal codes."""
    categories: Literal["one_hot", "integer"] = "one_hot"
    """Inputs of a category. one_hot: one input for each category of the training rows, 0 or 1, and zeros for another
    one; integer: its number in sorted order, and one more for another one."""
    missing: Literal["refuse", "drop", "median"] = "refuse"
    """Missing values. refuse: an error with file, row and column; drop: the row is left out; median: replaced by the
    median, or the most frequent category, of the training rows."""
    na: tuple[str, ...] = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?")
    """Texts of missing values."""
    columns: tuple[str, ...] = ()
    """Names of all columns, for CSV files without a header; empty: the first line has them."""
    delimiter: str | None = Field(None, min_length=1, max_length=1)
    """Separator of the cells; null: comma, semicolon, tab or |, as the first line has."""
    decimal: Literal[".", ","] = "."
    """Decimal mark of the numbers."""
    tree: str | None = Field(None, min_length=1)
    """TTree or RNTuple of ROOT files, such as events; null: the only one."""


class SyntheticReaderConfig(BaseReaderConfig):
    """Images of bytes drawn from a seed, without files: `dataset: synthetic`."""

    name: Literal["synthetic"] = "synthetic"
    shape: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 28, 28), min_length=1)
    """Shape of a sample: channels, height and width of an image."""
    classes: int = Field(10, ge=1)
    """Number of classes; sample i has the class i modulo `classes`."""
    samples: int = Field(10_000, ge=1)
    """Number of training samples."""
    test_samples: int = Field(2_000, ge=0)
    """Number of test samples; 0: no test split."""
    seed: int = Field(0, ge=0)
    """Seed of all samples, whatever the seed of the training is."""
    content: Literal["classes", "noise", "zeros"] = "classes"
    """classes: mean of a pattern of the class and of noise, which a model can learn; noise: nothing to be learned;
    zeros: zeros of class 0, as PyDTNN's --use_synthetic_data."""


class LidarReaderConfig(BaseReaderConfig):
    """Points that robots with a lidar see in a building, and whether a wall is there: `dataset: lidar`."""

    name: Literal["lidar"] = "lidar"
    samples_per_shard = 500_000
    image: UserPath | None = Field(None, min_length=1)
    """Image of the building in `source`; null: a floor plan drawn from the seed."""
    threshold: float = Field(0.5, gt=0, lt=1)
    """Brightness that separates walls and free space in the image."""
    dark_walls: bool = True
    """Walls are darker than `threshold`; false: brighter."""
    border: int = Field(0, ge=0)
    """Pixels at each side of the image that are walls."""
    width: int = Field(640, ge=200, le=4096)
    """Width of the floor plan in pixels."""
    height: int = Field(480, ge=200, le=4096)
    """Height of the floor plan in pixels."""
    room: int = Field(80, ge=16, le=4096)
    """Smallest side of a room of the floor plan in pixels; doors have half of it."""
    robots: int = Field(7, ge=1)
    """Number of robots with planned paths."""
    waypoints: tuple[UserPath, ...] = ()
    """Files of waypoints in `source`, one per robot: `.npy` or `.csv` with rows x, y from -1 to 1; a cubic spline goes
    through them. Empty: planned paths."""
    stops: int = Field(6, ge=2)
    """Random stops of a planned path, which is closed."""
    clearance: float = Field(8.0, ge=0)
    """Least distance of a planned path from walls in pixels."""
    scans: int = Field(500, ge=1)
    """Scans of a robot, at equal distances on a planned path, at equal times on one of waypoints."""
    beams: int = Field(20, ge=1)
    """Beams of a scan."""
    points: int = Field(25, ge=2)
    """Points of a beam, up to the first wall."""
    reach: float = Field(0.2, gt=0)
    """Length of a beam, as a fraction of the longer side."""
    coarse: int = Field(50, ge=2)
    """Points of a beam in the first search for a wall."""
    fine: int = Field(3, ge=2)
    """Points in the second search, between the last free point and the wall."""
    exponent: float = Field(1.0, gt=0)
    """Point i of n is at (i / (n - 1))^exponent of the beam; below 1: near the wall."""
    validation_scans: int = Field(500, ge=0)
    """Scans at random places for the split `validation`; 0: none."""
    test_scans: int = Field(500, ge=0)
    """Scans at random places for the split `test`; 0: none."""
    seed: int = Field(0, ge=0)
    """Seed of floor plan, paths and places, whatever the seed of the training is."""

    @field_validator("room")
    @classmethod
    def _fits(cls, room: int, info: ValidationInfo) -> int:
        side = min(info.data.get("width", room), info.data.get("height", room))
        if room > side:
            raise ValueError(
                f"a room of {room} pixels is larger than the floor plan, whose shorter side has {side}"
            )
        return room


class UserReaderConfig(UserClassConfig, BaseReaderConfig):
    """A reader of your own: a function of (folder, shard_size, **args) that returns nnlo_lib.DatasetContents."""

    base = "nnlo_lib.data.readers.base:read"
    kind = "function"

    name: UserPath = Field(json_schema_extra={"pattern": USER_CLASS_PATTERN})
    """`path.py:function`; the path is relative to the working directory of nnlo."""

    def _misfit(self, found: Any) -> str | None:
        is_function = callable(found) and not isinstance(found, type)
        return None if is_function else f"{self.name} is not a function of (folder, shard_size, **args)"

    def _bind_arguments(self, found: Any) -> None:
        inspect.signature(found).bind("folder", "shard_size", **self.args)


BuiltInReaderConfig = Annotated[
    IdxReaderConfig
    | CifarReaderConfig
    | TFRecordReaderConfig
    | FolderReaderConfig
    | TextsReaderConfig
    | ArraysReaderConfig
    | TableReaderConfig
    | SyntheticReaderConfig
    | LidarReaderConfig,
    Field(discriminator="name"),
]
ReaderConfig = BuiltInOr[BuiltInReaderConfig, UserReaderConfig]
