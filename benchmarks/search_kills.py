"""Kill a search 20 times with SIGKILL, and compare it with the undisturbed one: `python benchmarks/search_kills.py`
(`--quick`: one kill, one executor).

Digits, five trials of eight epochs, two at a time, proposed by a forest in fixed order. Each kill comes while drivers or
trainings start, or at a random epoch; seven of ten take everything that the driver has started with it.
"""

import argparse
import copy
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.killed_searches import COMMANDS, SETTINGS, Kill, Search, kills

COLUMNS = "{:<12}{:>7}{:>22}{:>14}{:>10}{:>16}{:>9}"


def main() -> int:
    """Print a row for each executor; exit 1 if some search did not end as the undisturbed one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("executor", nargs="*", help=f"of {', '.join(COMMANDS)}; default: all")
    parser.add_argument("--kills", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the kills; default: %(default)s")
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
                "trainings cut short",
                "trials equal",
                "results",
                "trained twice",
                "seconds",
            )
        )
        equal = [compare(each, undisturbed, planned) for each in options.executor or COMMANDS]
    return 0 if all(equal) else 1


def _small_search() -> dict[str, Any]:
    """Return the settings of one trial of two epochs, drawn at random."""
    settings = copy.deepcopy(SETTINGS)
    settings["train"]["epochs"], settings["search"]["trials"] = 2, 1
    settings["search"]["method"] = {"name": "random"}
    return settings


def compare(executor: str, undisturbed: Search, planned: list[Kill]) -> bool:
    """Kill one search, and print what came of it."""
    search, begun = (
        Search(undisturbed.folder, executor, executor, undisturbed.settings).prepare(),
        time.monotonic(),
    )
    done = search.run(*planned)
    trials, results = search.trials == undisturbed.trials, search.results == undisturbed.results
    twice, seconds = search.trained_twice, time.monotonic() - begun
    words = ["no", "equal"]
    print(
        COLUMNS.format(
            executor, done, search.interrupted, words[trials], words[results], len(twice), f"{seconds:.0f}"
        ),
        flush=True,
    )
    return trials and results and not twice


if __name__ == "__main__":
    sys.exit(main())
