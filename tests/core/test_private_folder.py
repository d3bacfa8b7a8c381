"""Places outside the project that other users can prepare: locks of GPUs, compiled code, shared memory."""

import os
import tempfile
import uuid
from pathlib import Path

import numpy as np
import pytest
from helpers.other_users import ATTACKER, VICTIM, run_as, shared_place
from torch import nn

from nnlo_lib.comm.mpi.shared_memory import SharedMailbox, map_remote
from nnlo_lib.config import Run
from nnlo_lib.core.file_lock import private_folder
from nnlo_lib.executors.gpu_slots import reserve_gpus
from nnlo_lib.launch.launcher import SharedMemoryCleanup
from nnlo_lib.train.replica import model_build

__all__ = ["shared_place"]

pytestmark = pytest.mark.processes


@pytest.fixture
def machine(shared_place, monkeypatch):
    """Return the $TMPDIR of a machine with four GPUs and a compiler."""
    monkeypatch.setattr(tempfile, "tempdir", str(shared_place))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setenv("CXX", "true")  # only its existence is checked
    # The other users cannot import modules if Python is in root's home: imports the modules of torch.compile.
    monkeypatch.setenv(model_build.CACHE_VARIABLE, str(shared_place.parent))
    compile_model()
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "LSB_JOBID", model_build.CACHE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    return shared_place


def reserve():
    with reserve_gpus(Run.model_validate({"parallel": {"ranks": 1, "gpus_per_rank": 1}})) as reserved:
        return reserved


def compile_model():
    model_build.compile_module(nn.Linear(1, 1), "cpu")
    return os.environ[model_build.CACHE_VARIABLE]


def taken_by_attacker(place):
    def prepare():
        os.umask(0)
        for name in (f"nnlo-{VICTIM}", f"nnlo-gpus-{VICTIM}", f"torchinductor_uid_{VICTIM}"):
            (place / name).mkdir()

    run_as(ATTACKER, prepare)
    return list(place.rglob("*"))


@pytest.mark.parametrize(
    ("work", "variable"), [(reserve, "TMPDIR"), (compile_model, "TORCHINDUCTOR_CACHE_DIR")]
)
def test_a_folder_of_another_user_is_refused(machine, work, variable):
    before = taken_by_attacker(machine)
    message = rf"UserError: .*nnlo-{VICTIM} .*user {ATTACKER},.*set {variable}"
    with pytest.raises(AssertionError, match=message):
        run_as(VICTIM, work)
    assert list(machine.rglob("*")) == before


def test_users_have_folders_that_only_they_can_open(machine):
    for user in (VICTIM, ATTACKER):
        assert run_as(user, reserve)
        assert run_as(user, compile_model).startswith(f"{machine}/nnlo-{user}/")
    assert {path.name for path in machine.iterdir()} == {f"nnlo-{VICTIM}", f"nnlo-{ATTACKER}"}
    assert {path.stat().st_mode & 0o777 for path in machine.iterdir()} == {0o700}


@pytest.mark.parametrize("mode", [0o755, 0o711])
def test_an_own_folder_that_others_could_only_read_is_closed(shared_place, mode):
    def prepare():
        folder = private_folder(shared_place)
        folder.chmod(mode)
        return folder

    folder = run_as(VICTIM, prepare)
    assert run_as(VICTIM, lambda: private_folder(shared_place)) == folder
    assert folder.stat().st_mode & 0o777 == 0o700


def test_shared_memory_of_another_user_is_left_alone(shared_place):
    """Also by root, who could remove it, and if a link to a file of this user has the name of a segment."""
    segments = SharedMemoryCleanup()
    file, link = (Path(f"/dev/shm/mpich_shm_{uuid.uuid4().hex}") for _ in range(2))
    own = shared_place / "own"
    own.touch()
    os.utime(own, (0, 0))

    def prepare():
        file.touch()
        os.utime(file, (0, 0))
        link.symlink_to(own)

    run_as(ATTACKER, prepare)
    try:
        segments.remove_unused()
        assert file.exists()
        assert link.is_symlink()
    finally:
        file.unlink(missing_ok=True)
        link.unlink(missing_ok=True)


def test_a_mailbox_is_not_any_file_of_a_process_with_the_same_number(tmp_path):
    path = tmp_path / "diary"
    path.write_bytes(bytes(4096))
    with path.open("rb+") as diary, pytest.raises(OSError, match="is not a mailbox of this user"):
        map_remote(np.array([os.getpid(), diary.fileno(), 4096, 0], np.int64))
    box = SharedMailbox(4096, 0)
    map_remote(box.address)[:] = 1
    assert box.memory.sum() == 4096
    box.close()
