"""The options of PyDTNN's launcher, and where each goes; those of its schedulers are in pydtnn_schedulers."""

from nnlo_lib.translate.options import Option, truth
from nnlo_lib.translate.pydtnn_schedulers import OPTIONS as SCHEDULERS

NO_CHOICE = "torch chooses how it convolves"
NO_NUMPY = "model.weights reads safetensors and state_dicts of torch, not PyDTNN's .npz"
NO_MODEL = "its performance model is nothing that trains"
OPTIONS = {
    "model": Option(default="simplecnn"),
    "dataset": Option(default="mnist", key="data.dataset"),
    "dataset_train_path": Option(),
    "dataset_test_path": Option(),
    "test_as_validation": Option(truth, False),
    "batch_size": Option(int, 64, "train.batch_size"),
    "global_batch_size": Option(int, says="PyDTNN computed it: --batch_size times ranks"),
    "validation_split": Option(float, 0.0),
    "steps_per_epoch": Option(int, 0),
    "num_epochs": Option(int, 1, "train.epochs"),
    "evaluate": Option(truth, False),
    "evaluate_only": Option(truth, False, missing="there is no evaluation without a training"),
    "weights_and_bias_filename": Option(missing=NO_NUMPY),
    "history_file": Option(says="the history is history.csv in the run's folder"),
    "shared_storage": Option(truth, True, says="results are written once, by rank 0"),
    "use_synthetic_data": Option(truth, False, missing="there is no data set of zeros"),
    "flip_images": Option(truth, False),
    "flip_images_prob": Option(float, 0.5),
    "crop_images": Option(truth, False),
    "crop_images_size": Option(int, 16),
    "crop_images_prob": Option(float, 0.5),
    "optimizer": Option(default="sgd"),
    "learning_rate": Option(float, 0.01),
    "learning_rate_scaling": Option(truth, True),
    "momentum": Option(float, 0.9),
    "decay": Option(float, 0.0),
    "decay_rate": Option(float, 0.0, missing="rates diminish by train.schedule only"),
    "nesterov": Option(truth, False),
    "beta1": Option(float, 0.99),
    "beta2": Option(float, 0.999),
    "epsilon": Option(float, 1e-7),
    "rho": Option(float, 0.9),
    "loss_func": Option(default="categorical_cross_entropy"),
    "metrics": Option(default="categorical_accuracy"),
    **SCHEDULERS,
    "parallel": Option(default="sequential"),
    "non_blocking_mpi": Option(truth, False),
    "enable_gpu": Option(truth, False),
    "enable_gpudirect": Option(truth, False),
    "enable_nccl": Option(truth, False),
    "dtype": Option(default="float32", key="train.precision"),
    "tensor_format": Option(default="NHWC"),
    "tracing": Option(truth, False),
    "tracer_output": Option(default="", says="traces lie in the run's folder"),
    "profile": Option(truth, False),
    "enable_best_of": Option(truth, False, says=NO_CHOICE),
    **{
        f"enable_{name}": Option(truth, False, says=NO_CHOICE)
        for name in ("conv_gemm", "conv_winograd", "fused_bn_relu", "fused_conv_relu", "fused_conv_bn", "fused_conv_bn_relu")
    },
    "enable_memory_cache": Option(truth, True, says=NO_CHOICE),
    "enable_cudnn_auto_conv_alg": Option(truth, True, says=NO_CHOICE),
    **{name: Option(says=NO_MODEL) for name in ("cpu_speed", "memory_bw", "network_bw", "network_lat", "network_alg")},
    **{name: Option(says="PyDTNN overwrote it") for name in ("mpi_processes", "threads_per_process", "gpus_per_node")},
}  # fmt: skip
