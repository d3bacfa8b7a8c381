"""`nnlo task convert`: convert a fetched data set to a store."""

import argparse
import json
from pathlib import Path

HELP = "convert a fetched data set to a store: shards and a manifest"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the data set, its folders and its shards."""
    parser.add_argument(
        "--dataset", required=True, help="name of the data set in the catalog, such as mnist, or of your own"
    )
    parser.add_argument(
        "--raw",
        required=True,
        type=Path,
        help="folder of the fetched or your own files, such as data/mnist/raw",
    )
    parser.add_argument(
        "--target", required=True, type=Path, help="folder of the store, such as data/mnist/hdf5"
    )
    parser.add_argument(
        "--format", default="hdf5", choices=("hdf5", "npz"), help="file format; default: %(default)s"
    )
    parser.add_argument(
        "--shard-size", default=10_000, type=int, help="samples per shard; default: %(default)s"
    )
    parser.add_argument(
        "--reader", type=json.loads, help='reader of your own files, such as {"name": "folder"}'
    )
    parser.add_argument(
        "--processes", default=1, type=int, help="shards to convert in parallel; default: %(default)s"
    )
    parser.add_argument("--shard", help="convert only this shard and write no manifest")


def run(options: argparse.Namespace) -> None:
    """Convert the missing shards and write the manifest; with --shard, convert only that shard."""
    from nnlo_lib.core.file_lock import wait_for_lock
    from nnlo_lib.data.store.conversion import Conversion
    from nnlo_lib.data.store.convert import convert, print_skipped

    conversion = Conversion.from_settings(
        options.dataset, options.reader, options.raw, options.target, options.format, options.shard_size
    )
    if options.shard:
        print_skipped(conversion.convert_unit(conversion.layout, conversion.unit(options.shard)))
        return
    # Another experiment may convert the same data set; then nothing is left to convert.
    with wait_for_lock(options.target / ".convert.lock"):
        manifest = convert(conversion, options.processes)
    counts = ", ".join(f"{part.samples} {name}" for name, part in manifest.splits.items())
    print(f"{manifest.dataset} as {manifest.format}: {counts} samples in {manifest.folder}")
