"""Search space in the format of NNLO: scikit-optimize dimensions in an attribute of the model function."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.base import suggest_name
from nnlo_lib.config.model import ModelConfig
from nnlo_lib.config.space import DimensionConfig
from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.lazy_import import load_implementation
from nnlo_lib.core.user_code import error_with_source_line, split_function_reference

ATTRIBUTE = "parameter_range"


def read_model_space(model: ModelConfig) -> dict[str, DimensionConfig]:
    """Return the space of `get_model.parameter_range = [Integer(10, 50, name="filters"), ...]` as `model.args.filters`.

    Return an empty dictionary if the model is not built by a function of the user, or if the function does not
    have the attribute. Modules that the file imports may define function and attribute.

    Raises:
        UserError: if the file cannot be run or a dimension is not supported.
    """
    if model.is_network_file or not model.user_file:
        return {}
    try:
        # Run once per process as long as the file is unchanged: several checks read the space.
        function = load_implementation(":".join(split_function_reference(model.name)))
        listed = getattr(function, ATTRIBUTE, [])
    except USER_CODE_ERRORS as error:
        raise UserError(f"{model.name} cannot be loaded: {error_with_source_line(error)}") from error
    return dict(_dimensions(model.name, listed))


def _dimensions(where: str, listed: Any) -> Iterator[tuple[str, DimensionConfig]]:
    from skopt.space import Categorical, Integer, Real

    for number, each in enumerate(listed):
        if not isinstance(each, Categorical | Integer | Real):
            raise UserError(
                f"{where}: {ATTRIBUTE}[{number}] is not a scikit-optimize dimension: {each!r}; use Categorical, Integer or Real"
            )
        if not each.name:
            raise UserError(
                f"{where}: {ATTRIBUTE}[{number}] has no name: {each!r}; set `name` to an argument of the function"
            )
        yield f"model.args.{each.name}", _dimension(where, each)


def _dimension(where: str, each: Any) -> DimensionConfig:
    """Convert a dimension. Raises UserError if the prior of a range is neither uniform nor log-uniform."""
    if hasattr(each, "categories"):
        return DimensionConfig(choice=tuple(_plain(value) for value in each.categories))
    kinds = {"uniform": "", "log-uniform": "log_"}
    if each.prior not in kinds:
        raise UserError(
            f"{where}: prior '{each.prior}' of {each.name} is not supported; {suggest_name(each.prior, kinds)}"
        )
    is_integer = type(each).__name__ == "Integer"
    kind = f"{kinds[each.prior]}{'integer' if is_integer else 'uniform'}"
    number = int if is_integer else float
    return DimensionConfig.model_validate({kind: (number(each.low), number(each.high))})


def _plain(value: Any) -> Any:
    """Convert NumPy scalars to Python scalars and tuples to lists, as experiment files contain them."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.item() if hasattr(value, "item") else value
