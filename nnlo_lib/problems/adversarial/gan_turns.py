"""Networks of a GAN that train in a step of a worker; the number of the step alone decides."""

from bisect import bisect_right
from typing import NamedTuple

from nnlo_lib.config.problem import CriticWarmUpConfig, GanConfig


class GanTurn(NamedTuple):
    """What trains in one step.

    Attributes:
        real: the critic, with real samples.
        generated: the critic, with generated samples.
        generator: the generator.
    """

    real: bool
    generated: bool
    generator: bool


def gan_turn(config: GanConfig, step: int) -> GanTurn:
    """Return what trains in a step, counted from 0."""
    if config.half_steps:
        # NNLO's order: critic with real samples, critic with generated samples, then the generator.
        part = step % config.cycle
        return GanTurn(part == 0, part == 1, part >= 2)
    if config.critic_warm_up is None:
        return GanTurn(True, True, (step + 1) % config.critic_steps == 0)
    return GanTurn(True, True, _ends_update(step + 1, config.critic_steps, config.critic_warm_up))


def _ends_update(steps: int, usual: int, warm_up: CriticWarmUpConfig) -> bool:
    """Return True if the generator trains in the last of the first `steps` steps.

    Args:
        steps: number of steps, including this one.
        usual: steps of the critic for one update of the generator after the warm-up.
        warm_up: updates before which the critic has more steps.
    """
    updates = bisect_right(range(steps + 1), steps, key=lambda count: _steps_of(count, usual, warm_up)) - 1
    return updates > 0 and _steps_of(updates, usual, warm_up) == steps


def _steps_of(updates: int, usual: int, warm_up: CriticWarmUpConfig) -> int:
    """Return the number of steps in which the generator trains for the first `updates` times.

    Args:
        updates: number of updates of the generator.
        usual: steps of the critic for one update after the warm-up.
        warm_up: updates before which the critic has more steps.
    """
    long = min(updates, warm_up.updates)
    if warm_up.every:
        # Updates 0, every, 2 every, ... that do not belong to the first ones.
        long += max(0, -(-updates // warm_up.every) - -(-warm_up.updates // warm_up.every))
    return usual * updates + (warm_up.steps - usual) * long
