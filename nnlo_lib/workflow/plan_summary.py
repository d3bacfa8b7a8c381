"""Summary of an experiment in one sentence."""

from nnlo_lib.config import Experiment
from nnlo_lib.config.search import SearchConfig
from nnlo_lib.search.space.space import count_trials
from nnlo_lib.workflow.plan import Plan


def summarize_plan(experiment: Experiment) -> str:
    """Return a phrase that lists the experiment's search, trainings and conversions."""
    plan = Plan.of(experiment)
    parts = [_describe_search(experiment.search)] if experiment.search else []
    if plan.jobs:
        runs = (
            f"{name} ({run.algorithm.name}, {run.parallel.ranks} ranks)" for name, run in plan.runs.items()
        )
        parts.append(f"{len(plan.jobs)} trainings of {', '.join(runs)}")
    shards = sum(map(len, plan.shards.values()))
    conversions = f", after the conversion of {shards:,} shards" if shards else ""
    return f"{'; '.join(parts)}{conversions}"


def _describe_search(search: SearchConfig) -> str:
    folds = f" of {search.folds.k} folds" if search.folds.k > 1 else ""
    rungs = "" if search.fidelity.name == "full" else f", {search.fidelity.name}"
    keys = ", ".join(search.space)
    return f"a search ({search.method.name}{rungs}) of {count_trials(search)} trials{folds} over {keys}"
