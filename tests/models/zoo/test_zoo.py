"""Model zoo: published parameter counts, shapes of the scores and errors for samples of a wrong shape."""

import math
from importlib import import_module

import pytest
import torch
from torch import nn

from nnlo_lib.core.errors import UserError
from nnlo_lib.models.factory import build_model
from nnlo_lib.models.stacked import PerNodeLayer, stack_network
from nnlo_lib.models.zoo_registry import GANS, MODELS

IMAGENET, INCEPTION = ((3, 224, 224), 1000), ((3, 299, 299), 1000)
CIFAR, MNIST = ((3, 32, 32), 10), ((1, 28, 28), 10)
TOPCLASS, JETS, TEXTS, POSITIONS = ((5, 150, 94), 3), ((16, 150), 5), ((500,), 2), ((2,), 0)

# parameter counts published by torchvision
TORCHVISION = {
    "alexnet": 61_100_840, "googlenet": 6_624_904, "inception_v3": 23_834_568,
    "vgg11": 132_863_336, "vgg13": 133_047_848, "vgg16": 138_357_544, "vgg19": 143_667_240,
    "vgg11_bn": 132_868_840, "vgg13_bn": 133_053_736, "vgg16_bn": 138_365_992, "vgg19_bn": 143_678_248,
    "resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032, "resnet101": 44_549_160,
    "resnet152": 60_192_808, "wide_resnet50_2": 68_883_240, "wide_resnet101_2": 126_886_696,
    "densenet121": 7_978_856, "densenet161": 28_681_000, "densenet169": 14_149_480, "densenet201": 20_013_928,
}  # fmt: skip

# parameter counts of the networks in shared/reference, or counts of their layers by hand
SEEDS = [
    ("simplemlp", MNIST, 932_362), ("simplecnn", MNIST, 202_458), ("dinno_conv", MNIST, 28_440),
    ("nnlo_mnist", MNIST, 600_810), ("nnlo_mnist_torch", MNIST, 21_840), ("nnlo_cifar10", CIFAR, 1_916_266),
    ("nnlo_topclass", TOPCLASS, 40_964), ("nnlo_topclass_torch", TOPCLASS, 8_364),
    ("hls4ml_gru", JETS, 45_955), ("jedi_net", JETS, 8_329), ("fourier", POSITIONS, 25_601),
    ("perceptron", ((12,), 5), 832 + 2 * 4_160 + 325),
    ("siren", POSITIONS, 2 * 256 + 256 + 2 * (256 * 256 + 256) + 257),
    ("lstm", TEXTS, 10_000 * 128 + 4 * (2 * 128 * 128 + 128) + 2 * 128 + 2),
    ("gpt", ((64,), 256), (256 + 64) * 128 + 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128),
    # a common implementation in PyTorch for two classes
    ("unet", ((3, 512, 512), 2), 31_037_698),
    ("theanompi_cifar10", ((3, 28, 28), 10), 4_864 + 204_928 + 73_792 + 65_792 + 2_570),
    ("alexnet_2012", IMAGENET, 60_965_224), ("mobilenet_v1", IMAGENET, 4_231_976),
    # PyDTNN: 1.06, 0.59 and 0.55 million, and 1.35 million with running statistics; blocks, hidden layer, last layer
    ("vgg1", CIFAR, 896 + 9_248 + 16 * 16 * 32 * 128 + 128 + 1_290),
    ("vgg2", CIFAR, 10_144 + 18_496 + 36_928 + 8 * 8 * 64 * 128 + 128 + 1_290),
    *((name, CIFAR, 65_568 + 73_856 + 147_584 + 4 * 4 * 128 * 128 + 128 + 1_290) for name in ("vgg3", "vgg3do", "vgg3do2")),
    ("vgg3dobn", CIFAR, 287_008 + 2 * 2 * (32 + 64 + 128) + 2_048 * 512 + 512 + 2 * 512 + 5_130),
]  # fmt: skip

