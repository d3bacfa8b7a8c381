"""Names of the models in the zoo. The module does not import torch, so that experiments are checked quickly."""

# file in nnlo_lib/models/zoo -> names of its functions, which are the names of the models
FILES = {
    "simple": "simplemlp simplecnn",
    "alexnet": "alexnet alexnet_2012",
    "vgg": "vgg11 vgg13 vgg16 vgg19 vgg11_bn vgg13_bn vgg16_bn vgg19_bn",
    "pydtnn_vgg": "vgg1 vgg2 vgg3 vgg3do vgg3do2 vgg3dobn",
    "googlenet": "googlenet",
    "inception": "inception_v3",
    "resnet": "resnet18 resnet34 resnet50 resnet101 resnet152 wide_resnet50_2 wide_resnet101_2",
    "resnet_cifar": "resnet20 resnet32 resnet44 resnet56 resnet110 resnet1202",
    "wide_resnet": "wide_resnet",
    "densenet": "densenet40 densenet_bc100 densenet121 densenet161 densenet169 densenet201",
    "mobilenet": "mobilenet_v1",
    "gru": "hls4ml_gru",
    "jedi": "jedi_net",
    "coordinate_networks": "fourier siren perceptron",
    "lstm": "lstm",
    "gpt": "gpt",
    "unet": "unet",
    "theano_mpi": "theanompi_cifar10",
}

GANS = {  # each has a generator and a critic
    "wgan": "nnlo_lib.models.zoo.gan:wgan",
    "lsgan": "nnlo_lib.models.zoo.gan:lsgan",
    "lsgan_cifar": "nnlo_lib.models.zoo.gan:lsgan_cifar",
    "calorimeter_gan": "nnlo_lib.models.zoo.calorimeter_gan:calorimeter_gan",
}

MODELS = {
    "dinno_conv": "nnlo_lib.models.zoo.dinno:conv",
    "nnlo_cifar10": "nnlo_lib.models.zoo.nnlo:cifar10",
    "nnlo_mnist": "nnlo_lib.models.zoo.nnlo:mnist",
    "nnlo_mnist_torch": "nnlo_lib.models.zoo.nnlo:mnist_torch",
    "nnlo_topclass": "nnlo_lib.models.zoo.topclass:topclass",
    "nnlo_topclass_torch": "nnlo_lib.models.zoo.topclass:topclass_torch",
    **{name: f"nnlo_lib.models.zoo.{file}:{name}" for file, names in FILES.items() for name in names.split()},
    **GANS,
}
