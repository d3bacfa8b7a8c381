"""The folder of compiled code in a $TMPDIR that other users can write."""

import json
import os
import subprocess
import sys

import pytest
from helpers.repository_copy import REPOSITORY, environment

from nnlo_lib.core.compiler_cache import CACHE_VARIABLE, COMPILER

PROGRAM = """
import json, os, sys, torch
from nnlo_lib.models.factory import build_model
from nnlo_lib.train.replica.compiled import compile_module
model = build_model("simplemlp", {}, (1, 2, 2), 2, 0)
torch.optim.SGD(model.parameters(), lr=0.1)
folders = [os.environ.get(sys.argv[1], "")]
compiled = compile_module(model, "cpu")
if sys.argv[2] == "compile":
    compiled(torch.ones(1, 1, 2, 2))
print(json.dumps([*folders, os.environ[sys.argv[1]]]))
"""


def run(tmp_path, how="", **variables):
    surroundings = environment() | {"TMPDIR": str(tmp_path)} | variables
    if CACHE_VARIABLE not in variables:
        surroundings.pop(CACHE_VARIABLE, None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, CACHE_VARIABLE, how],
        env=surroundings, cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.processes
@pytest.mark.parametrize("how", ["", "compile"])
def test_code_is_compiled_into_the_private_folder(tmp_path, how):
    private = tmp_path / f"nnlo-{os.geteuid()}"
    assert run(tmp_path, how) == ["", str(private / "torchinductor")]
    assert list(tmp_path.iterdir()) == [private]


@pytest.mark.processes
def test_a_file_with_the_name_of_torchs_folder_stops_nothing(tmp_path):
    """Before, the import of torch's compiler failed with a FileExistsError."""
    (tmp_path / "torchinductor_root").touch()
    (tmp_path / f"torchinductor_uid_{os.geteuid()}").touch()
    run(tmp_path)


@pytest.mark.processes
def test_the_folder_of_the_user_is_kept(tmp_path):
    (tmp_path / "mine").mkdir()
    assert run(tmp_path, **{CACHE_VARIABLE: str(tmp_path / "mine")}) == [str(tmp_path / "mine")] * 2


@pytest.mark.processes
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
