"""Settings of the learning problem."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from nnlo_lib.config.base import (
    BuiltInOr,
    ConfigModel,
    Excludes,
    ImplementedConfig,
    Requires,
    UserClassConfig,
    raise_config_error,
)
from nnlo_lib.config.optimizer import OptimizerConfig
from nnlo_lib.core.user_code import load_implementation

Outputs = Literal["scores", "probabilities"]
OUTPUTS = "Kind of the model's outputs: unbounded scores, or probabilities (the model ends with softmax or sigmoid)."
ClassWeights = Literal["balanced"] | dict[str, Annotated[float, Field(ge=0)]] | None


class ClassificationConfig(ImplementedConfig):
    """Predict the class, or the classes, of a sample."""

    name: Literal["classification"] = "classification"
    implementation = "nnlo_lib.problems.supervised:SupervisedProblem"
    outputs: Outputs = Field("scores", description=OUTPUTS)
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Fraction of the target probability that is distributed evenly over all classes (Szegedy et al. 2016); used by the
    loss cross_entropy."""
    mixup: float = Field(0.0, ge=0, examples=[0.2])
    """Alpha of mixup: training samples, and their losses, are mixed in pairs, in shares from Beta(alpha, alpha) (Zhang et
    al. 2018); 0: no mixup."""
    cutmix: float = Field(0.0, ge=0, examples=[1.0])
    """Alpha of cutmix: a rectangle of a training image is replaced by that of a second image, whose class counts by its
    share of the area (Yun et al. 2019); 0: no cutmix. With `mixup`, each sample has one of both."""
    class_weights: ClassWeights = None
    """Weights of the classes in the loss of the training, by their names or numbers, 1 if not given; balanced: samples /
    (classes * samples of the class), of the training samples; null: no weights."""


class RegressionConfig(ImplementedConfig):
    """Predict numbers: the labels of a sample are the targets of the model's outputs."""

    name: Literal["regression"] = "regression"
    implementation = "nnlo_lib.problems.supervised:SupervisedProblem"
    outputs: Outputs = Field("scores", description=f"{OUTPUTS} Used by binary_cross_entropy.")
    huber_delta: float = Field(1.0, gt=0)
    """Error above which huber is linear, in units of the labels; used by the loss or metric huber."""


class DenseClassificationConfig(ImplementedConfig):
    """Predict the class of every place of a sample: of each token of a text, or each pixel of an image."""

    name: Literal["dense_classification"] = "dense_classification"
    implementation = "nnlo_lib.problems.dense_classification:DenseClassificationProblem"
    classes: int = Field(ge=2, examples=[256])
    """Number of classes of a token or pixel: the model's outputs for a place."""
    class_axis: Literal["first", "last"] = "first"
    """Axis of the classes in the model's output: first, (samples, classes, places ...), as of a convolution; last,
    (samples, places ..., classes), as of a transformer."""
    ignore_index: int = -100
    """Label of places that count neither for the loss nor for a metric, such as padding."""
    class_weights: ClassWeights = None
    """Weights of the classes of tokens or pixels in the loss of the training, as in classification."""


class CriticWarmUpConfig(ConfigModel):
    """More steps of the critic before some updates of the generator, as in the published code of the WGAN paper."""

    steps: int = Field(50, ge=1)
    """Steps of the critic before each of these updates of the generator."""
    updates: int = Field(25, ge=1)
    """Number of updates of the generator at the start that have these steps."""
    every: int | None = Field(500, ge=1)
    """Later, every so many updates one has these steps, too; null: none."""


