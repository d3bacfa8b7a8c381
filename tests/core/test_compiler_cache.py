"""The folder of compiled code in a $TMPDIR that other users can write; tests of other users: test_private_folder.py."""

import os
import subprocess
import sys
import tempfile

import pytest
from helpers.repository_copy import REPOSITORY, environment
from torch import nn

from nnlo_lib.core.file_lock import CACHE_VARIABLE, COMPILER
from nnlo_lib.train.replica.model_build import compile_module

PROGRAM = """
import os, torch
from nnlo_lib.train.replica.model_build import compile_module
compiled = compile_module(torch.nn.Linear(2, 2), "cpu")
compiled(torch.ones(1, 2))
print(os.environ["%s"])
"""


@pytest.mark.parametrize("own", [True, False], ids=["folder of the user", "no folder of the user"])
def test_code_is_compiled_into_the_folder_of_the_user_or_a_private_folder(tmp_path, monkeypatch, own):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "mine") if own else "")
    if not own:
        monkeypatch.delenv(CACHE_VARIABLE)
    compile_module(nn.Linear(2, 2), "cpu")
    private = tmp_path / f"nnlo-{os.geteuid()}"
    assert os.environ[CACHE_VARIABLE] == str(tmp_path / "mine" if own else private / "torchinductor")


@pytest.mark.exhaustive
@pytest.mark.processes
def test_a_file_with_the_name_of_torchs_folder_stops_nothing(tmp_path):
    """Before, the import of torch's compiler failed with a FileExistsError."""
    names = {"torchinductor_root", f"torchinductor_uid_{os.geteuid()}"}
    for name in names:
        (tmp_path / name).touch()
    surroundings = environment() | {"TMPDIR": str(tmp_path)}
    surroundings.pop(CACHE_VARIABLE, None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM % CACHE_VARIABLE], env=surroundings, cwd=REPOSITORY, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / f"nnlo-{os.geteuid()}/torchinductor")
    assert {path.name for path in tmp_path.iterdir()} == {*names, f"nnlo-{os.geteuid()}"}


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_only_the_layer_table_of_rank_0_imports_the_compiler(tmp_path):
    """Before, each command and each rank imported the compiler: over a second of each start."""
    (tmp_path / "cnn.yaml").write_text(
        "model: {name: simplecnn}\ntrain: {epochs: 1, optimizer: {name: adam}}\nparallel: {ranks: 2}\n"
    )
    done = subprocess.run(
        ["nnlo", "run", "cnn.yaml"], env=environment() | {"PYTHONPROFILEIMPORTTIME": "1"}, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    imports = [line.split("|")[-1].strip() for line in (done.stdout + done.stderr).splitlines()]
    assert imports.count("torch") >= 3
    assert imports.count(COMPILER) <= 1
