"""How well the blocks of one allocation are used: trainings of unequal length, which here only sleep.

python benchmarks/search_blocks.py [--ranks 7] [--size 3] [--trials 40] [--seconds 3]
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from nnlo_lib.config import Experiment
from nnlo_lib.launch.launch import relay
from nnlo_lib.search.trial import Leaf, Result

FOLDER = Path("results/sleeping/search")


def main() -> None:
    """Search by sleeping, with unequal lengths, and print how much of the blocks' time was sleep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=7, help="of the allocation; default: %(default)s")
    parser.add_argument("--size", type=int, default=3, help="ranks of a block; default: %(default)s")
    parser.add_argument("--trials", type=int, default=40, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=3.0, help="mean length; default: %(default)s")
    parser.add_argument("--method", default="forest", help="who proposes; default: %(default)s")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        be_a_rank(options.size, options.seconds)
    from nnlo_lib.tune.blocks.launcher import start
    from nnlo_lib.tune.config_file import write_config

    path = Path(__file__).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        experiment = _experiment(options)
        write_config(experiment)
        arguments = ["--rank", "--size", str(options.size), "--seconds", str(options.seconds)]
        started = time.time()
        process = start(experiment, "mpiexec", options.ranks, [str(path), *arguments])
        relay(process)
        process.wait()
        told = json.loads((FOLDER / "state/blocks.jsonl").read_text())
        whole = told["trained"] / (told["blocks"] * (time.time() - started))
        print(f"utilisation {told['utilisation']:.1%}; with start and end of all processes {whole:.1%}")


def be_a_rank(size: int, seconds: float) -> None:
    """Take part as a rank whose trainings take between a fifth and nine fifths of `seconds`."""
    from nnlo_lib.launch.limit import Limit
    from nnlo_lib.tune.blocks.block import follow, lead
    from nnlo_lib.tune.blocks.rank import take_part
    from nnlo_lib.tune.blocks.wish import Wish
    from nnlo_lib.tune.blocks.world import World

    def part(world: World, _: Wish) -> bool:
        leads = world.rank == world.members(world.block)[0]
        return lead(world, lambda leaf: _sleep(leaf, seconds)) if leads else follow(world, print)

    take_part(FOLDER, size, part, Limit(None, None))


def _sleep(leaf: Leaf, seconds: float) -> int:
    started, lot = time.time(), random.Random(leaf.trial)
    time.sleep(seconds * lot.uniform(0.2, 1.8))
    rows = ({"epoch": 1, "val_loss": lot.random(), "seconds": time.time() - started},)
    Result(leaf, "finished", rows, started=started, ended=time.time()).write(FOLDER)
    return 0


def _experiment(options: argparse.Namespace) -> Experiment:
    space = {"train.optimizer.lr": {"log_uniform": [1e-4, 1.0]}, "train.batch_size": {"integer": [8, 64]}}
    search = {
        "space": space, "trials": options.trials, "method": {"name": options.method},
        "blocks": {"size": options.size},
    }  # fmt: skip
    return Experiment.model_validate({"name": "sleeping", "train": {"epochs": 1}, "search": search})


if __name__ == "__main__":
    sys.exit(main())
