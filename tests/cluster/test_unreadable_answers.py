"""An answer of a batch system that cannot be read is no refusal: the job is looked for before another is submitted."""

import pytest
from helpers.scripted_executor import ScriptedExecutor, ScriptedTask
from helpers.scripted_slurm import ScriptedSlurm

from nnlo_lib.batch.scheduler_query import scheduler_environment
from nnlo_lib.batch.slurm_queue import memory_per_node, submitted_number

LIMIT = 4000


@pytest.mark.parametrize("silent", [0, 100], ids=["answers at once", "silent for 100 s"])
@pytest.mark.parametrize("lost", [1, 5])
def test_a_job_in_the_queue_is_watched_and_not_submitted_again(tmp_path, monkeypatch, lost, silent):
    monkeypatch.chdir(tmp_path)
    slurm = ScriptedSlurm({"a": 500.0}, lost_answers=lost, silent_after_lost_answer=silent)
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([ScriptedTask("a", ("a/out",))], LIMIT)
    assert (executor.done, len(slurm.jobs)) == (["a"], 1)
    assert not any("was not submitted" in line for line in executor.lines)
    assert any(
        "job 1 (a) was submitted, although the answer did not say so" in line for line in executor.lines
    )


def test_an_unknown_refusal_ends_after_three_submissions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slurm = ScriptedSlurm({"a": 500.0})
    executor = ScriptedExecutor(slurm)
    submissions = []

    def refuse(task, status):
        submissions.append(slurm.now)
        raise ConnectionError("sbatch: error: the plugin of this site says no")

    monkeypatch.setattr(slurm, "submit", refuse)
    executor.run_until_done([ScriptedTask("a", ("a/out",))], LIMIT)
    assert executor.failed == ["a"]
    assert submissions[1] >= submissions[0] + 10
    assert submissions[2] >= submissions[1] + 20
    assert len(submissions) == 3


@pytest.mark.parametrize(
    "output",
    [
        "77\n",
        "77;cluster\n",
        "Project 4711: 1200 of 5000 used\n77\n",
        "77\nYour last job 900 used 12 core hours\n",
        "\n 77 \n",
    ],
)
def test_the_number_of_a_job_beside_a_notice_of_the_site(output):
    assert submitted_number(output) == "77"


@pytest.mark.parametrize("output", ["", "Submitted batch job 77", "Project 4711\n", "900\n77\n", "7.5\n"])
def test_a_number_that_may_be_another_is_not_taken(output):
    with pytest.raises(ValueError, match="no line with only the number"):
        submitted_number(output)


def test_variables_that_change_answers_do_not_reach_the_batch_system():
    given = {
        "SQUEUE_PARTITION": "other", "SQUEUE_FORMAT": "%i", "SQUEUE_ACCOUNT": "x", "SACCT_FORMAT": "x", "SCANCEL_STATE": "PENDING",
        "SLURM_TIME_FORMAT": "relative", "SBATCH_ARRAY_INX": "1-5", "SBATCH_WAIT": "1", "LSB_BJOBS_FORMAT": "jobid",
    }  # fmt: skip
    kept = {
        "SLURM_CONF": "/etc/slurm.conf",
        "SBATCH_ACCOUNT": "mine",
        "SBATCH_PARTITION": "low",
        "PATH": "/bin",
        "SLURM_JOB_ID": "7",
    }
    everywhere = {"SQUEUE_ALL": "1", "SINFO_ALL": "1", "SCONTROL_ALL": "1"}  # also hidden partitions
    assert scheduler_environment(given | kept) == kept | everywhere


def test_memory_of_a_job_on_several_nodes():
    assert [memory_per_node(8000, nodes) for nodes in (1, 2, 3)] == [8000, 4000, 2667]
