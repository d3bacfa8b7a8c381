"""`parallel.gpus_per_rank: auto`: the number for this host, and where a number is needed; torch's count is a stub."""

import pytest
import torch
import yaml
from helpers.nnlo_command import nnlo, refused

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment, with_numbers_of_gpus

SCHEDULERS = ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE", "NNLO_GPUS")


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Return a function that loads settings on a host with some GPUs and some variables."""

    def loaded(settings, gpus, **environment):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        for name in SCHEDULERS:
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        path = tmp_path / "x.yaml"
        path.write_text(yaml.safe_dump(settings))
        return load_experiment(path)

    return loaded


def counts(run):
    return run.parallel.gpus_per_rank, run.parallel.ranks_per_gpu


@pytest.mark.parametrize(
    ("gpus", "parallel", "resources", "expected"),
    [
        (0, {"ranks": 4}, {}, (0, 1)),
        (4, {"ranks": 4}, {}, (1, 1)),
        (8, {"ranks": 4}, {}, (1, 1)),
        (2, {"ranks": 4}, {}, (1, 2)),
        (3, {"ranks": 4}, {}, (1, 2)),
        (2, {"ranks": 4}, {"nodes": 2}, (1, 1)),
        (4, {"ranks": 4, "ranks_per_gpu": 4}, {}, (1, 4)),
        (1, {}, {}, (1, 2)),  # two ranks by default
        (1, {"ranks": 9, "transport": "simulated"}, {}, (1, 1)),
    ],
)
def test_the_ranks_share_the_visible_gpus(load, gpus, parallel, resources, expected):
    settings = {"parallel": {"gpus_per_rank": "auto", **parallel}, "resources": resources}
    assert counts(load(settings, gpus)) == expected


def test_a_scheduler_limits_what_is_visible(load):
    settings = {"parallel": {"gpus_per_rank": "auto", "ranks": 4}}
    assert counts(load(settings, 4, SLURM_JOB_GPUS="1,3")) == (1, 2)


def test_runs_have_their_own_numbers(load):
    runs = {"two": {}, "eight": {"parallel": {"ranks": 8}}, "cpu": {"parallel": {"gpus_per_rank": 0}}}
    experiment = load({"parallel": {"gpus_per_rank": "auto", "ranks": 2}, "runs": runs}, 2)
    found = {name: counts(run) for name, run in experiment.variants.items()}
    assert found["two"] == (1, 1)
    assert found["eight"] == (1, 4)
    assert found["cpu"][0] == 0
    only = load({"runs": {"a": {"parallel": {"gpus_per_rank": "auto", "ranks": 4}}, "b": {}}}, 1)
    assert [counts(run) for run in only.variants.values()] == [(1, 4), (0, 1)]


def test_without_gpus_the_run_is_that_of_the_default(load, capsys):
    automatic = load({"parallel": {"gpus_per_rank": "auto"}}, 0)
    assert "auto is 0, because this host shows no GPU; the ranks compute on CPUs" in capsys.readouterr().err
    assert automatic.variants["allreduce"] == Run()
    assert automatic.variants["allreduce"].hash == Run().hash
    load({"parallel": {"gpus_per_rank": "auto"}}, 4)
    assert "auto is 1, because this host shows 4 GPUs" in capsys.readouterr().err


def test_malformed_settings_are_left_to_the_validation():
    settings = {"parallel": {"gpus_per_rank": "auto", "ranks": "many"}, "runs": {"a": 3}}
    assert with_numbers_of_gpus(settings, 1)["parallel"]["ranks"] == "many"


def test_a_search_over_ranks_needs_a_number(load):
    search = {"space": {"parallel.ranks": [2, 4]}}
    with pytest.raises(UserError, match=r"auto does not fit a search over parallel\.ranks; write 0 or 1"):
        load({"parallel": {"gpus_per_rank": "auto"}, "search": search}, 4)
    with pytest.raises(UserError, match="auto is possible in an experiment file only"):
        load({"search": {"space": {"parallel.gpus_per_rank": [0, "auto"]}}}, 4)


@pytest.mark.parametrize("arguments", [("check", "--profile", "slurm"), ("plan", "--profile", "lsf")])
def test_a_cluster_needs_a_number(tmp_path, arguments):
    path = tmp_path / "x.yaml"
    path.write_text("parallel: {gpus_per_rank: auto}\n")
    message = refused(nnlo(*arguments, str(path), folder=tmp_path))
    assert "parallel.gpus_per_rank: auto counts the GPUs of this host" in message
    assert "write 1, or 0 for CPUs" in message
    changed = nnlo(
        "plan", "--profile", "lsf", str(path), "--set", "parallel.gpus_per_rank=1", folder=tmp_path
    )
    assert "-gpu num=2" in changed.stdout
