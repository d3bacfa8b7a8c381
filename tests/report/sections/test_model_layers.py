"""FLOP/s on the page: mean over all training tasks, and only where the FLOPs of training are known."""

import pytest
from helpers.html_page import check

from nnlo_lib.report.finished_job import load_jobs
from nnlo_lib.report.sections.origin.model_layers import trained_models
from nnlo_lib.report.sections.origin.provenance import provenance_facts

MODEL = {"name": "m", "parameters": 40, "layers": []}
FLOPS = {"forward": 2_000_000, "backward": 4_000_000}


def trained(fake, run, *speeds, training=None, problem="classification", transport="mpi"):
    """Write one job per speed, in samples per second."""
    flops = FLOPS | ({"training": training} if training else {})
    config = {
        "algorithm": {"name": run},
        "parallel": {"ranks": 2, "transport": transport},
        "problem": {"name": problem},
    }
    for seed, speed in enumerate(speeds, 1):
        folder = fake.job(run, seed, config=config)
        fake.change(folder, samples_per_second=speed, model=MODEL | {"flops": flops})


def costs(fake):
    (model,) = trained_models(load_jobs(fake.folders))
    return model.costs.replace("\u00a0", " ")


def test_the_speed_is_the_mean_over_the_tasks_of_each_run(fake):
    trained(fake, "a", 1000.0, 3000.0, training=6e6), trained(fake, "b", 500.0, 1500.0, training=6e6)
    assert "computed 12 GFLOP/s in a and 6 GFLOP/s in b" in costs(fake)
    assert "Training requires 6 MFLOPs per sample." in costs(fake)


def test_a_gan_counts_all_passes_of_its_steps(fake):
    trained(fake, "a", 1000.0, training=2e7, problem="gan")
    assert "Training requires 20 MFLOPs per sample (mean over the steps of critic and generator)." in costs(
        fake
    )
    assert "computed 20 GFLOP/s in a" in costs(fake)


@pytest.mark.parametrize("problem", ["gan", "mine.py:Problem"])
def test_a_speed_that_cannot_be_right_is_not_shown(fake, problem):
    """A summary of an older version has only the FLOPs of one pass, but such problems make several."""
    trained(fake, "a", 1000.0, problem=problem)
    assert "FLOP/s" not in costs(fake)
    assert "Training requires" not in costs(fake)


def test_virtual_seconds_give_no_speed(fake):
    trained(fake, "a", 1000.0, training=6e6, transport="simulated")
    assert "FLOP/s" not in costs(fake)


def test_the_hardware_of_each_host_is_shown(fake, report):
    host = {
        "cpu": "Processor X",
        "cores": 64,
        "cores_available": 8,
        "ranks": 2,
        "threads": 8,
        "memory_bytes": 256e9,
    }
    for seed, name in ((1, "n1"), (2, "n2"), (3, "n1")):
        fake.change(fake.job("a", seed), hardware={name: host | {"gpus": ["H200", "H200"]}})
    facts = dict(provenance_facts(load_jobs(fake.folders)))
    text = "Processor X, 8 threads of 2 ranks on 8 of 64 cores, 256 GB memory, 2 × H200"
    assert facts["hardware"].replace("\u00a0", " ") == f"n1: {text}; n2: {text}"
    assert "Processor X" in check(report(fake)).text
