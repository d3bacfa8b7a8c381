"""Several networks in one flat vector, each with its own optimizer."""

from typing import Any

import torch
from torch import nn

from nnlo_lib.config.optimizer import OptimizerConfig
from nnlo_lib.config.problem import GanConfig, ProblemConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.train.optimizers import factory as rules
from nnlo_lib.train.optimizers.parameter_layout import Layout, layout_of_prefix
from nnlo_lib.train.replica.replica import Replica

Parameters = list[nn.Parameter]  # exactly one: the flat parameter of a replica


def attach_optimizers(replica: Replica, rule: OptimizerConfig, problem: ProblemConfig) -> None:
    """Give a replica the configured optimizer, or one optimizer for each network of a GAN.

    Args:
        replica: replica of this rank.
        rule: settings of the optimizer; for a GAN, of the critic's and, unless `problem` has others, of the
            generator's.
        problem: settings of the problem; for a GAN, they may contain the generator's optimizer and the bound
            on the critic's weights.

    Raises:
        UserError: if the model of a GAN lacks `latent` or one of its networks.
    """
    if isinstance(problem, GanConfig):
        if not isinstance(getattr(replica.module, "latent", None), int):
            raise UserError(
                "model.name: the model of a GAN needs an integer attribute `latent`, the length of the generator's noise"
            )
        replica.set_optimizer(lambda parameters: _of_gan(parameters, replica.layout, rule, problem))
    else:
        rules.attach_optimizer(replica, rule)


def clip_weights(replica: Replica) -> None:
    """Move the weights of a GAN's critic into their bound, if any, without a step."""
    if isinstance(replica.optimizer, MultiNetworkOptimizer):
        replica.optimizer.clip_weights()


def _of_gan(
    parameters: Parameters, layout: Layout, rule: OptimizerConfig, problem: GanConfig
) -> torch.optim.Optimizer:
    whole, generators = parameters[0], problem.generator_optimizer or rule
    networks = [
        NetworkOptimizer("generator", generators, whole, layout),
        NetworkOptimizer("critic", rule, whole, layout, clip=problem.weight_clip),
    ]
    return rules.uncompiled(MultiNetworkOptimizer)(parameters, lr=rule.lr, networks=networks)


class NetworkOptimizer:
    """One network: its slice of a flat parameter, its optimizer and, if any, the bound on its weights.

    Args:
        name: attribute of the model that holds the network.
        rule: settings of its optimizer.
        whole: flat parameter of all networks.
        layout: positions of the model's parameters in the flat one.
        clip: largest absolute value of its weights; None for no limit.

    Raises:
        UserError: if the model has no network with this name.
    """

    def __init__(
        self,
        name: str,
        rule: OptimizerConfig,
        whole: nn.Parameter,
        layout: Layout,
        clip: float | None = None,
    ) -> None:
        self._prefix, self._lr, self._clip = f"{name}.", rule.lr, clip
        self.slice, own = layout_of_prefix(layout, self._prefix)
        self._piece = nn.Parameter(whole.detach()[self.slice])
        self._optimizer = rules.build_optimizer(rule, self._piece, own)

    def step(self, whole: nn.Parameter, moments: dict[str, Any], factor: float) -> None:
        """Update the network at `factor` times its learning rate, unless its gradient is zero.

        Args:
            whole: flat parameter of all networks, with its gradient.
            moments: optimizer state of all networks; updated in place.
            factor: factor on the learning rate of the network's optimizer.
        """
        assert whole.grad is not None, "the flat parameter has no gradient"
        self._piece.grad = whole.grad[self.slice]
        # A generator has gradients only in some steps; momentum and weight decay would move it in the
        # others.
        if self._piece.grad.any():
            self._update(moments, factor)
        self.clip_weights()

    def _update(self, moments: dict[str, Any], factor: float) -> None:
        self._optimizer.param_groups[0]["lr"] = self._lr * factor
        if mine := self._mine(moments):
            self._optimizer.state[self._piece] = mine
        self._optimizer.step()
        state = self._optimizer.state[self._piece]
        moments |= {f"{self._prefix}{name}": value for name, value in state.items()}

    def clip_weights(self) -> None:
        """Move the weights into their bound, if any."""
        if self._clip is not None:
            # Weight clipping bounds the critic's slope (Arjovsky et al. 2017, Wasserstein GAN, algorithm 1).
            self._piece.data.clamp_(-self._clip, self._clip)

    def _mine(self, moments: dict[str, Any]) -> dict[str, Any]:
        """Return this network's moments, with counts on the device that its optimizer requires."""
        counts_at = self._piece.device if self._optimizer.defaults.get("fused") else "cpu"
        return {
            key.removeprefix(self._prefix): value if value is None or value.dim() else value.to(counts_at)
            for key, value in moments.items()
            if key.startswith(self._prefix)
        }


class MultiNetworkOptimizer(torch.optim.Optimizer):
    """Combines the optimizers of several networks into one optimizer of the whole flat parameter.

    A network with a gradient of exactly zero is not updated and keeps its moments. Setting the learning rate
    of the whole scales the learning rates of all networks. The state has the names of the networks as
    prefixes, for example `critic.exp_avg`.

    Args:
        parameters: the flat parameter, as a list.
        lr: learning rate relative to which later rates scale all networks.
        networks: networks in the flat parameter.

    Raises:
        UserError: if the networks do not cover all parameters of the model.
    """

    def __init__(self, parameters: Parameters, lr: float, networks: list[NetworkOptimizer]) -> None:
        super().__init__(parameters, {"lr": lr})
        self._networks = networks
        covered = sum(network.slice.stop - network.slice.start for network in networks)
        if covered < parameters[0].numel():
            raise UserError(
                "the model has parameters outside its networks `generator` and `critic`, which would not be trained; "
                "move them into one of the networks"
            )

    def clip_weights(self) -> None:
        """Move the weights of each network into their bound."""
        for network in self._networks:
            network.clip_weights()

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update each network that has a non-zero gradient."""
        group = self.param_groups[0]
        (whole,) = group["params"]
        for network in self._networks:
            network.step(whole, self.state[whole], group["lr"] / self.defaults["lr"])
