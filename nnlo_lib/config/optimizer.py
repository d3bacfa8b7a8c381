"""Settings of the optimizers."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from nnlo_lib.config.base import ConfigModel, ImplementedConfig, Requires, raise_config_error

Decay = Annotated[float, Field(ge=0, description="L2 penalty added to the gradient.")]
Decoupled = Annotated[float, Field(ge=0, description="Weight decay, decoupled from the gradient.")]
IsDecoupled = Annotated[
    bool,
    Requires("weight_decay"),
    Field(description="Decouple weight decay from the gradient, as in adamw."),
]
Beta1 = Annotated[float, Field(ge=0, lt=1, description="Decay of the first moment.")]
Beta2 = Annotated[float, Field(ge=0, lt=1, description="Decay of the second moment.")]
Epsilon = Annotated[float, Field(gt=0, description="Added to the root of the second moment.")]
InsideRoot = Annotated[
    bool, Field(description="Add epsilon to the second moment before the root is taken, as in PyDTNN.")
]
Lr = Annotated[float, Field(gt=0, description="Learning rate.")]
Momentum = Annotated[float, Field(ge=0, lt=1, description="Momentum.")]
ExcludeVectors = Annotated[
    bool,
    Field(
        description="Exclude biases and normalization parameters (1-d) from the trust ratio and weight decay; their "
        "learning rate is `lr`."
    ),
]
Kernel = Literal["fused", "fused on cpu", "chunked on cpu", "layerwise", "flat"]
WHOLE_KERNELS: tuple[Kernel, ...] = ("layerwise", "flat")  # an update of one value depends on others


class ParameterGroupConfig(ConfigModel):
    """Settings of some of a model's parameters."""

    match: str
    """Names of parameters, with *; several are separated by |, for example "*.bias|*norm*". The first group that matches counts."""
    lr: float | None = Field(None, gt=0)
    """Learning rate; null: the optimizer's. A schedule changes both by the same factor."""
    weight_decay: float | None = Field(None, ge=0)
    """Weight decay; null: the optimizer's."""


class BaseOptimizerConfig(ImplementedConfig):
    """Settings of a torch.optim.Optimizer."""

    groups: tuple[ParameterGroupConfig, ...] = Field(
        (), examples=[[{"match": "*.bias|*norm*", "weight_decay": 0.0}]]
    )
    """Parameters with another learning rate or weight decay; `nnlo model` prints the names."""
    weight_decay_on: Literal["all", "matrices"] = "all"
    """matrices: no weight decay of biases and of the parameters of normalization layers (1-d)."""

    # update of a flat vector: by one fused kernel, in chunks that fit a CPU's cache, layer by layer, or
    # as one vector
    kernel: ClassVar[Kernel]
    # keys whose argument of the optimizer has another name; `epsilon` is always `eps`
    renamed: ClassVar[dict[str, str]] = {}

    @property
    def used_kernel(self) -> Kernel:
        """`kernel`, or another one that the settings need."""
        return self.kernel

    @property
    def decoupled_decay(self) -> float:
        """Weight decay that NNLO applies before the optimizer's step: w <- (1 - lr decay) w."""
        return 0.0

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the optimizer."""
        names = {"epsilon": "eps", **self.renamed}
        options = {names.get(key, key): value for key, value in super().arguments.items()}
        del options["groups"], options["weight_decay_on"]
        return options

    @property
    def decay_is_decoupled(self) -> bool:
        """True if weight decay shrinks the weights themselves; False if it is a part of the gradient."""
        return bool(getattr(self, "decoupled", False))

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        if (self.groups or self.weight_decay_on != "all") and self.kernel in WHOLE_KERNELS:
            raise_config_error(
                "only for element-wise optimizers, such as sgd, adamw or lion; lars and lamb have `exclude_vectors`, muon has `adamw`",
                "groups" if self.groups else "weight_decay_on",
            )
        return self


class DecoupledDecayConfig(BaseOptimizerConfig):
    """Settings of an optimizer of torch whose weight decay is an L2 penalty unless it is decoupled by NNLO."""

    decoupled: IsDecoupled = False
    weight_decay: Decay = 0.0

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the optimizer, without a decoupled decay."""
        options = super().arguments
        return options | {"weight_decay": 0.0} if options.pop("decoupled") else options

    @property
    def decoupled_decay(self) -> float:
        """Weight decay that is applied before the step."""
        return self.weight_decay if self.decoupled else 0.0