# CIFAR-10 networks, from four sources: PyDTNN (23.3, 9.75, 9.77, 15.2 and 15.3 million, running statistics included),
# the tables of He et al. and Huang et al., 36.5 million by Zagoruyko, and common variants with 3 x 3 stems
SMALL = {
    "alexnet": 23_272_266, "vgg11": 9_750_922, "vgg11_bn": 9_756_426, "vgg16": 15_245_130, "vgg16_bn": 15_253_578,
    "resnet20": 269_722, "resnet32": 464_154, "resnet44": 658_586, "resnet56": 853_018, "resnet110": 1_727_962,
    "resnet1202": 19_421_274, "wide_resnet": 36_479_194, "densenet40": 1_019_722, "densenet_bc100": 769_162,
    "resnet18": 11_173_962, "resnet50": 23_520_842, "densenet121": 6_956_298, "mobilenet_v1": 3_217_226,
}  # fmt: skip


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def on_meta(name, sample, **arguments):
    shape, classes = sample
    with torch.device("meta"):
        return build_model(name, arguments, shape, classes, seed=0)


COUNTS = [
    *((name, {}, INCEPTION if "inception" in name else IMAGENET, found) for name, found in TORCHVISION.items()),
    *((name, {}, sample, parameters) for name, sample, parameters in SEEDS),
    *((name, {}, CIFAR, parameters) for name, parameters in SMALL.items()),
    ("googlenet", {"auxiliary": True}, IMAGENET, 13_004_888),
    ("inception_v3", {"auxiliary": True}, INCEPTION, 27_161_264),
    # count of PyDTNN
    ("alexnet_2012", {"groups": 1, "normalize": False}, ((3, 227, 227), 1000), 62_378_344),
    ("simplecnn", {"padding": 0}, MNIST, 149_210),
    ("wide_resnet", {"depth": 40, "widen": 4}, CIFAR, 8_949_210),
    ("wide_resnet", {"depth": 16, "widen": 8}, CIFAR, 10_961_370),
    # OpenAI's smallest model of 2019
    ("gpt", {"width": 768, "layers": 12, "heads": 12}, ((1024,), 50_257), 124_439_808),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "sample", "parameters"), COUNTS)
def test_parameters(name, arguments, sample, parameters):
    assert count(on_meta(name, sample, **arguments)) == parameters


def test_every_model_is_counted():
    assert {name for name, *_ in COUNTS} == {*MODELS} - {*GANS}


@pytest.mark.parametrize("name", ["alexnet_2012", "vgg16_bn", "resnet50", "densenet121", "mobilenet_v1"])
@pytest.mark.parametrize("side", [67, 224])
def test_scores_of_large_images(name, side):
    model = on_meta(name, ((3, side, side + 9), 7))
    assert model(torch.empty(2, 3, side, side + 9, device="meta")).shape == (2, 7)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_auxiliary_scores(name):
    shape, classes = INCEPTION
    model = on_meta(name, INCEPTION, auxiliary=True)
    images = torch.empty(2, *shape, device="meta")
    assert [scores.shape for scores in model(images)] == [(2, classes)] * (3 if name == "googlenet" else 2)
    assert model.eval()(images).shape == (2, classes)


