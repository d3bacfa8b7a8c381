"""Options of srun, jsrun, Hydra and Open MPI for ranks, cores and GPUs; ranks in a container."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.nnlo_command import nnlo
from helpers.training_process import training

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import experiment_from_settings
from nnlo_lib.launch.launcher import rank_environment
from nnlo_lib.launch.launcher_command import LauncherCommand, is_needed

# One write, because the pieces of a print could be mixed with those of the other rank.
PRINT_CORES = "import os; os.write(1, b'%d\\n' % len(os.sched_getaffinity(0)))"
JSRUN = "/opt/jsm/bin/jsrun"
ONE_PROCESS = {"ranks": 8, "transport": "simulated"}


def run_of(sections=None, **parallel):
    return Run.model_validate({"parallel": {"ranks": 4, **parallel}} | (sections or {}))


def words(launcher, environment=None, sections=None, **parallel):
    return " ".join(LauncherCommand(launcher, run_of(sections, **parallel), environment or {}).words)


def executable(path: Path, script: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("launcher", "parallel", "options"),
    [
        ("mpiexec -x", {}, "-n 4"),
        ("srun --mpi=pmi2", {"threads_per_rank": 3}, "--cpus-per-task=3 -n 4"),
        ("srun", {"bind": "none"}, "--cpus-per-task=1 --cpu-bind=none -n 4"),
        ("srun", {"bind": "core"}, "--cpus-per-task=1 --cpu-bind=cores -n 4"),
        ("srun", {"bind": "socket"}, "--cpus-per-task=1 --cpu-bind=sockets -n 4"),
        ("srun", {"bind": "numa"}, "--cpus-per-task=1 --cpu-bind=ldoms -n 4"),
        (JSRUN, {}, "-n 4 -a 1 -c 1 -g 0 -b packed:1"),
        (JSRUN, {"threads_per_rank": 7}, "-n 4 -a 1 -c 7 -g 0 -b packed:7"),
        (JSRUN, {"gpus_per_rank": 1, "threads_per_rank": 7}, "-n 4 -a 1 -c 7 -g 1 -b packed:7"),
        (JSRUN, {"gpus_per_rank": 1, "ranks_per_gpu": 2, "bind": "core"}, "-n 2 -a 2 -c 2 -g 1 -b packed:1"),
        (JSRUN, {"bind": "none"}, "-n 4 -a 1 -c 1 -g 0 -b none"),
        (JSRUN, {"ranks": 1, "gpus_per_rank": 1}, "-n 1 -a 1 -c 1 -g 1 -b packed:1"),
        (JSRUN, {"gpus_per_rank": 1, **ONE_PROCESS}, "-n 1 -a 1 -c 1 -g 1 -b packed:1"),
        ("jsrun -b rs", {}, "-n 4 -a 1 -c 1 -g 0"),
    ],
)
def test_options_of_launchers(launcher, parallel, options):
    assert words(launcher, **parallel) == f"{launcher} {options}"


DOWNPOUR = {"algorithm": {"name": "downpour"}}


@pytest.mark.parametrize(
    ("launcher", "parallel", "message"),
    [
        ("jsrun -n 3", {}, r"'jsrun -n 3': the resource sets come from the experiment \(nrs\)"),
        ("jsrun --gpu_per_rs=1 -c4", {}, r"experiment \(cpu_per_rs, gpu_per_rs\)"),
        ("jsrun", {"gpus_per_rank": 1, "ranks_per_gpu": 3}, "parallel.ranks_per_gpu: jsrun needs equal resource sets"),
        ("jsrun", {"sections": DOWNPOUR, "ranks": 3, "gpus_per_rank": 1, "master_gpu": False}, "3 ranks share 2 GPUs"),
        ("jsrun", {"bind": "numa"}, "parallel.bind: jsrun does not bind to a numa"),
        ("jsrun -b rs", {"bind": "core"}, "parallel.bind: 'jsrun -b rs' already has -b; remove one"),
        ("srun --cpu-bind=none", {"bind": "core"}, "already has --cpu-bind"),
        ("/no/mpiexec", {"bind": "core"}, "the options of '/no/mpiexec' for binding are not known"),
    ],
)  # fmt: skip
def test_what_a_launcher_cannot_do_is_refused(launcher, parallel, message):
    with pytest.raises(UserError, match=message):
        words(launcher, **parallel)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("version", "parallel", "hosts", "options"),
    [
        ("HYDRA build details:", {"bind": "core", "threads_per_rank": 2}, "", "-bind-to core:2 -n 4"),
        ("HYDRA build details:", {"bind": "numa"}, "", "-bind-to numa -n 4"),
        ("mpiexec (OpenRTE) 4.1.4", {"bind": "socket"}, "", "--bind-to socket -n 4"),
        ("mpiexec (OpenRTE) 4.1.4", {"bind": "core", "threads_per_rank": 2}, "", "--bind-to core --map-by slot:PE=2 -n 4"),
        # On several hosts of LSF a rank has its slots; with one slot per rank, Hydra reads the hosts itself.
        ("HYDRA build details:", {"threads_per_rank": 2}, "a 4 b 4", "-ppn 2 -n 4"),
        ("HYDRA build details:", {}, "a 4 b 4", "-n 4"),
        ("HYDRA build details:", {"threads_per_rank": 2}, "a 8", "-n 4"),
    ],
)  # fmt: skip
def test_options_of_each_mpiexec(tmp_path, version, parallel, hosts, options):
    launcher = executable(tmp_path / "mpiexec", f"echo '{version}'")
    assert words(launcher, {"LSB_MCPU_HOSTS": hosts}, **parallel) == f"{launcher} {options}"


@pytest.mark.exhaustive
@pytest.mark.mpi
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a rank can be bound if there are two cores")
def test_mpich_binds_each_rank_to_one_core():
    run = run_of(ranks=2, bind="core")
    command = LauncherCommand("mpiexec", run, rank_environment(run.parallel))
    done = subprocess.run(
        [*command.words, sys.executable, "-c", PRINT_CORES], env=rank_environment(run.parallel),
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["1", "1"]


def test_one_rank_needs_the_launchers_that_reach_another_host():
    alone = run_of(ranks=1)
    assert [is_needed(name, alone) for name in ("mpiexec", "", "srun", "jsrun")] == [False, False, True, True]


@pytest.mark.parametrize("parallel", [{"ranks": 1}, {"ranks": 4, "transport": "simulated"}])
def test_binding_without_a_launcher_is_refused(parallel):
    message = r"parallel\.bind: no command starts the only process of this run; remove"
    with pytest.raises(UserError, match=message):
        experiment_from_settings({"parallel": {"bind": "core", **parallel}})
    runs = {"one": {"parallel": parallel}, "two": {"parallel": {"ranks": 2}}}
    experiment_from_settings({"parallel": {"bind": "core"}, "runs": runs})


# The program starts in this process, as Apptainer starts it. The image is the first word that is no option.
STAND_IN = """echo "$0 $@" | sed 's/ python3.*//' >> "$STARTED"
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
    """Return a folder with an image, its python3, and a stand-in for Apptainer, which is on PATH."""
    executable(tmp_path / "bin/apptainer", STAND_IN)
    executable(tmp_path / "image/python3", f'exec {sys.executable} "$@"')
    (tmp_path / "nnlo.sif").touch()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    return tmp_path


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_every_rank_starts_in_the_container_with_the_same_weights(site):
    (outside := training(site / "plain", **SETTINGS)).finish()
    image = f"apptainer exec --cleanenv {site}/nnlo.sif"
    (run := training(site / "inside", **SETTINGS, resources={"container": image})).finish()
    assert run.weights == outside.weights
    started = (site / "started").read_text().splitlines()
    assert started == [f"{site}/bin/apptainer exec --cleanenv {site}/nnlo.sif"] * 3, "one check and two ranks"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("container", "said"),
    [
        ("apptainer exec nnlo.sif", "ended with status 1 (ModuleNotFoundError: no nnlo_lib); install nnlo in the image"),
        ("shifter --image=nnlo", "cannot be started on this host, or did not end in 300 s; load the module of shifter before"),
        (" ", "must not be empty"),
        ("apptainer 'exec", "No closing quotation; close the quotation"),
    ],
)  # fmt: skip
def test_a_container_that_cannot_start_is_refused(site, container, said):
    executable(site / "image/python3", "echo 'ModuleNotFoundError: no nnlo_lib' >&2; exit 1")
    training(site, **SETTINGS, resources={"container": container})
    done = nnlo("run", "t.yaml", folder=site)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert said in done.stderr