class GanConfig(ImplementedConfig):
    """Train a generator whose samples a critic cannot distinguish from the data (Goodfellow et al. 2014)."""

    name: Literal["gan"] = "gan"
    implementation = "nnlo_lib.problems.gan:GanProblem"
    critic_steps: int = Field(1, ge=1)
    """The generator is trained in every `critic_steps`-th step of a worker, the critic in all; not for algorithms that
    pass parts of earlier gradients to the optimizer."""
    critic_warm_up: CriticWarmUpConfig | None = None
    """More than `critic_steps` steps of the critic before the first updates of the generator; null: none."""
    half_steps: Annotated[
        bool, Excludes("critic_steps"), Excludes("critic_warm_up"), Excludes("gradient_penalty")
    ] = False
    """One network trains in each step, as in NNLO: the critic with real samples, the critic with generated samples,
    then the generator in `generator_batches` steps."""
    generator_batches: int = Field(1, ge=1)
    """Batches of generated samples that the generator trains with, for each batch of the critic (2 in NNLO); their mean
    is one step, except with `half_steps`."""
    label_flips: float = Field(0.0, ge=0, lt=1)
    """Probability that, in the critic's loss, a real and a generated sample change places (0.05 in NNLO)."""
    weight_clip: Annotated[float | None, Excludes("gradient_penalty")] = Field(None, gt=0)
    """Bound of the critic's weights, 0.01 in the WGAN paper; null: no bound. Not for algorithms that change weights
    otherwise than by averages."""
    gradient_penalty: float = Field(0.0, ge=0)
    """Weight of (slope of the critic - 1)^2, 10 in the WGAN-GP paper."""
    generator_optimizer: OptimizerConfig | None = None
    """Optimizer of the generator; null: `train.optimizer`, as for the critic."""
    energy_weight: float | None = Field(None, ge=0)
    """Weight of the relative errors of energy and sum that the critic of calorimeter_gan predicts (5 in NNLO); labels
    are energies and multiply the noise. null: labels are not used."""
    sum_weight: Annotated[float | None, Requires("energy_weight")] = Field(None, ge=0)
    """Weight of the relative error of the sum alone; null: `energy_weight`."""
    # No real shower has the random energy.
    energy_range: Annotated[
        tuple[float, float] | None, Requires("energy_weight"), Requires("sum_polynomial")
    ] = None
    """Generated showers have random energies between these two in training ([0.1, 5] in NNLO); null: the energies of
    the real showers."""
    sum_polynomial: Annotated[tuple[float, ...] | None, Requires("energy_weight")] = Field(None, min_length=1)
    """Sum of the cells of a generated shower, divided by its energy: coefficients of a polynomial of the energy,
    highest power first ([0.0018, -0.023, 0.11, -0.28, 2.21] in NNLO); null: the sum of the real shower of the same
    energy."""

    @field_validator("energy_range")
    @classmethod
    def _is_range(cls, energy_range: tuple[float, float] | None) -> tuple[float, float] | None:
        low, high = energy_range or (1, 2)
        if not 0 < low < high:
            raise_config_error(
                f"must be two positive numbers, the smaller one first, not [{low:g}, {high:g}]"
            )
        return energy_range

    @property
    def cycle(self) -> int:
        """Number of steps after which the kinds of steps repeat, once the warm-up is over."""
        return 2 + self.generator_batches if self.half_steps else self.critic_steps

    @property
    def first_generator_step(self) -> int:
        """The first step in which the generator trains, counted from 0."""
        if self.half_steps:
            return 2
        return (self.critic_warm_up.steps if self.critic_warm_up else self.critic_steps) - 1

    @property
    def resting_key(self) -> str | None:
        """The key for which a network rests in some steps; None if both train in each step."""
        rests = {
            "critic_steps": self.critic_steps > 1,
            "critic_warm_up": self.critic_warm_up is not None,
            "half_steps": self.half_steps,
        }
        return next((name for name, is_set in rests.items() if is_set), None)


class UserProblemConfig(UserClassConfig):
    """A problem of your own: a subclass of nnlo_lib.Problem, which defines its loss and its metrics."""

    base = "nnlo_lib.problems.base:Problem"

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that the class declares."""
        names: tuple[str, ...] = load_implementation(self.name).names
        # The first name is the loss, see `_misfit`.
        return names[1:]

    def _misfit(self, found: Any) -> str | None:
        names = getattr(found, "names", None)
        if (reason := super()._misfit(found)) or (isinstance(names, tuple) and names[:1] == ("loss",)):
            return reason
        return f'{self.name} needs a class attribute names = ("loss", ...): the loss and the metrics'


BuiltInProblemConfig = Annotated[
    ClassificationConfig | RegressionConfig | DenseClassificationConfig | GanConfig,
    Field(discriminator="name"),
]
ProblemConfig = BuiltInOr[BuiltInProblemConfig, UserProblemConfig]


def allow_name_in_schema(schema: dict[str, Any]) -> None:
    """Accept the name of the problem instead of its section in the JSON schema."""
    union = schema.pop("oneOf")
    schema["anyOf"] = [{"enum": list(union[0]["discriminator"]["mapping"])}, *union]
