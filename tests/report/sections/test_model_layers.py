"""FLOP/s on the page: mean over all training tasks, and only where the FLOPs of training are known; the hardware of hosts."""

import pytest

from nnlo_lib.report.sections.origin import provenance_facts, trained_models
from nnlo_lib.report.tables import load_jobs

FLOPS = {"forward": 2_000_000, "backward": 4_000_000}


def trained(fake, run, *speeds, training=None, problem="classification", transport="mpi"):
    """Write one job per speed, in samples per second."""
    parallel = {"ranks": 2, "transport": transport}
    config = {"algorithm": {"name": run}, "parallel": parallel, "problem": {"name": problem}}
    model = {
        "name": "m",
        "parameters": 40,
        "layers": [],
        "flops": FLOPS | ({"training": training} if training else {}),
    }
    for seed, speed in enumerate(speeds, 1):
        fake.change(fake.job(run, seed, config=config), samples_per_second=speed, model=model)


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


@pytest.mark.parametrize(
    "known",
    [{"problem": "mine.py:Problem"}, {"training": 6e6, "transport": "simulated"}],
    ids=lambda known: next(iter(known.values())),
)
def test_a_speed_that_cannot_be_right_is_not_shown(fake, known):
    """The step of a user's problem could not be counted; or the seconds are virtual."""
    trained(fake, "a", 1000.0, **known)
    assert "FLOP/s" not in costs(fake)
    assert ("Training requires" in costs(fake)) == ("training" in known)


def test_each_hardware_is_named_with_its_host_once(fake):
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
