"""Settings of a Theano-MPI rule, and the algorithm of nnlo that they mean."""

from dataclasses import asdict, dataclass
from typing import Any

from nnlo_lib.algorithms.base import Algorithm
from nnlo_lib.algorithms.factory import build_algorithm
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.compat.theano_mpi.iteration_model import IterationModel
from nnlo_lib.compat.theano_mpi.momentum_sum import MomentumSum
from nnlo_lib.config import Run, suggest_name
from nnlo_lib.core.errors import UserError

RULES = ("BSP", "EASGD", "GOSGD")
SYNC_TYPES = ("cdd", "avg")
# All-to-all and trees were routes for the same sums; the names that end with 16 send half precision.
STRATEGIES = ("ar", "nccl32", "nccl16", "asa32", "asa16", "copper", "copper16")


@dataclass(frozen=True)
class RuleSettings:
    """Settings of a rule; Theano-MPI had them as class attributes of BSP or as constants in its source.

    Attributes:
        rule: BSP, EASGD or GOSGD.
        sync_type: what BSP exchanges: `cdd` momenta, `avg` parameters.
        exch_strategy: how BSP exchanges.
        tau: steps of an EASGD worker between two exchanges.
        alpha: elastic force of EASGD.
        p: probability of a push of GOSGD.

    Raises:
        UserError: if a value is unknown, or has no counterpart.
    """

    rule: str
    sync_type: str = "cdd"
    exch_strategy: str = "nccl32"
    tau: int = 10
    alpha: float = 0.5
    p: float = 0.01

    def __post_init__(self) -> None:
        if self.sync_type == "swap":
            raise UserError(
                "sync_type: `swap` exchanges the parameters of random pairs, which no algorithm of nnlo does; use cdd or avg, "
                "or the rule GOSGD"
            )
        if self.sync_type not in SYNC_TYPES:
            raise UserError(
                f"sync_type: unknown value '{self.sync_type}'; {suggest_name(self.sync_type, SYNC_TYPES)}"
            )
        if self.exch_strategy not in STRATEGIES:
            raise UserError(
                f"exch_strategy: unknown value '{self.exch_strategy}'; {suggest_name(self.exch_strategy, STRATEGIES)}"
            )

    @property
    def is_half(self) -> bool:
        """True if messages are in half precision."""
        return self.exch_strategy.endswith("16")

    @property
    def servers(self) -> int:
        """Number of ranks that do not train."""
        return int(self.rule == "EASGD")

    def as_dict(self) -> dict[str, Any]:
        """Return the settings by name."""
        return asdict(self)

    @property
    def algorithm_settings(self) -> dict[str, Any]:
        """Settings of the algorithm that exchanges parameters; empty for `cdd`, which exchanges momenta."""
        settings: dict[str, dict[str, Any]] = {
            "BSP": {"name": "average", "sync_every": 1} if self.sync_type == "avg" else {},
            "EASGD": {"name": "easgd", "sync_every": self.tau, "alpha": self.alpha},
            "GOSGD": {"name": "gosgd", "probability": self.p},
        }
        return settings[self.rule]

    def algorithm(self, model: IterationModel, comm: Communicator) -> Algorithm:
        """Return this rank's algorithm.

        Raises UserError if the model lacks the momenta that `cdd` exchanges.
        """
        if not self.algorithm_settings:
            return _momentum_sum(model, comm, self.is_half)
        half = self.rule == "BSP" and self.is_half
        settings = {"algorithm": self.algorithm_settings, "parallel": {"ranks": comm.size}}
        run = Run.model_validate(settings | ({"compression": {"name": "fp16"}} if half else {}))
        return build_algorithm(run, comm, seed=0)


def _momentum_sum(model: IterationModel, comm: Communicator, is_half: bool) -> MomentumSum:
    if is_half:
        raise UserError(
            "exch_strategy: half precision with sync_type cdd is not available for a model with its own iterations; use "
            "nccl32, or sync_type avg"
        )
    momenta, sums = getattr(model, "vels", None), getattr(model, "vels2", None)
    if not momenta or not sums:
        raise UserError(
            "sync_type: cdd exchanges the momenta `vels` to `vels2`, which the class lacks; add both lists of tensors, "
            'or set BSP.sync_type = "avg"'
        )
    sizes = [[tuple(each.shape) for each in tensors] for tensors in (momenta, sums, model.params)]
    if not sizes[0] == sizes[1] == sizes[2]:
        raise UserError("sync_type: vels, vels2 and params have different shapes; make them alike")
    return MomentumSum(comm, momenta, sums)
