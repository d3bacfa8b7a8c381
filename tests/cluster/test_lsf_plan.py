"""What `nnlo check --profile lsf` and `nnlo plan --profile lsf` print about the requests to LSF."""

from pathlib import Path

import pytest
from helpers.nnlo_command import REPOSITORY, nnlo

from nnlo_lib.cluster.lsf_request import LsfProfile, lsf_requests
from nnlo_lib.config import Experiment

GPUS = {"ranks": 8, "gpus_per_rank": 1, "ranks_per_gpu": 2}


def requests(profile: LsfProfile | None = None, **settings: object) -> list[str]:
    return lsf_requests(Experiment.model_validate(settings), profile or LsfProfile())


@pytest.fixture(autouse=True)
def no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LSB_DEFAULTQUEUE", raising=False)


def test_a_run_on_gpus() -> None:
    (run,) = requests(parallel=GPUS, resources={"runtime": 30, "partition": "gpu q"})
    assert run == ("run allreduce: bsub -q 'gpu q' -n 8 -R span[ptile=32] -gpu num=4:j_exclusive=yes -W 30")


def test_without_gpus_none_is_asked_for() -> None:
    assert requests(parallel={"ranks": 2}) == ["run allreduce: bsub -n 2 -R span[ptile=32] -W 60"]


def test_a_search_asks_by_fold_task() -> None:
    search = {"space": {"train.optimizer.lr": [0.1, 0.2]}}
    (line,) = requests(search=search, parallel=GPUS, resources={"nodes": 2})
    assert line == "search, fold tasks: bsub -n 8 -R span[ptile=4] -gpu num=2:j_exclusive=yes -W 60"


def test_values_of_the_profile_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "set-resources:\n  train: {ptile: 4, lsf_gpu: \"'mode=shared'\"}\n"
        "  fold_task: {lsf_extra: \"'-r -gpu num=1:gmodel=A'\"}\n"
    )
    profile = LsfProfile.read(path)
    assert "-n 8 -R span[ptile=4] -gpu num=2:mode=shared" in requests(profile, parallel=GPUS)[0]
    (alone,) = requests(profile, parallel={"ranks": 1, "gpus_per_rank": 1})
    assert "-R span[hosts=1] -gpu num=1:mode=shared" in alone
    search = {"space": {"train.optimizer.lr": [0.1, 0.2]}}
    (own,) = requests(profile, parallel=GPUS, search=search)
    assert "-gpu num=1:gmodel=A" in own
    assert LsfProfile.read(REPOSITORY / "lsf/config.yaml").value("train", "ptile") == "32"


def test_both_commands_print_it_and_a_broken_profile_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        "name: x\nmodel: {name: simplecnn}\nparallel: {ranks: 8, gpus_per_rank: 1, ranks_per_gpu: 2}\n"
    )
    printed = [nnlo(command, "--profile", "lsf", str(file), folder=tmp_path) for command in ("check", "plan")]
    for done in printed:
        assert "LSF is asked for:\n  run allreduce: bsub -n 8" in done.stdout
        assert "-gpu num=4:j_exclusive=yes" in done.stdout
    assert "LSF" not in nnlo("plan", str(file), folder=tmp_path).stdout
    (tmp_path / "lsf").mkdir()
    (tmp_path / "lsf/config.yaml").write_text("{")
    done = nnlo("plan", "--profile", "lsf", str(file), folder=tmp_path)
    assert done.returncode == 2
    assert "lsf/config.yaml: cannot read the profile" in done.stderr
