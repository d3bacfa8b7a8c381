"""`nnlo task fetch`: download or copy the original files of a data set and verify them."""

import argparse
import json
from pathlib import Path

HELP = "fetch the original files of a data set and verify their checksums"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the data set, its source and its target folder."""
    parser.add_argument(
        "--dataset", required=True, help="name of the data set in the catalog, such as mnist, or of your own"
    )
    parser.add_argument(
        "--target", required=True, type=Path, help="folder for the files, such as data/mnist/raw"
    )
    parser.add_argument(
        "--source", help="folder, archive or URL of the files; default: the mirrors or the installed package"
    )
    parser.add_argument(
        "--reader", type=_reader_name, help='reader of your own files, such as {"name": "folder"}'
    )


def run(options: argparse.Namespace) -> None:
    """Fetch the missing files."""
    from nnlo_lib.core.file_lock import wait_for_lock
    from nnlo_lib.data.catalog import CATALOG, find_dataset, user_dataset
    from nnlo_lib.data.fetch.fetch import fetch

    is_own = options.reader and options.dataset not in CATALOG
    dataset = user_dataset(options.dataset, options.reader) if is_own else find_dataset(options.dataset)
    with wait_for_lock(options.target / ".fetch.lock"):
        fetched = fetch(dataset, options.target, options.source)
    print(f"{dataset.name}: {len(fetched.files) or 'all'} files in {fetched.path}")


def _reader_name(text: str) -> str:
    """Return the name in the JSON object that describes a reader."""
    reader = json.loads(text)
    if not isinstance(reader, dict) or not isinstance(reader.get("name"), str):
        raise argparse.ArgumentTypeError(
            f'{text} has no name of a reader; pass JSON such as {{"name": "folder"}}'
        )
    return str(reader["name"])
