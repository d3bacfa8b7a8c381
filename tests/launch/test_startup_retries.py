"""The launcher restarts ranks a few times if MPI fails to connect them, and gives up on starts that hang."""

import pytest
from helpers.training_process import processes_of
from helpers.training_process import started as training

from nnlo_lib.state.attempts import read_attempts

FAILS = """#!/bin/sh
echo try >> tries
[ "$(grep -c try tries)" -gt {times} ] && exec mpiexec "$@"
exit 15
"""

HANGS_ONCE = """#!/bin/sh
echo try >> tries
[ "$(grep -c try tries)" -gt 1 ] && exec mpiexec "$@"
shift 2
exec mpiexec -n 1 false : -n 1 "$@"
"""


def launcher(folder, text):
    path = folder / "launcher"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize(("times", "reason"), [(2, "finished"), (9, "killed")])
def test_ranks_that_do_not_come_up_are_started_again(tmp_path, times, reason):
    run = training(tmp_path)
    fails = launcher(tmp_path, FAILS.format(times=times))
    said = run.finish("--launcher", fails, expect=int(reason != "finished"))
    assert said.count("restarting all ranks") == 2
    assert (tmp_path / "tries").read_text().count("try") == 3
    assert [attempt.reason for attempt in read_attempts(run.job / "state")] == [reason]


@pytest.mark.slow
def test_a_start_that_hangs_is_given_up_and_tried_again(tmp_path):
    """MPI waits forever for a rank that exits before it is connected."""
    run = training(tmp_path, parallel={"peer_timeout": 15})
    said = run.finish("--launcher", launcher(tmp_path, HANGS_ONCE))
    assert said.count("restarting all ranks") == 1
    assert [attempt.reason for attempt in read_attempts(run.job / "state")] == ["finished"]
    assert processes_of(tmp_path) == []
