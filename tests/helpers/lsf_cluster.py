"""A stand-in for LSF: commands that run jobs on this machine and store their state in a folder."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from job import Job

from helpers.repository_copy import environment

STANDIN = Path(__file__).parents[1] / "lsf" / "stand_in"


@dataclass(frozen=True)
class Lsf:
    """Client of the stand-in; `folder` contains the state of the jobs."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of a user of this LSF."""
        search = os.pathsep.join([str(STANDIN), os.environ["PATH"]])
        return environment() | {"LSF_STANDIN": str(self.folder), "PATH": search, "LSB_DEFAULTPROJECT": "mine"}

    def run(self, *command: str) -> str:
        """Run an LSF command, assert success and return its standard output."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, command: str, *options: str) -> Job:
        """Submit a command as a job that writes its output to out.txt."""
        place = ["-cwd", str(self.folder), "-o", str(self.folder / "out.txt")]
        said = self.run("bsub", "-J", "job", *place, *options, command)
        return Job(self.folder / said.partition("<")[2].partition(">")[0])

    def refuse(self, job: str, times: int, text: str) -> None:
        """Let bsub refuse jobs.

        Args:
            job: part of the names of the jobs.
            times: number of refusals.
            text: what bsub prints.
        """
        path = self.folder / "refusals.json"
        planned = json.loads(path.read_text()) if path.exists() else []
        path.write_text(json.dumps([*planned, {"job": job, "times": times, "text": text}]))

    def fail_queries(self, times: int) -> None:
        """Let the next calls of bjobs fail."""
        (self.folder / "failing_queries").write_text(str(times))

    @property
    def queries(self) -> int:
        """Number of calls of bjobs."""
        path = self.folder / "queries"
        return path.read_text().count("\n") if path.exists() else 0

    def submissions(self, name: str) -> int:
        """Return how often a job with `name` in its name was handed to bsub, including refusals."""
        path = self.folder / "submissions"
        return sum(name in line for line in path.read_text().splitlines()) if path.exists() else 0

    def jobs(self, name: str) -> list[Job]:
        """Return the jobs with `name` in their request, in the order of their submission."""
        requests = sorted(self.folder.glob("[0-9]*/request"))
        return [Job(request.parent) for request in requests if name in request.read_text()]
