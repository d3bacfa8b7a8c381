"""How an exchanged vector is written in fewer bytes; what is lost is kept and sent later (error feedback)."""

from typing import Annotated, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from nnlo_lib.config.base import ImplementedConfig
from nnlo_lib.config.user_class import BUILT_IN, USER_CLASS, UserClassConfig, user_class_tag


class BaseCompressionConfig(ImplementedConfig):
    """Settings of a compressor."""

    is_cast: ClassVar[bool] = False  # to a shorter floating-point type, value by value


class NoCompressionConfig(BaseCompressionConfig):
    """Send every value as it is."""

    name: Literal["none"] = "none"
    implementation = "nnlo_lib.comm.compression.identity:Identity"


class FP16Config(BaseCompressionConfig):
    """Round to half precision: 2 bytes a value, 11 bits of precision, at most 65504 at a time."""

    name: Literal["fp16"] = "fp16"
    implementation = "nnlo_lib.comm.compression.cast:Cast"
    is_cast = True


class BF16Config(BaseCompressionConfig):
    """Round to bfloat16: 2 bytes a value, the range of float32 and 8 bits of precision."""

    name: Literal["bf16"] = "bf16"
    implementation = "nnlo_lib.comm.compression.cast:Cast"
    is_cast = True


class TopKConfig(BaseCompressionConfig):
    """Send the values of largest magnitude and where they are (Aji and Heafield 2017; Stich et al. 2018)."""

    name: Literal["top_k"] = "top_k"
    implementation = "nnlo_lib.comm.compression.sparse:TopK"
    fraction: float = Field(0.01, gt=0, le=1, description="Part of the values that is sent, at least one.")


class RandomKConfig(BaseCompressionConfig):
    """Send randomly chosen values; the receiver draws the same places again (Stich et al. 2018)."""

    name: Literal["random_k"] = "random_k"
    implementation = "nnlo_lib.comm.compression.sparse:RandomK"
    fraction: float = Field(0.01, gt=0, le=1, description="Part of the values that is sent, at least one.")


class QSGDConfig(BaseCompressionConfig):
    """Round each value at random to a level between 0 and its bucket's norm (Alistarh et al. 2017)."""

    name: Literal["qsgd"] = "qsgd"
    implementation = "nnlo_lib.comm.compression.qsgd:QSGD"
    bits: int = Field(
        8, ge=2, le=8, description="Bits of a value, sign included: 2^(bits - 1) - 1 levels above zero."
    )
    bucket: int = Field(
        512, ge=1, description="Values that share one norm; smaller buckets round finer and send more norms."
    )


class SignConfig(BaseCompressionConfig):
    """Send one bit a value, its sign, and one scale, the mean magnitude (Karimireddy et al. 2019)."""

    name: Literal["sign"] = "sign"
    implementation = "nnlo_lib.comm.compression.sign:Sign"


class PowerSGDConfig(BaseCompressionConfig):
    """Send the vector, as one near-square matrix, in two thin factors (Vogels et al. 2019)."""

    name: Literal["powersgd"] = "powersgd"
    implementation = "nnlo_lib.comm.compression.powersgd:PowerSGD"
    rank: int = Field(
        4, ge=1, description="Columns of both factors: about 2 rank sqrt(P) of P values are sent."
    )


class UserCompressionConfig(UserClassConfig, BaseCompressionConfig):
    """A compressor of your own: a subclass of nnlo_lib.Compressor."""

    base = "nnlo_lib.comm.compression.base:Compressor"


BuiltInCompressionConfig = Annotated[
    NoCompressionConfig
    | FP16Config
    | BF16Config
    | TopKConfig
    | RandomKConfig
    | QSGDConfig
    | SignConfig
    | PowerSGDConfig,
    Field(discriminator="name"),
]
CompressionConfig = Annotated[
    Annotated[BuiltInCompressionConfig, Tag(BUILT_IN)] | Annotated[UserCompressionConfig, Tag(USER_CLASS)],
    Discriminator(user_class_tag),
]
