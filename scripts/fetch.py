"""Fetch the original files of a data set: python scripts/fetch.py --dataset mnist --target data/mnist/raw"""

import argparse
import json
import sys
from pathlib import Path

from nnlo_lib.data.catalog import CATALOG, find, own
from nnlo_lib.data.fetch import fetch
from nnlo_lib.errors import reported


def reader_name(text: str) -> str:
    """Return the name in the JSON object that describes a reader."""
    reader = json.loads(text)
    if not isinstance(reader, dict) or not isinstance(reader.get("name"), str):
        raise argparse.ArgumentTypeError(f'{text} is not like {{"name": "folder"}}')
    return str(reader["name"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Fetch the original files of a data set and check them.")
    parser.add_argument("--dataset", required=True, help="name in the catalog, like mnist, or your own")
    parser.add_argument("--target", required=True, type=Path, help="folder to fill, like data/mnist/raw")
    parser.add_argument("--source", help="folder, archive or URL that holds the files; default: the mirrors")
    parser.add_argument("--reader", type=reader_name, help='of your own files, like {"name": "folder"}')
    args = parser.parse_args()
    is_own = args.reader and args.dataset not in CATALOG
    dataset = own(args.dataset, args.reader) if is_own else find(args.dataset)
    fetched = fetch(dataset, args.target, args.source)
    print(f"{dataset.name}: {len(fetched.files) or 'all'} files in {fetched.path}")


if __name__ == "__main__":
    sys.exit(reported(main)())
