"""scikit-optimize's Optimizer as a sampler: a new one for each proposal, with all results, in order."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from threadpoolctl import threadpool_limits

from nnlo_lib.config.search import SearchConfig, SkoptSamplerConfig
from nnlo_lib.search.samplers.base import Observations, Sampler, random_points, sampling_rng
from nnlo_lib.search.samplers.model_free import SobolSequence
from nnlo_lib.search.space.scales import Choice, Scale
from nnlo_lib.search.space.scales import Integer as ScaleOfIntegers
from nnlo_lib.search.space.scales import Real as ScaleOfReals
from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.study.trial import SearchPoint


@dataclass(frozen=True)
class SkoptSampler(Sampler):
    """A Sobol sequence for the first `initial` trials, then `Optimizer.ask`."""

    space: SearchSpace
    seed: int
    initial: int
    base_estimator: str
    acq_func: str

    @classmethod
    def from_config(cls, config: SkoptSamplerConfig, space: SearchSpace, search: SearchConfig) -> Self:
        return cls(space, search.seed, config.initial, config.base_estimator, config.acq_func)

    def __call__(self, number: int, observed: Observations) -> Iterator[SearchPoint]:
        random = sampling_rng(self.seed, "skopt", number)
        if number < self.initial or not observed.evaluated or not self.space.free:
            yield from SobolSequence(self.space, self.seed)(number, observed)
            return
        # Threads of BLAS change the rounding, and a replay must give the same proposals.
        with threadpool_limits(1):
            asked = self._ask(observed, int(random.integers(2**31)))
        yield asked
        yield from random_points(self.space, random)

    def _ask(self, observed: Observations, seed: int) -> SearchPoint:
        from skopt import Optimizer

        optimizer = Optimizer(
            [_dimension(self.space.scales[key]) for key in self.space.free], self.base_estimator,
            n_initial_points=0, acq_func=self.acq_func, random_state=seed,
        )  # fmt: skip
        values = [value for _, value in observed.evaluated]
        # The liar of its `ask(n)`, cl_min (Ginsbourger et al. 2010).
        values += [min(values)] * len(observed.pending)
        points = [point for point, _ in observed.evaluated] + list(observed.pending)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of equal points, and of fits that did not converge
            optimizer.tell([self._row(point) for point in points], values)
            row = optimizer.ask()
        found: SearchPoint = {}
        for key, value in zip(self.space.free, row, strict=True):
            scale = self.space.scales[key]
            number = float if isinstance(scale, ScaleOfReals) else int  # instead of NumPy's, for JSON
            found[key] = scale.values[value] if isinstance(scale, Choice) else number(value)
        return self.space.drop_inactive(found)

    def _row(self, point: SearchPoint) -> list[Any]:
        """Return the values of all free keys in scikit-optimize's form; an inactive key has the middle of its values."""
        scales = {key: self.space.scales[key] for key in self.space.free}
        values = {key: point.get(key, scale.value_at(0.5)) for key, scale in scales.items()}
        return [
            scale.rank(values[key]) if isinstance(scale, Choice) else values[key]
            for key, scale in scales.items()
        ]


def _dimension(scale: Scale) -> Any:
    """Return a range, or the positions in a list: integers if its values are numbers, otherwise categories."""
    from skopt.space import Categorical, Integer, Real

    if isinstance(scale, Choice):
        last = scale.count - 1
        return Integer(0, last) if scale.width == 1 else Categorical(list(range(scale.count)))
    assert isinstance(scale, ScaleOfIntegers | ScaleOfReals)
    prior = "log-uniform" if scale.log else "uniform"
    return (Integer if isinstance(scale, ScaleOfIntegers) else Real)(scale.low, scale.high, prior=prior)
