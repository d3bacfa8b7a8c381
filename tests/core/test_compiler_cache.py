"""The folder of compiled code in a $TMPDIR that other users can write; tests of other users: test_private_folder.py."""

import os
import subprocess
import tempfile

import pytest
from helpers.repository_copy import environment
from torch import nn

from nnlo_lib.core.file_lock import CACHE_VARIABLE, COMPILER
from nnlo_lib.train.replica.model_build import compile_module


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
