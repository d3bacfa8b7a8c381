"""Learning-rate schedules with several settings each, and the rates that torch or a closed form gives."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import lr_scheduler

from nnlo_lib.config.train import TrainConfig
from nnlo_lib.train.optimizers.schedules import LearningRateSchedule

TOLERANCE = 1e-9
EPOCHS, PER_EPOCH, LR = 12, 5, 0.4
TOTAL = EPOCHS * PER_EPOCH
LAST = TOTAL - 1
Rates = list[float]


@dataclass(frozen=True)
class ScheduleOracle:
    """Settings of a schedule in the section `train`, and the rates of a training of EPOCHS epochs."""

    train: dict[str, Any]  # keys of the section
    reference: str  # name of the reference, as the documentation shows it
    rates: Callable[[], Rates]  # returns the rate of each of TOTAL steps

    @property
    def name(self) -> str:
        """Name of the schedule, or `warm_up`."""
        return self.train["schedule"]["name"] if "schedule" in self.train else "warm_up"


def rates_of(epochs=EPOCHS, per_epoch=PER_EPOCH, workers=1, a_round=1, lr=LR, **train: Any) -> Rates:
    """Return the learning rate of every step of a training; it is constant within the steps of a round."""
    settings = TrainConfig.model_validate({"epochs": epochs, "optimizer": {"name": "sgd", "lr": lr}, **train})
    rates = LearningRateSchedule(settings, workers, a_round)
    return [rates(step, per_epoch) for step in range(epochs * per_epoch)]


def torchs(scheduler: Any, each: int = 1, count: int = TOTAL, **options: Any) -> Rates:
    """Return the rate of `count` steps by one of torch's schedulers; `each`: steps between two of the scheduler's."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    made = scheduler(optimizer, **options)
    rates = []
    for step in range(1, count + 1):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step % each == 0 and step < count:
            made.step()
    return rates


def of_torch(
    settings: dict[str, Any], scheduler: Any, each: int = 1, key: str = "schedule", **options: Any
) -> ScheduleOracle:
    """Return the oracle by one of torch's schedulers, as `torchs` does; `key`: of the settings in `train`."""
    reference = f"torch.optim.lr_scheduler.{scheduler.__name__}"
    return ScheduleOracle({key: settings}, reference, lambda: torchs(scheduler, each, **options))


def of_formula(settings: dict[str, Any], formula: str, rate: Callable[[int], float]) -> ScheduleOracle:
    """Return the oracle by a closed form of the step."""
    return ScheduleOracle({"schedule": settings}, formula, lambda: [rate(step) for step in range(TOTAL)])


def diminishing(mu: float) -> Rates:
    """Return the rates lr <- lr (1 - mu lr)."""
    rates = [LR]
    for _ in range(LAST):
        rates.append(rates[-1] - mu * rates[-1] ** 2)
    return rates


def one_cycle(rise: float, start: float, final: float, count: int = TOTAL) -> Rates:
    """Return the rates of torch's OneCycleLR."""
    division = {"div_factor": 1 / start, "final_div_factor": start / final if final else 1e300}
    options = {"max_lr": LR, "total_steps": count, "pct_start": rise, "cycle_momentum": False, **division}
    return torchs(lr_scheduler.OneCycleLR, count=count, **options)


PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau with `patience - 1`; Keras' ReduceLROnPlateau"
SCHEDULES = {
    "constant": of_torch({"name": "constant"}, lr_scheduler.ConstantLR, factor=1.0, total_iters=1),
    "step": of_torch({"name": "step", "every": 3}, lr_scheduler.StepLR, PER_EPOCH, step_size=3),
    "step, steps": of_torch(
        {"name": "step", "every": 7, "factor": 0.5, "unit": "steps"}, lr_scheduler.StepLR, step_size=7, gamma=0.5
    ),
    "step, minimum": of_formula(
        {"name": "step", "every": 7, "factor": 0.5, "unit": "steps", "min_lr": LR / 5},
        "max(lr factor^k, min_lr)", lambda step: max(LR * 0.5 ** (step // 7), LR / 5),
    ),
    "multi_step": of_torch(
        {"name": "multi_step", "milestones": [2, 3, 9]}, lr_scheduler.MultiStepLR, PER_EPOCH, milestones=[2, 3, 9]
    ),
    "multi_step, steps": of_torch(
        {"name": "multi_step", "milestones": [1, 33], "factor": 0.3, "unit": "steps"},
        lr_scheduler.MultiStepLR, milestones=[1, 33], gamma=0.3,
    ),
    "exponential": of_torch({"name": "exponential"}, lr_scheduler.ExponentialLR, PER_EPOCH, gamma=0.95),
    "exponential, steps": of_torch(
        {"name": "exponential", "factor": 0.9, "unit": "steps"}, lr_scheduler.ExponentialLR, gamma=0.9
    ),
    "linear": of_torch(
        {"name": "linear", "final": 0.1}, lr_scheduler.LinearLR, start_factor=1.0, end_factor=0.25, total_iters=LAST
    ),
    "linear, rising": of_formula({"name": "linear", "final": 0.9}, "closed form", lambda step: LR + 0.5 * step / LAST),
    "log": of_torch({"name": "log", "final": 0.1}, lr_scheduler.ExponentialLR, gamma=0.25 ** (1 / LAST)),
    "log, rising": of_formula({"name": "log", "final": 0.8}, "closed form", lambda step: LR * 2.0 ** (step / LAST)),
    **{
        name: ScheduleOracle(
            {"schedule": {"name": "diminishing", "mu": mu}}, "lr <- lr (1 - mu lr)", lambda mu=mu: diminishing(mu)
        )
        for name, mu in (("diminishing", 0.1), ("diminishing, fast", 2.4))
    },
    "cosine": of_torch({"name": "cosine", "final": 0.01}, lr_scheduler.CosineAnnealingLR, T_max=LAST, eta_min=0.01),
    "cosine, restarts": of_torch(
        {"name": "cosine", "restart": 8, "unit": "steps"}, lr_scheduler.CosineAnnealingWarmRestarts, T_0=8
    ),
    "cosine, longer": of_torch(
        {"name": "cosine", "restart": 1, "stretch": 2, "final": 0.1},
        lr_scheduler.CosineAnnealingWarmRestarts, T_0=PER_EPOCH, T_mult=2, eta_min=0.1,
    ),
    "polynomial": of_torch({"name": "polynomial"}, lr_scheduler.PolynomialLR, total_iters=LAST, power=2.0),
    "polynomial, final": of_formula(
        {"name": "polynomial", "power": 0.5, "final": 0.1}, "closed form", lambda step: 0.1 + 0.3 * (1 - step / LAST) ** 0.5
    ),
    "one_cycle": of_torch(
        {"name": "one_cycle"}, lr_scheduler.OneCycleLR, max_lr=LR, total_steps=TOTAL, cycle_momentum=False
    ),
    "one_cycle, late peak": ScheduleOracle(
        {"schedule": {"name": "one_cycle", "rise": 0.99, "start": 0.5, "final": 0.1}},
        "torch.optim.lr_scheduler.OneCycleLR", lambda: one_cycle(0.99, 0.5, 0.1),
    ),
    "warm_up, steps": of_torch(
        {"steps": 10, "start": 0.25}, lr_scheduler.LinearLR, key="warm_up", start_factor=0.25, total_iters=10
    ),
    "warm_up, epochs": of_torch(
        {"epochs": 2.6}, lr_scheduler.LinearLR, key="warm_up", start_factor=0.1, total_iters=13
    ),
}  # fmt: skip


def references() -> Iterator[tuple[str, str]]:
    """Yield (name of a schedule, or `warm_up`, and reference), each once."""
    rows = [(oracle.name, oracle.reference) for oracle in SCHEDULES.values()]
    yield from dict.fromkeys([*rows, ("plateau", PLATEAU)])
