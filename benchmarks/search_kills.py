"""Kill a search 20 times with SIGKILL and compare it with an undisturbed search: `python benchmarks/search_kills.py`.

With `--quick`, there is one kill and one executor. The search has five trials of eight epochs on the digits, two in
parallel, proposed by a model in fixed order. A kill occurs during the start of drivers or trainings, or at a random
epoch; seven of ten kills include all processes that the driver has started.
"""

import argparse
import copy
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# The helpers belong to the tests, which are not installed with the package.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.killed_searches import SETTINGS, WITHOUT_SLURM, Kill, Search, kills

COLUMNS = "{:<12}{:>7}{:>22}{:>14}{:>10}{:>16}{:>9}"


def main() -> int:
    """Print a row per executor; return 1 if a search differs from the undisturbed search, otherwise 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "executor", nargs="*", help=f"executors to test ({', '.join(WITHOUT_SLURM)}); default: all"
    )
    parser.add_argument("--kills", type=int, default=20, help="number of kills; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="seed of the kills; default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="one kill of a small search of one executor")
    options = parser.parse_args()
    if options.quick:
        options.executor = ["local"]
    planned = [Kill(1, 0.0, whole=True)] if options.quick else kills(options.kills, options.seed)
    settings = _small_search() if options.quick else SETTINGS
    with tempfile.TemporaryDirectory(prefix="search-kills-") as folder:
        undisturbed = Search(Path(folder), "undisturbed", "local", settings).prepare()
        undisturbed.run()
        print(
            COLUMNS.format(
                "executor",
                "kills",
                "trainings interrupted",
                "trials equal",
                "results",
                "trained twice",
                "seconds",
            )
        )
        equal = [compare(each, undisturbed, planned) for each in options.executor or WITHOUT_SLURM]
    return 0 if all(equal) else 1


def _small_search() -> dict[str, Any]:
    """Return the settings of a search with one random trial of two epochs."""
    settings = copy.deepcopy(SETTINGS)
    settings["train"]["epochs"], settings["search"]["trials"] = 2, 1
    settings["search"]["method"] = {"name": "random"}
    return settings


def compare(executor: str, undisturbed: Search, planned: list[Kill]) -> bool:
    """Run and kill one search, and print its row.

    Args:
        executor: name of the executor.
        undisturbed: finished search with the same settings.
        planned: kills of the search.

    Returns:
        True if trials and results equal the undisturbed ones and no fold task was trained twice.
    """
    search, begun = (
        Search(undisturbed.folder, executor, executor, undisturbed.settings).prepare(),
        time.monotonic(),
    )
    done = search.run(*planned)
    trials, results = search.trials == undisturbed.trials, search.results == undisturbed.results
    twice, seconds = search.trained_twice, time.monotonic() - begun
    labels = ["no", "equal"]
    print(
        COLUMNS.format(
            executor, done, search.interrupted, labels[trials], labels[results], len(twice), f"{seconds:.0f}"
        ),
        flush=True,
    )
    return trials and results and not twice


if __name__ == "__main__":
    sys.exit(main())
