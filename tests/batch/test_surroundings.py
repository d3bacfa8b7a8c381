"""Variables of a site or of a surrounding session, by sbatch(1) and srun(1) of Slurm 22.05."""

import shutil
import subprocess

import pytest
from helpers.requires import absent

from nnlo_lib.batch import surroundings
from nnlo_lib.batch.surroundings import (
    SITE_VARIABLES,
    leave_surrounding_job,
    sentence_about_variables,
    step_environment,
)

# What each job of ours says itself, and what changes no request.
OF_EACH_JOB = {
    "ACCTG_FREQ", "ARRAY_INX", "DEBUG", "ERROR", "EXPORT", "IGNORE_PBS", "INPUT", "JOB_NAME", "MEM_PER_CPU", "MEM_PER_GPU",
    "MEM_PER_NODE", "NO_REQUEUE", "OUTPUT", "REQUEUE", "TIMELIMIT", "WAIT",
}  # fmt: skip
JOB = {"SLURM_JOB_ID": "7", "PATH": "/bin"}
# A session of `salloc --mem-per-cpu=500 --gpus=1 --cpus-per-gpu=2`, in a step that srun has bound.
SESSION = {
    "SLURM_MEM_PER_CPU": "500", "SLURM_GPUS": "1", "SLURM_CPUS_PER_GPU": "2", "SLURM_GPUS_PER_TASK": "1", "SLURM_NTASKS_PER_GPU": "1",
    "SLURM_CPU_BIND": "quiet,mask_cpu:0x1", "SLURM_CPU_BIND_LIST": "0x1", "SLURM_CPU_BIND_TYPE": "mask_cpu:", "SLURM_EXPORT_ENV": "NONE",
}  # fmt: skip


def test_each_variable_of_the_manual_is_known():
    if not shutil.which("man"):
        absent("there is no manual")
    text = subprocess.run(["man", "sbatch"], capture_output=True, text=True, check=False).stdout
    if "INPUT ENVIRONMENT VARIABLES" not in text:
        absent("there is no manual of sbatch")
    plain = subprocess.run(["col", "-b"], input=text, capture_output=True, text=True, check=True).stdout
    section = plain.split("INPUT ENVIRONMENT VARIABLES")[-1].split("OUTPUT ENVIRONMENT VARIABLES")[0]
    named = {
        word for line in section.splitlines() if (word := (line.split() or [""])[0]).startswith("SBATCH_")
    }
    assert len(named) > 40
    assert named - {f"SBATCH_{name}" for name in OF_EACH_JOB} <= SITE_VARIABLES


def test_a_warning_names_what_is_not_expected():
    site = {"SBATCH_ACCOUNT": "a", "SBATCH_PARTITION": "p", "SBATCH_TIMELIMIT": "9", "PATH": "/bin"}
    assert sentence_about_variables(site) == ""
    more = site | {"SBATCH_GRES": "gpu:1", "SBATCH_EXCLUSIVE": ""}
    assert sentence_about_variables(more).startswith(
        "each job also gets SBATCH_EXCLUSIVE=, SBATCH_GRES=gpu:1 of the environment"
    )


def test_a_submission_leaves_the_surrounding_job_and_keeps_the_cluster():
    kept = {"SLURM_CONF": "/etc/x.conf", "SLURM_CLUSTERS": "b", "SBATCH_ACCOUNT": "a", "PATH": "/bin"}
    gone = JOB | SESSION | {"SRUN_CPUS_PER_TASK": "3", "SBATCH_ERROR": "e", "SBATCH_WAIT": "1"}
    gone.pop("PATH")
    environment = kept | gone
    assert leave_surrounding_job(environment) == gone
    assert environment == kept


@pytest.mark.parametrize(
    ("answer", "gpus"),
    [
        ("TRES=cpu=2,mem=1500M,node=1", False),
        ("TRES=cpu=2,gres/gpu=1", True),
        ("TresPerNode=gres:gpu:1", True),
        ("", True),
    ],
)
def test_a_step_has_what_its_own_job_has(answer, gpus, monkeypatch):
    asked = []
    monkeypatch.setattr(surroundings, "query_scheduler", lambda *words: asked.append(words) or answer)
    assert step_environment(SESSION) == SESSION, "outside a job"
    assert asked == []
    own = {"SLURM_NTASKS_PER_NODE": "1", "SLURM_HINT": "nomultithread"}
    wanted = JOB | own | {"SLURM_MEM_PER_NODE": "0"}
    wanted |= {name: value for name, value in SESSION.items() if "GPU" in name} if gpus else {}
    assert step_environment(JOB | own | SESSION) == wanted
    assert asked == [("scontrol", "show", "job", "7")]
    # A user's own binding; and no GPU is asked for, so that Slurm is not asked.
    bound = JOB | {"SLURM_CPU_BIND": "cores", "SLURM_MEM_PER_NODE": "1500"}
    assert step_environment(bound) == bound | {"SLURM_MEM_PER_NODE": "0"}
    assert len(asked) == 1
