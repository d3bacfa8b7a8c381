"""Training loop of one rank, for models that take their own steps."""

import json

from nnlo_lib.algorithms.base import SampleShare
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.compat.theano_mpi.iteration_model import IterationModel
from nnlo_lib.compat.theano_mpi.iteration_recorder import IterationRecorder
from nnlo_lib.compat.theano_mpi.parameter_view import ParameterView
from nnlo_lib.compat.theano_mpi.rule_settings import RuleSettings
from nnlo_lib.core.errors import UserError


class IterationRank:
    """Trains a model that takes its own steps, and exchanges its parameters by the algorithm of a rule.

    Args:
        model: the model of this rank.
        comm: communicator of all ranks.
        settings: settings of the rule.

    Raises:
        UserError: if the workers have different numbers of batches.
    """

    def __init__(self, model: IterationModel, comm: Communicator, settings: RuleSettings) -> None:
        self.model, self.comm = model, comm
        self.workers, self.is_server = comm.size - settings.servers, comm.rank < settings.servers
        self.view, self.recorder = ParameterView(model.params), IterationRecorder(comm)
        self.algorithm = settings.algorithm(model, comm)
        self._scales = settings.rule == "BSP" and settings.sync_type == "avg"
        self._iterations = 0
        numbers = comm.gather(
            None if self.is_server else [model.data.n_batch_train, model.n_subb, model.n_epochs]
        )
        if len({json.dumps(each) for each in numbers if each is not None}) > 1:
            raise UserError(
                f"n_batch_train, n_subb, n_epochs: the workers have {numbers[settings.servers :]}; give all workers as many "
                "batches and epochs"
            )

    def run(self) -> list[dict[str, float]]:
        """Train all epochs and return one row of means per epoch."""
        model, rows = self.model, []
        model.compile_iter_fns()
        # As in Theano-MPI, where an average of parameters is as fast as one worker.
        if self._scales and hasattr(model, "scale_lr"):
            model.scale_lr(self.workers)
        self.algorithm.start(self.view)
        for epoch in range(model.n_epochs):
            model.epoch = epoch
            self._serve_or_train()
            stop = self._validate()
            rows.append({"epoch": epoch + 1, "iterations": self._iterations} | self.recorder.end_epoch())
            measured = (rows[-1][f"val_{name}"] for name in ("cost", "error", "error_top5"))
            model.current_info = [self._iterations, *measured]
            model.adjust_hyperp(epoch)
            if any(self.comm.gather(stop)):
                break
        self.algorithm.on_finish(self.view)
        model.cleanup()
        return rows

    def _serve_or_train(self) -> None:
        if self.is_server:
            self.algorithm.serve(self.view, lambda: False)
        else:
            self._train_epoch()
        self.algorithm.quiesce(self.view)
        # A server takes no steps; the history counts those of one worker.
        self._iterations = max(self.comm.gather(self._iterations))

    def _train_epoch(self) -> None:
        model, batch = self.model, 0
        while batch < model.data.n_batch_train:
            following = None
            for _ in range(model.n_subb):
                following = self._step()
            batch = batch + 1 if following is None else following
        model.reset_iter("train")

    def _step(self) -> int | None:
        share = SampleShare(1, self.workers)
        self.algorithm.on_batch(self.view, share)
        # Before the model's step: EASGD moves the parameters, then takes `tau` steps, as Theano-MPI did.
        self.algorithm.on_gradient(self.view, share)
        following = self.model.train_iter(self._iterations, self.recorder)
        self.algorithm.on_parameters(self.view)
        self.algorithm.should_stop(False)
        self._iterations += 1
        return following

    def _validate(self) -> bool:
        """Measure the model of the algorithm on each worker's validation batches; return True to stop."""
        self.algorithm.before_evaluation(self.view)
        stop = False
        if not self.is_server:
            for _ in range(self.model.data.n_batch_val * self.model.n_subb):
                stop |= self.model.val_iter(self._iterations, self.recorder) == "stop"
            self.model.reset_iter("val")
        self.algorithm.after_evaluation(self.view)
        return stop
