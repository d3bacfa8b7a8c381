"""Whether a run could be done again, bit for bit, from what its summary says."""

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from nnlo_lib.config import Run
from nnlo_lib.config.validity import needs
from nnlo_lib.verify.finding import Finding, failed, note, ok
from nnlo_lib.verify.finished import Finished


def reproducible(run: Finished) -> Iterator[Finding]:
    """Tell every reason why not."""
    if run.run.hash != run.summary["config_hash"]:
        yield failed(
            "the configuration in summary.json was changed: it has another hash than config_hash says"
        )
    reasons = [*_of_code(str(run.summary["code_version"])), *_of_course(run.run), *_of_legs(run)]
    yield from (note(f"not reproducible bit for bit: {reason}") for reason in reasons)
    if not reasons:
        yield ok(f"reproducible bit for bit from summary.json, with code {run.summary['code_version']}")
    if differing := list(_differing(run.summary["packages"])):
        yield note(f"to reproduce it, install the packages in summary.json: here {'; '.join(differing)}")


def _of_code(code: str) -> Iterator[str]:
    if not code.endswith(")"):
        yield f"its code version is {code}, which names no commit"
    elif code.endswith("+)"):
        yield f"its code had changes that were not committed ({code})"


def _of_course(run: Run) -> Iterator[str]:
    """Tell what in a training depends on chance or on the machine."""
    parallel, algorithm = run.parallel, run.algorithm
    virtual = parallel.transport == "simulated"
    if not virtual and needs(algorithm).asynchronous and not getattr(algorithm, "synchronous", False):
        yield f"the ranks of {algorithm.name} do not wait for each other: who comes first is left to chance"
    if not virtual and getattr(algorithm, "reduction", "") == "fastest":
        yield "algorithm.reduction fastest lets MPI choose the order in which gradients are added"
    if virtual and parallel.simulation.sample_seconds == "measured":
        yield "parallel.simulation.sample_seconds measured makes the course depend on how fast the machine was"
    if parallel.gpus_per_rank:
        yield "it was computed on GPUs, whose sums may be added in another order each time"
    if run.model.file:
        yield _outside("its network is in", run.model.file)
    if run.model.weights:
        yield _outside("its initial weights are in", run.model.weights)


def _of_legs(run: Finished) -> Iterator[str]:
    """Tell how the training changed on its way."""
    if run.resized:
        legs = [f"{leg['ranks']} from step {leg['step']:,}" for leg in run.legs]
        yield f"its number of ranks changed ({', '.join(legs) or 'state/attempts.jsonl says when'})"
    if len({leg["code"] for leg in run.legs}) > 1:
        legs = [f"{leg['code']} from step {leg['step']:,}" for leg in run.legs]
        yield f"its code changed ({', '.join(legs)})"


def _outside(what: str, path: str) -> str:
    gone = "" if Path(path).is_file() else " and which is not here"
    return f"{what} {path}, which summary.json does not hold{gone}"


def _differing(packages: dict[str, str]) -> Iterator[str]:
    for name, then in packages.items():
        now = platform.python_version() if name == "python" else _installed(name)
        if now != then:
            yield f"{name} is {now}, then it was {then}"


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
