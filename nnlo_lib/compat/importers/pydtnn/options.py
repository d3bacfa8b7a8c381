"""Options of PyDTNN's launcher and their translations; options of its schedulers are in schedulers.py."""

from nnlo_lib.compat.importers.options import OptionSpec, parse_bool
from nnlo_lib.compat.importers.pydtnn.schedulers import OPTIONS as SCHEDULERS

NO_CHOICE = "PyTorch selects the implementation of layers"
NO_MODEL = "this option of PyDTNN's performance model does not affect training"
OPTIONS = {
    "model": OptionSpec(default="simplecnn"),
    "dataset": OptionSpec(default="mnist", key="data.dataset"),
    "dataset_train_path": OptionSpec(),
    "dataset_test_path": OptionSpec(),
    "test_as_validation": OptionSpec(parse_bool, False),
    "batch_size": OptionSpec(int, 64, "train.batch_size"),
    "global_batch_size": OptionSpec(int, note="PyDTNN computes it as --batch_size times ranks"),
    "validation_split": OptionSpec(float, 0.0),
    "steps_per_epoch": OptionSpec(int, 0),
    "num_epochs": OptionSpec(int, 1, "train.epochs"),
    "evaluate": OptionSpec(parse_bool, False),
    "evaluate_only": OptionSpec(parse_bool, False),
    "weights_and_bias_filename": OptionSpec(),
    "history_file": OptionSpec(note="nnlo writes the history to history.csv in the run folder"),
    "shared_storage": OptionSpec(parse_bool, True, note="in nnlo, only rank 0 writes results"),
    "use_synthetic_data": OptionSpec(parse_bool, False),
    "flip_images": OptionSpec(parse_bool, False),
    "flip_images_prob": OptionSpec(float, 0.5),
    "crop_images": OptionSpec(parse_bool, False),
    "crop_images_size": OptionSpec(int, 16),
    "crop_images_prob": OptionSpec(float, 0.5),
    "optimizer": OptionSpec(default="sgd"),
    "learning_rate": OptionSpec(float, 0.01),
    "learning_rate_scaling": OptionSpec(parse_bool, True),
    "momentum": OptionSpec(float, 0.9),
    "decay": OptionSpec(float, 0.0),
    "decay_rate": OptionSpec(float, 0.0, missing_reason="learning rates decay only by `train.schedule`"),
    "nesterov": OptionSpec(parse_bool, False),
    "beta1": OptionSpec(float, 0.99),
    "beta2": OptionSpec(float, 0.999),
    "epsilon": OptionSpec(float, 1e-7),
    "rho": OptionSpec(float, 0.9),
    "loss_func": OptionSpec(default="categorical_cross_entropy"),
    "metrics": OptionSpec(default="categorical_accuracy"),
    **SCHEDULERS,
    "parallel": OptionSpec(default="sequential"),
    "non_blocking_mpi": OptionSpec(parse_bool, False),
    "enable_gpu": OptionSpec(parse_bool, False),
    "enable_gpudirect": OptionSpec(
        parse_bool, False, note="nnlo sums vectors on GPUs by NCCL if each rank has a GPU, else through host memory"
    ),
    "enable_nccl": OptionSpec(parse_bool, False),
    "dtype": OptionSpec(default="float32", key="train.precision"),
    "tensor_format": OptionSpec(default="NHWC"),
    "tracing": OptionSpec(parse_bool, False),
    "tracer_output": OptionSpec(default="", note="nnlo writes traces to the run folder"),
    "profile": OptionSpec(parse_bool, False),
    "enable_best_of": OptionSpec(parse_bool, False, note=NO_CHOICE),
    **{
        f"enable_{name}": OptionSpec(parse_bool, False, note=NO_CHOICE)
        for name in ("conv_gemm", "conv_winograd", "fused_bn_relu", "fused_conv_relu", "fused_conv_bn", "fused_conv_bn_relu")
    },
    "enable_memory_cache": OptionSpec(parse_bool, True, note=NO_CHOICE),
    "enable_cudnn_auto_conv_alg": OptionSpec(parse_bool, True, note=NO_CHOICE),
    **{name: OptionSpec(note=NO_MODEL) for name in ("cpu_speed", "memory_bw", "network_bw", "network_lat", "network_alg")},
    **{name: OptionSpec(note="PyDTNN overwrites it") for name in ("mpi_processes", "threads_per_process", "gpus_per_node")},
}  # fmt: skip
