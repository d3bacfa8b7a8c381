"""Optimizers with several settings each, and the parameters that torch or the formulas of a paper give."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, optim

from nnlo_lib.config.optimizer import (
    AdadeltaConfig,
    AdagradConfig,
    AdamaxConfig,
    AdamConfig,
    AdamWConfig,
    BaseOptimizerConfig,
    LAMBConfig,
    LARSConfig,
    LionConfig,
    MuonConfig,
    NAdamConfig,
    ParameterGroupConfig,
    RMSpropConfig,
    ScheduleFreeConfig,
    SGDConfig,
)

TOLERANCE = 1e-12
Steps = Sequence[tuple[float, list[Tensor]]]  # learning rate and gradient of each parameter, step by step


@dataclass(frozen=True)
class OptimizerOracle:
    """Settings of an optimizer and its reference."""

    rule: BaseOptimizerConfig  # settings
    reference: str  # name of the reference, as the documentation shows it
    # returns the parameters (name, initial value) after all steps
    follow: Callable[[list[Tensor], Steps], list[Tensor]]


def of_torch(
    rule: BaseOptimizerConfig,
    kind: type[optim.Optimizer],
    vectors: dict[str, float] | None = None,
    **options: Any,
) -> OptimizerOracle:
    """Return the oracle by a class of torch, tensor by tensor and without fused or grouped kernels.

    `vectors`: options of a group of torch with the parameters of one dimension.
    """

    def follow(values: list[Tensor], steps: Steps) -> list[Tensor]:
        parameters = [value.clone().requires_grad_() for value in values]
        matrices, others = (
            [each for each in parameters if (each.dim() > 1) is is_matrix] for is_matrix in (True, False)
        )
        groups = [{"params": matrices}, {"params": others, **(vectors or {})}]
        factors = [1.0, (vectors or {}).get("lr", rule.lr) / rule.lr]  # type: ignore[attr-defined]
        optimizer = kind(groups, **options, foreach=False)
        for rate, gradients in steps:
            for group, factor in zip(optimizer.param_groups, factors, strict=True):
                group["lr"] = rate * factor
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
        return [parameter.detach() for parameter in parameters]

    return OptimizerOracle(rule, f"torch.optim.{kind.__name__}", follow)


def of_formula(rule: Any, reference: str, layer: Callable[..., np.ndarray]) -> OptimizerOracle:
    """Return the oracle by formulas that update one layer; those of papers treat vectors apart, if the rule says so."""

    def follow(values: list[Tensor], steps: Steps) -> list[Tensor]:
        found = []
        for place, value in enumerate(values):
            options = {"adapts": value.dim() > 1 or not rule.exclude_vectors} if layer in (lars, lamb) else {}
            if layer is muon:
                # The first layer of the network is its filters.
                options = {"is_matrix": value.dim() > 1 and not (place == 0 and rule.adamw == "conv*")}
            own = [(rate, gradients[place].numpy()) for rate, gradients in steps]
            found.append(torch.from_numpy(layer(rule, value.numpy(), own, **options)))
        return found

    return OptimizerOracle(rule, reference, follow)


def lars(rule: LARSConfig, w: Any, steps: Any, adapts: bool) -> Any:
    """Return one layer after all steps of You, Gitman and Ginsburg 2017, algorithm 1; ratio 1 for a norm of 0.

    `w`: initial parameters; `steps`: learning rate and gradient of each; `adapts`: with trust ratio and decay.
    """
    v = np.zeros_like(w)
    decay = rule.weight_decay if adapts else 0
    for rate, g in steps:
        norm_w, norm_g = np.sqrt((w**2).sum()), np.sqrt((g**2).sum())
        ratio = rule.trust * norm_w / (norm_g + decay * norm_w + rule.epsilon)
        local = ratio if adapts and norm_w and norm_g else 1
        v = rule.momentum * v + rate * local * (g + decay * w)
        w = w - v
    return w


def lamb(rule: LAMBConfig, w: Any, steps: Any, adapts: bool) -> Any:
    """Return one layer after all steps of You et al. 2020, algorithm 2; ratio 1 for a norm of 0."""
    m, v = np.zeros_like(w), np.zeros_like(w)
    decay = rule.weight_decay if adapts else 0
    for t, (rate, g) in enumerate(steps, 1):
        m, v = rule.beta1 * m + (1 - rule.beta1) * g, rule.beta2 * v + (1 - rule.beta2) * g**2
        r = (m / (1 - rule.beta1**t)) / (np.sqrt(v / (1 - rule.beta2**t)) + rule.epsilon) + decay * w
        norm_w, norm_r = np.sqrt((w**2).sum()), np.sqrt((r**2).sum())
        w = w - rate * (norm_w / norm_r if adapts and norm_w and norm_r else 1) * r
    return w


def decoupled_sgd(rule: SGDConfig, w: Any, steps: Any) -> Any:
    """Return one layer by PyDTNN's rule: w -= lr (decay w + v), or with Nesterov's lr (decay w + g + momentum v)."""
    v = np.zeros_like(w)
    for rate, g in steps:
        v = rule.momentum * v + g
        w = w - rate * (rule.weight_decay * w + (g + rule.momentum * v if rule.nesterov else v))
    return w


def decoupled_rmsprop(rule: RMSpropConfig, w: Any, steps: Any) -> Any:
    """Return one layer by w -= lr (decay w + g / (sqrt(c) + epsilon)), c the decaying mean of g^2.

    With `epsilon_inside_root`, the divisor is PyDTNN's sqrt(c + epsilon).
    """
    c = np.zeros_like(w)
    for rate, g in steps:
        c = rule.rho * c + (1 - rule.rho) * g**2
        root = np.sqrt(c + rule.epsilon) if rule.epsilon_inside_root else np.sqrt(c) + rule.epsilon
        w = w - rate * (rule.weight_decay * w + g / root)
    return w


def pydtnn_adam(rule: AdamConfig | AdamWConfig, w: Any, steps: Any) -> Any:
    """Return one layer by PyDTNN's rule, w -= lr (decay w + m^ / sqrt(v^ + epsilon)); for adam, g contains decay w."""
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, (rate, g) in enumerate(steps, 1):
        outside = rule.weight_decay * w if rule.name == "adamw" else 0.0
        g = g if rule.name == "adamw" else g + rule.weight_decay * w
        m = rule.beta1 * m + (1 - rule.beta1) * g
        v = rule.beta2 * v + (1 - rule.beta2) * g**2
        w = w - rate * (outside + m / (1 - rule.beta1**t) / np.sqrt(v / (1 - rule.beta2**t) + rule.epsilon))
    return w


