"""`nnlo doctor`: what this machine and the site's Slurm or LSF offer to trainings, each finding with what to write where."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from packaging.requirements import Requirement

from nnlo_lib.batch.job_states import Fate, JobReport
from nnlo_lib.batch.lsf_queue import LsfQueue
from nnlo_lib.batch.scheduler_query import Command, run_command
from nnlo_lib.batch.slurm_queue import SlurmQueue, refused_requests, submitted_number
from nnlo_lib.batch.surroundings import variables_that_change_jobs
from nnlo_lib.cluster.submission import read_profile
from nnlo_lib.config.parallel import ParallelConfig, ResourcesConfig
from nnlo_lib.core.atomic_file import fsync_folder
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_lock import try_lock
from nnlo_lib.core.installation import MPI_REMEDY, PROFILES, __version__
from nnlo_lib.core.text_format import duration_text, size_text
from nnlo_lib.launch.launcher import rank_environment
from nnlo_lib.reliability.findings import Finding, failed, note, ok

PROFILE = Path("slurm/config.yaml")  # of the working directory, which Snakemake reads first
MPI_TIMEOUT_S = 60.0  # start of two ranks on a busy machine
JOB_TIMEOUT_S = 600.0  # pending and running time of the test job
JOB_POLL_S = 2.0
JOB_MINUTES = 2
MAX_SKEW_S = 2.0  # of the clocks of this host and of the file server
MIN_FREE_BYTES = 1_000_000_000
LOCAL_FILE_SYSTEMS = ("btrfs", "ext3", "ext4", "overlay", "ramfs", "tmpfs", "xfs", "zfs")
# Rank 0 of one MPI knows both hosts; a launcher of another MPI starts two programs of one rank each. One write, because
# the pieces of a print could be mixed with those of the other rank.
RANK_PROGRAM = (
    "import os; from mpi4py import MPI; hosts = MPI.COMM_WORLD.gather(MPI.Get_processor_name()); "
    "version = ' '.join(MPI.Get_library_version().splitlines()[0].split()); "
    "hosts and os.write(1, f'{len(hosts)} ranks on {\", \".join(sorted(set(hosts)))} | {version}\\n'.encode())"
)
# Starts the ranks in the environment of a training's ranks.
START_PROGRAM = (
    "import os, sys; from nnlo_lib.config.parallel import ParallelConfig; from nnlo_lib.launch.launcher import rank_environment; "
    "os.execvpe(sys.argv[1], sys.argv[1:], rank_environment(ParallelConfig()))"
)


def print_findings(launcher: str, profile: str | None, with_job: bool) -> int:
    """Print a line for each finding as it is made; return 1 if something prevents trainings, else 0."""
    if with_job and profile != "slurm":
        raise UserError("--job: is a job of Slurm; add --profile slurm")
    count = 0
    for finding in check_site(launcher, profile, with_job):
        print(finding, flush=True)
        count += finding.status == "FAILED"
    print(f"{count} of these prevent trainings" if count else "nothing found that prevents trainings")
    return int(count > 0)


def check_site(launcher: str, profile: str | None, with_job: bool) -> Iterator[Finding]:
    """Yield what this machine offers, and with a profile what its batch system offers."""
    yield from check_packages()
    yield check_mpi(launcher)
    yield from check_folder(Path.cwd(), is_shared=profile is not None)
    yield check_gpus()
    if profile == "slurm":
        yield from check_slurm()
        if with_job:
            yield run_test_job(Path.cwd())
    elif profile == "lsf":
        yield check_lsf()


def check_packages() -> Iterator[Finding]:
    """Yield the versions, and the packages that are missing or too old."""
    try:
        required = [Requirement(text) for text in distribution("nnlo").requires or ()]
    except PackageNotFoundError:
        required = []
    found: dict[str, str] = {}
    for each in required:
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            with suppress(PackageNotFoundError):
                found[each.name] = version(each.name)
            if not each.specifier.contains(found.get(each.name, "0"), prereleases=True):
                yield failed(
                    f"package {each.name}: {found.get(each.name, 'missing')}, needs {each.specifier}; pip install '{each}'"
                )
    shown = ", ".join(f"{name} {found[name]}" for name in ("torch", "mpi4py", "snakemake") if name in found)
    yield ok(f"nnlo {__version__}, Python {sys.version.split()[0]} in {sys.prefix}; {shown}")


def check_mpi(launcher: str) -> Finding:
    """Start two ranks that add a number."""
    command = [*shlex.split(launcher), "-n", "2", sys.executable, "-c", RANK_PROGRAM]
    advice = f"{MPI_REMEDY}; `--launcher 'COMMAND'`, or `mpi:` in the profile, names the launcher of the MPI of mpi4py"
    try:
        done = subprocess.run(
            command, env=rank_environment(ParallelConfig()), capture_output=True, text=True, timeout=MPI_TIMEOUT_S,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return failed(f"MPI: {launcher} cannot be started ({error}); see docs/guides/faults.md, or {advice}")
    return _judge_ranks(f"MPI: {launcher}", done.stdout, done.stderr, done.returncode, advice)


def _judge_ranks(where: str, output: str, errors: str, status: int, advice: str) -> Finding:
    """Return the finding of two ranks that ran RANK_PROGRAM."""
    found = re.findall(r"(\d+) ranks on (.+) \| (.+)", output)
    if status == 0 and [count for count, _, _ in found] == ["2"]:
        return ok(f"{where} starts 2 ranks on {found[0][1]} ({found[0][2]})")
    if len(found) > 1:
        return failed(f"{where} is of another MPI: each of {len(found)} ranks is alone; {advice}")
    lines = (errors + output).strip().splitlines() or ["no output"]
    cause = next((line for line in lines if "error" in line.lower()), lines[-1])
    return failed(f"{where} did not start 2 ranks (status {status}: {cause.strip()}); {advice}")


def check_folder(folder: Path, is_shared: bool) -> Iterator[Finding]:
    """Yield what the file system of the working directory can do."""
    kind = file_system_type(folder)
    try:
        with tempfile.TemporaryDirectory(prefix=".nnlo-doctor-", dir=folder) as part:
            yield from _try_file_system(Path(part), f"{folder} ({kind})")
    except OSError as error:
        yield failed(f"{folder}: cannot be written ({error.strerror}); work in another folder")
        return
    if (free := shutil.disk_usage(folder).free) < MIN_FREE_BYTES:
        yield note(f"{folder}: {size_text(free)} free; checkpoints need space, see checkpoint.keep")
    if is_shared and kind in LOCAL_FILE_SYSTEMS:
        yield note(
            f"{folder}: {kind} is a file system of one host, which compute nodes do not see; work in a shared folder. "
            "`--job` shows whether a job sees this one"
        )


def file_system_type(folder: Path) -> str:
    """Return the type of a folder's file system, such as `nfs4`; `unknown` if the kernel does not list it."""
    mounts: list[list[str]] = []
    with suppress(OSError):
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    above = {str(each) for each in (folder.resolve(), *folder.resolve().parents)}
    found = [(len(words[1]), words[2]) for words in mounts if len(words) > 2 and words[1] in above]
    return max(found, default=(0, "unknown"))[1]


