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
        "--target", required=True, type=Path, help="folder of the store, such as data/mnist/hdf5-0a1b2c3d4e5f"
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
    parser.add_argument(
        "--key", default="", help="key in the name of the store, with which the files must agree"
    )
    parser.add_argument("--shard", help="convert only this shard and write no manifest")


def run(options: argparse.Namespace) -> None:
    """Convert the missing shards and write the manifest; with --shard, convert only that shard."""
    from nnlo_lib.core.file_lock import exclusive_lock
    from nnlo_lib.data.identity.store_settings import StoreSettings
    from nnlo_lib.data.store.conversion import Conversion
    from nnlo_lib.data.store.convert import LOCK_FILE, LOCK_TIMEOUT_SECONDS, convert, print_skipped

    settings = StoreSettings(
        options.dataset, reader=options.reader or {}, format=options.format, shard_size=options.shard_size
    )
    conversion = Conversion(settings, options.raw, options.target, options.key)
    if options.shard:
        lock, doing = options.target / LOCK_FILE, f"converting to {options.target}"
        with exclusive_lock(lock, doing, LOCK_TIMEOUT_SECONDS, shared=True):
            print_skipped(conversion.convert_unit(conversion.layout, conversion.unit(options.shard)))
        return
    manifest = convert(conversion, options.processes)
    counts = ", ".join(f"{part.samples} {name}" for name, part in manifest.splits.items())
    print(f"{manifest.dataset} as {manifest.format}: {counts} samples in {manifest.folder}")