def muon(rule: MuonConfig, w: Any, steps: Any, is_matrix: bool) -> Any:
    """Return one layer by Muon of Liu et al. 2025 with Jordan's polynomial, of singular values; or by AdamW."""
    m, v, rows = np.zeros_like(w), np.zeros_like(w), len(w)
    for t, (rate, g) in enumerate(steps, 1):
        if is_matrix:
            m = rule.momentum * m + g
            u, s, vt = np.linalg.svd((g + rule.momentum * m).reshape(rows, -1), full_matrices=False)
            s = s / (np.sqrt((s**2).sum()) + 1e-7)
            for _ in range(5):
                s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
            step = 0.2 * np.sqrt(max(rows, w.size // rows)) * ((u * s) @ vt).reshape(w.shape)
        else:
            m, v = rule.beta1 * m + (1 - rule.beta1) * g, rule.beta2 * v + (1 - rule.beta2) * g**2
            step = m / (1 - rule.beta1**t) / (np.sqrt(v / (1 - rule.beta2**t)) + rule.epsilon)
        w = w - rate * (step + rule.weight_decay * w)
    return w


def lion(rule: LionConfig, w: Any, steps: Any) -> Any:
    """Return one layer by Chen et al. 2023, algorithm 2."""
    m = np.zeros_like(w)
    for rate, g in steps:
        w = w - rate * (np.sign(rule.beta1 * m + (1 - rule.beta1) * g) + rule.weight_decay * w)
        m = rule.beta2 * m + (1 - rule.beta2) * g
    return w


def schedule_free(rule: ScheduleFreeConfig, w: Any, steps: Any) -> Any:
    """Return y of one layer by Defazio et al. 2024, algorithm 1; x as the weighted mean of all z, from its definition."""
    y, z, v, rates, seen = w, w, np.zeros_like(w), [], []
    for t, (rate, g) in enumerate(steps, 1):
        v = rule.beta2 * v + (1 - rule.beta2) * g**2
        u = g / (np.sqrt(v / (1 - rule.beta2**t)) + rule.epsilon) if rule.beta2 else g
        z = z - rate * (u + rule.weight_decay * y)
        rates, seen = [*rates, rate**2], [*seen, z]
        x = sum(weight * each for weight, each in zip(rates, seen, strict=True)) / sum(rates)
        y = (1 - rule.momentum) * z + rule.momentum * x
    return y


INSIDE: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.2, "epsilon": 0.01, "epsilon_inside_root": True}
DECOUPLED = "with `decoupled`: w <- w - lr (decay w + step), in NumPy"
PYDTNN = "with `epsilon_inside_root`: rules of PyDTNN, in NumPy"
NESTEROV = SGDConfig(lr=0.1, momentum=0.5, nesterov=True, weight_decay=0.3, decoupled=True)
FORMULAS: dict[str, tuple[BaseOptimizerConfig, str, Callable[..., np.ndarray]]] = {
    "sgd, decoupled": (SGDConfig(momentum=0.8, weight_decay=0.2, decoupled=True), DECOUPLED, decoupled_sgd),
    "sgd, decoupled, nesterov": (NESTEROV, DECOUPLED, decoupled_sgd),
    "rmsprop, decoupled": (RMSpropConfig(lr=0.01, weight_decay=0.2, decoupled=True), DECOUPLED, decoupled_rmsprop),
    "rmsprop, inside the root": (RMSpropConfig(decoupled=True, **INSIDE), PYDTNN, decoupled_rmsprop),
    "adam, inside the root": (AdamConfig(**INSIDE), PYDTNN, pydtnn_adam),
    "adamw, inside the root": (AdamWConfig(**INSIDE), PYDTNN, pydtnn_adam),
}  # fmt: skip
PAPERS = {
    "lars": ("You, Gitman and Ginsburg 2017, algorithm 1, in NumPy", lars),
    "lamb": ("You et al. 2020, algorithm 2, in NumPy", lamb),
    "muon": ("Liu et al. 2025, with singular values, in NumPy", muon),
    "lion": ("Chen et al. 2023, algorithm 2, in NumPy", lion),
    "schedule_free": ("Defazio et al. 2024, algorithm 1, in NumPy", schedule_free),
}
BETAS = {"beta1": 0.8, "beta2": 0.99}
ADAM = {"betas": (0.8, 0.99), "eps": 1e-6}
DECAY, SMALL = {"weight_decay": 0.1}, {"epsilon": 1e-6, **BETAS}
VECTORS = ParameterGroupConfig(match="*bias | norm.*", lr=0.03, weight_decay=0.2)
TORCH_CASES: dict[str, tuple[BaseOptimizerConfig, type[optim.Optimizer], dict[str, Any]]] = {
    "sgd": (SGDConfig(lr=0.1), optim.SGD, {"lr": 0.1}),
    "sgd, momentum": (SGDConfig(momentum=0.8, **DECAY), optim.SGD, {"momentum": 0.8, **DECAY}),
    "sgd, nesterov": (
        SGDConfig(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01), optim.SGD,
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    "adam": (AdamConfig(lr=0.01, **SMALL, **DECAY), optim.Adam, ADAM | DECAY),
    "adam, amsgrad": (AdamConfig(amsgrad=True, **SMALL), optim.Adam, {"amsgrad": True, **ADAM}),
    "adam, defaults": (AdamConfig(), optim.Adam, {}),
    "adamw": (AdamWConfig(**SMALL), optim.AdamW, {"weight_decay": 0.01, **ADAM}),
    "adamw, amsgrad": (AdamWConfig(lr=0.02, amsgrad=True, **DECAY), optim.AdamW, {"amsgrad": True, **DECAY}),
    "nadam": (
        NAdamConfig(momentum_decay=0.01, **SMALL, **DECAY), optim.NAdam, {"momentum_decay": 0.01, **ADAM, **DECAY},
    ),
    "nadam, decoupled": (
        NAdamConfig(lr=0.01, decoupled=True, weight_decay=0.2), optim.NAdam,
        {"decoupled_weight_decay": True, "weight_decay": 0.2},
    ),
    "adamax": (AdamaxConfig(**SMALL), optim.Adamax, ADAM),
    "adamax, decay": (AdamaxConfig(lr=0.02, **DECAY), optim.Adamax, DECAY),
    "rmsprop": (
        RMSpropConfig(lr=0.01, rho=0.8, momentum=0.5, **DECAY), optim.RMSprop, {"alpha": 0.8, "momentum": 0.5, **DECAY},
    ),
    "rmsprop, centered": (
        RMSpropConfig(centered=True, epsilon=1e-4), optim.RMSprop, {"alpha": 0.9, "centered": True, "eps": 1e-4},
    ),
    "adadelta": (AdadeltaConfig(rho=0.9), optim.Adadelta, {"rho": 0.9}),
    "adadelta, decay": (
        AdadeltaConfig(lr=0.5, epsilon=1e-4, **DECAY), optim.Adadelta, {"rho": 0.95, "eps": 1e-4, **DECAY},
    ),
    "adagrad": (
        AdagradConfig(lr=0.1, lr_decay=0.1, initial=0.2, **DECAY), optim.Adagrad,
        {"lr_decay": 0.1, "initial_accumulator_value": 0.2, **DECAY},
    ),
    "sgd, groups": (
        SGDConfig(momentum=0.8, **DECAY, groups=(VECTORS,)), optim.SGD,
        {"momentum": 0.8, **DECAY, "vectors": {"lr": 0.03, "weight_decay": 0.2}},
    ),
    "adamw, groups": (
        AdamWConfig(**SMALL, groups=(VECTORS,)), optim.AdamW,
        {"weight_decay": 0.01, **ADAM, "vectors": {"lr": 0.03, "weight_decay": 0.2}},
    ),
    "adamw, matrices": (
        AdamWConfig(**SMALL, **DECAY, weight_decay_on="matrices"), optim.AdamW,
        {**DECAY, **ADAM, "vectors": {"weight_decay": 0.0}},
    ),
    "rmsprop, matrices": (
        RMSpropConfig(lr=0.01, rho=0.8, **DECAY, weight_decay_on="matrices"), optim.RMSprop,
        {"alpha": 0.8, **DECAY, "vectors": {"weight_decay": 0.0}},
    ),
    "adagrad, plain": (AdagradConfig(epsilon=1e-3), optim.Adagrad, {"eps": 1e-3}),
}  # fmt: skip
PAPER_CASES: dict[str, BaseOptimizerConfig] = {
    "lars": LARSConfig(weight_decay=0.1),
    "lars, matrices": LARSConfig(lr=2.0, exclude_vectors=True, weight_decay=0.1),
    "lars, without decay": LARSConfig(momentum=0.5, trust=0.02, epsilon=0.1),
    "lamb": LAMBConfig(lr=0.01),
    "muon": MuonConfig(lr=0.01),
    "muon, other": MuonConfig(momentum=0.8, adamw="conv*", epsilon=1e-4, weight_decay=0.1, **BETAS),
    "lion": LionConfig(lr=0.01),
    "lion, other": LionConfig(weight_decay=0.1, beta1=0.8, beta2=0.95),
    "schedule_free": ScheduleFreeConfig(lr=0.01, weight_decay=0.1),
    "schedule_free, sgd": ScheduleFreeConfig(lr=0.1, momentum=0.8, beta2=0.0, epsilon=1e-4),
    "lamb, all": LAMBConfig(epsilon=1e-3, weight_decay=0.2, exclude_vectors=False, **BETAS),
}
OPTIMIZERS = {name: of_torch(rule, kind, **options) for name, (rule, kind, options) in TORCH_CASES.items()}
OPTIMIZERS |= {name: of_formula(rule, *PAPERS[rule.name]) for name, rule in PAPER_CASES.items()}
OPTIMIZERS |= {name: of_formula(*each) for name, each in FORMULAS.items()}
RULES = {name: oracle.rule for name, oracle in OPTIMIZERS.items()}


def references() -> Iterator[tuple[str, str]]:
    """Yield (name of an optimizer, reference), each once."""
    yield from dict.fromkeys((oracle.rule.name, oracle.reference) for oracle in OPTIMIZERS.values())  # type: ignore[attr-defined]