CHEAP = [  # deep networks are reduced to few layers
    ("alexnet", MNIST, {}), ("vgg11", CIFAR, {"width": 32}), ("vgg11_bn", CIFAR, {"width": 32}),
    ("googlenet", ((1, 8, 8), 10), {}), ("resnet18", ((1, 8, 8), 10), {"depths": [1, 1, 1, 1]}),
    ("resnet50", ((3, 16, 16), 7), {"depths": [1, 2, 1, 1]}), ("wide_resnet50_2", ((3, 70, 70), 7), {"depths": [1, 1]}),
    ("resnet20", CIFAR, {"depth": 14}), ("wide_resnet", ((1, 8, 8), 10), {"depth": 16, "widen": 2, "dropout": 0.3}),
    ("densenet40", ((3, 9, 11), 5), {"blocks": [2, 2, 2]}), ("densenet_bc100", ((3, 9, 11), 5), {"blocks": [2, 2, 2]}),
    ("densenet121", ((3, 70, 70), 5), {"blocks": [2, 2]}), ("mobilenet_v1", ((1, 17, 30), 4), {"width": 0.5}),
    ("nnlo_mnist", MNIST, {}), ("nnlo_mnist_torch", MNIST, {}), ("nnlo_topclass", TOPCLASS, {}),
    ("nnlo_topclass_torch", TOPCLASS, {}), ("hls4ml_gru", ((16, 12), 5), {}), ("jedi_net", ((16, 12), 5), {}),
    ("fourier", POSITIONS, {}), ("siren", POSITIONS, {}), ("perceptron", ((12,), 5), {"activation": "tanh"}),
    ("lstm", ((9,), 2), {}), ("simplecnn", ((2, 7, 9), 3), {"padding": 0}), ("vgg2", ((1, 9, 6), 4), {}),
    ("vgg3dobn", ((3, 8, 17), 4), {"hidden": 5}),
]  # fmt: skip


def test_gpt_sees_no_later_token():
    model = build_model("gpt", {"width": 16, "layers": 2}, (8,), 11, seed=0)
    texts = torch.arange(8)[None]
    changed = texts.clone()
    changed[0, 5:] = 10
    same = (model(texts) == model(changed)).all(2)[0]
    assert same.tolist() == [True] * 5 + [False] * 3


def test_unet_has_scores_of_each_pixel():
    model = build_model("unet", {"filters": 4, "levels": 2}, (1, 8, 12), 3, seed=0)
    scores = model(torch.randn(2, 1, 8, 12))
    assert scores.shape == (2, 3, 8, 12)
    scores.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def samples_of(name, shape):
    torch.manual_seed(1)
    return torch.randint(0, 5, (3, *shape)) if name == "lstm" else torch.randn(3, *shape)


@pytest.mark.parametrize(("name", "sample", "arguments"), CHEAP)
def test_scores_and_gradients(name, sample, arguments):
    """The scores have the right shape, and the parameters have gradients."""
    shape, classes = sample
    model = build_model(name, arguments, shape, classes, seed=0)
    scores = model(samples_of(name, shape))
    assert scores.shape == (3, max(classes, 1))
    assert scores.isfinite().all()
    scores.square().sum().backward()
    moved = [parameter.grad.abs().max() > 0 for parameter in model.parameters()]
    assert sum(moved) > 0.8 * len(moved)  # the bias of a convolution before normalization has no gradient
    # The batched simulator stacks the layers of every model instead of running nodes one by one.
    assert not isinstance(stack_network(model, (samples_of(name, shape),)).module, PerNodeLayer)


@pytest.mark.parametrize(
    ("name", "shape", "arguments", "message"),
    [
        ("vgg16", (1, 28, 28), {}, "images .* of at least 32 x 32 pixels"),
        ("inception_v3", (3, 64, 64), {}, "at least 75 x 75 pixels"),
        ("resnet50", (784,), {}, r"but the samples are \(784,\)"),
        ("resnet20", (3, 32, 32), {"depth": 21}, "depth must be 6 n \\+ 2"),
        ("wide_resnet", (3, 32, 32), {"depth": 20}, "depth must be 6 n \\+ 4"),
        ("hls4ml_gru", (1, 28, 28), {}, r"samples \(features, particles\)"),
        ("jedi_net", (16, 1), {}, "2 or more particles"),
        ("jedi_net", (16, 30), {"activation": "rely"}, "unknown activation 'rely'"),
        ("lstm", (1, 28, 28), {}, "texts of word numbers"),
        ("gpt", (1, 28, 28), {}, "texts of token numbers"),
        ("gpt", (9,), {"width": 10}, "width 10 is no multiple of heads 4"),
        ("unet", (1, 28, 28), {}, "sides that are multiples of 16"),
    ],
)
def test_refusals(name, shape, arguments, message):
    with pytest.raises(UserError, match=message):
        build_model(name, arguments, shape, 10, seed=0)


