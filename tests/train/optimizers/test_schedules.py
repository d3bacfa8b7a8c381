"""Learning rates compared with torch's schedulers and the plateau rules of Keras and PyDTNN, also after a resume."""

import math

import pytest
import torch
from helpers.algorithm_trainings import STEPS, rows, task
from helpers.chaos_report import find_differences
from helpers.oracles.schedules import LR, PER_EPOCH, SCHEDULES, TOLERANCE, TOTAL, rates_of, references
from helpers.training_here import simulate
from helpers.training_process import StopAfter
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from torch.optim import lr_scheduler

from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Run
from nnlo_lib.config.base import block_types
from nnlo_lib.config.optimizer import SGDConfig
from nnlo_lib.config.schedule import PlateauScheduleConfig, ScheduleConfig
from nnlo_lib.config.train import TrainConfig
from nnlo_lib.train.optimizers.schedules import LearningRateSchedule, num_plateau_drops
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.task import Task

ScheduleAdapter: TypeAdapter[ScheduleConfig] = TypeAdapter(ScheduleConfig)
SETTINGS = {
    name: oracle.train["schedule"] for name, oracle in SCHEDULES.items() if "schedule" in oracle.train
}


@pytest.mark.parametrize("oracle", SCHEDULES.values(), ids=SCHEDULES)
def test_schedules_follow_their_references(oracle):
    assert rates_of(**oracle.train) == pytest.approx(oracle.rates(), rel=TOLERANCE, abs=1e-12)


@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_round_has_the_rate_of_its_first_step_or_of_a_training_of_rounds(name, size):
    """Schedules over the training count its rounds; the other ones count epochs or steps at the start of a round."""
    schedule = ScheduleAdapter.validate_python(SETTINGS[name])
    rounds = math.ceil(TOTAL / size)
    if schedule.depends_on_epochs or schedule.name == "diminishing":
        expected = rates_of(epochs=rounds, per_epoch=1, schedule=SETTINGS[name])
    else:
        expected = rates_of(schedule=SETTINGS[name])[::size]
    found = rates_of(a_round=size, schedule=SETTINGS[name])
    assert found == [rate for rate in expected for _ in range(size)][:TOTAL]


def test_a_finished_training_and_one_of_a_single_step_have_a_rate():
    """A training that resumes after its last step requests the rate of the following step."""
    for schedule in SETTINGS.values():
        assert len(rates_of(1, 1, schedule=schedule)) == 1
        settings = TrainConfig(epochs=2, schedule=schedule, optimizer={"name": "sgd", "lr": LR})
        rate = LearningRateSchedule(settings, 1, 1)(2 * PER_EPOCH, PER_EPOCH)
        assert 0 <= rate <= max(LR, schedule.get("final", 0))


def test_all_schedules_are_tested():
    names = {name for name, _ in references()}
    assert names - {"warm_up"} == {
        block.model_fields["name"].default for block in block_types(ScheduleConfig)
    }


def falling(name, **options):
    return st.fixed_dictionaries({"name": st.just(name), **options})


FALLING = st.one_of(
    falling("step", every=st.integers(1, 5), factor=st.floats(0.01, 1), unit=st.sampled_from(["epochs", "steps"])),
    falling("multi_step", milestones=st.sets(st.integers(1, 30), min_size=1).map(sorted)),
    falling("exponential", factor=st.floats(0.01, 1)),
    falling("cosine", final=st.floats(0, LR)),
    falling("polynomial", power=st.floats(0.1, 5), final=st.floats(0, LR)),
    falling("log", final=st.floats(1e-9, LR)),
    falling("diminishing", mu=st.floats(0.001, 1)),
)  # fmt: skip


# Plateaus

VALUES = st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.31, 0.5, math.nan]), max_size=40)


