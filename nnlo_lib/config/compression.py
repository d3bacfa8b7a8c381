"""How an exchanged vector is written in fewer bytes; what is lost is kept and sent later (error feedback)."""

from typing import Annotated, Literal

from pydantic import Field

from nnlo_lib.config.strict import Strict


class NoCompression(Strict):
    """Send every value as it is."""

    name: Literal["none"] = "none"


class FP16(Strict):
    """Round to half precision: 2 bytes a value, 11 bits of precision, at most 65504 at a time."""

    name: Literal["fp16"] = "fp16"


class BF16(Strict):
    """Round to bfloat16: 2 bytes a value, the range of float32 and 8 bits of precision."""

    name: Literal["bf16"] = "bf16"


class TopK(Strict):
    """Send the values of largest magnitude and where they are (Aji and Heafield 2017; Stich et al. 2018)."""

    name: Literal["top_k"] = "top_k"
    fraction: float = Field(0.01, gt=0, le=1, description="Part of the values that is sent, at least one.")


class RandomK(Strict):
    """Send randomly chosen values; the receiver draws the same places again (Stich et al. 2018)."""

    name: Literal["random_k"] = "random_k"
    fraction: float = Field(0.01, gt=0, le=1, description="Part of the values that is sent, at least one.")


class QSGD(Strict):
    """Round each value at random to a level between 0 and its bucket's norm (Alistarh et al. 2017)."""

    name: Literal["qsgd"] = "qsgd"
    bits: int = Field(
        8, ge=2, le=8, description="Bits of a value, sign included: 2^(bits - 1) - 1 levels above zero."
    )
    bucket: int = Field(
        512, ge=1, description="Values that share one norm; smaller buckets round finer and send more norms."
    )


class Sign(Strict):
    """Send one bit a value, its sign, and one scale, the mean magnitude (Karimireddy et al. 2019)."""

    name: Literal["sign"] = "sign"


class PowerSGD(Strict):
    """Send the vector, as one near-square matrix, in two thin factors (Vogels et al. 2019)."""

    name: Literal["powersgd"] = "powersgd"
    rank: int = Field(
        4, ge=1, description="Columns of both factors: about 2 rank sqrt(P) of P values are sent."
    )


Compression = Annotated[
    NoCompression | FP16 | BF16 | TopK | RandomK | QSGD | Sign | PowerSGD, Field(discriminator="name")
]
