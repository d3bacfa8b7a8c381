"""Convert a fetched data set to the store:

python scripts/convert.py --dataset mnist --raw data/mnist/raw --target data/mnist/hdf5
"""

import argparse
import json
import sys
from pathlib import Path

from nnlo_lib.data.conversion import Conversion
from nnlo_lib.data.store import convert, tell
from nnlo_lib.errors import reported


def main() -> None:
    parser = argparse.ArgumentParser(description="Convert a fetched data set to shards with a manifest.")
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
    args = parser.parse_args()
    conversion = Conversion.of(args.dataset, args.reader, args.raw, args.target, args.format, args.shard_size)
    if args.shard:
        tell(conversion.make(conversion.layout, conversion.unit(args.shard)))
        return
    manifest = convert(conversion, args.processes)
    counts = ", ".join(f"{part.samples} {name}" for name, part in manifest.splits.items())
    print(f"{manifest.dataset} as {manifest.format}: {counts} samples in {manifest.folder}")


if __name__ == "__main__":
    sys.exit(reported(main)())
