"""The learning rate of each round."""

from functools import lru_cache

from nnlo_lib import config


def learning_rate(schedule: config.Schedule, start: float, round: int, rounds: int) -> float:
    """Return the learning rate of `round`, counted from 0, of a training of `rounds`."""
    done = round / max(1, rounds - 1)
    match schedule:
        case config.Constant():
            return start
        case config.Linear():
            return start + done * (schedule.final - start)
        case config.Log():
            return float(start * (schedule.final / start) ** done)
        case config.Diminishing():
            return _diminished(start, schedule.mu, round)


@lru_cache(maxsize=64)
def _diminished(start: float, mu: float, round: int) -> float:
    rate = start
    for _ in range(round):
        rate *= 1 - mu * rate
    return rate
