"""Noise of a trial's values between folds, estimated from all trials of a rung."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnlo_lib.search.comparison.fold_effects import median_effects

Array = NDArray[np.float64]

MIN_TRIALS = 5  # trials with all folds from which the distribution of variances is estimated
ROUNDING = 1e-6  # relative error of a metric, which is computed in float32
SMALLEST_VARIANCE = 1e-5  # times the median variance, because a variance of 0 has no logarithm


@dataclass(frozen=True)
class FoldNoise:
    """Distribution of the variances of trials between folds: the prior of Smyth (2004, limma).

    Attributes:
        effects: effect of each fold; empty with fewer than MIN_TRIALS trials.
        variance: variance of a typical trial.
        dof: number of degrees of freedom that `variance` counts for; 0: unknown.
    """

    effects: tuple[float, ...] = ()
    variance: float = 0.0
    dof: float = 0.0

    @classmethod
    def of(cls, trials: Sequence[Sequence[float]]) -> "FoldNoise":
        """Return the noise of trials that have all folds, (trials, folds)."""
        if len(trials) < MIN_TRIALS:
            return cls()
        values = np.array(trials)
        effects = median_effects(values)
        rest = values - values.mean(axis=1, keepdims=True) - effects
        count, folds = values.shape
        # The effects are estimated from the same values.
        variances = np.square(rest).sum(axis=1) / (folds - 1) * count / (count - 1)
        variances[variances <= rounding_variance(values)] = 0.0
        return cls(tuple(effects.tolist()), *_prior(variances, folds - 1))

    def moderated_variance(self, values: Sequence[float]) -> tuple[float, float]:
        """Return the variance of a trial between folds, and its degrees of freedom (Smyth 2004, section 3).

        Args:
            values: values of two or more leading folds.
        """
        rest = np.array(values) - self.effects[: len(values)]
        own = len(values) - 1
        squares = float(np.square(rest - rest.mean()).sum())
        return (self.dof * self.variance + squares) / (self.dof + own), self.dof + own


def rounding_variance(values: Sequence[float] | Array) -> float:
    """Return the variance below which values of this size are equal."""
    return float(np.square(ROUNDING * np.abs(np.asarray(values)).max()))


def _prior(variances: Array, dof: int) -> tuple[float, float]:
    """Return variance and degrees of freedom of the prior (Smyth 2004, section 6.2).

    Args:
        variances: variance of each trial, (trials,).
        dof: degrees of freedom of each variance.
    """
    from scipy.special import digamma, polygamma

    if not variances.any():
        return 0.0, 0.0
    logarithms = np.log(np.maximum(variances, SMALLEST_VARIANCE * np.median(variances[variances > 0])))
    logarithms -= digamma(dof / 2) - np.log(dof / 2)
    # At most the degrees of freedom of all trials together.
    most = float((len(variances) - 1) * dof)
    spread = float(logarithms.var(ddof=1) - polygamma(1, dof / 2))
    if spread <= 0:
        return float(np.exp(logarithms.mean())), most
    half = _inverse_trigamma(spread)
    return float(np.exp(logarithms.mean() + digamma(half) - np.log(half))), min(2 * half, most)


def _inverse_trigamma(value: float) -> float:
    """Return x with trigamma(x) = value, by Newton's method (Smyth 2004, appendix)."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = polygamma(1, x)
        step = trigamma * (1 - trigamma / value) / polygamma(2, x)
        x += step
        if -step < 1e-8 * x:
            break
    return float(x)