def _try_file_system(folder: Path, where: str) -> Iterator[Finding]:
    before, first, second = time.time(), folder / "first", folder / "second"
    with first.open("w") as file:
        file.write("x")
        file.flush()
        started = time.monotonic()
        os.fsync(file.fileno())
    fsync_folder(folder)
    flushed = time.monotonic() - started
    skew = first.stat().st_mtime - (before + time.time()) / 2
    first.rename(second)
    if first.exists() or not second.exists():
        yield failed(
            f"{where}: a renamed file keeps its old name; results need atomic renames: use another file system"
        )
    try:
        with second.open("r+b") as one, second.open("r+b") as other:
            excludes = try_lock(one, second) and not try_lock(other, second)
        if not excludes:
            yield failed(
                f"{where}: two processes get the same lock, so that conversions can write at once; ask for the mount option flock"
            )
    except UserError as error:
        yield failed(str(error))
    if abs(skew) > MAX_SKEW_S:
        yield note(
            f"{where}: the clock of the file server is {duration_text(abs(skew))} {'ahead of' if skew > 0 else 'behind'} this host; "
            "trainings tolerate it, but Snakemake compares times of files: ask for a time service (NTP)"
        )
    yield ok(f"{where}: fsync {1000 * flushed:.1f} ms, rename, locks and clock tried")


def check_gpus() -> Finding:
    """Return the GPUs that torch sees here."""
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        return ok(f"GPUs: torch {torch.__version__} sees {len(names)}: {', '.join(dict.fromkeys(names))}")
    listed = run_command("nvidia-smi", "-L")
    if listed and "GPU 0" in listed.stdout:
        return failed(
            f"GPUs: this host has {len(listed.stdout.splitlines())}, but torch {torch.__version__} sees none; install a torch "
            "for the CUDA of its driver (pytorch.org), and check CUDA_VISIBLE_DEVICES"
        )
    return note("GPUs: none on this host; set parallel.gpus_per_rank for jobs of nodes with GPUs")


