"""Complete networks in a file: TorchScript (`torch.jit.save`), exported programs (`torch.export.save`)."""

import zipfile
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

# Index of the argument of an operation that switches between training and evaluation.
SWITCHES = {
    "batch_norm": 5,
    "dropout": 2,
}


class Exported(nn.Module):
    """An exported program; `train` switches its dropout and batch normalization, as in other networks."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        _refuse_one_batch_size(program)
        self.network: Any = program.module()
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
            name = getattr(node.target, "_opname", "")
            if name in SWITCHES:
                node.update_arg(SWITCHES[name], mode)
        self.network.recompile()
        return self


def _refuse_one_batch_size(program: ExportedProgram) -> None:
    for node in program.graph.nodes:
        if node.name in program.graph_signature.user_inputs and isinstance(node.meta["val"].shape[0], int):
            raise ValueError(
                "the program was exported for a fixed batch size; export it with a variable batch size: "
                "torch.export.export(model, (inputs,), dynamic_shapes=({0: torch.export.Dim.AUTO},))"
            )


def load_torch_network(path: str) -> nn.Module:
    """Return the network in a file, with its weights; code in the file runs.

    Raises ValueError if the file is neither TorchScript nor an exported program.
    """
    if path.endswith(".pt2"):
        return Exported(torch.export.load(path))
    _require_torchscript(path)
    return torch.jit.load(path, map_location="cpu")  # type: ignore[no-untyped-call,no-any-return]


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
