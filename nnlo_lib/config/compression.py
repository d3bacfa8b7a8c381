"""Settings of the compression of exchanged vectors; error feedback adds the error to the next vector."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from nnlo_lib.config.base import BuiltInOr, ImplementedConfig, UserClassConfig

Fraction = Annotated[
    float, Field(gt=0, le=1, description="Fraction of the values that is sent; at least one value.")
]


class BaseCompressionConfig(ImplementedConfig):
    """Settings of a compressor."""

    # True if the compressor converts each value to a shorter floating-point type
    is_cast: ClassVar[bool] = False


class NoCompressionConfig(BaseCompressionConfig):
    """No compression."""

    name: Literal["none"] = "none"
    implementation = "nnlo_lib.comm.compression.base:Identity"


class FP16Config(BaseCompressionConfig):
    """Round to half precision: 2 bytes per value, 11 bits of precision; values beyond 65504 are clipped."""

    name: Literal["fp16"] = "fp16"
    implementation = "nnlo_lib.comm.compression.quantization:Cast"
    is_cast = True


class BF16Config(BaseCompressionConfig):
    """Round to bfloat16: 2 bytes per value, the range of float32 and 8 bits of precision."""

    name: Literal["bf16"] = "bf16"
    implementation = "nnlo_lib.comm.compression.quantization:Cast"
    is_cast = True


class TopKConfig(BaseCompressionConfig):
    """Send the values of largest magnitude and their indices (Aji and Heafield 2017; Stich et al. 2018)."""

    name: Literal["top_k"] = "top_k"
    implementation = "nnlo_lib.comm.compression.approximation:TopK"
    fraction: Fraction = 0.01


class RandomKConfig(BaseCompressionConfig):
    """Send randomly chosen values; the receiver draws the same indices (Stich et al. 2018)."""

    name: Literal["random_k"] = "random_k"
    implementation = "nnlo_lib.comm.compression.approximation:RandomK"
    fraction: Fraction = 0.01


class QSGDConfig(BaseCompressionConfig):
    """Round each value at random to a level between 0 and its bucket's norm (Alistarh et al. 2017)."""

    name: Literal["qsgd"] = "qsgd"
    implementation = "nnlo_lib.comm.compression.quantization:QSGD"
    bits: int = Field(8, ge=2, le=8)
    """Bits per value, including the sign: 2^(bits - 1) - 1 levels above zero."""
    bucket: int = Field(512, ge=1)
    """Number of values that share one norm; smaller buckets reduce the rounding error but send more norms."""


class SignConfig(BaseCompressionConfig):
    """Send the sign of each value, one bit, and the mean magnitude of all values (Karimireddy et al. 2019)."""

    name: Literal["sign"] = "sign"
    implementation = "nnlo_lib.comm.compression.quantization:Sign"


class PowerSGDConfig(BaseCompressionConfig):
    """Send the vector, reshaped to a nearly square matrix, as two low-rank factors (Vogels et al. 2019)."""

    name: Literal["powersgd"] = "powersgd"
    implementation = "nnlo_lib.comm.compression.approximation:PowerSGD"
    rank: int = Field(4, ge=1)
    """Columns of both factors; about 2 rank sqrt(P) values are sent for P values."""


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
CompressionConfig = BuiltInOr[BuiltInCompressionConfig, UserCompressionConfig]
