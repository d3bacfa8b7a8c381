"""Wrappers of Slurm's commands that count their calls and fail on request; files in the working directory of a call
select the calls that fail, so that a test does not disturb another one in the same cluster.
"""

import shutil
from pathlib import Path

CLIENTS = ("sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun", "sshare")
# In the working directory: <client>/<number>, each the error of one call.
FAILURES = Path("failures-of-slurm")
ERRORS = {
    "sbatch": "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
    "squeue": "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
}
# SLURM_CONF is set here because Snakemake removes it from its jobs. Calls inside of jobs do not fail. The unlink of a
# file succeeds for one of several processes, so each file fails exactly one call. `sbatch --test-only` is no submission.
WRAPPER = """#!/bin/sh
case " $* " in *" --test-only "*) SLURM_CONF="{folder}/slurm.conf" exec {real} "$@" ;; esac
echo "{name} $PWD" >> "{folder}/calls"
if [ -z "$SLURM_JOB_ID" ]; then
    for failure in {failures}/{name}/*; do
        message=$(cat "$failure" 2>/dev/null)
        if rm "$failure" 2>/dev/null; then echo "$message" >&2; exit 1; fi
    done
fi
SLURM_CONF="{folder}/slurm.conf" exec {real} "$@"
"""


def write_clients(folder: Path, search: str) -> None:
    """Write the wrappers to `bin` of a cluster's folder; `search` is the search path of the commands themselves."""
    for name in CLIENTS:
        client, real = folder / "bin" / name, shutil.which(name, path=search) or name
        client.write_text(WRAPPER.format(name=name, folder=folder, failures=FAILURES, real=real))
        client.chmod(0o755)


def fail_calls(directory: Path, client: str, times: int) -> None:
    """Make the next calls of a client from a working directory, outside of jobs, fail without an effect."""
    folder = directory / FAILURES / client
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(times):
        draft = folder.parent / f"{client}.{number}"
        draft.write_text(ERRORS[client])
        draft.rename(folder / str(number))


def failures_left(directory: Path, client: str) -> int:
    """Return the number of calls that have yet to fail."""
    return len(list((directory / FAILURES / client).glob("*")))


def calls(folder: Path, client: str, directory: Path) -> int:
    """Return the number of calls of a client from a working directory on the cluster of a folder."""
    path = folder / "calls"
    return path.read_text().splitlines().count(f"{client} {directory}") if path.exists() else 0
