"""JEDI-net: an interaction network over the particles of a jet (Moreno et al. 2020, arXiv 1908.05318)."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from nnlo_lib.models.activations import activation_named


class Interaction(nn.Module):
    """Effects of all others on each particle: the sum of `effect` over its pairs (equations 1 to 3)."""

    def __init__(self, effect: nn.Module) -> None:
        super().__init__()
        self.effect = effect

    def forward(self, particles: Tensor) -> Tensor:
        """Return (samples, particles, effects) from (samples, particles, features)."""
        count = particles.shape[1]
        # Sorted by receiver, so that `view` below groups the pairs of each receiver.
        receivers, senders = (
            (~torch.eye(count, dtype=torch.bool, device=particles.device)).nonzero().unbind(1)
        )
        pairs = torch.cat([particles[:, receivers], particles[:, senders]], 2)
        effects: Tensor = self.effect(pairs)
        return effects.view(len(particles), count, count - 1, -1).sum(2)


class JediNet(nn.Module):
    """Scores of a jet.

    Args:
        effect: network of a pair of particles, from their features to effects.
        post: network applied to each particle together with its effects.
        scores: network applied to the sum of `post` over the particles.
    """

    def __init__(self, effect: nn.Module, post: nn.Module, scores: nn.Module) -> None:
        super().__init__()
        self.interaction, self.post, self.scores = Interaction(effect), post, scores

    def forward(self, jets: Tensor) -> Tensor:
        """Return (samples, classes) from (samples, features, particles)."""
        particles = jets.transpose(1, 2)
        both = torch.cat([particles, self.interaction(particles)], 2)
        scores: Tensor = self.scores(self.post(both).sum(1))
        return scores


def jedi_net(
    shape: tuple[int, ...],
    classes: int,
    hidden: int = 50,
    effects: int = 14,
    outputs: int = 10,
    activation: str = "selu",
    effect_activation: str | None = None,
    post_activation: str | None = None,
    score_activation: str | None = None,
) -> nn.Module:
    """Build JEDI-net for samples (features, particles) (8,329 parameters for (16, 150) and 5 classes).

    `effects` and `outputs` are the paper's D_E and D_O.

    Args:
        shape: number of features and of particles.
        classes: number of outputs.
        hidden: units of the first hidden layer of each perceptron; the second has half as many.
        effects: number of effects on each particle.
        outputs: number of values for each particle after its effects are applied.
        activation: activation of all layers.
        effect_activation: activation of the network of pairs; None: `activation`.
        post_activation: activation of the network of particles; None: `activation`.
        score_activation: activation of the last network; None: `activation`.
    """
    if len(shape) != 2 or shape[1] < 2:
        raise ValueError(
            f"jedi_net requires samples (features, 2 or more particles), but the samples are {shape}"
        )
    features = shape[0]
    layers = [
        activation_named(each or activation)
        for each in (effect_activation, post_activation, score_activation)
    ]
    effect = _perceptron([2 * features, hidden, hidden // 2, effects], layers[0])
    post = _perceptron([features + effects, hidden, hidden // 2, outputs], layers[1])
    last = _perceptron([outputs, hidden, hidden // 2], layers[2])
    return JediNet(effect, post, nn.Sequential(last, nn.Linear(hidden // 2, classes)))


def _perceptron(widths: list[int], activation: type[nn.Module]) -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(a, b), activation()) for a, b in pairwise(widths)))
