"""Networks of timm and transformers: refused with the remedy without the package, built and trained with it."""

import sys
from importlib.util import find_spec
from types import ModuleType

import pytest
import torch

from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.models import libraries
from nnlo_lib.models.factory import build_model
from nnlo_lib.models.zoo_registry import LIBRARIES, missing_library

IMAGES = (3, 32, 32)


@pytest.fixture(params=LIBRARIES)
def absent_library(request, monkeypatch):
    """Hide the package of a prefix; return the prefix."""
    hidden = LIBRARIES[request.param]
    for name in [each for each in sys.modules if each.partition(".")[0] == hidden]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr("sys.meta_path", [each for each in sys.meta_path if "editable" not in str(each)])
    monkeypatch.setattr("sys.path_importer_cache", {})
    return request.param


def test_a_missing_package_is_named_with_its_extra(absent_library):
    said = (
        f"{absent_library}:x requires {LIBRARIES[absent_library]}, which is not installed; pip install 'nnlo"
    )
    assert missing_library(f"{absent_library}:x") == f"{said}[{absent_library}]'"
    with pytest.raises(UserError, match=LIBRARIES[absent_library]):
        build_model(f"{absent_library}:x", {}, IMAGES, 10, seed=0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tim:resnet18", r"unknown model 'tim:resnet18'; .* timm:NAME, hf:NAME"),
        pytest.param(
            "timm:resnet18", r"x.yaml:2: model.name: timm:resnet18 requires timm",
            marks=pytest.mark.skipif(find_spec("timm") is not None, reason="timm is installed"),
        ),
    ],
)  # fmt: skip
def test_an_experiment_is_refused_at_its_line(tmp_path, name, said):
    (tmp_path / "x.yaml").write_text(f"name: x\nmodel: {{name: '{name}'}}\n")
    with pytest.raises(UserError, match=said):
        load_experiment(tmp_path / "x.yaml")


@pytest.mark.parametrize("said", ["operator torchvision::nms does not exist", "undefined symbol"])
def test_a_torchvision_that_cannot_be_imported_is_refused_with_the_remedy(said, tmp_path, monkeypatch):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision/__init__.py").write_text(f"raise RuntimeError({said!r})\n")
    for name in [each for each in sys.modules if each.partition(".")[0] in ("torchvision", "timm")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchvision._meta_registrations", ModuleType("any"))
    monkeypatch.syspath_prepend(tmp_path)
    message = r"timm cannot be imported: .*; pip install torchvision==0\.28\.0 --index-url"
    with pytest.raises(UserError, match=message):
        libraries.import_timm()


@pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed")
def test_networks_of_timm():
    one, same, other = (build_model("timm:resnet18", {}, (1, 32, 32), 7, seed) for seed in (0, 0, 1))
    assert one(torch.randn(2, 1, 32, 32)).shape == (2, 7)
    assert all(a.equal(b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not all(a.equal(b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    for name, args, shape, message in (
        ("resnet19", {}, IMAGES, "timm has no network 'resnet19'; did you mean"),
        ("resnet18", {"pretrained": True}, IMAGES, "pretrained cannot be set"),
        ("resnet18", {"heads": 3}, IMAGES, "heads"),
        ("resnet18", {}, (64,), r"requires images .*, but the samples are \(64,\)"),
    ):
        with pytest.raises(UserError, match=message):
            build_model(f"timm:{name}", args, shape, 10, seed=0)


@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
def test_networks_of_transformers():
    small = {"task": "causal_lm", "n_layer": 1, "n_head": 2, "n_embd": 8}
    one, same, other = (build_model("hf:gpt2", small, (9,), 50, seed) for seed in (0, 0, 1))
    assert one(torch.randint(0, 50, (2, 9), dtype=torch.int32)).shape == (2, 9, 50)
    assert next(one.parameters()).equal(next(same.parameters()))
    assert not next(one.parameters()).equal(next(other.parameters()))
    vit = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    assert build_model("hf:vit", vit, IMAGES, 7, 0)(torch.randn(2, *IMAGES)).shape == (2, 7)
    for name, args, message in (
        ("gpt3", {}, "transformers has no network 'gpt3'; did you mean"),
        ("gpt2", {"task": "translate"}, "hf has no task 'translate'"),
        ("gpt2", {"n_layers": 1}, "model.args.n_layers: is no key of GPT2Config"),
        ("gpt2", {"task": "causal_lm", "vocab_size": 3}, "model.args.vocab_size: follows from the data"),
        ("vit", {"task": "causal_lm"}, "hf:vit has no network for the task causal_lm"),
    ):
        with pytest.raises(UserError, match=message):
            build_model(f"hf:{name}", args, (9,), 50, seed=0)
