"""Optimizers of a replica's flat vector: one of torch or of this package, or one for each network of a GAN."""

from inspect import unwrap
from typing import Any

import torch
from torch import nn

from nnlo_lib.config.optimizer import OptimizerConfig
from nnlo_lib.config.problem import GanConfig, ProblemConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.user_code import load_implementation
from nnlo_lib.train.optimizers.update_rules import matches
from nnlo_lib.train.replica.replica import Layout, Replica, layout_of_prefix

CHUNK_SIZE = 1 << 17  # elements of a piece; its intermediate results stay in the CPU cache
Parameters = list[nn.Parameter]  # exactly one: the flat parameter of a replica


def attach_optimizers(replica: Replica, rule: OptimizerConfig, problem: ProblemConfig | None = None) -> None:
    """Give a replica the configured optimizer, or one for each network of a GAN; raise UserError if its model lacks these."""
    for used in (rule, getattr(problem, "generator_optimizer", None)):
        for group in used.groups if used else ():
            if not any(matches(slot.name, group.match) for slot in replica.layout):
                names = ", ".join(slot.name for slot in replica.layout[:6])
                raise UserError(
                    f"train.optimizer.groups: no parameter matches {group.match!r}; the names are {names}, ... (`nnlo model` "
                    "lists them)"
                )
    if not isinstance(problem, GanConfig):
        replica.set_optimizer(lambda parameters: build_optimizer(rule, parameters[0], replica.optimized))
        return
    if not isinstance(getattr(replica.module, "latent", None), int):
        raise UserError(
            "model.name: the model of a GAN needs an integer attribute `latent`, the length of the generator's noise"
        )

    def of_gan(parameters: Parameters) -> torch.optim.Optimizer:
        place = parameters[0], replica.layout
        networks = [
            NetworkOptimizer("generator", problem.generator_optimizer or rule, *place),
            NetworkOptimizer("critic", rule, *place, clip=problem.weight_clip),
        ]
        found: torch.optim.Optimizer = _uncompiled(MultiNetworkOptimizer)(parameters, rule.lr, networks)
        return found

    replica.set_optimizer(of_gan)


def build_optimizer(rule: OptimizerConfig, parameter: nn.Parameter, layout: Layout) -> torch.optim.Optimizer:
    """Return the optimizer of one flat parameter."""
    kind: type[torch.optim.Optimizer] = load_implementation(rule.reference)
    options, on_cpu = rule.arguments, parameter.device.type == "cpu"
    match rule.used_kernel:
        case "fused":
            options["fused"] = True
        case "fused on cpu":
            options["fused"] = on_cpu
        case "layerwise":
            options["layout"] = layout
        case "chunked on cpu" if on_cpu:
            options["kind"], kind = _uncompiled(kind), ChunkedOptimizer
    plain = _uncompiled(kind)
    if rule.groups or rule.weight_decay_on != "all":
        options["weight_decay"] = 0.0
        plain = _grouped(plain, rule, parameter, layout)
    elif rule.decoupled_decay:
        plain = decaying(plain, rule.decoupled_decay)
    found: torch.optim.Optimizer = plain([parameter], **options)
    return found


def _grouped(
    kind: type[torch.optim.Optimizer], rule: OptimizerConfig, like: nn.Parameter, layout: Layout
) -> type[torch.optim.Optimizer]:
    """Return `kind` with the learning rate and the weight decay of each group of parameters.

    A group's rate multiplies the change of its parameters, which is the same for each element-wise optimizer.
    """
    factors, decays = torch.ones_like(like.detach()), torch.full_like(like.detach(), rule.weight_decay)
    for slot in layout:
        part = slice(slot.start, slot.stop)
        if rule.weight_decay_on == "matrices" and len(slot.shape) < 2:
            decays[part] = 0.0
        group = next((each for each in rule.groups if matches(slot.name, each.match)), None)
        if group and group.weight_decay is not None:
            decays[part] = group.weight_decay
        if group and group.lr is not None:
            factors[part] = group.lr / rule.lr
    has_rates = any(group.lr is not None for group in rule.groups)

    @torch.no_grad()
    def step(self: torch.optim.Optimizer, closure: None = None) -> None:
        options = self.param_groups[0]
        (parameter,) = options["params"]
        gradient, before = parameter.grad, parameter.clone() if has_rates else parameter
        if rule.decay_is_decoupled:
            parameter.addcmul_(parameter, decays, value=-options["lr"])
        else:
            # Not in place: an algorithm may still need the gradient.
            parameter.grad = gradient.addcmul(parameter, decays)
        kind.step(self, closure)
        parameter.grad = gradient
        if has_rates:
            parameter.copy_(torch.lerp(before, parameter, factors))

    return type(kind.__name__, (kind,), {"step": step})


