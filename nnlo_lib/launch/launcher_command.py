"""The command that starts the ranks of a run: options of srun, jsrun and the mpiexec of each MPI library, and the container.

The container is a command between the launcher and Python.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nnlo_lib.config import Run
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.secrets import resolve
from nnlo_lib.core.text_format import expanded

VERSION_TIMEOUT_S = 15  # a launcher that prints its version
IMAGE_START_TIMEOUT_S = 300  # the first start of an image may unpack it
# Options by which a command in --launcher, or in a profile, binds ranks itself.
BINDING_OPTIONS = {
    "-bind-to", "--bind-to", "-binding", "-map-by", "--map-by", "--cpu-bind", "--cpu_bind", "-b", "--bind",
}  # fmt: skip
OPEN_MPI_NAMES = "open mpi", "open-mpi", "openrte"
SRUN_BINDING = {"none": "none", "core": "cores", "socket": "sockets", "numa": "ldoms"}
JSRUN_OPTIONS = {
    "-n": "nrs", "-a": "tasks_per_rs", "-c": "cpu_per_rs", "-g": "gpu_per_rs", "-p": "np",
}  # fmt: skip


def is_needed(launcher: str, run: Run) -> bool:
    """Return True if the launcher starts the ranks of a run, False if its only rank starts directly."""
    command = LauncherCommand(launcher, run, os.environ)
    # One rank needs srun, too: without `B:`, Slurm's --signal reaches job steps only, not the batch shell. The host
    # that calls jsrun has no GPUs.
    return command.is_srun or command.is_jsrun or RunResources(run).processes > 1


@dataclass(frozen=True)
class LauncherCommand:
    """The command that starts the ranks of a run, without their program; `text` is that of --launcher or of a profile."""

    text: str
    run: Run
    environment: Mapping[str, str]

    @property
    def is_srun(self) -> bool:
        return "srun" in self.text and not self.is_jsrun

    @property
    def is_jsrun(self) -> bool:  # of IBM's Job Step Manager, as on Summit
        return any(Path(word).name == "jsrun" for word in self._given)

    @property
    def is_hydra(self) -> bool:
        """Whether this is the mpiexec of MPICH, Intel MPI, or another with the same options."""
        return "hydra" in self._version

    @property
    def words(self) -> list[str]:
        """The words of the command up to the number of ranks. Raises UserError for settings that it cannot fulfill."""
        given = [option for option in BINDING_OPTIONS if self._has(option)]
        if given and self.run.parallel.bind != "launcher":
            raise UserError(
                f"parallel.bind: '{self.text}' already has {given[0]}; remove one of the two ({self.run.parallel.bind})"
            )
        if self.is_jsrun:
            return [*self._given, *self._jsrun_options]
        # srun inside a job does not inherit the number of cores per task that the job requested.
        threads = [f"--cpus-per-task={self._threads}"] if self.is_srun else []
        return [*self._given, *threads, *self.placement, "-n", str(RunResources(self.run).processes)]

    @property
    def placement(self) -> list[str]:
        """Options that place the ranks on hosts, and bind them to cores. Raises UserError."""
        bind, threads = self.run.parallel.bind, self._threads
        if self.is_srun:
            return [] if bind == "launcher" else [f"--cpu-bind={SRUN_BINDING[bind]}"]
        # LSF lists slots, of which a rank has several. Hydra would start one rank per slot, all on the first host.
        hosts = self.environment.get("LSB_MCPU_HOSTS", "").split()
        has_slots = len(hosts) > 2 and threads > 1 and "-ppn" not in self._given and self.is_hydra
        per_host = ["-ppn", str(max(1, int(hosts[1]) // threads))] if has_slots else []
        if bind == "launcher":
            return per_host
        if self.is_hydra:
            return [*per_host, "-bind-to", f"core:{threads}" if bind == "core" else bind]
        if any(name in self._version for name in OPEN_MPI_NAMES):
            several = ["--map-by", f"slot:PE={threads}"] if bind == "core" and threads > 1 else []
            return ["--bind-to", bind, *several]
        raise UserError(
            f"parallel.bind: the options of '{self.text}' for binding are not known ({bind}); write them in the command "
            "of --launcher or of the profile, and remove parallel.bind"
        )

    @property
    def _jsrun_options(self) -> list[str]:
        """A resource set per GPU with the ranks that share it, or per rank without GPUs, and the binding. Raises UserError."""
        resources, bind, threads = RunResources(self.run), self.run.parallel.bind, self._threads
        each = self.run.parallel.ranks_per_gpu if resources.gpus else 1
        sets, rest = divmod(resources.processes, each)
        if given := sorted(JSRUN_OPTIONS[option] for option in JSRUN_OPTIONS if self._has(option)):
            raise UserError(
                f"'{self.text}': the resource sets come from the experiment ({', '.join(given)}); remove these options, and "
                "set parallel.ranks, parallel.threads_per_rank and parallel.gpus_per_rank"
            )
        if rest or (resources.gpus and sets != resources.gpus):
            raise UserError(
                f"parallel.ranks_per_gpu: jsrun needs equal resource sets, but {resources.processes} ranks share "
                f"{resources.gpus} GPUs; choose a divisor of parallel.ranks, and master_gpu: true"
            )
        if bind in ("socket", "numa"):
            raise UserError(
                f"parallel.bind: jsrun does not bind to a {bind}; set core or none, or remove the key"
            )
        gpus = "1" if resources.gpus else "0"
        options = ["-n", str(sets), "-a", str(each), "-c", str(each * threads), "-g", gpus]
        # By itself, jsrun binds a rank with all its threads to one core.
        own = any(self._has(option) for option in BINDING_OPTIONS)
        return options if own else [*options, "-b", "none" if bind == "none" else f"packed:{threads}"]

    def _has(self, option: str) -> bool:
        """Return True if the command has an option as `-n 3`, `-n3`, `--nrs 3` or `--nrs=3`."""
        names = {option, f"--{JSRUN_OPTIONS.get(option, '-')}"}
        short = self.is_jsrun and len(option) == 2
        return any(
            word.partition("=")[0] in names or (short and word[:2] == option and word[2:].isdigit())
            for word in self._given
        )

    @property
    def _threads(self) -> int:
        return self.run.parallel.threads_per_rank

    @cached_property
    def _given(self) -> list[str]:
        return shlex.split(self.text)

    @cached_property
    def _version(self) -> str:
        """What the launcher prints as its version, in lower case; empty without an answer."""
        done = _run([*self._given, "--version"], self.environment, VERSION_TIMEOUT_S)
        return done.stdout.lower() if done else ""


def _run(
    command: list[str], environment: Mapping[str, str], timeout: float
) -> "subprocess.CompletedProcess[str] | None":
    """Run a command; return None if it cannot be started or does not end in time."""
    try:
        return subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, timeout=timeout,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None


def rank_python(run: Run) -> list[str]:
    """Return the words that start the Python of a rank: this interpreter, or the one of the image."""
    # Not to import a file of the working directory that has the name of a package, such as torch.py.
    return [*_container_words(run), "python3"] if run.resources.container else [sys.executable, "-P"]


def check_container(run: Run, environment: Mapping[str, str]) -> None:
    """Start the container of a run once on this host, in the environment of the ranks. Raises UserError if that fails."""
    if not (words := _container_words(run)):
        return
    command = [*words, "python3", "-c", "import nnlo_lib"]
    done = _run(command, environment, IMAGE_START_TIMEOUT_S)
    if done and not done.returncode:
        return
    if done is None:
        fault = f"cannot be started on this host, or did not end in {IMAGE_START_TIMEOUT_S} s; load the module of {words[0]} before"
    else:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        fault = f"ended with status {done.returncode} ({last}); install nnlo in the image, with the versions of requirements.lock"
    raise UserError(
        f"resources.container: '{shlex.join(command)}' {fault}, or change the command; paths are relative to {Path.cwd()}"
    )


def _container_words(run: Run) -> list[str]:
    words = shlex.split(run.resources.container or "")
    return [expanded(resolve(word, "resources.container")) for word in words]
