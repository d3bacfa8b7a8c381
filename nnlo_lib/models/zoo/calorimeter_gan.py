"""NNLO's GAN of showers in a calorimeter: 25 x 25 x 25 cells (Khattak et al. 2018, Carminati et al. 2017)."""

from torch import Tensor, nn

from nnlo_lib.models.zoo.gan import Gan

SHAPE = (1, 25, 25, 25)


class Heads(nn.Module):
    """Outputs of the critic for showers: reality (a logit), energy of the particle, sum of the cells."""

    def __init__(self, features: nn.Module, width: int) -> None:
        super().__init__()
        self.features = features
        self.real, self.energy = nn.Linear(width, 1), nn.Linear(width, 1)

    def forward(self, showers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits, energies and sums, each (samples, 1)."""
        features = self.features(showers)
        return self.real(features), self.energy(features), showers.flatten(1).sum(1, keepdim=True)


def calorimeter_gan(shape: tuple[int, ...], classes: int = 0, latent: int = 200, dropout: float = 0.2) -> Gan:
    """Build generator (872,808 parameters) and critic (73,402) of showers (1, 25, 25, 25).

    The noise of a shower is multiplied by its particle's energy.

    Args:
        shape: shape of a sample, (1, 25, 25, 25).
        classes: not used.
        latent: number of noise values for each sample.
        dropout: probability of dropout in the critic.
    """
    if tuple(shape) != SHAPE:
        raise ValueError(f"calorimeter_gan requires samples {SHAPE}, but the samples are {shape}")
    return Gan(_generator(latent), _critic(dropout), latent)


def _critic(dropout: float) -> nn.Module:
    first = [nn.Conv3d(1, 32, 5, padding=2), nn.LeakyReLU(0.3), nn.Dropout(dropout)]
    blocks = [
        nn.Sequential(nn.Conv3d(inputs, 8, 5, padding=padding), nn.LeakyReLU(0.3), nn.BatchNorm3d(8), nn.Dropout(dropout))
        for inputs, padding in ((32, 2), (8, 2), (8, 1))
    ]  # fmt: skip
    # The last convolution reduces the sides from 25 to 23 cells, the pooling to 11. 0.3 is Keras's default
    # slope.
    return Heads(nn.Sequential(*first, *blocks, nn.AvgPool3d(2), nn.Flatten()), 8 * 11**3)


def _generator(latent: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(latent, 3136), nn.Unflatten(1, (8, 7, 7, 8)),
        nn.Conv3d(8, 64, (6, 6, 8), padding="same"), nn.LeakyReLU(0.3), nn.BatchNorm3d(64),
        nn.Upsample(scale_factor=2), nn.ZeroPad3d((0, 0, 2, 2, 2, 2)),
        nn.Conv3d(64, 6, (6, 5, 8)), nn.LeakyReLU(0.3), nn.BatchNorm3d(6),
        nn.Upsample(scale_factor=(2, 2, 3)), nn.ZeroPad3d((3, 3, 0, 0, 1, 1)),
        nn.Conv3d(6, 6, (3, 3, 8)), nn.LeakyReLU(0.3), nn.Conv3d(6, 1, 2, bias=False), nn.ReLU(),
    )  # fmt: skip
