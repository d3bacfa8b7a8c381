"""Kill a search 20 times with SIGKILL, and compare it with the undisturbed one: `python benchmarks/search_kills.py`.

Digits, five trials of eight epochs, two at a time, proposed by a forest in fixed order. Each kill comes while drivers or
trainings start, or at a random epoch; seven of ten take everything that the driver has started with it.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from kills import COMMANDS, Search, kills

COLUMNS = "{:<12}{:>7}{:>22}{:>14}{:>10}{:>16}{:>9}"


def main() -> int:
    """Print a row for each executor; exit 1 if some search did not end as the undisturbed one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("executor", nargs="*", help=f"of {', '.join(COMMANDS)}; default: all")
    parser.add_argument("--kills", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the kills; default: %(default)s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="search-kills-") as folder:
        undisturbed = Search(Path(folder), "undisturbed", "local").prepare()
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
        equal = [
            compare(each, undisturbed, options.kills, options.seed) for each in options.executor or COMMANDS
        ]
    return 0 if all(equal) else 1


def compare(executor: str, undisturbed: Search, count: int, seed: int) -> bool:
    """Kill one search, and print what came of it."""
    search, begun = Search(undisturbed.folder, executor, executor).prepare(), time.monotonic()
    done = search.run(*kills(count, seed))
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
