"""A clone of the repository for all tests of a file; experiments with other names have results of their own."""

import csv
import json
from pathlib import Path

import pytest
from helpers.repository_copy import Checkout, copy_checkout


class Clone(Checkout):
    """A copy of the repository in which Snakemake runs."""

    def run(self, *arguments: str, status: int = 0, **changes: object) -> str:
        """Write the tiny experiment with changes, if there are any; run Snakemake and return its output."""
        if changes:
            self.experiment(**changes)
        done = self.snakemake(*arguments)
        assert done.returncode == status, done.stdout
        assert "Traceback" not in done.stdout or status == 1, done.stdout
        return done.stdout

    def results(self, name: str = "tiny") -> Path:
        """Return the folder of an experiment's results."""
        return self.folder / "results" / name

    def evaluation(self, job: str) -> dict:
        """Return the evaluation of a job, such as `tiny/alone/seed-0`."""
        return json.loads((self.folder / "results" / job / "evaluation.json").read_text())

    def table(self, path: str) -> list[dict[str, str]]:
        """Return the rows of a CSV file below results/."""
        with (self.folder / "results" / path).open() as file:
            return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """Return a clone without results."""
    return Clone(copy_checkout(tmp_path_factory.mktemp("clone") / "checkout").folder)