class TwoMomentsConfig(BaseOptimizerConfig):
    """Settings of Adam and its variants."""

    lr: Lr = 0.002
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    epsilon: Epsilon = 1e-8

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the optimizer, with the decays of both moments as one argument `betas`."""
        options = super().arguments
        betas = options.pop("beta1"), options.pop("beta2")
        return options | {"betas": betas}


class RootConfig(BaseOptimizerConfig):
    """Settings of an optimizer that can add epsilon inside the root."""

    inside_root: ClassVar[str]  # class with epsilon inside the root
    outside_only: ClassVar[tuple[str, ...]]  # keys that this class does not have

    epsilon_inside_root: InsideRoot = False

    @model_validator(mode="after")
    def _has_no_other_variant(self) -> Self:
        for key in self.outside_only:
            if self.epsilon_inside_root and getattr(self, key):
                raise_config_error(f"not supported with {key}; remove one of them", "epsilon_inside_root")
        return self

    @property
    def used_kernel(self) -> Kernel:
        """The kernel of the class that is used."""
        return "chunked on cpu" if self.epsilon_inside_root else self.kernel

    @property
    def reference(self) -> str:
        """Reference of the class, for core.lazy_import."""
        return (
            f"nnlo_lib.train.optimizers.update_rules:{self.inside_root}"
            if self.epsilon_inside_root
            else self.implementation
        )

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the optimizer."""
        options = super().arguments
        left_out = self.outside_only if options.pop("epsilon_inside_root") else ()
        return {key: value for key, value in options.items() if key not in left_out}


class SGDConfig(DecoupledDecayConfig):
    """Stochastic gradient descent with optional momentum (Sutskever et al. 2013)."""

    name: Literal["sgd"] = "sgd"
    implementation = "torch.optim:SGD"
    kernel = "fused"
    lr: Lr = 0.01
    momentum: Momentum = 0.0
    nesterov: Annotated[bool, Requires("momentum")] = False
    """Use Nesterov momentum."""


class AdamConfig(TwoMomentsConfig, RootConfig):
    """Adam (Kingma and Ba 2015)."""

    name: Literal["adam"] = "adam"
    implementation = "torch.optim:Adam"
    kernel = "fused"
    inside_root = "AdamInsideRoot"
    outside_only = ("amsgrad",)
    lr: Lr = 0.001
    amsgrad: bool = False
    """Use the maximum of the second moments so far (Reddi et al. 2018)."""
    weight_decay: Decay = 0.0


