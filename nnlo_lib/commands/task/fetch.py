"""`nnlo task fetch`: bring the original files of a data set here."""

import argparse
import json
from pathlib import Path

HELP = "fetch the original files of a data set and check them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the data set, and where its files come from and go to."""
    parser.add_argument("--dataset", required=True, help="name in the catalog, like mnist, or your own")
    parser.add_argument("--target", required=True, type=Path, help="folder to fill, like data/mnist/raw")
    parser.add_argument("--source", help="folder, archive or URL that holds the files; default: the mirrors")
    parser.add_argument("--reader", type=_reader_name, help='of your own files, like {"name": "folder"}')


def run(options: argparse.Namespace) -> None:
    """Fetch what is missing."""
    from nnlo_lib.data.catalog import CATALOG, find_dataset, user_dataset
    from nnlo_lib.data.fetch.fetch import fetch

    is_own = options.reader and options.dataset not in CATALOG
    dataset = user_dataset(options.dataset, options.reader) if is_own else find_dataset(options.dataset)
    fetched = fetch(dataset, options.target, options.source)
    print(f"{dataset.name}: {len(fetched.files) or 'all'} files in {fetched.path}")


def _reader_name(text: str) -> str:
    """Return the name in the JSON object that describes a reader."""
    reader = json.loads(text)
    if not isinstance(reader, dict) or not isinstance(reader.get("name"), str):
        raise argparse.ArgumentTypeError(f'{text} is not like {{"name": "folder"}}')
    return str(reader["name"])
