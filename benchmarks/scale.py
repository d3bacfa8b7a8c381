"""Measure the memory of simulated ranks: `python benchmarks/scale.py memory --ranks 100 --data digits`.

The training is dsgd on a cycle with simplemlp, batch 8, at most 5 steps. It prints, a rank, the memory of the process after
each stage, in MB and in vectors of the model, and the seconds of processor of the start. At the end, it prints the tensors
that are alive, by the attribute of the object that holds them.
"""

import argparse
import gc
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor

from nnlo_lib.config import Run
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag, tune_malloc_and_timers
from nnlo_lib.train.task import Task, prepare_dataset
from nnlo_lib.train.trainer import Trainer

STAGES = {"built": "__init__", "resumed": "_resume", "steps": "_train_epoch", "evaluated": "_train"}


def resident_mb() -> float:
    """Return the anonymous memory of this process in MB; pages of mapped files are not counted."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1e3


def owners() -> Counter[str]:
    """Return the bytes of the storages that are alive, by class and attribute of a holder; a storage counts once."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    for holder in gc.get_objects():
        for name, value in list(_attributes(holder).items()):
            for each in value.values() if isinstance(value, dict) else (value,):
                if isinstance(each, Tensor) and (storage := each.untyped_storage()).data_ptr() not in seen:
                    seen.add(storage.data_ptr())
                    found[f"{type(holder).__name__}.{name}"] += storage.nbytes()
    return found


def _attributes(holder: object) -> dict[str, object]:
    # Not getattr: proxies of pydantic raise other errors.
    try:
        return dict(object.__getattribute__(holder, "__dict__"))
    except (AttributeError, TypeError):
        return {}


def memory(ranks: int, data: str, source: str) -> None:
    """Train, and print the table."""
    own = {"source": source} if data == "mnist" else {}
    steps = {"steps_per_epoch": 5} if data == "mnist" else {}
    settings = {
        "data": {"dataset": data, **own}, "model": {"name": "simplemlp"}, "algorithm": {"name": "dsgd"},
        "train": {"epochs": 1, "batch_size": 8, **steps}, "topology": {"name": "cycle"},
        "parallel": {"ranks": ranks, "transport": "simulated"},
    }  # fmt: skip
    run = Run.model_validate(settings)
    with tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder, "hdf5", "manifest.json")
        prepare_dataset(run.data, manifest.parent)
        before, started = resident_mb(), time.process_time()
        calls: Counter[str] = Counter()

        def after(stage: str, trainer: Trainer) -> None:
            calls[stage] += 1
            if calls[stage] < ranks:
                return
            size, mb = trainer.context.replica.theta.nbytes / 1e6, (resident_mb() - before) / ranks
            seconds = time.process_time() - started
            print(
                f"{stage:10} {mb:7.2f} MB {mb / size:5.1f} vectors {1e3 * seconds / ranks:7.1f} ms a rank",
                flush=True,
            )
            if stage == "evaluated":
                for owner, held in owners().most_common(8):
                    print(f"  {owner:40} {held / 1e6 / ranks:7.2f} MB")

        for stage, name in STAGES.items():
            setattr(Trainer, name, _followed(getattr(Trainer, name), stage, after))
        train_simulated(Task("scale", data, run, 1, None, 1, manifest, Path(folder, "run")), StopFlag())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"peak of the process {peak:,.0f} MB, mapped files included")


def _followed(method, stage, after):  # type: ignore[no-untyped-def]
    def followed(trainer, *arguments):  # type: ignore[no-untyped-def]
        result = method(trainer, *arguments)
        after(stage, trainer)
        return result

    return followed


def main() -> None:
    """Run the sub-command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("memory",))
    parser.add_argument("--ranks", type=int, default=100)
    parser.add_argument("--data", choices=("digits", "mnist"), default="digits")
    parser.add_argument("--source", default="../shared/data/mnist", help="folder of the four MNIST files")
    options = parser.parse_args()
    tune_malloc_and_timers()
    torch.set_num_threads(1)
    memory(options.ranks, options.data, options.source)


if __name__ == "__main__":
    main()