def test_siren_keeps_the_spread():
    """Outputs of sine layers follow the arcsine law with standard deviation 0.71 (Sitzmann et al. 2020, theorem 1.8)."""
    model = build_model("siren", {"hidden": [256] * 6}, (2,), 1, seed=0)
    inputs = torch.rand(2000, 2, generator=torch.Generator().manual_seed(1)) * 2 - 1
    for layer in [*model][:-1]:
        inputs = layer(inputs)
    assert inputs.std().item() == pytest.approx(math.sqrt(0.5), abs=0.03)


def gan(name, shape, **arguments):
    file, function = GANS[name].split(":")
    return getattr(import_module(file), function)(shape, 10, **arguments)


@pytest.mark.parametrize(
    ("name", "shape", "generator", "critic"),
    [
        # dense 100-1024-6272, 5 x 5 deconvolutions 128-64-1; all except the last have normalization and no bias
        ("wgan", (1, 28, 28), 102_400 + 2_048 + 1024 * 6272 + 12_544 + 128 * 64 * 25 + 128 + 64 * 25 + 1,
         64 * 25 + 128 + 64 * 128 * 25 + 256 + 6272 * 1024 + 2_048 + 1_025),
        ("lsgan_cifar", (3, 32, 32), 100 * 16_384 + 32_768 + (1024 * 512 + 512 * 256) * 25 + 1_536 + 256 * 75 + 3,
         (3 * 128 + 128 * 256 + 256 * 512) * 25 + 2 * (128 + 256 + 512) + 512 * 16 + 1),
        ("calorimeter_gan", (1, 25, 25, 25), 872_808, 73_402),  # shared/reference: about 873 k and 73 k
    ],
)  # fmt: skip
def test_gans(name, shape, generator, critic):
    network = gan(name, shape)
    assert (count(network.generator), count(network.critic)) == (generator, critic)
    samples = network(torch.randn(2, network.latent))
    assert samples.shape == (2, *shape)
    judged = network.critic(samples)
    assert all(each.shape == (2, 1) for each in (judged if isinstance(judged, tuple) else (judged,)))


def test_gan_without_normalization():
    """A gradient penalty requires a critic without dependence between samples (Gulrajani et al. 2017, section 4)."""
    critic = gan("wgan", (1, 28, 28), batch_norm=False).critic
    samples = torch.randn(3, 1, 28, 28)
    assert not any(isinstance(layer, nn.BatchNorm2d | nn.BatchNorm1d) for layer in critic.modules())
    assert torch.allclose(critic(samples)[:1], critic(samples[:1]), atol=1e-6)
    with pytest.raises(ValueError, match="divisible by 4"):
        gan("wgan", (1, 30, 30))
    with pytest.raises(ValueError, match="critic_filters has 1 entries, but filters has 3"):
        gan("lsgan_cifar", (3, 32, 32), critic_filters=[64])


def test_a_search_sets_one_entry_of_nnlo_cifar10():
    whole = build_model("nnlo_cifar10", {"filters": [5, 7, 6], "dense": [9, 8]}, (3, 16, 16), 10, seed=1)
    parts = {"filters_1": 5, "filters_2": 7, "filters_3": 6, "dense_1": 9, "dense_2": 8, "dropout_2": 0.1}
    single = build_model("nnlo_cifar10", parts, (3, 16, 16), 10, seed=1)
    shapes = [[each.shape for each in network.parameters()] for network in (whole, single)]
    assert shapes[0] == shapes[1]
    assert [each.p for each in single.modules() if isinstance(each, nn.Dropout)] == [0.25, 0.1]


def test_activations_of_the_parts_of_jedi_net():
    network = on_meta("jedi_net", JETS, effect_activation="relu", score_activation="elu")
    kinds = [
        {type(each).__name__ for each in part.modules()} & {"ReLU", "ELU", "SELU"}
        for part in (network.interaction, network.post, network.scores)
    ]
    assert kinds == [{"ReLU"}, {"SELU"}, {"ELU"}]
