"""A temporary Slurm cluster on this machine, in one folder: three nodes, accounting, preemption.

with cluster(folder) as slurm: subprocess.run(["sbatch", ...], env=slurm.environment)
"""

import contextlib
import getpass
import os
import random
import secrets
import shutil
import socket
import string
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from helpers.slurm_clients import write_clients
from helpers.slurm_options import ClusterOptions

PROGRAMS = [
    "munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "sbatch", "sacctmgr",
]  # fmt: skip
# A socket's path has at most 107 bytes; slurmstepd's are <folder>/spool.n1/n1_<job>.<step>, with long numbers of steps.
MAX_FOLDER_LENGTH = 107 - len("/spool.n1/n1_999.4294967294")
NODES = ("n1", "n2", "n3")
MARK = "NNLO_SLURM_CLUSTER"  # environment variable by which stop() finds the cluster's daemons
SEARCH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])

TEMPLATES = Path(__file__).parents[1] / "slurm" / "templates"


@dataclass(frozen=True)
class Slurm:
    """Client of a running cluster; `folder` contains its configuration, logs and state."""

    folder: Path
    options: ClusterOptions = field(default_factory=ClusterOptions)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which Slurm commands use this cluster and no other."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_", "SRUN_"))}
        path = f"{self.folder / 'bin'}{os.pathsep}{SEARCH}"
        return clean | {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": path}

    def run(self, *command: str, timeout: float = 300) -> str:
        """Return the standard output of a command. Raises RuntimeError with the command's output if it fails."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} exited {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def succeeds(self, *command: str) -> bool:
        """Return True if a command exits with status 0; its output is written to the log with its name."""
        with (self.folder / "log" / command[0]).open("wb") as log:
            return not subprocess.run(
                command, env=self.environment, stdout=log, stderr=log, timeout=300
            ).returncode

    def idle(self) -> bool:
        """Return True if all nodes are idle."""
        states = self.run("sinfo", "-h", "-N", "-p", self.options.low, "-o", "%T").split()
        return states == ["idle"] * len(NODES)

    def wait(self, what: str, condition: Callable[[], bool], seconds: float = 600) -> None:
        """Poll until the condition holds; raise TimeoutError with its description and the daemons' logs if it does not."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {seconds:g} s\n{self.last_words()}")
            time.sleep(0.1)

    def last_words(self) -> str:
        """Return the tail of each daemon's log."""
        logs = {log.name: log.read_text(errors="replace") for log in sorted((self.folder / "log").glob("*"))}
        return "\n".join(f"--- {name}\n{text[-1500:]}" for name, text in logs.items())


@contextlib.contextmanager
def cluster(folder: Path, options: ClusterOptions | None = None) -> Iterator[Slurm]:
    """Start a cluster in an empty folder; stop it on exit, also after an exception."""
    slurm = start(folder, options)
    try:
        yield slurm
    finally:
        stop(folder)


def missing() -> list[str]:
    """Return the required programs that are not installed on this machine."""
    return [program for program in PROGRAMS if not shutil.which(program, path=SEARCH)]


def start(folder: Path, options: ClusterOptions | None = None) -> Slurm:
    """Start the daemons in the order of their dependencies; stop all daemons if one fails to start."""
    slurm = Slurm(folder.resolve(), options or ClusterOptions())
    _prepare(slurm)
    try:
        _start_munged(slurm)
        if slurm.options.accounting:
            _start_accounting(slurm)
        _start_nodes(slurm)
    except BaseException:
        stop(folder)
        raise
    return slurm


def stop(folder: Path) -> None:
    """Kill all daemons and jobs; a temporary cluster needs no orderly shutdown."""
    slurm = Slurm(folder.resolve())

    def nothing_runs() -> bool:
        _kill(processes := _processes(slurm))
        return not processes

    slurm.wait("nothing runs any more", nothing_runs)


def _prepare(slurm: Slurm) -> None:
    """Create the folder: configuration with free ports, key, stand-in GPUs, folders of the daemons."""
    folder = slurm.folder
    if folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: a cluster wants a folder of its own")
    if len(str(folder)) > MAX_FOLDER_LENGTH:
        raise ValueError(f"{folder} is too long for the sockets of slurmstepd; use a shorter path")
    for name in ("bin", "log", "state", "mysql.tmp", *(f"spool.{node}" for node in NODES)):
        (folder / name).mkdir(parents=True)
    for name in ("gpu0", "gpu1"):
        (folder / name).touch()
    write_clients(folder, SEARCH)
    _write_private(folder / "munge.key", secrets.token_bytes(128))
    ports = _free_ports("slurmctld", "slurmdbd", *NODES)
    names = {"folder": folder, "host": socket.gethostname().split(".")[0], "user": getpass.getuser()}
    names |= ports | slurm.options.template_values(folder, ports["slurmdbd_port"])
    for template in TEMPLATES.glob("*.conf.in"):
        text = string.Template(template.read_text()).substitute(names)
        _write_private(folder / template.stem, text.encode())


def _start_munged(slurm: Slurm) -> None:
    folder = slurm.folder
    _spawn(slurm, "munged", "--foreground", "--force", f"--key-file={folder}/munge.key",
           f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid",
           f"--log-file={folder}/log/munged", f"--seed-file={folder}/munge.seed")  # fmt: skip
    slurm.wait("munged answers", lambda: slurm.succeeds("munge", "-n", f"--socket={folder}/munge.socket"))


def _start_accounting(slurm: Slurm) -> None:
    """Start MariaDB and slurmdbd; create the accounts to which jobs are charged."""
    folder, user = slurm.folder, getpass.getuser()
    data, door = f"--datadir={folder}/mysql", f"--socket={folder}/mysql.socket"
    install = _spawn(slurm, "mariadb-install-db", "--no-defaults", data, f"--user={user}", "--skip-test-db",
                     f"--auth-root-socket-user={user}", "--auth-root-authentication-method=socket")  # fmt: skip
    slurm.wait("an empty database is made", lambda: install.poll() == 0)
    _spawn(slurm, "mariadbd", "--no-defaults", data, door, f"--user={user}", "--skip-networking",
           f"--pid-file={folder}/mariadbd.pid", "--innodb-flush-log-at-trx-commit=0")  # fmt: skip
    slurm.wait("MariaDB answers", lambda: slurm.succeeds("mariadb-admin", "--no-defaults", door, "ping"))
    _spawn(slurm, "slurmdbd", "-D")
    slurm.wait("slurmdbd answers", lambda: slurm.succeeds("sacctmgr", "-n", "list", "cluster"))
    for what in _accounts(slurm.options, user):
        slurm.run("sacctmgr", "-i", "add", *what)
    # The account of the same name stays the default of the user root, unless another one is set.
    slurm.run("sacctmgr", "-i", "modify", "user", user, "set", f"defaultaccount={slurm.options.account}")


def _accounts(options: ClusterOptions, user: str) -> list[list[str]]:
    """Return what is added to the database: the cluster, the user's account, and one with a limit of jobs."""
    added = [["cluster", "nnlo"], ["account", options.account], ["user", user, f"account={options.account}"]]
    if limit := options.max_submit_jobs:
        added += [
            ["qos", "limited", f"MaxSubmitJobsPerUser={limit}"],
            ["account", "limited"],
            ["user", user, "account=limited", "qos=limited", "defaultqos=limited"],
        ]
    return added


def _start_nodes(slurm: Slurm) -> None:
    """Start the controller and the nodes."""
    start_controller(slurm)
    for node in NODES:
        start_node(slurm, node)
    slurm.wait("all nodes are idle", slurm.idle)


def start_controller(slurm: Slurm) -> None:
    """Start slurmctld, which resumes from the state that an earlier slurmctld saved."""
    _spawn(slurm, "slurmctld", "-D")
    slurm.wait("slurmctld answers", lambda: slurm.succeeds("scontrol", "ping"))


def start_node(slurm: Slurm, node: str) -> None:
    """Start the slurmd of a node."""
    _spawn(slurm, "slurmd", "-D", "-N", node, log=f"slurmd.{node}")


def kill_controller(slurm: Slurm) -> None:
    """Kill slurmctld."""
    _kill_if(slurm, lambda process: process.name() == "slurmctld")


def kill_slurmd(slurm: Slurm, node: str) -> None:
    """Kill the slurmd of a node; the processes that it started keep running."""
    _kill_if(slurm, lambda process: process.cmdline()[-2:] == ["-N", node])


def kill_node(slurm: Slurm, node: str) -> None:
    """Kill all processes of a node, as in a power failure."""
    kill_slurmd(slurm, node)
    steps: set[psutil.Process] = set()
    children: list[psutil.Process] = []
    for task in _processes(slurm):
        if _environ(task).get("SLURMD_NODENAME") == node:
            with contextlib.suppress(psutil.NoSuchProcess):  # ended since it was listed
                steps |= {parent for parent in task.parents() if parent.name().startswith("slurmstepd")}
    for step in steps:
        with contextlib.suppress(psutil.NoSuchProcess):
            children += step.children(recursive=True)
    _kill([*steps, *children])  # the steps first, or they report the end of their tasks


def _kill_if(slurm: Slurm, condition: Callable[[psutil.Process], bool]) -> None:
    for process in _processes(slurm):
        with contextlib.suppress(psutil.NoSuchProcess):
            if condition(process):
                _kill([process])


def _spawn(slurm: Slurm, program: str, *arguments: str, log: str = "") -> subprocess.Popen[bytes]:
    """Start a daemon with MARK in its environment, in a separate session so that Ctrl-C does not reach it."""
    command = [shutil.which(program, path=SEARCH) or program, *arguments]
    marks = {MARK: str(slurm.folder), "MYSQL_UNIX_PORT": str(slurm.folder / "mysql.socket")}
    # In /tmp, the temporary tables of two databases that are made at once have the same names.
    marks |= {"TMPDIR": str(slurm.folder / "mysql.tmp")} if program.startswith("mariadb") else {}
    with (slurm.folder / "log" / (log or program)).open("ab") as out:
        return subprocess.Popen(
            command, env=slurm.environment | marks, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip


def _kill(processes: list[psutil.Process]) -> None:
    """Kill processes in order; wait up to 5 s for their ends."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=5)


def _processes(slurm: Slurm) -> list[psutil.Process]:
    """Return the cluster's daemons and job steps, found by MARK, and its jobs, found by their PATH."""
    return [process for process in psutil.process_iter() if _belongs(_environ(process), slurm.folder)]


def _belongs(environ: dict[str, str], folder: Path) -> bool:
    path = environ.get("PATH", "").split(os.pathsep)
    return environ.get(MARK) == str(folder) or ("SLURM_JOB_ID" in environ and str(folder / "bin") in path)


def _environ(process: psutil.Process) -> dict[str, str]:
    """Return the environment of a process from its raw block.

    slurmstepd leaves a gap in the block when it renames itself, and psutil stops at this gap.
    """
    try:
        block = Path(f"/proc/{process.pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in block.split("\0") if "=" in entry)


def _free_ports(*names: str) -> dict[str, int]:
    """Return free ports below the range that the kernel assigns to outgoing connections.

    Another process, for example an MPI rank, could take a port of that range before the daemon starts.
    """
    lent = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    draws = random.SystemRandom().sample(range(10_000, max(lent, 20_000)), 1000)
    return {f"{name}_port": port for name, port in zip(names, filter(_is_free, draws), strict=False)}


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, as munged and slurmdbd require."""
    path.touch(mode=0o600)
    path.write_bytes(content)
