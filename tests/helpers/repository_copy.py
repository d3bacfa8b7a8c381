"""A copy of the repository in which tests run Snakemake as a user does."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[2]
# Other processes may write to these while the repository is copied.
LEFT_OUT = (".git", ".venv", ".snakemake", "*.egg-info", ".*_cache", ".hypothesis", "__pycache__")
WRITTEN = {"data", "results", "logs", "site"}  # folders of the repository; packages have the same names

TINY = {
    "name": "tiny",
    "model": {"name": "simplemlp", "args": {"hidden": 16, "layers": 1}},
    "train": {"epochs": 2, "batch_size": 64},
    "runs": {
        "allreduce": {"parallel": {"ranks": 2}},
        "downpour": {"algorithm": {"name": "downpour"}, "parallel": {"ranks": 3}},
        "alone": {"parallel": {"ranks": 1}},
        "simulated": {"parallel": {"ranks": 4, "transport": "simulated"}},
    },
}


@dataclass(frozen=True)
class Checkout:
    """A folder with a copy of the repository, in which Snakemake runs."""

    folder: Path

    def experiment(self, **changes: object) -> Path:
        """Write the tiny experiment with changed top-level keys; return its path."""
        path = self.folder / "tiny.yaml"
        path.write_text(yaml.safe_dump(TINY | changes, sort_keys=False))
        return path

    def snakemake(
        self, *arguments: str, file: str = "tiny.yaml", python: Path | str = sys.executable
    ) -> "subprocess.CompletedProcess[str]":
        """Run Snakemake locally on an experiment, by default the tiny one."""
        command = [
            str(python), "-m", "snakemake", *arguments, "--profile", "profiles/local", "--cores", "2",
            "--configfile", file,
        ]  # fmt: skip
        return subprocess.run(
            command, cwd=self.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=800, check=False,
        )  # fmt: skip


def environment() -> dict[str, str]:
    """Return the environment without the variables of pytest, Slurm and NNLO, which would affect Snakemake."""
    return {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "SLURM", "NNLO"))
    }


def copy_checkout(folder: Path) -> Checkout:
    """Copy the repository's files into `folder`."""
    shutil.copytree(REPOSITORY, folder, ignore=_left_out, symlinks=True)
    return Checkout(folder)


def _left_out(folder: str, names: list[str]) -> set[str]:
    written = WRITTEN if Path(folder) == REPOSITORY else set()
    return written | shutil.ignore_patterns(*LEFT_OUT)(folder, names)
