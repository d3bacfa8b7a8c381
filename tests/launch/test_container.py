"""Ranks in a container; Apptainer is replaced by a script that runs the program on this host and writes its arguments."""

import os
import sys
from pathlib import Path

import pytest
from helpers.nnlo_command import nnlo
from helpers.training_process import training

# The program starts in this process, as Apptainer starts it. The image is the first word that is no option.
STAND_IN = """#!/bin/sh
echo "$0 $@" | sed 's/ python3.*//' >> "$STARTED"
shift
while [ "${1#-}" != "$1" ]; do shift; done
shift
PATH="${0%/*}/../image:$PATH" exec "$@"
"""
SETTINGS = {
    "model": {"name": "simplemlp", "args": {"hidden": 4, "layers": 1}},
    "train": {"epochs": 1, "batch_size": 100},
}


@pytest.fixture
def site(tmp_path, monkeypatch) -> Path:
    """Return a folder with an image and a stand-in for Apptainer, which is on PATH."""
    program = tmp_path / "bin/apptainer"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    (tmp_path / "nnlo.sif").touch()
    install(tmp_path, f'exec {sys.executable} "$@"')
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    return tmp_path


def install(site: Path, script: str) -> None:
    """Write the image's python3."""
    python = site / "image/python3"
    python.parent.mkdir(exist_ok=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_every_rank_starts_in_the_container_with_the_same_weights(site):
    plain, inside = site / "plain", site / "inside"
    (outside := training(plain, **SETTINGS)).finish()
    image = f"apptainer exec --cleanenv {site}/nnlo.sif"
    (run := training(inside, **SETTINGS, resources={"container": image})).finish()
    assert run.weights == outside.weights
    started = (site / "started").read_text().splitlines()
    assert started == [f"{site}/bin/apptainer exec --cleanenv {site}/nnlo.sif"] * 3, "one check and two ranks"


@pytest.mark.parametrize(
    ("container", "said"),
    [
        ("apptainer exec missing.sif", "resources.container: image not found: missing.sif; paths are relative to"),
        ("shifter --image=nnlo", "resources.container: 'shifter' not found on this host; load its module"),
        (" ", "must not be empty"),
        ("apptainer 'exec", "No closing quotation; close the quotation"),
    ],
)  # fmt: skip
def test_a_container_that_cannot_start_is_refused(site, container, said):
    assert said in refused(site, container)


@pytest.mark.processes
def test_an_image_without_nnlo_is_named_before_the_ranks_start(site):
    install(site, "echo 'ModuleNotFoundError: no nnlo_lib' >&2; exit 1")
    output = refused(site, f"apptainer exec {site}/nnlo.sif")
    assert "ended with status 1 (ModuleNotFoundError: no nnlo_lib); install nnlo in the image" in output


def refused(site, container):
    """Run a training in a container that does not start; return the error."""
    training(site, **SETTINGS, resources={"container": container})
    done = nnlo("run", "t.yaml", folder=site)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr
