"""Scripts that stand in for the commands of Slurm and LSF."""

import pytest


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Return a function that replaces a scheduler command by a script with given output and exit status."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name in ("scontrol", "sacct", "squeue", "bjobs"):  # commands of this machine must not answer
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)

    def answer(name, *lines, status=0):
        script = "".join(f"echo '{line}'\n" for line in lines)
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}exit {status}\n")
        (tmp_path / name).chmod(0o755)

    return answer
