"""GPUs of an experiment reach bsub for each rule, as `nnlo plan --profile lsf` has printed; LSF is a stand-in."""

import shlex
from pathlib import Path

import pytest
import yaml
from helpers.lsf_cluster import Lsf
from helpers.nnlo_command import nnlo
from helpers.repository_copy import REPOSITORY

WORKFLOW = Path(__file__).parent / "gpu_workflow" / "Snakefile"
EXPERIMENT = {
    "name": "gpus",
    "seeds": [1],
    "runs": {
        "four": {
            "parallel": {"ranks": 4, "gpus_per_rank": 1, "threads_per_rank": 2},
            "resources": {"nodes": 2, "partition": "normal"},
        },
        "one": {"parallel": {"ranks": 1, "gpus_per_rank": 1}, "resources": {"partition": "normal"}},
    },
}
# Slots, span and GPUs.
FOUR, ONE = ["8", "span[ptile=4]", "num=2:j_exclusive=yes"], ["1", "span[hosts=1]", "num=1:j_exclusive=yes"]
REQUESTS = {"train:": FOUR, "train_single": ONE, "fold_task": FOUR}


@pytest.mark.exhaustive
@pytest.mark.snakemake
def test_each_rule_asks_for_its_gpus_per_host(lsf: Lsf, tmp_path: Path) -> None:
    for name in ("profiles", "lsf"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    (tmp_path / "gpus.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    process = lsf.start_snakemake(tmp_path, "--snakefile", WORKFLOW)
    assert lsf.finish(process) == 0, (tmp_path / "snakemake.log").read_text()
    for rule, expected in REQUESTS.items():
        (job,) = lsf.jobs(f"rule_{rule}")
        assert [job.request["n"], job.request["R"][-1], job.request["gpu"]] == expected, rule
    printed = nnlo("plan", "gpus.yaml", "--profile", "lsf", folder=tmp_path).stdout
    for label, rule in (("four", "train:"), ("one", "train_single")):
        (line,) = (line for line in printed.splitlines() if line.startswith(f"  run {label}: "))
        words = shlex.split(line)
        assert [words[words.index(option) + 1] for option in ("-n", "-R", "-gpu")] == REQUESTS[rule]
