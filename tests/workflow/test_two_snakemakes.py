"""Two Snakemakes in one folder: of two experiments with one data set, and of one experiment."""

import subprocess
import sys

import pytest
from helpers.repository_copy import environment

ALONE = {"alone": {"parallel": {"ranks": 1}}}


def start(checkout, **changes):
    """Start Snakemake on an experiment in a file of its own."""
    path = checkout.experiment(runs=ALONE, **changes)
    file = path.rename(path.with_name(f"{changes.get('name', 'tiny')}.yaml"))
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/local", "--cores", "1"]
    return subprocess.Popen(
        [*command, "--configfile", file.name], cwd=checkout.folder, env=environment(), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_two_experiments_share_a_data_set_that_neither_has_converted(checkout):
    both = [start(checkout, name="one"), start(checkout, name="two")]
    said = [process.communicate(timeout=600)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], "\n".join(said)
    for name in ("one", "two"):
        assert (checkout.folder / f"results/{name}/report.html").exists()
    again = start(checkout, name="one")
    assert "Nothing to be done" in again.communicate(timeout=600)[0]


HOLD = (
    "import sys; from pathlib import Path; from nnlo_lib.state.lease import Lease;"
    "Lease(Path('results/tiny/.workflow')).acquire(False, lambda: False); print('held', flush=True); sys.stdin.read()"
)


@pytest.mark.slow
def test_a_second_snakemake_of_one_experiment_is_refused(checkout):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD],
        cwd=checkout.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout.readline() == "held\n"
        second = start(checkout)
        said = second.communicate(timeout=600)[0]
        other.kill()
    assert second.returncode
    assert "results/tiny is being written by" in said
    assert "Traceback" not in said
    assert not (checkout.folder / "data").exists()
