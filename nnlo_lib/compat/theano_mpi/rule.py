"""Theano-MPI's rules: `rule.init` checks a model class and its devices, `rule.wait` trains it with one rank per device.

The settings of a rule mean an algorithm of nnlo; the exchange `cdd` sums the workers' momenta.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import yaml
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare
from nnlo_lib.algorithms.factory import build_algorithm
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.compat.importers.draft import named, render_import
from nnlo_lib.compat.importers.theano_mpi import (
    STRATEGIES,
    TheanoSession,
    find_theano_model,
    translate_session,
)
from nnlo_lib.compat.theano_mpi.iteration_model import flat_view, model_path
from nnlo_lib.config import Experiment, Run, merge_settings, suggest_name
from nnlo_lib.config.paths import RESULTS_FOLDER
from nnlo_lib.core.errors import RESUMABLE_REASONS, UserError
from nnlo_lib.experiment.load import experiment_from_settings
from nnlo_lib.launch.attempt import LaunchOptions, train_task
from nnlo_lib.preflight.preflight import check_experiment
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.single_run import train_and_evaluate

SYNC_TYPES = ("cdd", "avg")
# Attributes of each rule that scripts may set, as in Theano-MPI.
ATTRIBUTES = {"BSP": ("sync_type", "exch_strategy"), "EASGD": ("tau", "alpha"), "GOSGD": ("p",)}
DEVICE = re.compile(r"cuda\d+|cpu")


class MomentumSum(Algorithm):
    """After each step, write the sum of all workers' momenta v_i to V, with which the model moves its parameters.

        v_i <- mu v_i + g_i;    V <- sum_i v_i;    theta <- theta - lr V / n

    The model computes the first and the last equation in its `train_iter`. Invariant: the parameters of all
    ranks are equal if the model changes them by V only. Bytes per rank and step: an all-reduce of 4 P.

    Args:
        momenta: v_i, the model's `vels`.
        sums: V, the model's `vels2`.
    """

    def __init__(self, comm: Communicator, momenta: Sequence[Tensor], sums: Sequence[Tensor]) -> None:
        super().__init__(comm)
        self._momenta, self._sums = flat_view(momenta), flat_view(sums)

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        pass

    def on_parameters(self, replica: ReplicaView) -> None:
        self._sums.copy_(self._momenta)
        self.comm.allreduce(self._sums, "gradient")

    def before_evaluation(self, replica: ReplicaView) -> None:
        pass


@dataclass(frozen=True)
class RuleSettings:
    """Settings of a rule; Theano-MPI had them as class attributes of BSP or as constants in its source."""

    rule: str
    sync_type: str = "cdd"  # what BSP exchanges: `cdd` momenta, `avg` parameters
    exch_strategy: str = "nccl32"
    tau: int = 10  # steps of an EASGD worker between two exchanges
    alpha: float = 0.5  # elastic force of EASGD
    p: float = 0.01  # probability of a push of GOSGD

    def __post_init__(self) -> None:
        if self.sync_type == "swap":
            raise UserError(
                "sync_type: `swap` exchanges the parameters of random pairs, which no algorithm of nnlo does; use cdd or avg, "
                "or the rule GOSGD"
            )
        for key, known in (("sync_type", SYNC_TYPES), ("exch_strategy", STRATEGIES)):
            if (value := getattr(self, key)) not in known:
                raise UserError(f"{key}: unknown value '{value}'; {suggest_name(value, known)}")

    @property
    def servers(self) -> int:
        """Number of ranks that do not train."""
        return int(self.rule == "EASGD")

    @property
    def algorithm_settings(self) -> dict[str, Any]:
        """Settings of the algorithm that exchanges parameters; empty for `cdd`, which exchanges momenta."""
        if self.rule == "EASGD":
            return {"name": "easgd", "sync_every": self.tau, "alpha": self.alpha}
        if self.rule == "GOSGD":
            return {"name": "gosgd", "probability": self.p}
        return {"name": "average", "sync_every": 1} if self.sync_type == "avg" else {}

    def run(self, ranks: int, **sections: Any) -> Run:
        """Return the run of a number of ranks with other sections, such as `model`."""
        sections |= {
            "algorithm": self.algorithm_settings or {"name": "allreduce"},
            "parallel": {"ranks": ranks},
        }
        if self._is_half and self.algorithm_settings:
            sections["compression"] = {"name": "fp16"}
        return Run.model_validate(sections)

    @property
    def _is_half(self) -> bool:
        return self.rule == "BSP" and self.exch_strategy.endswith("16")

    def algorithm(self, model: Any, comm: Communicator) -> Algorithm:
        """Return this rank's algorithm. Raises UserError if the model lacks the momenta that `cdd` exchanges."""
        if self.algorithm_settings:
            return build_algorithm(self.run(comm.size), comm, seed=0)
        if self._is_half:
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


@dataclass(frozen=True)
class SessionTask(Task):
    """The training of a model class that takes its own steps, with the fields of RuleSettings and the device of each rank."""

    rank_module: ClassVar[str] = "nnlo_lib.compat.theano_mpi.iteration_session"
    rule: Mapping[str, Any] = field(default_factory=dict)
    devices: Sequence[str] = ()