def fallen(schedule, values, metric="val_loss"):
    """Return the learning rate of the first epoch and the rate after each value of the metric."""
    settings = TrainConfig(schedule=schedule, optimizer=SGDConfig(lr=LR))

    def program(comm):
        rates = LearningRateSchedule(settings, 1, 1)
        found = [rates(0, 1)]
        for count in range(1, len(values) + 1):
            history = [{metric: value} for value in values[:count]]
            rates.update_plateau(comm, history if comm.rank == 0 else [])
            found.append(rates(count, 1))
        return found

    one, other = SimulatedWorld(2).run(program)
    assert one == other
    return one


@given(VALUES, st.integers(1, 4), st.integers(0, 3), st.sampled_from([0.0, 0.05]), st.booleans())
def test_plateau_is_torchs(values, patience, cooldown, min_delta, larger):
    schedule = PlateauScheduleConfig(
        factor=0.5, patience=patience, cooldown=cooldown, min_delta=min_delta, min_lr=0.03,
        better="larger" if larger else "smaller",
    )  # fmt: skip
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    reference = lr_scheduler.ReduceLROnPlateau(
        optimizer, "max" if larger else "min", 0.5, patience - 1, min_delta, "abs", cooldown, 0.03, eps=0
    )
    rates = [LR]
    for value in values:
        reference.step(value)
        rates.append(optimizer.param_groups[0]["lr"])
    assert fallen(schedule, values) == pytest.approx(rates, rel=1e-12)


def keras(values, patience, min_delta):
    """Return the rates of ReduceLROnPlateau as documented by Keras 3, with factor 0.5 and minimum 0.03."""
    rate, best, wait, rates = LR, math.inf, 0, [LR]
    for value in values:
        if value < best - min_delta:
            best, wait = value, 0
        else:
            wait += 1
            if wait >= patience and rate > 0.03:
                rate, wait = max(rate * 0.5, 0.03), 0
        rates.append(rate)
    return rates


@given(VALUES, st.integers(1, 4), st.sampled_from([0.0, 1e-4, 0.05]))
def test_plateau_is_kerass(values, patience, min_delta):
    """With min_delta 0 and min_lr 0 the rule equals PyDTNN's, too."""
    schedule = PlateauScheduleConfig(factor=0.5, patience=patience, min_delta=min_delta, min_lr=0.03)
    assert fallen(schedule, values) == pytest.approx(keras(values, patience, min_delta))


# Warm-up and scaling


@given(FALLING, st.integers(1, 70), st.floats(0, 1))
def test_warm_up_goes_over_into_any_schedule(schedule, steps, start):
    plain = rates_of(schedule=schedule)
    warmed = rates_of(schedule=schedule, warm_up={"steps": steps, "start": start})
    assert warmed[steps:] == plain[steps:]
    assert warmed[0] == pytest.approx(start * plain[0])
    assert all(rate <= other * (1 + 1e-12) for rate, other in zip(warmed, plain, strict=True))


def test_goyal_et_al():
    """The rate of 8 workers rises in 5 epochs from the rate of one worker to 8 times this rate, then falls at milestones."""
    rates = rates_of(
        epochs=90, workers=8, lr=0.1, scale_lr="linear", warm_up={"epochs": 5, "start": 1 / 8},
        schedule={"name": "multi_step", "milestones": [30, 60, 80]},
    )  # fmt: skip
    at = [rates[epoch * PER_EPOCH] for epoch in (0, 5, 29, 30, 60, 80)]
    assert at == pytest.approx([0.1, 0.8, 0.8, 0.08, 0.008, 0.0008])


def test_scale():
    assert rates_of(workers=9, scale_lr="sqrt")[0] == pytest.approx(3 * LR)
    assert rates_of(workers=9)[0] == LR
    last = rates_of(workers=9, scale_lr="linear", schedule={"name": "linear", "final": 0.1})[-1]
    assert last == pytest.approx(0.1)


# Refused settings, and the fingerprint that checkpoints must match

