"""Compare two commits: `python benchmarks/commits.py OLD [NEW] [--quick]`, for a change that should change no result.

It prints whether ten trainings end with the same weights to the last bit, whether trainings that OLD began and that were
killed end so under NEW, how many files of nnlo_lib seven operations enter, and the seconds of six commands, in turns.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[1]
CHECKPOINT_TIMEOUT_S = 300  # a busy machine
Settings = Mapping[str, Any]
TRAIN = {"epochs": 2, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}}
PLAIN_SGD = TRAIN | {"optimizer": {"name": "sgd", "lr": 0.05}}
CYCLE, SIMULATED = {"name": "cycle"}, {"ranks": 4, "transport": "simulated"}
RUNS: dict[str, Settings] = {
    "allreduce": {"algorithm": {"name": "allreduce"}, "parallel": {"ranks": 2}},
    "downpour": {"algorithm": {"name": "downpour", "synchronous": True}, "parallel": {"ranks": 3}},
    "easgd": {"algorithm": {"name": "easgd", "synchronous": True}, "parallel": {"ranks": 3}},
    "dinno": {"algorithm": {"name": "dinno"}, "topology": CYCLE, "parallel": SIMULATED},
    "dsgt": {"algorithm": {"name": "dsgt"}, "topology": CYCLE, "parallel": {"ranks": 3}, "train": PLAIN_SGD},
    "sgp": {"algorithm": {"name": "sgp"}, "parallel": SIMULATED},
    "adpsgd": {"algorithm": {"name": "adpsgd"}, "topology": CYCLE, "parallel": SIMULATED},
    "average": {
        "algorithm": {"name": "average", "sync_every": 4}, "compression": {"name": "top_k", "fraction": 0.1},
        "parallel": {"ranks": 2},
    },
    "resnet20": {
        "algorithm": {"name": "allreduce"}, "model": {"name": "resnet20"}, "parallel": {"ranks": 2},
        "train": TRAIN | {"epochs": 1, "steps_per_epoch": 6},
    },
    "wgan": {
        "algorithm": {"name": "allreduce"}, "parallel": {"ranks": 2},
        "data": {"dataset": "mnist", "source": str(REPOSITORY.parent / "shared/data/mnist")},
        "model": {"name": "wgan", "args": {"filters": [8, 16], "hidden": 32, "latent": 16, "batch_norm": False}},
        "problem": {"name": "gan", "gradient_penalty": 10, "critic_steps": 2},
        "train": {
            "epochs": 1, "steps_per_epoch": 8, "batch_size": 32,
            "optimizer": {"name": "adam", "lr": 0.0006, "beta1": 0.5, "beta2": 0.9},
        },
    },
}  # fmt: skip
RESUMED = ("average", "downpour", "dsgt")
WALK: Settings = {
    "algorithm": {"name": "allreduce"},
    "parallel": {"ranks": 2},
    "checkpoint": {"every": "3 steps"},
}
SEARCH: Settings = {
    "parallel": {"ranks": 1},
    "search": {"trials": 1, "space": {"train.optimizer.lr": {"log_uniform": [0.01, 0.1]}}},
}
# Functions below which files are counted, by operation; none: in the whole command.
SCOPES = {
    "a step": "Trainer._step",
    "a checkpoint": "Checkpointer.save,TrainingState.capture,Committer.commit,write_rank_file,TrainingSaver.save",
    "nnlo run": "",
    "nnlo search": "",
    "a page": "write_page",
    "a trial": "train_trial",
    "a preempted job": "",
}
# A model whose fifth pass preempts the job, and the answers of a Slurm in the grace time of a preemption.
PREEMPTED = """
import json, os, signal
from pathlib import Path
from torch import nn

class Net(nn.Sequential):
    passes = 0

    def forward(self, x):
        Net.passes += self.training
        lease = next(Path("results").glob("**/lease.json"), None)
        if Net.passes == 5 and os.environ.get("PMI_RANK") == "0" and lease:
            os.kill(json.loads(lease.read_text())["pid"], signal.SIGTERM)
        return super().forward(x)

def build(shape, classes):
    return Net(nn.Flatten(), nn.Linear(64, classes))
