"""Keys of DiNNO's YAML files with their defaults, from which types and limits follow, and the reader of their sections.

A default that is an integer or a number stands for positive ones, or has its own limit, as in (25, 2); a text stands for
any text, a list for one of its names, and None for any value.
"""

import math
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError

OPTIMIZERS = ["adam", "sgd", "adamw"]
# Limits of 0 are of keys that some files have without using them; experiments refuse 0 if it is used.
GRAPH = {"num_nodes": 2, "type": "wheel", "p": (0.5, 0), "gen_attempts": (100, 0)}
SCALING = {
    "const": ["fiedler", "num_nodes"], "num_trials": 1, "min_N": 1, "max_N": 1, "target_fied": 1.0, "num_nodes": 1,
    "min_fied": 1.0, "max_fied": 1.0,
}  # fmt: skip
BASELINE = {
    "train_solo": None, "optimizer": "adam", "lr": (0.001, 0), "epochs": (1, 0), "train_batch_size": (64, 0),
    "val_batch_size": None, "verbose": None,
}  # fmt: skip
DENSITY = {
    "data_dir": ".", "waypoint_subdir": "", "num_beams": 20, "beam_samps": (25, 2), "beam_length": 0.2,
    "collision_samps": (50, 2), "fine_samps": (3, 2), "samp_distribution_factor": 1.0, "border_width": (30, 0),
    "num_validation_scans": 500, "spline_res": 30, "num_scans_in_window": 800, "split_type": None, "round_density": None,
    "num_scans": None, "clipped_lidar": None,
}  # fmt: skip
EXPERIMENT = {
    "name": None, "data_dir": None, "output_metadir": None, "writeout": None, "use_cuda": None, "seed": (0, 0),
    "data_split_type": "random", "loss": "", "graph": GRAPH, "model": None, "individual_training": BASELINE,
    "scaling": SCALING, "data": DENSITY,
}  # fmt: skip
# `kernal_width` is the spelling of DiNNO's README; its code reads kernel_size.
CONVOLUTION = {"num_filters": 1, "kernel_size": 1, "kernal_width": 1, "linear_width": 1}
FOURIER = {"shape": None, "scale": 0.05}
# `persistant` is DiNNO's spelling; primal_lr is a key of its older files.
PRIMAL = {
    "rho_init": 0.5, "rho_scaling": 1.0, "primal_iterations": 2, "primal_optimizer": OPTIMIZERS, "primal_lr": 0.001,
    "primal_lr_start": 0.001, "primal_lr_finish": 0.001, "lr_decay_type": ["constant", "linear", "log"],
    "persistant_primal_opt": None,
}  # fmt: skip
RULES: dict[str, dict[str, Any]] = {
    "dinno": PRIMAL, "cadmm": PRIMAL, "dsgd": {"alpha0": 0.005, "mu": (0.0, 0)},
    "dsgt": {"alpha": 0.005, "init_grads": None},
}  # fmt: skip
RULE = {"alg_name": list(RULES), "outer_iterations": 1, "profile": None}
# evaluate_frequency is a key of the problem in older files; tloss_decay is the weight of the newest loss.
METRICS_CONFIG = {"evaluate_frequency": 1, "tloss_decay": (0.02, 0), "mesh_only_at_end": None}
PROBLEM = {
    "problem_name": None, "train_batch_size": 64, "val_batch_size": None, "evaluate_frequency": 1, "verbose_evals": None,
    "metrics": None, "metrics_config": METRICS_CONFIG, "optimizer_config": RULE | PRIMAL | RULES["dsgd"] | RULES["dsgt"],
    "comm_radius": 1.0, "dynamic_graph": None, "save_models": None,
}  # fmt: skip


class Section(SimpleNamespace):
    """Values of a section, with the defaults of omitted keys; `given` has the keys of the file."""

    given: list[str]


def read_section(table: Mapping[str, Any], block: Any, where: str) -> Section:
    """Return a section of the file, empty if it is missing or null. Raises UserError if a key or value is not valid."""
    block = {} if block is None else block
    if not isinstance(block, Mapping):
        raise UserError(f"{where}: expected a mapping of keys, got {block!r}")
    values = {key: _usual(default) for key, default in table.items()}
    for key, value in block.items():
        if key not in table:
            raise UserError(f"{where}: DiNNO has no key '{key}'; {suggest_name(str(key), table)}")
        values[key] = _checked(value, table[key], f"{where}.{key}")
    return Section(given=list(block), **values)


def _usual(default: Any) -> Any:
    if isinstance(default, Mapping):
        return read_section(default, {}, "")
    return default[0] if isinstance(default, list | tuple) else default


def _checked(value: Any, default: Any, where: str) -> Any:
    if isinstance(default, Mapping):
        return read_section(default, value, where)
    if isinstance(default, list):
        return check_name(str(value), default, where)
    usual, least = default if isinstance(default, tuple) else (default, None)
    if usual is None or (isinstance(usual, str) and isinstance(value, str)):
        return value
    # bool is a subclass of int.
    is_number = (
        isinstance(value, int | type(usual)) and not isinstance(value, bool | str) and value < math.inf
    )
    if not isinstance(usual, str) and is_number and (value > 0 if least is None else value >= least):
        return value
    kind = {str: "a text", int: "an integer", float: "a number"}[type(usual)]
    limit = "" if isinstance(usual, str) else " above 0" if least is None else f" of at least {least}"
    raise UserError(f"{where}: expected {kind}{limit}, got {value!r}")


def check_name(name: str, known: Iterable[str], where: str) -> str:
    """Return a name of `known`. Raises UserError for other names."""
    if name not in known:
        raise UserError(
            f"{where}: DiNNO has no {where.rpartition('.')[2]} '{name}'; {suggest_name(name, known)}"
        )
    return name
