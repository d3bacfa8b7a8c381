"""What each algorithm needs of the rest of an experiment and what it allows: the matrix that experiments are held to."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from nnlo_lib.config.algorithm import Algorithm
from nnlo_lib.config.compression import BF16, FP16, NoCompression
from nnlo_lib.config.gan import gan_faults
from nnlo_lib.config.schedule import Constant
from nnlo_lib.config.speed import speed_faults
from nnlo_lib.config.topology import Complete
from nnlo_lib.config.watching import watching_faults

Graph = Literal[
    "connected", "symmetric", "doubly stochastic", "static", "bipartite", "eigenvalues above -1/3"
]

Step = Literal["worker's", "server's", "algorithm's"]
UNSCHEDULED: dict[Step, str] = {
    "server's": "steps on its server, which knows no schedule",
    "algorithm's": "has no optimizer, its step follows from algorithm.beta",
}


@dataclass(frozen=True)
class Needs:
    """One row of the matrix.

    graph: what the topology must be, empty where there is none; compression: of what is exchanged (cast: fp16 and
    bf16 only); groups: workers of several processes; masters: servers below a server; step: whose rule it follows
    (only a worker's has a schedule); one_model: all ranks hold one model after an epoch; elastic: a run goes on with
    another number of ranks; asynchronous: unless said to be synchronous, no worker waits for another; buffers:
    batch-norm statistics are averaged when replicas are, or each node's own; remembers: what is compressed is what
    changed since earlier rounds.
    """

    graph: tuple[Graph, ...] = ()
    compression: Literal["any", "cast", "none"] = "none"
    groups: bool = True
    masters: bool = False
    step: Step = "worker's"
    one_model: bool = False
    elastic: bool = False
    asynchronous: bool = False
    ranks: int = 1
    remembers: bool = True

    @property
    def schedule(self) -> bool:
        """Whether the learning rate may change as the run goes on."""
        return self.step == "worker's"

    @property
    def buffers(self) -> str:
        """What becomes of batch-norm statistics."""
        return "averaged" if self.one_model or self.masters else "own"


MIXING: tuple[Graph, ...] = ("connected", "symmetric", "doubly stochastic")
SERVED = Needs(masters=True, step="server's", asynchronous=True, ranks=2)
MATRIX = {
    "allreduce": Needs(compression="any", groups=False, one_model=True, elastic=True),
    "average": Needs(compression="any", one_model=True, elastic=True),
    "diloco": Needs(compression="any", one_model=True, elastic=True),
    "individual": Needs(),
    "downpour": replace(SERVED, compression="any", one_model=True, elastic=True),
    "easgd": replace(SERVED, compression="cast", step="worker's", elastic=True),
    "gem": replace(SERVED, compression="any", step="worker's"),
    "gosgd": Needs(compression="cast", asynchronous=True, ranks=2, groups=False),
    "sgp": Needs(graph=("connected",), compression="cast", remembers=False, groups=False),
    "adpsgd": Needs(
        graph=("connected", "symmetric", "static", "bipartite"),
        compression="cast",
        asynchronous=True,
        groups=False,
        ranks=2,
    ),
    "dsgd": Needs(graph=MIXING, compression="cast", groups=False),
    "dsgt": Needs(graph=MIXING, compression="cast", groups=False),
    "d2": Needs(graph=(*MIXING, "static", "eigenvalues above -1/3"), compression="cast", groups=False),
    "dinno": Needs(graph=("connected", "symmetric"), compression="cast", groups=False, ranks=2),
    "prox_pda": Needs(
        graph=("connected", "symmetric", "static"),
        compression="cast",
        groups=False,
        step="algorithm's",
        ranks=2,
    ),
    "next": Needs(graph=MIXING, compression="cast", groups=False),
    "choco_sgd": Needs(graph=(*MIXING, "static"), compression="any", groups=False),
}


def needs(algorithm: Algorithm) -> Needs:
    """Return the row of an algorithm."""
    return MATRIX["dinno" if algorithm.name == "cadmm" else algorithm.name]


class Fault(NamedTuple):
    """Why a combination makes no sense, and the key to point at."""

    reason: str
    at: tuple[str, ...]


def fault(run: Any) -> Fault | None:
    """Return the first reason why a run (config.Run) cannot be, as far as it shows without drawing its graph."""
    return next(_faults(run, run.algorithm.name, needs(run.algorithm)), None)


def rigid(run: Any) -> str | None:
    """Return why a run (config.Run) cannot go on with another number of ranks; None if it can."""
    row, name = needs(run.algorithm), run.algorithm.name
    if not row.elastic:
        return f"each rank of {name} holds a state that no other can take over"
    if run.data.partition.name != "iid":
        return "its workers have samples of their own (data.partition)"
    if run.train.steps_per_epoch is not None:
        return "train.steps_per_epoch makes an epoch's samples depend on the number of workers"
    if not isinstance(run.compression, NoCompression):
        return "each rank keeps the errors of its own compressed vectors"
    if run.parallel.processes_per_worker > 1 or getattr(run.algorithm, "masters", 1) > 1:
        return "its workers or servers are groups of ranks"
    return None


def _faults(run: Any, name: str, row: Needs) -> Iterator[Fault]:
    ranks, group = run.parallel.ranks, run.parallel.processes_per_worker
    masters = getattr(run.algorithm, "masters", 1)
    servers = masters if row.masters else 0
    if ranks < row.ranks:
        yield Fault(f"{name} needs at least {row.ranks} ranks: {_why_two(row)}", ("parallel", "ranks"))
    if group > 1 and not row.groups:
        yield Fault(
            f"{name} has no workers of several processes; use more ranks",
            ("parallel", "processes_per_worker"),
        )
    if (ranks - servers) % group:
        less = {0: "", 1: " less one server"}.get(servers, f" less {servers} servers")
        yield Fault(
            f"{ranks} ranks{less} do not divide into workers of {group}",
            ("parallel", "ranks"),
        )
    if masters > 1 and (ranks - masters) // group < masters - 1:
        yield Fault(
            f"{masters} masters need {masters - 1} workers at least, one for each below the root",
            ("algorithm", "masters"),
        )
    if name == "easgd" and run.algorithm.alpha is None:
        yield from _spring_faults(run.algorithm.elastic_force, (ranks - masters) // group)
    yield from _step_faults(run.train, name, row)
    if run.train.dealing == "dynamic":
        yield from _dealing_faults(run, name, row)
    yield from _compression_faults(run, name, row)
    yield from _mode_faults(run)
    yield from (Fault(*each) for each in (*speed_faults(run), *gan_faults(run), *watching_faults(run)))


def _spring_faults(force: float, workers: int) -> Iterator[Fault]:
    if force >= workers:
        yield Fault(
            f"alpha = elastic_force / workers would be {force / workers:g}, and springs overshoot from 1 on; "
            f"take less than {workers}",
            ("algorithm", "elastic_force"),
        )


def _step_faults(train: Any, name: str, row: Needs) -> Iterator[Fault]:
    """Yield what would change a learning rate that is not used."""
    if row.schedule:
        return
    why = f"{name} {UNSCHEDULED[row.step]}"
    if not isinstance(train.schedule, Constant):
        yield Fault(f"{why}; use constant", ("train", "schedule"))
    if train.warm_up:
        yield Fault(f"{why}; leave it out", ("train", "warm_up"))
    if row.step == "algorithm's" and train.scale_lr != "none":
        yield Fault(f"{why}; use none", ("train", "scale_lr"))


def unused(run: Any) -> Iterator[Fault]:
    """Yield what a run (config.Run) has and its algorithm does not use, where several runs may share it."""
    row, name = needs(run.algorithm), run.algorithm.name
    if not row.graph and run.topology != Complete():
        yield Fault(
            f"{name} has no graph, its ranks talk to whom it says; leave it out, or write complete",
            ("topology",),
        )
    if row.step == "algorithm's":
        yield Fault(f"{name} {UNSCHEDULED[row.step]}; leave it out", ("train", "optimizer"))


def _dealing_faults(run: Any, name: str, row: Needs) -> Iterator[Fault]:
    if not row.asynchronous or getattr(run.algorithm, "synchronous", False):
        yield Fault(f"the workers of {name} wait for each other; use static", ("train", "dealing"))
    if run.data.partition.name != "iid":
        yield Fault(
            "workers that have samples of their own cannot take others'; use static", ("train", "dealing")
        )
    if run.parallel.processes_per_worker > 1:
        yield Fault("the processes of a worker wait for each other; use static", ("train", "dealing"))
    if run.train.validate_every is not None:
        yield Fault("no worker knows how many steps the others do; use static", ("train", "validate_every"))


def _why_two(row: Needs) -> str:
    return "one server and one worker" if row.masters else "a node needs another to agree with"


def _compression_faults(run: Any, name: str, row: Needs) -> Iterator[Fault]:
    casts, nothing = isinstance(run.compression, FP16 | BF16), isinstance(run.compression, NoCompression)
    if nothing or row.compression == "any" or (casts and row.compression == "cast"):
        return
    able = ", ".join(other for other, needs in MATRIX.items() if needs.compression == "any")
    also = "; of the casts fp16 and bf16 it allows both" if row.compression == "cast" else ""
    yield Fault(
        f"{name} cannot go on from compressed vectors; {able} can{also}",
        ("compression", "name"),
    )


def _mode_faults(run: Any) -> Iterator[Fault]:
    if getattr(run.algorithm, "reduction", "") == "fastest" and not isinstance(
        run.compression, NoCompression
    ):
        yield Fault(
            "compressed gradients are always added in rank order; leave it out", ("algorithm", "reduction")
        )
    if getattr(run.algorithm, "mixing", "") == "in_place" and not isinstance(run.compression, NoCompression):
        yield Fault("in_place mixing sends parameters as they are; use simultaneous", ("algorithm", "mixing"))