class AdamWConfig(AdamConfig):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    name: Literal["adamw"] = "adamw"  # type: ignore[assignment]
    implementation = "torch.optim:AdamW"
    weight_decay: Decoupled = 0.01

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the optimizer; with epsilon inside the root, without weight decay."""
        return super().arguments | ({"weight_decay": 0.0} if self.epsilon_inside_root else {})

    @property
    def decay_is_decoupled(self) -> bool:
        """Return True."""
        return True

    @property
    def decoupled_decay(self) -> float:
        """Weight decay that is applied before the step, because AdamInsideRoot has an L2 penalty."""
        return self.weight_decay if self.epsilon_inside_root else 0.0


class NAdamConfig(TwoMomentsConfig):
    """Adam with Nesterov momentum (Dozat 2016)."""

    name: Literal["nadam"] = "nadam"
    implementation = "torch.optim:NAdam"
    kernel = "chunked on cpu"
    renamed: ClassVar[dict[str, str]] = {"decoupled": "decoupled_weight_decay"}
    momentum_decay: float = Field(0.004, ge=0)
    """Speed of the warm-up of beta1 (psi)."""
    decoupled: IsDecoupled = False
    weight_decay: Decay = 0.0


class AdamaxConfig(TwoMomentsConfig):
    """Adam with the infinity norm of the gradients instead of the second moment (Kingma and Ba 2015)."""

    name: Literal["adamax"] = "adamax"
    implementation = "torch.optim:Adamax"
    kernel = "chunked on cpu"
    weight_decay: Decay = 0.0


class RMSpropConfig(DecoupledDecayConfig, RootConfig):
    """RMSprop (Tieleman and Hinton 2012)."""

    name: Literal["rmsprop"] = "rmsprop"
    implementation = "torch.optim:RMSprop"
    kernel = "chunked on cpu"
    renamed: ClassVar[dict[str, str]] = {"rho": "alpha"}
    inside_root = "RMSpropInsideRoot"
    outside_only = ("momentum", "centered")
    lr: Lr = 0.001
    rho: float = Field(0.9, ge=0, lt=1)
    """Decay of the squared gradient."""
    momentum: Momentum = 0.0
    centered: bool = False
    """Subtract the squared mean gradient (Graves 2013)."""
    epsilon: float = Field(1e-8, gt=0)
    """Added to the root of the squared gradient."""

    @model_validator(mode="after")
    def _centered_needs_memory(self) -> Self:
        # Without a memory, the variance of the gradient is 0, which torch rounds to negative numbers.
        if self.centered and self.rho == 0:
            raise_config_error("requires rho > 0; set `rho`, or `centered: false`", "centered")
        return self


class AdadeltaConfig(BaseOptimizerConfig):
    """Adadelta (Zeiler 2012)."""

    name: Literal["adadelta"] = "adadelta"
    implementation = "torch.optim:Adadelta"
    kernel = "chunked on cpu"
    lr: float = Field(1.0, gt=0)
    """Factor on the update."""
    rho: float = Field(0.95, ge=0, lt=1)
    """Decay of the squared gradient and update."""
    epsilon: float = Field(1e-6, gt=0)
    """Added under both square roots."""
    weight_decay: Decay = 0.0


class AdagradConfig(BaseOptimizerConfig):
    """Adagrad (Duchi, Hazan and Singer 2011)."""

    name: Literal["adagrad"] = "adagrad"
    implementation = "torch.optim:Adagrad"
    kernel = "fused on cpu"
    renamed: ClassVar[dict[str, str]] = {"initial": "initial_accumulator_value"}
    lr: Lr = 0.01
    lr_decay: float = Field(0.0, ge=0)
    """The learning rate of step t is lr / (1 + t lr_decay)."""
    initial: float = Field(0.0, ge=0)
    """Initial value of the sum of squared gradients."""
    epsilon: float = Field(1e-10, gt=0)
    """Added to the root of the sum of squared gradients."""
    weight_decay: Decay = 0.0


class LARSConfig(BaseOptimizerConfig):
    """SGD with a learning rate per layer, for large batches (You, Gitman and Ginsburg 2017)."""

    name: Literal["lars"] = "lars"
    implementation = "nnlo_lib.train.optimizers.update_rules:LARS"
    kernel = "layerwise"
    lr: Lr = 1.0
    momentum: Momentum = 0.9
    trust: float = Field(0.001, gt=0)
    """Trust coefficient (eta)."""
    epsilon: float = Field(1e-9, gt=0)
    """Added to the denominator of the trust ratio."""
    exclude_vectors: ExcludeVectors = False
    weight_decay: float = Field(0.0, ge=0)
    """L2 penalty (beta)."""


class LAMBConfig(TwoMomentsConfig):
    """AdamW with a step size per layer, for large batches (You et al. 2020)."""

    name: Literal["lamb"] = "lamb"
    implementation = "nnlo_lib.train.optimizers.update_rules:LAMB"
    kernel = "layerwise"
    lr: Lr = 0.001
    epsilon: Epsilon = 1e-6
    exclude_vectors: ExcludeVectors = True
    weight_decay: Decoupled = 0.01


class MuonConfig(TwoMomentsConfig):
    """Orthogonal steps of matrices and filters (Jordan et al. 2024), AdamW for all other parameters."""

    name: Literal["muon"] = "muon"
    implementation = "nnlo_lib.train.optimizers.update_rules:Muon"
    kernel = "layerwise"
    lr: Lr = 0.001
    momentum: Momentum = 0.95
    adamw: str = "*embed*|*head*"
    """Names of matrices that AdamW moves as well, with *, separated by |: embeddings and output layers."""
    beta2: Beta2 = 0.95
    weight_decay: Decoupled = 0.01


class LionConfig(BaseOptimizerConfig):
    """Steps by the sign of the momentum (Chen et al. 2023); `lr` a third to a tenth of AdamW's, `weight_decay` as much larger."""

    name: Literal["lion"] = "lion"
    implementation = "nnlo_lib.train.optimizers.update_rules:Lion"
    kernel = "chunked on cpu"
    lr: Lr = 0.0003
    beta1: Beta1 = 0.9
    beta2: float = Field(0.99, ge=0, lt=1)
    """Decay of the momentum."""
    weight_decay: Decoupled = 0.03

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the optimizer, without the decoupled decay."""
        return {"lr": self.lr, "betas": (self.beta1, self.beta2), "weight_decay": 0.0}

    @property
    def decay_is_decoupled(self) -> bool:
        """Return True."""
        return True

    @property
    def decoupled_decay(self) -> float:
        """Weight decay that is applied before the step."""
        return self.weight_decay


class ScheduleFreeConfig(BaseOptimizerConfig):
    """SGD or AdamW whose averaged steps replace a learning-rate schedule (Defazio et al. 2024); warm-up helps."""

    name: Literal["schedule_free"] = "schedule_free"
    implementation = "nnlo_lib.train.optimizers.update_rules:ScheduleFree"
    kernel = "flat"
    lr: Lr = 0.0025
    momentum: Momentum = 0.9
    beta2: float = Field(0.999, ge=0, lt=1)
    """Decay of the second moment of AdamW; 0: SGD, whose `lr` is 100 to 1,000 times larger."""
    epsilon: Epsilon = 1e-8
    weight_decay: Decoupled = 0.0


OptimizerConfig = Annotated[
    SGDConfig
    | AdamConfig
    | AdamWConfig
    | NAdamConfig
    | AdamaxConfig
    | RMSpropConfig
    | AdadeltaConfig
    | AdagradConfig
    | LARSConfig
    | LAMBConfig
    | MuonConfig
    | LionConfig
    | ScheduleFreeConfig,
    Field(discriminator="name"),
]
