"""Catalog of the known data sets: contents, original files and download addresses."""

from dataclasses import dataclass, replace

from nnlo_lib.core.errors import UserError


@dataclass(frozen=True)
class SourceFile:
    """One original file, identified by the SHA-256 of its decompressed content or else by its published MD5.

    Recompressing the file changes the MD5 only.
    """

    name: str
    content_sha256: str | None = None
    md5: str | None = None


@dataclass(frozen=True)
class DatasetSpec:
    """A data set: its reader, its expected contents, its original files and their origin.

    A data set without `files` is read from the folder, archive or URL that the user names as data.source.
    """

    name: str
    reader: str
    # required shape of a sample, for images (channels, height, width); None accepts any shape
    shape: tuple[int, ...] | None = None
    classes: int | None = None
    train_samples: int | None = None
    scale: float = 1 / 255  # factor that maps a stored byte to 0..1
    files: tuple[SourceFile, ...] = ()
    # another official form of the only file, used if it is found in the target folder or at data.source; the mirrors
    # are not searched for it
    instead: SourceFile | None = None
    mirrors: tuple[str, ...] = ()  # base URLs, tried in turn
    # folder inside an installed package that holds the files, used in place of mirrors
    embedded: str | None = None
    hint: str = ""
    generated: bool = False

    @property
    def has_fixed_source(self) -> bool:
        """True if the samples depend on no folder, archive or URL of the user."""
        return bool(self.files) or self.generated


DIGITS = DatasetSpec(
    name="digits",
    shape=(1, 8, 8),
    classes=10,
    train_samples=1442,
    scale=1 / 16,
    reader="digits",
    files=(SourceFile("digits.csv.gz", "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"),),
    embedded="sklearn/datasets/data",
)

DIABETES = DatasetSpec(
    name="diabetes",
    shape=(10,),
    reader="diabetes",
    files=(
        SourceFile(
            "diabetes_data_raw.csv.gz", "86badf50b4f9436ddd1e497dc0ae1b93166f8120221ee7dca4634fe849f3be7c"
        ),
        SourceFile(
            "diabetes_target.csv.gz", "244713a551f62a291a354212d8a048adec6cb1244b2bc44e66a0698f5006d26d"
        ),
    ),
    embedded="sklearn/datasets/data",
)

MNIST = DatasetSpec(
    name="mnist",
    shape=(1, 28, 28),
    classes=10,
    train_samples=60_000,
    scale=1 / 255,
    reader="idx",
    files=(
        SourceFile(
            "train-images-idx3-ubyte.gz",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        ),
        SourceFile(
            "train-labels-idx1-ubyte.gz",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "d53e105ee54ea40749a09fcbcd1e9432",
        ),
        SourceFile(
            "t10k-images-idx3-ubyte.gz",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "9fb629c4189551a2d022fa330f9573f3",
        ),
        SourceFile(
            "t10k-labels-idx1-ubyte.gz",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
)

FASHION_MNIST = replace(
    MNIST,
    name="fashion-mnist",
    files=(
        SourceFile("train-images-idx3-ubyte.gz", md5="8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        SourceFile("train-labels-idx1-ubyte.gz", md5="25c81989df183df01b3e8a0aad5dffbe"),
        SourceFile("t10k-images-idx3-ubyte.gz", md5="bef4ecab320f06d8554ea6380940ec79"),
        SourceFile("t10k-labels-idx1-ubyte.gz", md5="bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
)

CIFAR10 = DatasetSpec(
    name="cifar10",
    shape=(3, 32, 32),
    classes=10,
    train_samples=50_000,
    reader="cifar",
    files=(SourceFile("cifar-10-binary.tar.gz", md5="c32a1d4ab5d03f1284b67883e8d87530"),),
    instead=SourceFile("cifar-10-python.tar.gz", md5="c58f30108f718f92721af3b95e74349a"),
    mirrors=("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"),
)

CIFAR100 = replace(
    CIFAR10,
    name="cifar100",
    classes=100,
    files=(SourceFile("cifar-100-binary.tar.gz", md5="03b5dce01913d631647c71ecec9e9cb8"),),
    instead=SourceFile("cifar-100-python.tar.gz", md5="eb9058c3a382ffc7106e4002c42a8d85"),
)

IMAGENET = DatasetSpec(
    name="imagenet",
    classes=1000,
    reader="tfrecord",
    hint="get the images from image-net.org and make the TFRecords with the script imagenet_to_gcs.py of tensorflow/tpu",
)

IMDB = DatasetSpec(
    name="imdb",
    classes=2,
    train_samples=25_000,
    reader="texts",
    files=(SourceFile("aclImdb_v1.tar.gz", md5="7c2ac02c03563afcf9b574c7e56c153a"),),
    mirrors=("https://ai.stanford.edu/~amaas/data/sentiment/",),
)

SYNTHETIC = DatasetSpec(name="synthetic", reader="synthetic", generated=True)

LIDAR = DatasetSpec(name="lidar", reader="lidar", generated=True)

DATASETS = (DIGITS, DIABETES, MNIST, FASHION_MNIST, CIFAR10, CIFAR100, IMAGENET, IMDB, SYNTHETIC, LIDAR)
CATALOG = {each.name: each for each in DATASETS}


def find_dataset(name: str) -> DatasetSpec:
    """Return the data set `name` of the catalog. Raises UserError with the nearest known name if it is unknown."""
    if name in CATALOG:
        return CATALOG[name]
    from difflib import get_close_matches

    close = get_close_matches(name, CATALOG, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(sorted(CATALOG))}"
    raise UserError(f"unknown data set '{name}'; {hint}")
