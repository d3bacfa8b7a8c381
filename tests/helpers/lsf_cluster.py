"""A stand-in for LSF: commands that run jobs on this machine and store their state in a folder."""

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
            command, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, command: str, *options: str) -> Job:
        """Submit a command as a job that writes its output to out.txt."""
        place = ["-cwd", str(self.folder), "-o", str(self.folder / "out.txt")]
        said = self.run("bsub", "-J", "job", *place, *options, command)
        return Job(self.folder / said.partition("<")[2].partition(">")[0])

    def jobs(self, name: str) -> list[Job]:
        """Return the jobs with `name` in their request, in the order of their submission."""
        requests = sorted(self.folder.glob("[0-9]*/request"))
        return [Job(request.parent) for request in requests if name in request.read_text()]
