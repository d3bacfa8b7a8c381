"""Compare optimizer steps on a flat vector with steps on each tensor: `python benchmarks/optimizers.py [--quick]`.

The parameters of resnet20 and vgg11 for CIFAR-10 are updated in float32 on one thread. Flat and per-tensor steps run in
turns, and the results are medians. `per tensor` is torch's optimizer with its defaults, a loop over tensors on CPUs;
`fused` is its fused implementation, if torch has one. LARS and LAMB per tensor are the rules of their papers in torch.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from nnlo_lib.config.optimizer import (
    AdadeltaConfig,
    AdagradConfig,
    AdamaxConfig,
    AdamConfig,
    AdamWConfig,
    LAMBConfig,
    LARSConfig,
    NAdamConfig,
    OptimizerConfig,
    RMSpropConfig,
    SGDConfig,
)
from nnlo_lib.models.factory import build_model
from nnlo_lib.train.optimizers.factory import attach_optimizers
from nnlo_lib.train.replica.replica import Replica

Step = Callable[[], object]
CIFAR = (3, 32, 32), 10
RULES: dict[str, tuple[OptimizerConfig, type[torch.optim.Optimizer] | None, dict[str, float]]] = {
    "sgd": (SGDConfig(momentum=0.9), torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}),
    "adam": (AdamConfig(), torch.optim.Adam, {}),
    "adamw": (AdamWConfig(), torch.optim.AdamW, {}),
    "nadam": (NAdamConfig(), torch.optim.NAdam, {}),
    "adamax": (AdamaxConfig(), torch.optim.Adamax, {}),
    "rmsprop": (RMSpropConfig(), torch.optim.RMSprop, {}),
    "adadelta": (AdadeltaConfig(), torch.optim.Adadelta, {}),
    "adagrad": (AdagradConfig(), torch.optim.Adagrad, {}),
    "lars": (LARSConfig(weight_decay=0.0001), None, {}),
    "lamb": (LAMBConfig(), None, {}),
}
FUSED = ("sgd", "adam", "adamw", "adagrad")


def main() -> None:
    """Print the medians for each model and rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="one step, the smaller model")
    options = parser.parse_args()
    steps = 1 if options.quick else options.steps
    torch.set_num_threads(1)
    for model in ("resnet20",) if options.quick else ("resnet20", "vgg11"):
        parameters = sum(each.numel() for each in build_model(model, {}, *CIFAR, 0).parameters())
        print(
            f"\n{model}: {parameters:,} parameters\n{'ms per step':12}{'flat':>9}{'per tensor':>12}{'fused':>9}"
        )
        for name in RULES:
            flat, *others = _medians([_flat(model, name), *_per_tensor(model, name)], steps)
            print(f"{name:12}{flat:9.3f}{others[0]:12.3f}" + "".join(f"{other:9.3f}" for other in others[1:]))


def _medians(calls: list[Step], steps: int) -> list[float]:
    """Return the median time of each call in milliseconds; the calls run in turns."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(steps + 3):
        for call, taken in zip(calls, times, strict=True):
            started = time.perf_counter()
            call()
            taken.append(time.perf_counter() - started)
    # The first three calls allocate the optimizer's state and are not counted.
    return [1000 * statistics.median(taken[3:]) for taken in times]


def _flat(model: str, name: str) -> Step:
    replica = Replica(build_model(model, {}, *CIFAR, 0))
    attach_optimizers(replica, RULES[name][0])
    replica.grad.normal_(std=0.01)
    return replica.step


def _per_tensor(model: str, name: str) -> list[Step]:
    _, kind, options = RULES[name]
    if kind is None:
        return [_layer_by_layer(_ready(model), name)]
    plain = [kind(_ready(model), **options).step]  # type: ignore[call-arg]
    if name not in FUSED:
        return plain
    return [*plain, kind(_ready(model), fused=True, **options).step]  # type: ignore[call-arg]


def _ready(model: str) -> list[nn.Parameter]:
    parameters = list(build_model(model, {}, *CIFAR, 0).parameters())
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter) * 0.01
    return parameters


def _layer_by_layer(parameters: list[nn.Parameter], name: str) -> Step:
    moments = [(torch.zeros_like(each), torch.zeros_like(each)) for each in parameters]
    rule = _lars if name == "lars" else _lamb

    @torch.no_grad()
    def step() -> None:
        for parameter, (m, v) in zip(parameters, moments, strict=True):
            assert parameter.grad is not None
            parameter.sub_(rule(parameter, parameter.grad, m, v))

    return step


def _lars(w: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    ratio = 0.001 * w.norm() / (g.norm() + 0.0001 * w.norm() + 1e-9)
    return m.mul_(0.9).add_(g.add(w, alpha=0.0001).mul_(ratio))


def _lamb(w: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    m.lerp_(g, 0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    update = m / (v.sqrt().add_(1e-6))
    if w.dim() > 1:
        update.add_(w, alpha=0.01)
        update.mul_(w.norm() / update.norm())
    return update.mul_(0.001)


if __name__ == "__main__":
    main()
