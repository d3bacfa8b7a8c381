"""Fetch the original files of a data set: python scripts/fetch.py --dataset mnist --target data/mnist/raw"""

import argparse
import sys
from pathlib import Path

from nnlo_lib.data.catalog import find
from nnlo_lib.data.fetch import fetch, write_record
from nnlo_lib.errors import reported


def main() -> None:
    parser = argparse.ArgumentParser(description="Fetch the original files of a data set and check them.")
    parser.add_argument("--dataset", required=True, help="name in the catalog, like mnist")
    parser.add_argument("--target", required=True, type=Path, help="folder to fill, like data/mnist/raw")
    parser.add_argument("--source", help="folder or base URL that holds the files; default: the mirrors")
    args = parser.parse_args()
    dataset = find(args.dataset)
    paths = fetch(dataset, args.target, args.source)
    print(f"{len(paths)} files of {dataset.name}: {write_record(dataset, paths, args.target, args.source)}")


if __name__ == "__main__":
    sys.exit(reported(main)())
