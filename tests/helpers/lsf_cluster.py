"""A stand-in for LSF: commands that run jobs on this machine and store their state in a folder."""

import os
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

from job import Job

from helpers.repository_copy import REPOSITORY, environment
from helpers.training_process import wait

STANDIN = REPOSITORY / "tests" / "lsf" / "stand_in"
TIMEOUT_S = 1200  # for a Snakemake with all its jobs, on a busy machine
FINAL = ("DONE", "EXIT")


@dataclass(frozen=True)
class Lsf:
    """Client of the stand-in; `folder` contains the state of the jobs."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of a user of this LSF."""
        search = os.pathsep.join([str(STANDIN), os.environ["PATH"]])
        return environment() | {"LSF_STANDIN": str(self.folder), "PATH": search, "LSB_DEFAULTPROJECT": "mine"}

    def start_snakemake(self, folder: Path, *options: str | Path) -> "subprocess.Popen[bytes]":
        """Start `snakemake --profile lsf` in a folder; its output goes to snakemake.log."""
        command = [Path(sys.executable).with_name("snakemake"), "--profile", "lsf", *options]
        with (folder / "snakemake.log").open("w") as log:
            return subprocess.Popen(command, cwd=folder, env=self.environment, stdout=log, stderr=log)

    def finish(self, process: "subprocess.Popen[bytes]") -> int:
        """Wait for the end of Snakemake and return its status; in any case leave neither Snakemake nor a job."""
        try:
            wait("Snakemake has ended", lambda: process.poll() is not None, seconds=TIMEOUT_S)
        finally:
            process.kill()
            for job in self.jobs(""):
                if job.state not in FINAL:
                    job.end("")
        return process.wait()

    def fail_query(self) -> None:
        """Let one of the next calls of bjobs fail."""
        folder = self.folder / "failing_queries"
        folder.mkdir(exist_ok=True)
        (folder / uuid.uuid4().hex).touch()

    @property
    def queries(self) -> int:
        """Number of calls of bjobs."""
        path = self.folder / "queries"
        return path.read_text().count("\n") if path.exists() else 0

    def jobs(self, name: str) -> list[Job]:
        """Return the jobs with `name` in their names, in the order of their submission."""
        jobs = [Job(path.parent) for path in sorted(self.folder.glob("[0-9]*/request.json"))]
        return [job for job in jobs if name in job.request["J"]]
