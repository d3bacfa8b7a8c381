"""Theano-MPI's rules: `rule.init` starts a model class on several devices, `rule.wait` waits for its end."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnlo_lib.compat.importers.draft import named
from nnlo_lib.compat.importers.theano_mpi.models import find_theano_model
from nnlo_lib.compat.theano_mpi.iteration_model import model_path
from nnlo_lib.compat.theano_mpi.rule_settings import RuleSettings
from nnlo_lib.compat.theano_mpi.zoo_experiment import zoo_experiment
from nnlo_lib.config import Experiment, suggest_name
from nnlo_lib.config.parallel import ParallelConfig
from nnlo_lib.config.paths import RESULTS_FOLDER
from nnlo_lib.core.errors import UserError
from nnlo_lib.launch.launcher import die_with_parent, rank_environment
from nnlo_lib.preflight.preflight import check_experiment
from nnlo_lib.workflow.single_run import train_and_evaluate

# Settings of each rule. The numbers were constants in Theano-MPI's source.
DEFAULTS: dict[str, dict[str, Any]] = {
    "BSP": {"sync_type": "cdd", "exch_strategy": "nccl32"},
    "EASGD": {"tau": 10, "alpha": 0.5},
    "GOSGD": {"p": 0.01},
}
DEVICE = re.compile(r"cuda\d+|cpu")


class Rule:
    """Base class of the rules; their settings are class attributes, which scripts may set."""

    _name = ""  # name of the rule in Theano-MPI

    def __init__(self) -> None:
        self._experiment: Experiment | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._folder, self._class = Path(), ""

    def init(
        self,
        devices: Sequence[str],
        modelfile: str,
        modelclass: str,
        settings: Mapping[str, Any] | None = None,
        launcher: str = "mpiexec",
    ) -> None:
        """Start the training of a class of the user, or check the experiment of one of Theano-MPI's own models.

        Args:
            devices: one device per rank, `cuda0`, `cuda1`, ... or `cpu`.
            modelfile: path or dotted name of the file; `theanompi.models. ...` is one of Theano-MPI's own.
            modelclass: name of the class.
            settings: keys of an experiment that override those of one of Theano-MPI's own models.
            launcher: command that starts the ranks, which takes `-n N`.

        Raises:
            UserError: if an argument is not valid.
        """
        rule = RuleSettings(self._name, **self._settings())
        _check_devices(devices, rule)
        self._class, self._launcher = modelclass, launcher
        self._experiment = self._process = None
        if find_theano_model(modelfile, modelclass):
            self._experiment = zoo_experiment(rule, devices, modelfile, modelclass, settings or {})
            check_experiment(self._experiment)
            return
        if settings:
            raise UserError(
                f"settings: {modelfile}:{modelclass} sets its own constants; change them in the class"
            )
        if not Path(model_path(modelfile)).is_file():
            raise UserError(
                f"modelfile: {model_path(modelfile)} does not exist; start the script in the folder of the model"
            )
        self._folder = RESULTS_FOLDER / named(f"{modelclass}-{rule.rule.lower()}")
        self._process = self._start(rule, devices, modelfile)

    def _settings(self) -> dict[str, Any]:
        """Return the attributes of this rule; a misspelt one, or one of another rule, is an error."""
        defaults = DEFAULTS[self._name]
        given = {
            name: value
            for name, value in {**vars(type(self)), **vars(self)}.items()
            if not name.startswith("_")
        }
        if unknown := set(given) - set(defaults):
            name = self._name
            raise UserError(
                f"{name}: no setting {sorted(unknown)[0]}; {suggest_name(sorted(unknown)[0], defaults)}"
            )
        return defaults | given

    def wait(self) -> Path:
        """Wait for the end of the training and return the folder of its results.

        Raises UserError if `init` was not called, or if the training failed.
        """
        if self._experiment:
            return self._train()
        if self._process is None:
            raise UserError("rule.wait: nothing was started; call rule.init first")
        try:
            status = self._process.wait()
        except KeyboardInterrupt:
            self._process.terminate()
            self._process.wait()
            raise
        if status:
            raise UserError(f"{self._class}: the ranks exited with status {status}; see their messages above")
        return self._folder

    def _train(self) -> Path:
        assert self._experiment
        name, seed = next(iter(self._experiment.variants)), self._experiment.seeds[0]
        task, outcome = train_and_evaluate(self._experiment, name, seed, None, self._launcher)
        if outcome.exit_status:
            raise UserError(
                outcome.error or f"{task.folder}: the training ended with reason {outcome.reason}"
            )
        return task.folder

    def _start(self, rule: RuleSettings, devices: Sequence[str], file: str) -> "subprocess.Popen[bytes]":
        session = {
            "settings": rule.as_dict(), "devices": list(devices), "modelfile": file, "modelclass": self._class,
            "folder": str(self._folder),
        }  # fmt: skip
        rank = [sys.executable, "-m", "nnlo_lib.compat.theano_mpi.iteration_session", json.dumps(session)]
        try:
            return subprocess.Popen(
                [*shlex.split(self._launcher), "-n", str(len(devices)), *rank], stdin=subprocess.DEVNULL,
                env=rank_environment(ParallelConfig(ranks=len(devices))), preexec_fn=die_with_parent,
            )  # fmt: skip
        except OSError as error:
            raise UserError(
                f"launcher: cannot start '{self._launcher}': {error}; check the command"
            ) from error


class BSPRule(Rule):
    """Bulk-synchronous: all workers exchange momenta (`cdd`) or parameters (`avg`) after each step."""

    _name = "BSP"
    sync_type, exch_strategy = DEFAULTS["BSP"].values()


class EASGDRule(Rule):
    """Elastic averaging: the first device holds the center, the others train."""

    _name = "EASGD"
    tau, alpha = DEFAULTS["EASGD"].values()


class GOSGDRule(Rule):
    """Gossip: after each step, a worker pushes its parameters to a random other worker with probability `p`."""

    _name = "GOSGD"
    (p,) = DEFAULTS["GOSGD"].values()


def _check_devices(devices: Sequence[str], rule: RuleSettings) -> None:
    if isinstance(devices, str) or not all(DEVICE.fullmatch(each) for each in devices):
        raise UserError(
            f"devices: invalid value {devices!r}; write a list such as ['cuda0', 'cuda1'] or ['cpu', 'cpu']"
        )
    if "cpu" in devices and set(devices) != {"cpu"}:
        raise UserError(f"devices: {list(devices)} mixes cpu and cuda; use one kind")
    if len(devices) < (needed := 1 if rule.rule == "BSP" else 2):
        raise UserError(f"devices: {rule.rule} requires at least {needed}, got {len(devices)}; add devices")
