"""What Slurm would refuse, in the words of `sbatch --test-only` of Slurm 22.05; requests that it gets; numbers in its answers."""

import shlex
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from nnlo_lib.batch.scheduler_query import scheduler_environment
from nnlo_lib.batch.slurm_queue import memory_per_node, refused_requests, submitted_number
from nnlo_lib.config import Experiment
from snakemake_executor_plugin_nnlo_slurm import planned_requests

ROOT = Path(__file__).parents[2]
STARTS = "sbatch: Job 13 to start at 2026-11-25T19:14:11 using 1 processors on nodes n1 in partition batch\n"
FAILED = "allocation failure: "
# Words, and what to set; tests/batch/test_refusals.py has each mistake.
REFUSED = {
    f"sbatch: error: invalid partition specified: nowhere\n{FAILED}Invalid partition name specified\n": "resources.partition",
    f"{FAILED}More processors requested than permitted\n": "resources.nodes or parallel",
    # No remedy of ours: the scheduler's words alone.
    f"{FAILED}Required partition not available (inactive or drain)\n": "Required partition not available",
}
UNCLEAR = [
    f"{FAILED}Unable to contact slurm controller (connect failure)\n",
    f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{FAILED}Job violates accounting/QOS policy (job submit limit, ...)\n",
    "sbatch: fatal: Could not establish a configuration source\n",
    "sh: 1: sbatch: not found\n",
    None,
]


class Sbatch:
    """Stand-in for the shell that runs sbatch: it refuses the requests of partition `odd` with given words."""

    def __init__(self, words):
        self.words, self.asked = words, []

    def __call__(self, *command):
        shell, option, text = command
        assert (shell, option) == ("sh", "-c")
        assert shlex.split(text)[-2:] == ["--test-only", "--wrap=true"]
        self.asked.append(text)
        if "-p odd" in text:
            return None if self.words is None else CompletedProcess(command, 1, "", self.words)
        return CompletedProcess(command, 0, "", STARTS)


def refused(words, requests):
    warnings, sbatch = [], Sbatch(words)
    return refused_requests(requests, warnings.append, sbatch), warnings, sbatch.asked


@pytest.mark.parametrize(("words", "remedy"), REFUSED.items())
def test_a_refusal_has_the_words_of_slurm_and_a_remedy(words, remedy):
    requests = {"sbatch -p batch": "run a", "sbatch -p odd": "run b", "sbatch -p odd -t 9": "run c"}
    found, warnings, asked = refused(words, requests)
    assert (len(found), warnings, len(asked)) == (1, [], 3)
    assert found[0].startswith("run b, run c: ")
    assert remedy in found[0]
    assert words.splitlines()[-1].removeprefix(FAILED).removeprefix("sbatch: error: ") in found[0]


@pytest.mark.parametrize("words", [*REFUSED, "sbatch: error: Invalid --signal specification\n"])
def test_a_variable_of_the_environment_is_named_if_slurm_accepts_the_job_without_it(words, monkeypatch):
    monkeypatch.setenv("SBATCH_QOS", "good")
    monkeypatch.setenv("SBATCH_SIGNAL", "x")
    monkeypatch.setenv("SBATCH_PARTITION", "p")
    asked = []

    def sbatch(*command):
        asked.append(command)
        accepted = command[:3] == ("env", "-u", "SBATCH_SIGNAL")
        return CompletedProcess(command, 0 if accepted else 1, "", STARTS if accepted else words)

    (found,) = refused_requests({"sbatch -n2": "run a"}, [].append, sbatch)
    assert found.startswith(
        "run a: SBATCH_SIGNAL=x of the environment does not go together with what each job asks ("
    )
    assert words.splitlines()[0].removeprefix("sbatch: error: ") in found
    assert found.endswith("; unset SBATCH_SIGNAL")
    assert asked[-1] == ("env", "-u", "SBATCH_SIGNAL", "sh", "-c", "sbatch -n2 --test-only --wrap=true")
    assert len(asked) == 3


@pytest.mark.parametrize("words", UNCLEAR)
def test_nothing_is_refused_if_slurm_gives_no_answer(words):
    requests = {"sbatch -p batch": "run a"} | {f"sbatch -p odd -t {n}": f"run {n}" for n in range(3)}
    found, warnings, asked = refused(words, requests)
    assert (found, len(warnings), len(asked)) == (None, 1, 4)
    # One answer is waited for, not one for each request.
    assert len(refused(None, {f"sbatch -p odd -t {n}": "run" for n in range(3)})[2]) == 1


def test_accepted_requests():
    assert refused("", {"sbatch -p hidden": "run a"})[:2] == ([], [])
    assert refused("", {})[:2] == ([], [])


@pytest.fixture
def requests(tmp_path, monkeypatch):
    """Return a function that returns the planned requests of an experiment, with changes of the profile of the clone."""
    monkeypatch.chdir(tmp_path)
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())
    (tmp_path / "slurm").mkdir()

    def planned(settings, **changes):
        (tmp_path / "slurm/config.yaml").write_text(yaml.safe_dump(profile | changes))
        return {
            name: command for command, name in planned_requests(Experiment.model_validate(settings)).items()
        }

    return planned


TWO_NODES = {"nodes": 2, "mem_mb": 3000, "runtime": 90, "partition": "short", "account": "physics"}


def test_options_of_the_jobs(requests):
    runs = {"pair": {"parallel": {"ranks": 4}, "resources": TWO_NODES}, "again": {"parallel": {"ranks": 4}, "resources": TWO_NODES},
            "gpus": {"parallel": {"ranks": 2, "gpus_per_rank": 1}}}  # fmt: skip
    found = requests({"runs": runs})
    assert list(found) == ["run pair", "run gpus"]
    for option in (
        "-A physics",
        "-p short",
        "-t 90",
        "--mem 1500",
        "--nodes=2",
        "--ntasks=4",
        "--requeue",
        "--signal=USR1@60",
    ):
        assert f" {option} " in f"{found['run pair']} "
    assert "--gpus=2" in found["run gpus"]
    (fold,) = requests({"search": {"space": {"train.optimizer.lr": [0.1, 1]}}})
    assert fold == "search, fold tasks"


def test_a_site_changes_the_profile(requests):
    own = {"slurm_extra": "'--constraint=haswell'", "mem_mb": "attempt * 4000", "slurm_partition": "gpu"}
    changes = {
        "set-resources": {"train": own},
        "nnlo-slurm-qos": "urgent",
        "default-resources": {"slurm_account": "ours"},
    }
    (training, *_) = requests({}, **changes).values()
    for option in ("--constraint=haswell", "--qos=urgent", "-p gpu", "-A ours"):
        assert f" {option} " in f"{training} "
    assert "attempt" not in training


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
