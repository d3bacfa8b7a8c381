"""Ranks that MPI fails to connect are started again, a few times."""

import pytest
from training import training

from nnlo_lib.state.attempts import read

FAILS = """#!/bin/sh
echo try >> tries
[ "$(grep -c try tries)" -gt {times} ] && exec mpiexec "$@"
exit 15
"""


@pytest.mark.parametrize(("times", "reason"), [(2, "finished"), (9, "killed")])
def test_ranks_that_do_not_come_up_are_started_again(tmp_path, times, reason):
    run = training(tmp_path)
    launcher = tmp_path / "fails"
    launcher.write_text(FAILS.format(times=times))
    launcher.chmod(0o755)
    said = run.finish("--launcher", str(launcher), expect=int(reason != "finished"))
    assert said.count("starting them again") == 2
    assert (tmp_path / "tries").read_text().count("try") == 3
    assert [attempt.reason for attempt in read(run.job / "state")] == [reason]
