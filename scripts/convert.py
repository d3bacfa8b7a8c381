"""Convert a fetched data set to the store:

python scripts/convert.py --dataset mnist --raw data/mnist/raw --target data/mnist/hdf5
"""

import argparse
import sys
from pathlib import Path

from nnlo_lib.data.catalog import find
from nnlo_lib.data.store import convert
from nnlo_lib.errors import reported


def main() -> None:
    parser = argparse.ArgumentParser(description="Convert a fetched data set to shards with a manifest.")
    parser.add_argument("--dataset", required=True, help="name in the catalog, like mnist")
    parser.add_argument("--raw", required=True, type=Path, help="folder with the original files")
    parser.add_argument("--target", required=True, type=Path, help="folder to fill, like data/mnist/hdf5")
    parser.add_argument("--format", default="hdf5", choices=("hdf5", "npz"))
    parser.add_argument("--shard-size", default=10_000, type=int, help="samples per shard")
    args = parser.parse_args()
    manifest = convert(find(args.dataset), args.raw, args.target, args.format, args.shard_size)
    counts = ", ".join(f"{part.samples} {name}" for name, part in manifest.splits.items())
    print(f"{manifest.dataset} as {manifest.format}: {counts} samples in {manifest.folder}")


if __name__ == "__main__":
    sys.exit(reported(main)())