def check_slurm(run: Command = run_command, environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Yield what the Slurm of this site offers."""
    shown = run("scontrol", "show", "config")
    if shown is None or shown.returncode:
        said = shown.stderr.strip() if shown else "no answer"
        yield failed(
            f"Slurm: scontrol show config: {said}; log in to a host of the cluster, or ask whether slurmctld runs"
        )
        return
    pairs = (line.partition("=") for line in shown.stdout.splitlines())
    config = {name.strip(): value.strip() for name, _, value in pairs}
    yield ok(
        f"Slurm {config.get('SLURM_VERSION', 'of unknown version')}, cluster {config.get('ClusterName', 'unknown')}"
    )
    accounting = config.get("AccountingStorageType", "")
    if accounting.endswith(("none", "(null)")) or not accounting:
        yield note(
            "accounting: none; after a kill, nnlo reads memory and node failures from slurmctld, as long as it remembers the job "
            f"(MinJobAge {config.get('MinJobAge', 'unknown')})"
        )
    else:
        yield ok(f"accounting: {accounting}")
    yield _check_pmi(run)
    if config.get("JobRequeue") == "0":
        yield note(
            "requeue: JobRequeue=0; keep `nnlo-slurm-requeue: true` in the profile, with which each job asks for it"
        )
    if variables := variables_that_change_jobs(environment):
        listed = ", ".join(f"{name}={value}" for name, value in variables.items())
        yield note(
            f"variables of the environment that change each job: {listed}; unset what is not meant for it"
        )
    request = f"sbatch --ntasks=2 --cpus-per-task=1 --mem=500 --time={ResourcesConfig().runtime}"
    for command, name, refused in ((request, "two ranks", failed), (f"{request} --gpus=1", "a GPU", note)):
        unclear: list[str] = []
        problems = refused_requests({command: f"a job with {name}"}, unclear.append, run)
        yield (
            note(unclear[0])
            if unclear
            else refused(problems[0])
            if problems
            else ok(f"Slurm accepts a job with {name}")
        )


def _configured_launcher() -> str:
    """Return the command of the profile that starts several ranks."""
    path = PROFILE if PROFILE.exists() else PROFILES / "slurm" / "config.yaml"
    resources = read_profile(path).get("set-resources") or {}
    return str((resources.get("train") or {}).get("mpi", "srun"))


def _check_pmi(run: Command) -> Finding:
    listed, launcher = run("srun", "--mpi=list"), _configured_launcher()
    text = listed.stdout + listed.stderr if listed else ""
    wanted = (re.search(r"--mpi=(\S+)", launcher) or [None, ""])[1]
    known = list(dict.fromkeys(re.findall(r"\b(?:pmi2|pmix\w*|cray_shasta|none|openmpi)\b", text)))
    if not wanted or wanted in known:
        return ok(f"PMI: {wanted or launcher}; srun knows {', '.join(known)}")
    return failed(
        f"PMI: srun knows {', '.join(known) or 'no MPI plugins'}, not {wanted}; write another `mpi:` of the rule train in "
        f'{PROFILE}, such as "srun --mpi={next((name for name in known if name.startswith("pmi")), "pmix")} --kill-on-bad-exit=1", '
        "and an mpi4py built for it"
    )


def check_lsf() -> Finding:
    """Return the queues of LSF."""
    if queues := LsfQueue().known_queues():
        return ok(f"LSF queues {queues}; `nnlo check FILE --profile lsf` prints what jobs ask for")
    return failed(
        "LSF: bqueues gives no answer; log in to a host of the cluster, or ask whether mbatchd runs"
    )


def run_test_job(
    folder: Path, run: Command = run_command, sleep: Callable[[float], None] = time.sleep
) -> Finding:
    """Submit a job of two ranks, wait for its end, and return whether the ranks met and this host sees their output."""
    launcher = _configured_launcher()
    with tempfile.TemporaryDirectory(prefix=".nnlo-doctor-", dir=folder) as part:
        output = Path(part) / "ranks.txt"
        command = [sys.executable, "-c", START_PROGRAM, *shlex.split(launcher), "-n", "2"]
        ranks = shlex.join([*command, sys.executable, "-c", RANK_PROGRAM])
        answer = run(
            "sbatch", "--parsable", "--ntasks=2", f"--time={JOB_MINUTES}", "--job-name=nnlo-doctor", f"--chdir={folder}",
            f"--output={output}", f"--wrap={ranks}",
        )  # fmt: skip
        if answer is None or answer.returncode:
            said = (answer.stderr.strip().splitlines() or ["no message"])[-1] if answer else "no answer"
            return failed(
                f"job: sbatch refused it: {said}; export SBATCH_ACCOUNT and SBATCH_PARTITION, or see docs/start/cluster.md"
            )
        number, queue = submitted_number(answer.stdout), SlurmQueue(run)
        try:
            for _ in range(int(JOB_TIMEOUT_S / JOB_POLL_S)):
                report = queue.look([number]).jobs.get(number, JobReport(Fate.PENDING, "unknown"))
                if not report.fate.is_active:
                    break
                sleep(JOB_POLL_S)
            else:
                return note(
                    f"job {number}: {report.state} ({report.reason}) for {JOB_TIMEOUT_S:g} s; canceled, try --job again later"
                )
        finally:
            queue.cancel(number)
        if not output.exists():
            return failed(
                f"job {number}: {report.state}, but {folder} lacks its output; work in a folder that all nodes share"
            )
        advice = f"write another `mpi:` of the rule train in {PROFILE}; see docs/start/cluster.md"
        return _judge_ranks(f"job {number}: {launcher}", output.read_text(), "", 0, advice)