LENGTH = "set either `train.warm_up.steps` or `train.warm_up.epochs`"
SGD = {"name": "sgd", "lr": 1.0}
REFUSED = {
    "milestones": ({"schedule": {"name": "multi_step", "milestones": [3, 3]}}, "not in increasing order"),
    "stretch": ({"schedule": {"name": "cosine", "stretch": 2}}, "requires restart"),
    "two lengths": ({"warm_up": {"steps": 1, "epochs": 1}}, LENGTH),
    "no length": ({"warm_up": {}}, LENGTH),
    "two warm-ups": ({"schedule": {"name": "one_cycle"}, "warm_up": {"steps": 1}}, "one_cycle, which includes a warm-up"),
    "not measured": ({"schedule": {"name": "plateau", "metric": "val_mae"}}, "'val_mae' is not measured"),
    "mu": (
        {"schedule": {"name": "diminishing", "mu": 1}, "optimizer": SGD},
        r"mu times the learning rate is 1, .* set `train.schedule.mu` below 1, or lower",
    ),
    "mu of several workers": (
        {"schedule": {"name": "diminishing", "mu": 0.8}, "optimizer": SGD, "scale_lr": "linear"},
        "mu times the learning rate is 1.6",
    ),
    "growth": ({"schedule": {"name": "step", "every": 1, "factor": 1.5}}, "less than or equal to 1"),
}  # fmt: skip


@pytest.mark.parametrize(("train", "said"), REFUSED.values(), ids=REFUSED)
def test_refused(train, said):
    with pytest.raises(ValidationError, match=said):
        Run.model_validate({"train": train})


@pytest.mark.parametrize("train", [{"schedule": {"name": "plateau"}}, {"warm_up": {"steps": 1}}])
def test_downpours_server_refuses(train):
    run = {"algorithm": {"name": "downpour"}, "parallel": {"ranks": 2}, "train": train}
    with pytest.raises(ValidationError, match="applies updates on the server"):
        Run.model_validate(run)
    Run.model_validate(run | {"algorithm": {"name": "easgd"}})


@pytest.mark.parametrize("schedule", SETTINGS.values(), ids=SETTINGS)
def test_more_epochs_go_on_if_they_change_no_rate(tmp_path, schedule):
    (tmp_path / "manifest.json").write_text("{}")

    def key(epochs):
        run = Run.model_validate({"train": {"epochs": epochs, "schedule": schedule}})
        return Task("t", "t", run, 0, None, 1, tmp_path / "manifest.json", tmp_path).fingerprint

    shorter, longer = (rates_of(epochs=epochs, schedule=schedule) for epochs in (4, 8))
    assert (key(4) == key(8)) == (shorter == longer[: len(shorter)])


# Schedules in a training

PLATEAU = {"name": "plateau", "metric": "val_loss", "factor": 0.5, "patience": 1, "min_delta": 0.4}
WARM = {"steps": STEPS + 2}
TRAININGS = {
    "average": {"algorithm": {"name": "average", "sync_every": 2}, "parallel": {"processes_per_worker": 2}},
    "easgd": {"algorithm": {"name": "easgd", "sync_every": 2, "synchronous": True}},
}


@pytest.mark.parametrize("name", TRAININGS)
def test_a_plateau_survives_interruptions_to_the_bit(tmp_path, manifest, name):
    train = {"schedule": PLATEAU, "warm_up": WARM, "scale_lr": "sqrt"}
    whole, parts = (
        task(tmp_path / folder, manifest, name, TRAININGS[name] | {"train": train | {"epochs": 4}})
        for folder in ("whole", "parts")
    )
    simulate(whole)
    while not train_simulated(parts, StopAfter(50)):
        pass
    assert find_differences(parts.folder, whole.folder) == []
    one = rows(whole)
    scale = math.sqrt({"easgd": 3, "average": 2}[name])  # two processes are one worker of `average`
    seen = [row["learning_rate"] / (0.02 * scale) for row in one]
    falling = [
        0.5 ** num_plateau_drops(PlateauScheduleConfig.model_validate(PLATEAU), one[:epoch])
        for epoch in range(4)
    ]
    assert falling[-1] < 1
    assert seen[0] < 1
    assert seen[1:] == pytest.approx(falling[1:])
