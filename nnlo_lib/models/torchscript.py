"""Networks of torch in files: TorchScript and exported programs, in training and in evaluation mode."""

import zipfile
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from nnlo_lib.core.logging_setup import get_logger

logger = get_logger(__name__)
# Arguments of torch's operations that say whether the network is in training mode.
SWITCHES = ("train", "training", "use_input_stats")
ATTENTION = "scaled_dot_product_attention"  # has no switch: its probability is 0 in evaluation mode
# Operations that torch writes only in evaluation mode, without an argument for training.
EVALUATION_ONLY = (
    "_native_batch_norm_legit_no_training",
    "_native_multi_head_attention",
    "_transformer_encoder_layer_fwd",
)
EXPORT_IN_TRAINING = "export it in training mode: torch.export.export(model.train(), ...)"


def load_torch_network(path: str) -> nn.Module:
    """Return the network in a file, with its weights; code in the file runs.

    Raises ValueError if the file is neither TorchScript nor an exported program, or if the network is fixed in one mode.
    """
    if path.endswith(".pt2"):
        return Exported(torch.export.load(path))
    _require_torchscript(path)
    network: Any = torch.jit.load(path, map_location="cpu")  # type: ignore[no-untyped-call]
    if not hasattr(network, "training"):
        raise ValueError(
            "the network was frozen: it has no trainable parameter; save it without torch.jit.freeze"
        )
    _refuse_one_mode(network.inlined_graph)
    return network  # type: ignore[no-any-return]


def code_of_torch_network(path: str) -> str:
    """Return what the code in a file can do when the network is loaded; reads the file without running it.

    Raises ValueError if the file is neither TorchScript nor an exported program.
    """
    if path.endswith(".pt2"):
        return "an exported program contains pickles, which can run any code when torch loads them"
    _require_torchscript(path)
    return "TorchScript runs operations of torch when it is loaded, which no Python code checks and which can overwrite files"


def _require_torchscript(path: str) -> None:
    """Raise ValueError if a file is not TorchScript."""
    if not zipfile.is_zipfile(path):
        raise ValueError(
            "the file is neither TorchScript (torch.jit.save) nor an exported program (torch.export.save)"
        )
    with zipfile.ZipFile(path) as archive:
        names = {name.partition("/")[2] for name in archive.namelist()}
    # Both torch.jit.save and torch.save write ZIP archives; only TorchScript has this member.
    if "constants.pkl" not in names:
        raise ValueError(
            "the file was written by torch.save: a pickled network can run arbitrary code when it is loaded, and a "
            "state_dict does not contain the network. Save the network with torch.jit.save(torch.jit.script(model), ...), "
            "or set model.name: path.py:function and model.weights to a file of torch.save(model.state_dict(), ...)"
        )


def _refuse_one_mode(graph: Any) -> None:
    """Raise ValueError if an operation of TorchScript has its mode as a constant, which torch.jit.trace writes."""
    for kind in sorted(_kinds(graph)):
        for node in graph.findAllNodes(kind):
            if node.schema() == "(no schema)":
                continue
            names = [each.name for each in torch._C.parse_schema(node.schema()).arguments]
            values = {
                name: value.toIValue()
                for name, value in zip(names, node.inputs(), strict=False)
                if value.node().kind() == "prim::Constant"
            }
            mode = next((values[name] for name in SWITCHES if name in values), None)
            if kind == f"aten::{ATTENTION}":
                mode = True if values.get("dropout_p") else None
            if mode is not None and _depends_on_mode(values):
                raise ValueError(
                    f"{kind.removeprefix('aten::')} is fixed in {'training' if mode else 'evaluation'} mode, as torch.jit.trace "
                    "writes it; save the network with torch.jit.script(model)"
                )


def _kinds(graph: Any) -> set[str]:
    """Return the kinds of torch's operations in a graph and its blocks."""
    kinds, blocks = set(), [graph]
    while blocks:
        for node in blocks.pop().nodes():
            kinds.add(node.kind())
            blocks.extend(node.blocks())
    return {kind for kind in kinds if kind.startswith("aten::")}


def _depends_on_mode(values: dict[str, Any]) -> bool:
    """Return False for dropout of probability 0, and for a normalization without running statistics."""
    no_dropout = any(values.get(name) == 0 for name in ("p", "dropout"))
    return not no_dropout and not ("running_mean" in values and values["running_mean"] is None)


class Exported(nn.Module):
    """An exported program; `train` switches its dropout and normalization, as in other networks.

    Raises ValueError for a fixed batch size, and for an operation that exists in one mode only.
    """

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        for node in program.graph.nodes:
            is_input = node.name in program.graph_signature.user_inputs
            if is_input and isinstance(node.meta["val"].shape[0], int):
                raise ValueError(
                    "the program was exported for a fixed batch size; export it with a variable batch size: "
                    "torch.export.export(model, (inputs,), dynamic_shapes=({0: torch.export.Dim.AUTO},))"
                )
        self.network: Any = program.module()
        # By name of a node, which a copy of the network keeps: position and name of the argument, its values in
        # evaluation and in training mode.
        self._switches: dict[str, tuple[int, str, tuple[Any, Any]]] = {}
        modes, attention_without = set(), False
        for node in self.network.graph.nodes:
            schema = getattr(node.target, "_schema", None)
            if schema is None:
                continue
            name = node.target._opname
            if name in EVALUATION_ONLY:
                raise ValueError(f"{name} is fixed in evaluation mode; {EXPORT_IN_TRAINING}")
            values = {each.name: each.default_value for each in schema.arguments if each.has_default_value()}
            values |= dict(zip((each.name for each in schema.arguments), node.args, strict=False))
            values |= node.kwargs
            for index, argument in enumerate(each.name for each in schema.arguments):
                if argument in SWITCHES and _depends_on_mode(values):
                    self._switches[node.name] = index, argument, (False, True)
                    modes.add(bool(values[argument]))
                elif name == ATTENTION and argument == "dropout_p":
                    self._switches[node.name] = index, argument, (0.0, values[argument])
                    attention_without |= not values[argument]
        if attention_without and modes == {False}:
            raise ValueError(
                "the program was exported in evaluation mode, so that the dropout of its attention is not in the file; "
                f"{EXPORT_IN_TRAINING}"
            )
        if attention_without and not modes:
            logger.warning(
                f"model.name: the attention of the program has no dropout; if the network has, {EXPORT_IN_TRAINING}"
            )
        self.train()

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Return the outputs of the program."""
        return self.network(*inputs)

    def train(self, mode: bool = True) -> "Exported":
        """Switch every operation that behaves differently in training.

        The operations are edited, because `train` of an exported program's own module raises an error.
        """
        self.training = mode
        for node in self.network.graph.nodes:
            if node.name not in self._switches:
                continue
            index, name, values = self._switches[node.name]
            if index < len(node.args):
                node.update_arg(index, values[mode])
            else:
                node.update_kwarg(name, values[mode])
        self.network.recompile()
        return self
