"""What is learned."""

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from nnlo_lib.config.base import ImplementedConfig, raise_config_error
from nnlo_lib.config.optimizer import OptimizerConfig
from nnlo_lib.config.user_class import BUILT_IN, USER_CLASS, UserClassConfig, user_class_tag
from nnlo_lib.core.lazy_import import load_implementation

Outputs = Literal["scores", "probabilities"]
OUTPUTS = (
    "What the model's outputs are: scores of any size, or probabilities (it ends with softmax or sigmoid)."
)


class ClassificationConfig(ImplementedConfig):
    """Learn which class, or which classes, a sample belongs to."""

    name: Literal["classification"] = "classification"
    implementation = "nnlo_lib.problems.supervised:SupervisedProblem"
    outputs: Outputs = Field("scores", description=OUTPUTS)
    label_smoothing: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of a label given evenly to all classes (Szegedy et al. 2016), in cross_entropy.",
    )


class RegressionConfig(ImplementedConfig):
    """Learn numbers: a sample's labels are what the model is to answer."""

    name: Literal["regression"] = "regression"
    implementation = "nnlo_lib.problems.supervised:SupervisedProblem"
    outputs: Outputs = Field("scores", description=f"{OUTPUTS} Matters to binary_cross_entropy.")
    huber_delta: float = Field(
        1.0, gt=0, description="Error from which huber grows linearly, in units of the labels."
    )


class GanConfig(ImplementedConfig):
    """Learn to make samples that a critic cannot tell from the data's (Goodfellow et al. 2014)."""

    name: Literal["gan"] = "gan"
    implementation = "nnlo_lib.problems.gan:GanProblem"
    critic_steps: int = Field(
        1, ge=1, description="Steps of a worker for each one in which its generator learns, too."
    )
    weight_clip: float | None = Field(
        None, gt=0, description="Bound on the critic's weights, 0.01 in the WGAN paper; null: none."
    )
    gradient_penalty: float = Field(
        0.0, ge=0, description="Weight of (slope of the critic - 1)^2, 10 in the WGAN-GP paper."
    )
    generator_optimizer: OptimizerConfig | None = Field(
        None, description="The generator's own update rule; null: that of the critic, train.optimizer."
    )
    energy_weight: float | None = Field(
        None,
        ge=0,
        description="Weight of the relative errors of energy and sum that a critic of showers tells (calorimeter_gan; 5 "
        "in NNLO): labels are energies and multiply the noise. null: labels are not used.",
    )

    @model_validator(mode="after")
    def _bound_once(self) -> Self:
        if self.weight_clip and self.gradient_penalty:
            raise_config_error("gradient_penalty replaces weight_clip; leave one out", "weight_clip")
        return self


class UserProblemConfig(UserClassConfig):
    """A problem of your own: a subclass of nnlo_lib.Problem, which defines its loss and its metrics."""

    base = "nnlo_lib.problems.base:Problem"

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that the class declares."""
        names: tuple[str, ...] = load_implementation(self.name).names
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
    """Let the editor know that a block's name may stand for it."""
    union = schema.pop("oneOf")
    schema["anyOf"] = [{"enum": list(union[0]["discriminator"]["mapping"])}, *union]
