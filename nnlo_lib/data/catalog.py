"""The data sets that NNLO knows: what each holds, which files it is made of, and where they come from."""

from dataclasses import dataclass

from nnlo_lib.errors import UserError


@dataclass(frozen=True)
class File:
    """One original file, known by the SHA-256 of its decompressed content.

    `gz_md5` is the published checksum of the official archive; a file compressed anew has another one.
    """

    name: str
    content_sha256: str
    gz_md5: str | None = None


@dataclass(frozen=True)
class Dataset:
    """A classified set of images: `shape` is (channels, height, width), `scale` maps a stored byte to 0..1.

    `mirrors` are base addresses tried in turn; `embedded` is a folder inside an installed package instead.
    """

    name: str
    shape: tuple[int, int, int]
    classes: int
    scale: float
    reader: str
    files: tuple[File, ...]
    homepage: str
    license: str
    mirrors: tuple[str, ...] = ()
    embedded: str | None = None


DIGITS = Dataset(
    name="digits",
    shape=(1, 8, 8),
    classes=10,
    scale=1 / 16,
    reader="digits",
    files=(File("digits.csv.gz", "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"),),
    homepage="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
    license="CC BY 4.0",
    embedded="sklearn/datasets/data",
)

MNIST = Dataset(
    name="mnist",
    shape=(1, 28, 28),
    classes=10,
    scale=1 / 255,
    reader="idx",
    files=(
        File(
            "train-images-idx3-ubyte.gz",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        ),
        File(
            "train-labels-idx1-ubyte.gz",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "d53e105ee54ea40749a09fcbcd1e9432",
        ),
        File(
            "t10k-images-idx3-ubyte.gz",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "9fb629c4189551a2d022fa330f9573f3",
        ),
        File(
            "t10k-labels-idx1-ubyte.gz",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    homepage="http://yann.lecun.com/exdb/mnist/",
    license="CC BY-SA 3.0",
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
)

CATALOG = {dataset.name: dataset for dataset in (DIGITS, MNIST)}


def find(name: str) -> Dataset:
    """Return the data set called `name`, or raise UserError with the nearest known name."""
    if name in CATALOG:
        return CATALOG[name]
    from difflib import get_close_matches

    close = get_close_matches(name, CATALOG, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(sorted(CATALOG))}"
    raise UserError(f"unknown data set '{name}'; {hint}")
