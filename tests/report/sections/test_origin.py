"""FLOP/s where the FLOPs of training are known, the hardware of hosts, and the weights to which the figures belong."""

import pytest
from helpers.html_page import check

from nnlo_lib.report.sections.nodes import consensus_table
from nnlo_lib.report.sections.origin import provenance_facts, published_weights_sentence, trained_models
from nnlo_lib.report.tables import load_jobs

FLOPS = {"forward": 2_000_000, "backward": 4_000_000}


def trained(fake, run, *speeds, training=None, problem="classification", transport="mpi"):
    """Write one job per speed, in samples per second."""
    parallel = {"ranks": 2, "transport": transport}
    config = {"algorithm": {"name": run}, "parallel": parallel, "problem": {"name": problem}}
    flops = FLOPS | ({"training": training} if training else {})
    model = {"name": "m", "parameters": 40, "layers": [], "flops": flops}
    for seed, speed in enumerate(speeds, 1):
        fake.change(fake.job(run, seed, config=config), samples_per_second=speed, model=model)


def costs(fake):
    (model,) = trained_models(load_jobs(fake.folders))
    return model["costs"].replace("\u00a0", " ")


def test_costs_of_training_and_the_mean_speed_of_each_run(fake):
    trained(fake, "a", 1000.0, 3000.0, training=6e6), trained(fake, "b", 500.0, 1500.0, training=6e6)
    said = costs(fake)
    assert "Training requires 6 MFLOPs per sample." in said
    assert "computed 12 GFLOP/s in a and 6 GFLOP/s in b" in said


def test_a_gan_counts_all_passes_of_its_steps(fake):
    trained(fake, "a", 1000.0, training=2e7, problem="gan")
    steps = "(mean over the steps of critic and generator)"
    assert f"Training requires 20 MFLOPs per sample {steps}." in costs(fake)
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


def test_what_the_conversion_left_out_is_named_once(fake):
    for seed in (1, 2):
        fake.change(fake.job("a", seed), data={"left_out": ["skipped files: 3 hidden"]})
    fake.job("b")
    facts = dict(provenance_facts(load_jobs(fake.folders)))
    assert facts["left out of the data"] == "skipped files: 3 hidden"


CONFIG = {
    "algorithm": {"name": "a"},
    "parallel": {"ranks": 2},
    "metrics": [],
    "train": {"restore_best": "val_loss"},
}


def test_runs_of_restored_weights_are_said(fake, report):
    fake.job("b")
    assert published_weights_sentence(load_jobs(fake.folders)) == ""
    for run in ("a", "d"):
        fake.change(fake.job(run, config=CONFIG), published_step=50)
    fake.job("c", config=CONFIG)
    assert (
        "of a and d are of the weights with the best val_loss (train.restore_best)."
        in check(report(fake)).text
    )


def test_distances_of_the_nodes_are_those_of_the_published_models(fake):
    """The distance of the synthetic nodes is 1 / epoch; of weights from within an epoch, it is unknown."""
    folder = fake.gossip("dsgd")
    fake.change(folder, published_step=41 * 4)
    found = consensus_table(load_jobs(fake.folders), {})
    assert found.rows["dsgd"][found.headings.index("distance to mean")] == "0.2500"
    fake.change(folder, published_step=41 * 4 + 7)
    assert "distance to mean" not in consensus_table(load_jobs(fake.folders), {}).headings