def zoo_experiment(
    rule: RuleSettings, devices: Sequence[str], file: str, name: str, settings: Mapping[str, Any]
) -> Experiment:
    """Return the experiment of one of Theano-MPI's own models; print it to stderr with what differs in meaning.

    `file` is the dotted name of the module of class `name`; `settings` are keys that override those of the model.
    """
    keys = {"RULE": rule.rule, "MODELFILE": file, "MODELCLASS": name, "DEVICES": ",".join(devices)}
    if rule.rule == "BSP":
        keys |= {"BSP_SYNC_TYPE": rule.sync_type, "BSP_EXCH_STRATEGY": rule.exch_strategy}
    draft = translate_session(TheanoSession(keys))
    if "cpu" in devices:
        draft.override("parallel.gpus_per_rank", 0, f"devices={list(devices)}")
        draft.settings = [each for each in draft.settings if each.key != "parallel.gpu_exchange"]
    if rule.algorithm_settings:
        draft.override("algorithm", rule.algorithm_settings, f"attributes of {rule.rule}")
    text = render_import(draft, f"{rule.rule}.init").text
    print(text, file=sys.stderr)
    return experiment_from_settings(merge_settings(yaml.safe_load(text), dict(settings)))


class Rule:
    """Base class of the rules; their settings are class attributes, which scripts may set."""

    _name = ""  # name of the rule in Theano-MPI

    def __init__(self) -> None:
        self._training: Experiment | SessionTask | None = None
        self._launcher = ""

    def init(
        self,
        devices: Sequence[str],
        modelfile: str,
        modelclass: str,
        settings: Mapping[str, Any] | None = None,
        launcher: str = "mpiexec",
    ) -> None:
        """Check the training of a class of the user, or the experiment of one of Theano-MPI's own models.

        Args:
            devices: one device per rank, `cuda0`, `cuda1`, ... or `cpu`.
            modelfile: path or dotted name of the file; `theanompi.models. ...` is one of Theano-MPI's own.
            settings: keys of an experiment that override the keys of one of Theano-MPI's own models.
            launcher: command that starts the ranks.
        """
        given = {name: value for name, value in {**vars(type(self)), **vars(self)}.items() if name[0] != "_"}
        if unknown := sorted(set(given) - set(ATTRIBUTES[self._name])):
            raise UserError(
                f"{self._name}: no setting {unknown[0]}; {suggest_name(unknown[0], ATTRIBUTES[self._name])}"
            )
        rule = RuleSettings(self._name, **given)
        if isinstance(devices, str) or not all(DEVICE.fullmatch(each) for each in devices):
            raise UserError(
                f"devices: invalid value {devices!r}; write a list such as ['cuda0', 'cuda1'] or ['cpu', 'cpu']"
            )
        if "cpu" in devices and set(devices) != {"cpu"}:
            raise UserError(f"devices: {list(devices)} mixes cpu and cuda; use one kind")
        if len(devices) < (needed := 1 if self._name == "BSP" else 2):
            raise UserError(
                f"devices: {self._name} requires at least {needed}, got {len(devices)}; add devices"
            )
        self._launcher, self._training = launcher, None
        if find_theano_model(modelfile, modelclass):
            experiment = zoo_experiment(rule, devices, modelfile, modelclass, settings or {})
            check_experiment(experiment)
            self._training = experiment
            return
        if settings:
            raise UserError(
                f"settings: {modelfile}:{modelclass} sets its own constants; change them in the class"
            )
        path, name = model_path(modelfile), f"{modelclass}-{self._name.lower()}"
        if not Path(path).is_file():
            raise UserError(f"modelfile: {path} does not exist; start the script in the folder of the model")
        self._training = SessionTask(
            "theano_mpi", name, rule.run(len(devices), model={"name": f"{path}:{modelclass}"}), 0, None, 1, Path(),
            RESULTS_FOLDER / named(name), rule=asdict(rule), devices=tuple(devices),
        )  # fmt: skip

    def wait(self) -> Path:
        """Train to the end and return the folder of the results."""
        training = self._training
        if training is None:
            raise UserError("rule.wait: nothing was started; call rule.init first")
        if isinstance(training, Experiment):
            name, seed = next(iter(training.variants)), training.seeds[0]
            task, outcome = train_and_evaluate(training, name, seed, None, self._launcher)
        else:
            task, outcome = training, train_task(training, LaunchOptions(self._launcher))
            if outcome.reason in RESUMABLE_REASONS:
                error = f"{task.folder}: stopped ({outcome.reason}); a class with its own steps has no checkpoint, so start again"
                outcome = replace(outcome, error=error)
        if outcome.exit_status:
            raise UserError(
                outcome.error or f"{task.folder}: the training ended with reason {outcome.reason}"
            )
        return task.folder


class BSPRule(Rule):
    """Bulk-synchronous: all workers exchange momenta (`cdd`) or parameters (`avg`) after each step."""

    _name = "BSP"
    sync_type, exch_strategy = RuleSettings.sync_type, RuleSettings.exch_strategy


class EASGDRule(Rule):
    """Elastic averaging: the first device holds the center, the others train."""

    _name = "EASGD"
    tau, alpha = RuleSettings.tau, RuleSettings.alpha


class GOSGDRule(Rule):
    """Gossip: after each step, a worker pushes its parameters to a random other worker with probability `p`."""

    _name = "GOSGD"
    p = RuleSettings.p
