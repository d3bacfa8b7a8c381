"""Recomputation of importance and partial dependence with a forest of scikit-learn."""

import math
from functools import cache, cached_property

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.raw import counted
from helpers.recomputation.search.charts import axes, categories, charts_of, levels
from helpers.recomputation.search.study import RawStudy

TREES, LEAF, SHUFFLES, PARTS, GRID, WIDE_RANGE = 100, 2, 5, 5, 24, 8
LEAST_EXPLAINED = 0.2  # share of the variance below which a page shows no importances


def _forest() -> RandomForestRegressor:
    return RandomForestRegressor(TREES, min_samples_leaf=LEAF, random_state=0)


class Forest:
    """The forest of a search: a column per key, and one for the epochs."""

    def __init__(self, study: RawStudy) -> None:
        self.space, self.study = study.search["space"], study
        self.inputs = np.array(
            [
                [*(self.number(key, each.point[key]) for key in self.space), each.epochs]
                for each in study.ranked
            ]
        )
        targets = np.array([each.objective.mean for each in study.ranked])
        # A few very poor trials would dominate the squared error: values of a wide range are predicted as logarithms.
        self.logarithmic = bool(targets.max() / targets.min() > WIDE_RANGE)
        targets = np.log(targets) if self.logarithmic else targets
        self.targets = targets
        self.model = _forest().fit(self.inputs, targets)
        self.explained = self._explained(self.inputs)
        self.is_reliable = self.explained >= LEAST_EXPLAINED
        positive = np.clip(self._drops(), 0, None)
        shares = positive / (positive.sum() or 1) * max(self.explained, 0.0)
        self.shares = dict(zip(self.space, shares[:-1], strict=True))

    def _explained(self, inputs: np.ndarray) -> float:
        """Return the share of the variance that is explained by predictions for trials that were held out of a fit.

        Args:
            inputs: inputs of the predictions; the fits have the inputs of the trials.
        """
        predicted = np.empty(len(self.targets))
        for _, held_out in self._parts:
            predicted[held_out] = self._models[held_out[0]].predict(inputs[held_out])
        return float(r2_score(self.targets, predicted))

    @cached_property
    def _parts(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return list(KFold(PARTS, shuffle=True, random_state=0).split(self.inputs))

    @cached_property
    def _models(self) -> dict[int, RandomForestRegressor]:
        """The forest of each part, by the first trial that it does not know."""
        return {
            held_out[0]: _forest().fit(self.inputs[fitted], self.targets[fitted])
            for fitted, held_out in self._parts
        }

    def _drops(self) -> np.ndarray:
        """Return the decrease of the explained share when the values of each input are shuffled."""
        random, found = np.random.default_rng(0), []
        for column in range(self.inputs.shape[1]):
            scores = []
            for _ in range(SHUFFLES):
                changed = self.inputs.copy()
                changed[:, column] = random.permutation(self.inputs[:, column])
                scores.append(self._explained(changed))
            found.append(self.explained - np.mean(scores))
        return np.array(found)

    def number(self, key: str, value: float) -> float:
        """Return the input of the forest: the index of a choice, or the value or its logarithm."""
        if choices := self.study.choices(key):
            return float(choices.index(value))
        return math.log(value) if self.is_log(key) else value

    def is_log(self, key: str) -> bool:
        return "log" in str({name for name, value in self.space[key].items() if value})

    def dependence(self, key: str) -> list[tuple[float, float]]:
        """Return values of a key and the mean prediction for all trials with this value and the most epochs."""
        column = list(self.space).index(key)
        choices = self.study.choices(key)
        low, high = self.inputs[:, column].min(), self.inputs[:, column].max()
        found = []
        for value in range(len(choices)) if choices else np.linspace(low, high, GRID):
            changed = self.inputs.copy()
            changed[:, -1], changed[:, column] = self.inputs[:, -1].max(), value
            at = math.exp(value) if self.is_log(key) and not choices else value
            level = float(self.model.predict(changed).mean())
            found.append((float(at), math.exp(level) if self.logarithmic else level))
        return found


@cache
def forest_of(study: RawStudy) -> Forest:
    """Return the forest of a search, fitted once."""
    return Forest(study)


def check_importance(audit: Audit, study: RawStudy) -> None:
    """Compare importances, their order and sum, and the explained variance; none are shown of a poor forest."""
    section, forest = audit.page.section("search"), forest_of(study)
    note = next(each for each in section.all("p", "aside") if "random forest" in each.text)
    target = "the logarithm of the objective" if forest.logarithmic else "the objective"
    template = f"A random forest ({{}} trees, {counted(len(study.ranked), 'trial')}) predicts {target}."
    audit.says(note, template, TREES)
    template = (
        f"For held-out trials ({PARTS}-fold cross-validation), the forest explains {{}} of the variance"
    )
    audit.says(note, template, max(0.0, forest.explained))
    if forest.is_reliable:
        audit.says(note, "permutation importance (Breiman 2001)")
        return _check_bars(audit, section, forest)
    audit.require(not section.all("div", "bars"), section, "importances of a forest that explains too little")
    return audit.says(note, "less than {}: importances are not shown", LEAST_EXPLAINED)


def _check_bars(audit: Audit, section: Element, forest: Forest) -> None:
    bars = section.first("div", "bars").all("div", "bar")
    ranked = sorted(forest.shares, key=lambda key: -forest.shares[key])
    shown = [bar.first("span", "label").text for bar in bars]
    audit.require(shown == ranked, section, f"the order is {ranked}")
    for bar, key in zip(bars, ranked, strict=False):
        audit.same(bar.first("span", "total"), "{}", forest.shares[key])
        width = forest.shares[key] / (forest.shares[ranked[0]] or 1)
        audit.percentage(bar.first("span", "part"), "width", width, 0.0051)


def check_dependence(audit: Audit, study: RawStudy) -> None:
    """Compare the curves of partial dependence."""
    forest = forest_of(study)
    drawn = {key for key in forest.space if charts_of(audit, key)}
    wanted = {key for key, share in forest.shares.items() if share > 0 and forest.is_reliable}
    audit.require(
        drawn == wanted, audit.page, f"partial dependence of {sorted(wanted)}, drawn {sorted(drawn)}"
    )
    for key in study.search["space"]:
        for chart in charts_of(audit, key):
            found = (
                categories(audit, chart, study.choices(key))
                if study.choices(key)
                else axes(audit, chart, "log scale" if forest.is_log(key) else "")
            )
            drawn = [place for path in chart.all("path", "leader") for place in levels(path)]
            expected = forest.dependence(key)
            for path in chart.all("path", "leader"):
                path.attributes["d"].explain()
            audit.require(len(drawn) == len(expected), chart, f"{len(drawn)} points, not {len(expected)}")
            for title, (_, value) in zip(
                (each.first("title") for each in chart.all("g")), expected, strict=False
            ):
                audit.same(title, "{}", value)
            for place, (value, level) in zip(drawn, expected, strict=False) if found else ():
                wanted = found[0].place(value), found[1].place(level)
                near = abs(place[0] - wanted[0]) < 0.6 and abs(place[1] - wanted[1]) < found[1].tolerance(
                    wanted[1]
                )
                audit.require(near, chart, f"{place} is drawn, recomputed {wanted} ({key} = {value})")