"""
SCONTROL = """#!/bin/sh
[ "$1" = --oneliner ] && echo "JobId=7 JobState=RUNNING PreemptTime=2026-01-01T00:00:00 TimeLimit=01:00:00 RunTime=00:01:00"
exit 0
"""
COMMANDS = {
    "nnlo --help": ("-m", "nnlo_lib.cli", "--help"),
    "nnlo check": ("-m", "nnlo_lib.cli", "check", "config/config.yaml"),
    "nnlo plan": ("-m", "nnlo_lib.cli", "plan", "config/config.yaml"),
    "dry run": ("-m", "snakemake", "--profile", "profiles/local", "-n", "-q"),
    "nnlo run": ("-m", "nnlo_lib.cli", "run", "config/config.yaml"),
    "nnlo all": ("-m", "nnlo_lib.cli", "all", "config/config.yaml"),
}
# Python imports this file at its start, in the launcher and in each rank.
HOOK = """
import os, sys, threading
scope, seen, depth = set(filter(None, os.environ["SCOPE"].split(","))), set(), threading.local()
def hook(frame, event, _):
    code = frame.f_code
    _, inside, name = code.co_filename.rpartition("/nnlo_lib/")
    if not inside or event not in ("call", "return"):
        return
    if code.co_qualname in scope:
        depth.calls = getattr(depth, "calls", 0) + (1 if event == "call" else -1)
    is_counted = not scope or getattr(depth, "calls", 0)
    if is_counted and event == "call" and code.co_qualname != "<module>" and name not in seen:
        seen.add(name)
        with open(os.environ["ENTERED"], "a") as file:
            file.write(name + "\\n")
