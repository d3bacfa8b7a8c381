"""Settings of the learning problem."""

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from nnlo_lib.config.base import ImplementedConfig, raise_config_error
from nnlo_lib.config.optimizer import OptimizerConfig
from nnlo_lib.config.user_class import BUILT_IN, USER_CLASS, UserClassConfig, user_class_tag
from nnlo_lib.core.lazy_import import load_implementation

Outputs = Literal["scores", "probabilities"]
OUTPUTS = "Kind of the model's outputs: unbounded scores, or probabilities (the model ends with softmax or sigmoid)."


class ClassificationConfig(ImplementedConfig):
    """Predict the class, or the classes, of a sample."""

    name: Literal["classification"] = "classification"
    implementation = "nnlo_lib.problems.supervised:SupervisedProblem"
    outputs: Outputs = Field("scores", description=OUTPUTS)
    label_smoothing: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Fraction of the target probability that is distributed evenly over all classes (Szegedy et al. "
        "2016); used by cross_entropy.",
    )


class RegressionConfig(ImplementedConfig):
    """Predict numbers: the labels of a sample are the targets of the model's outputs."""

    name: Literal["regression"] = "regression"
    implementation = "nnlo_lib.problems.supervised:SupervisedProblem"
    outputs: Outputs = Field("scores", description=f"{OUTPUTS} Used by binary_cross_entropy.")
    huber_delta: float = Field(
        1.0, gt=0, description="Error above which huber is linear, in units of the labels."
    )


class GanConfig(ImplementedConfig):
    """Train a generator whose samples a critic cannot distinguish from the data (Goodfellow et al. 2014)."""

    name: Literal["gan"] = "gan"
    implementation = "nnlo_lib.problems.gan:GanProblem"
    critic_steps: int = Field(
        1,
        ge=1,
        description="The generator is trained in every `critic_steps`-th step of a worker, the critic in all.",
    )
    weight_clip: float | None = Field(
        None, gt=0, description="Bound of the critic's weights, 0.01 in the WGAN paper; null: no bound."
    )
    gradient_penalty: float = Field(
        0.0, ge=0, description="Weight of (slope of the critic - 1)^2, 10 in the WGAN-GP paper."
    )
    generator_optimizer: OptimizerConfig | None = Field(
        None, description="Optimizer of the generator; null: `train.optimizer`, as for the critic."
    )
    energy_weight: float | None = Field(
        None,
        ge=0,
        description="Weight of the relative errors of energy and sum that the critic of calorimeter_gan predicts (5 "
        "in NNLO); labels are energies and multiply the noise. null: labels are not used.",
    )

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.weight_clip and self.gradient_penalty:
            raise_config_error("cannot be combined with gradient_penalty; remove one of them", "weight_clip")
        return self


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
        if isinstance(names, tuple) and names[:1] == ("loss",):
            return super()._misfit(found)
        return f'{self.name} needs a class attribute names = ("loss", ...): the loss and the metrics'


BuiltInProblemConfig = Annotated[
    ClassificationConfig | RegressionConfig | GanConfig, Field(discriminator="name")
]
ProblemConfig = Annotated[
    Annotated[BuiltInProblemConfig, Tag(BUILT_IN)] | Annotated[UserProblemConfig, Tag(USER_CLASS)],
    Discriminator(user_class_tag),
]


def allow_name_in_schema(schema: dict[str, Any]) -> None:
    """Accept the name of the problem instead of its section in the JSON schema."""
    union = schema.pop("oneOf")
    schema["anyOf"] = [{"enum": list(union[0]["discriminator"]["mapping"])}, *union]
