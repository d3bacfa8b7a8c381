"""The options of NNLO's TrainingDriver (nnlo/TrainingDriver.py) and their translations."""

from nnlo_lib.compat.importers.options import OptionSpec, flag_option, parse_arguments

NEVER_READ = "the original NNLO accepts this option and never reads it"
NEVER_USED = "the original NNLO stores this value and never uses it"
OPTIONS = {
    "model": OptionSpec(),
    "backend": OptionSpec(default="keras", note="nnlo runs all networks with PyTorch"),
    "trial-name": OptionSpec(default="train"),
    "verbose": flag_option(NEVER_READ),
    "monitor": flag_option(),
    "timeline": flag_option(),
    "thread_validation": flag_option("not needed, because the ranks share the validation samples"),
    "train_data": OptionSpec(),
    "val_data": OptionSpec(),
    "features-name": OptionSpec(default="features"),
    "labels-name": OptionSpec(default="labels"),
    "batch": OptionSpec(int, 100, "train.batch_size"),
    "preload-data": OptionSpec(int, 0, note="not needed, because nnlo always reads large batches ahead"),
    "cache-data": OptionSpec(key="data.stage_to"),
    "copy-command": OptionSpec(),
    "n-masters": OptionSpec(int, 1),
    "n-processes": OptionSpec(int, 1, "parallel.processes_per_worker"),
    "max-gpus": OptionSpec(int, 1),
    "master-gpu": flag_option(key="parallel.master_gpu"),
    "synchronous": flag_option(),
    "epochs": OptionSpec(int, 1, "train.epochs"),
    "loss": OptionSpec(default="binary_crossentropy"),
    "mode": OptionSpec(default="gem"),
    "sync-every": OptionSpec(int, 1),
    "optimizer": OptionSpec(default="adam"),
    "worker-optimizer": OptionSpec(default="adam"),
    "worker-optimizer-params": OptionSpec(parse_arguments, {}),
    "elastic-force": OptionSpec(float, 0.9),
    "elastic-lr": OptionSpec(float, 1.0, note=NEVER_USED),
    "elastic-momentum": OptionSpec(float, 0.0, note=NEVER_USED),
    "gem-lr": OptionSpec(float, 0.01),
    "gem-momentum": OptionSpec(float, 0.9),
    "gem-kappa": OptionSpec(float, 2.0),
    "early-stopping": OptionSpec(),
    "target-metric": OptionSpec(),
    "restore": OptionSpec(
        note="run the same nnlo command again to resume an unchanged run from its newest checkpoint"
    ),
    "checkpoint": OptionSpec(),
    "checkpoint-interval": OptionSpec(int, 5),
    "log-file": OptionSpec(
        note="nnlo writes log.txt in the run folder; for another file: nnlo --log-file FILE"
    ),
    "log-level": OptionSpec(default="info", note="nnlo --log-level LEVEL: debug, info, warning or error"),
}