def decaying(kind: type[torch.optim.Optimizer], decay: float) -> type[torch.optim.Optimizer]:
    """Return `kind` with decoupled weight decay: w <- (1 - lr decay) w before each step (Loshchilov and Hutter 2019)."""

    @torch.no_grad()
    def step(self: torch.optim.Optimizer, closure: None = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(1 - group["lr"] * decay)
        kind.step(self, closure)

    return type(kind.__name__, (kind,), {"step": step})


def _uncompiled(kind: type[torch.optim.Optimizer]) -> type[Any]:
    """Return `kind` without torch.compile's wrappers, which cost 1 s of imports, and without hooks; the steps are the same."""
    # Unwrapping removes torch's decorator that disables gradients, so no_grad is applied again.
    step: Any = torch.no_grad()(unwrap(kind.step))
    # torch wraps other steps for hooks and its profiler, which costs as much as a small step.
    step.hooked = True
    return type(kind.__name__, (kind,), {"add_param_group": unwrap(kind.add_param_group), "step": step})


class ChunkedOptimizer(torch.optim.Optimizer):
    """Applies an element-wise update rule that has no fused kernel to one flat parameter, in pieces.

    The optimizer state describes the whole parameter: vectors, of which the pieces have views, and counts,
    which are equal for all pieces.
    """

    def __init__(self, parameters: Parameters, kind: type[torch.optim.Optimizer], **options: Any) -> None:
        super().__init__(parameters, {"lr": options["lr"]})
        (self._whole,) = parameters
        self._pieces = [nn.Parameter(piece) for piece in torch.split(self._whole.detach(), CHUNK_SIZE)]
        self._rule = kind(self._pieces, **options)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update each piece with its part of the gradient."""
        assert self._whole.grad is not None, "the flat parameter has no gradient"
        self._rule.param_groups[0]["lr"] = self.param_groups[0]["lr"]
        # The state may have been loaded from a checkpoint, so the pieces get views of it in each step.
        moments = self.state[self._whole]
        parts = {name: torch.split(value, CHUNK_SIZE) for name, value in moments.items() if value.dim()}
        counts = {name: value for name, value in moments.items() if not value.dim()}
        gradients = torch.split(self._whole.grad, CHUNK_SIZE)
        for number, (piece, gradient) in enumerate(zip(self._pieces, gradients, strict=True)):
            piece.grad = gradient
            if moments:
                # Each piece counts its own steps in place; a shared count would grow once per piece.
                own = {name: value.clone() for name, value in counts.items()}
                self._rule.state[piece] = {name: part[number] for name, part in parts.items()} | own
        self._rule.step()
        for name, value in self._rule.state[self._pieces[0]].items():
            if not value.dim():
                moments[name] = value
            # Only the first step creates vectors; later ones update the views in place.
            elif name not in moments:
                moments[name] = torch.cat([self._rule.state[piece][name] for piece in self._pieces])


class NetworkOptimizer:
    """One network: its slice of a flat parameter, its optimizer and, if any, the bound on its weights."""

    def __init__(
        self, name: str, rule: OptimizerConfig, whole: nn.Parameter, layout: Layout, clip: float | None = None
    ) -> None:
        self._prefix, self._lr, self._clip = f"{name}.", rule.lr, clip
        self.slice, own = layout_of_prefix(layout, self._prefix)
        self._piece = nn.Parameter(whole.detach()[self.slice])
        self._optimizer = build_optimizer(rule, self._piece, own)

    def step(self, whole: nn.Parameter, moments: dict[str, Any], factor: float) -> None:
        """Update the network at `factor` times its learning rate, unless its gradient is zero."""
        assert whole.grad is not None, "the flat parameter has no gradient"
        self._piece.grad = whole.grad[self.slice]
        # A generator has gradients only in some steps; momentum and weight decay would move it in the others.
        if self._piece.grad.any():
            self._optimizer.param_groups[0]["lr"] = self._lr * factor
            # Counts stay on the device that the optimizer requires.
            counts_at = self._piece.device if self._optimizer.defaults.get("fused") else "cpu"
            mine = {
                key.removeprefix(self._prefix): value if value is None or value.dim() else value.to(counts_at)
                for key, value in moments.items()
                if key.startswith(self._prefix)
            }
            if mine:
                self._optimizer.state[self._piece] = mine
            self._optimizer.step()
            state = self._optimizer.state[self._piece]
            moments |= {f"{self._prefix}{name}": value for name, value in state.items()}
        self.clip_weights()

    def clip_weights(self) -> None:
        """Move the weights into their bound, if any (Arjovsky et al. 2017, Wasserstein GAN, algorithm 1)."""
        if self._clip is not None:
            self._piece.data.clamp_(-self._clip, self._clip)


class MultiNetworkOptimizer(torch.optim.Optimizer):
    """Combines the optimizers of several networks into one optimizer of the whole flat parameter.

    A network with a gradient of exactly zero is not updated and keeps its moments. Setting the learning rate
    of the whole scales the learning rates of all networks. The state has the names of the networks as
    prefixes, for example `critic.exp_avg`. Raises UserError if the networks do not cover all parameters.
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