sys.setprofile(hook), threading.setprofile(hook)
"""


class Checkout:
    """The files of a commit in a folder of their own, and commands that run with them."""

    def __init__(self, commit: str, parent: Path) -> None:
        self.commit, self.folder = commit, parent / commit.replace("/", "-")
        self.folder.mkdir()
        packed = subprocess.run(["git", "archive", commit], cwd=REPOSITORY, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", self.folder], input=packed.stdout, check=True)

    def start(
        self, folder: Path, *arguments: str, hook: Path | None = None, **variables: str
    ) -> "subprocess.Popen[str]":
        """Start Python with arguments in a folder, with the packages of this commit and without a terminal."""
        paths = os.pathsep.join(str(path) for path in (hook, self.folder) if path)
        return subprocess.Popen(
            [sys.executable, *arguments], cwd=folder, text=True, start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | variables,
        )  # fmt: skip

    def run(self, folder: Path, *arguments: str, **options: Any) -> None:
        """Run Python to its end. Raises SystemExit with the output if it fails."""
        process = self.start(folder, *arguments, **options)
        output, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"{self.commit}: {' '.join(arguments)}: {output[-1000:]}")

    def nnlo(self, folder: Path, *arguments: str, **options: Any) -> None:
        """Run `nnlo`."""
        self.run(folder, "-m", "nnlo_lib.cli", *arguments, **options)


def _written(settings: Settings, **more: Any) -> Path:
    """Return a new folder with an experiment in `x.yaml`."""
    folder = Path(tempfile.mkdtemp())
    base = {"name": "x", "data": {"dataset": "digits"}, "model": {"name": "simplemlp"}, "train": TRAIN}
    (folder / "x.yaml").write_text(yaml.safe_dump(base | dict(settings) | more))
    return folder


def _weights(folder: Path) -> str:
    [file] = folder.glob("results/**/model.safetensors")
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def trained(checkout: Checkout, settings: Settings) -> str:
    """Return the first digits of the SHA-256 of the weights after a training."""
    folder = _written(settings)
    checkout.nnlo(folder, "run", "x.yaml")
    return _weights(folder)


def resumed(old: Checkout, new: Checkout, settings: Settings) -> tuple[str, str]:
    """Return the weights of an undisturbed training by `old`, and of one that `new` resumes after `old` was killed."""
    longer = {"train": {**(settings.get("train") or TRAIN), "epochs": 12}, "checkpoint": {"every": "7 steps"}}
    whole, killed = _written(settings, **longer), _written(settings, **longer)
    old.nnlo(whole, "run", "x.yaml")
    process = old.start(killed, "-m", "nnlo_lib.cli", "run", "x.yaml")
    ends = time.monotonic() + CHECKPOINT_TIMEOUT_S
    while not list(killed.glob("results/**/checkpoints/0*/manifest.json")) and time.monotonic() < ends:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    # The ranks end by themselves when their launcher is gone; the lease of the run expires with them.
    process.communicate()
    new.nnlo(killed, "run", "x.yaml")
    return _weights(whole), _weights(killed)


def files_entered(checkout: Checkout) -> Iterator[int]:
    """Yield the number of files of nnlo_lib in which a function is called, in all processes, by operation of SCOPES."""
    hook = Path(tempfile.mkdtemp())
    (hook / "sitecustomize.py").write_text(HOOK)
    for operation, scope in SCOPES.items():
        is_search = operation in ("nnlo search", "a trial")
        folder = _written(SEARCH if is_search else WALK)
        options = {"hook": hook, "SCOPE": scope, "ENTERED": str(folder / "entered")}
        if operation == "a page":
            checkout.nnlo(folder, "run", "x.yaml")
            run = str(next(folder.glob("results/**/evaluation.json")).parent)
            checkout.nnlo(folder, "task", "aggregate", "--output", "summary.csv", run)
            arguments = [
                "task",
                "report",
                "--output",
                "page.html",
                "--experiment-file",
                "x.yaml",
                "--summary",
                "summary.csv",
            ] + [run]
        elif operation == "a preempted job":
            arguments = _in_a_job(checkout, folder)
            options |= {
                "SLURM_JOB_ID": "7",
                "HYDRA_LAUNCHER": "fork",
                "PATH": f"{folder}:{os.environ['PATH']}",
            }
        else:
            arguments = ["search" if is_search else "run", "x.yaml"]
        checkout.nnlo(folder, *arguments, **options)
        yield len(set((folder / "entered").read_text().split()))


def _in_a_job(checkout: Checkout, folder: Path) -> list[str]:
    """Return the arguments of a training in a folder that will be preempted; its data are converted, and its Slurm is a stand-in."""
    checkout.nnlo(folder, "run", "x.yaml")
    config, [manifest] = next(folder.glob("results/**/config.json")), folder.glob("data/*/*/manifest.json")
    settings = json.loads(config.read_text())
    settings["run"]["model"] = {"name": "net.py:build"}
    config.write_text(json.dumps(settings))
    (folder / "net.py").write_text(PREEMPTED)
    (folder / "scontrol").write_text(SCONTROL)
    (folder / "scontrol").chmod(0o755)
    return [
        "task", "train", "--config", str(config), "--manifest", str(manifest), "--folder", str(config.parent / "seed-1"),
        "--seed", "1", "--minutes", "60", "--on-preemption", "requeue",
    ]  # fmt: skip


def seconds(checkout: Checkout, command: str) -> float:
    """Return the seconds of a command in the checkout, without results of former ones."""
    shutil.rmtree(checkout.folder / "results", ignore_errors=True)
    started = time.perf_counter()
    checkout.run(checkout.folder, *COMMANDS[command])
    return time.perf_counter() - started


def main() -> None:
    """Print a line for each comparison; exit with status 1 if weights differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", nargs="?", default="HEAD")
    parser.add_argument("new", nargs="?", default="HEAD")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one training and one command, once")
    options = parser.parse_args()
    differ = 0
    parent = Path(tempfile.mkdtemp())
    tempfile.tempdir = str(parent)
    try:
        old = Checkout(options.old, Path(tempfile.mkdtemp()))
        new = Checkout(options.new, Path(tempfile.mkdtemp()))
        for name in list(RUNS)[: 1 if options.quick else None]:
            before, after = trained(old, RUNS[name]), trained(new, RUNS[name])
            differ += before != after
            print(f"{name:<12} {before} {after} {'equal' if before == after else 'DIFFERENT'}", flush=True)
        for name in () if options.quick else RESUMED:
            before, after = resumed(old, new, RUNS[name])
            differ += before != after
            print(
                f"{name:<12} {before} {after} {'equal' if before == after else 'DIFFERENT'}, resumed",
                flush=True,
            )
        if not options.quick:
            for commit in (old, new):
                counts = zip(SCOPES, files_entered(commit), strict=True)
                print(
                    f"{commit.commit}: files entered:",
                    ", ".join(f"{what} {count}" for what, count in counts),
                    flush=True,
                )
        for command in list(COMMANDS)[: 1 if options.quick else None]:
            figures = [
                (seconds(old, command), seconds(new, command))
                for _ in range(1 if options.quick else options.repeat)
            ]
            first, second = (statistics.median(column) for column in zip(*figures, strict=True))
            print(f"{command:<12} {first:.3f} s {second:.3f} s, ratio {second / first:.2f}", flush=True)
    finally:
        shutil.rmtree(parent)
    sys.exit(int(differ > 0))


if __name__ == "__main__":
    main()
