"""`nnlo task convert`: a fetched data set becomes a store."""

import argparse
import json
from pathlib import Path

HELP = "convert a fetched data set to shards with a manifest"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the data set, its folders, and how it is cut into shards."""
    parser.add_argument("--dataset", required=True, help="name in the catalog, like mnist, or your own")
    parser.add_argument(
        "--raw", required=True, type=Path, help="folder that was fetched, or that holds the files"
    )
    parser.add_argument("--target", required=True, type=Path, help="folder to fill, like data/mnist/hdf5")
    parser.add_argument("--format", default="hdf5", choices=("hdf5", "npz"))
    parser.add_argument("--shard-size", default=10_000, type=int, help="samples per shard")
    parser.add_argument("--reader", type=json.loads, help='of your own files, like {"name": "folder"}')
    parser.add_argument("--processes", default=1, type=int, help="shards made at a time")
    parser.add_argument("--shard", help="make only this one, and no manifest")


def run(options: argparse.Namespace) -> None:
    """Convert what is not converted yet."""
    from nnlo_lib.data.store.conversion import Conversion
    from nnlo_lib.data.store.convert import convert, print_skipped

    conversion = Conversion.from_settings(
        options.dataset, options.reader, options.raw, options.target, options.format, options.shard_size
    )
    if options.shard:
        print_skipped(conversion.convert_unit(conversion.layout, conversion.unit(options.shard)))
        return
    manifest = convert(conversion, options.processes)
    counts = ", ".join(f"{part.samples} {name}" for name, part in manifest.splits.items())
    print(f"{manifest.dataset} as {manifest.format}: {counts} samples in {manifest.folder}")
