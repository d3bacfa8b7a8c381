"""The options of NNLO's TrainingDriver (nnlo/TrainingDriver.py), and where each goes."""

from nnlo_lib.translate.options import Option, arguments, flag

NEVER_READ = "NNLO took it and never read it"
OPTIONS = {
    "model": Option(),
    "backend": Option(default="keras", says="here all networks are torch's"),
    "trial-name": Option(default="train"),
    "verbose": flag(NEVER_READ),
    "monitor": flag(),
    "timeline": flag(),
    "thread_validation": flag("not needed: ranks share the validation samples"),
    "train_data": Option(),
    "val_data": Option(),
    "features-name": Option(default="features"),
    "labels-name": Option(default="labels"),
    "batch": Option(int, 100, "train.batch_size"),
    "preload-data": Option(int, 0, says="not needed: batches are always read ahead"),
    "cache-data": Option(key="data.stage_to"),
    "copy-command": Option(missing="stores are staged by a plain copy (data.stage_to)"),
    "n-masters": Option(int, 1),
    "n-processes": Option(int, 1, "parallel.processes_per_worker"),
    "max-gpus": Option(int, 1),
    "master-gpu": flag(key="parallel.master_gpu"),
    "synchronous": flag(),
    "epochs": Option(int, 1, "train.epochs"),
    "loss": Option(default="binary_crossentropy"),
    "mode": Option(default="gem"),
    "sync-every": Option(int, 1),
    "optimizer": Option(default="adam"),
    "worker-optimizer": Option(default="adam"),
    "worker-optimizer-params": Option(arguments, {}),
    "elastic-force": Option(float, 0.9),
    "elastic-lr": Option(float, 1.0, says="NNLO stored it and never used it"),
    "elastic-momentum": Option(float, 0.0, says="NNLO stored it and never used it"),
    "gem-lr": Option(float, 0.01),
    "gem-momentum": Option(float, 0.9),
    "gem-kappa": Option(float, 2.0),
    "early-stopping": Option(),
    "target-metric": Option(),
    "restore": Option(
        says="the same command again goes on from its newest checkpoint, if the run is the same"
    ),
    "checkpoint": Option(),
    "checkpoint-interval": Option(int, 5),
    "log-file": Option(says="the log is log.txt in the run's folder"),
    "log-level": Option(default="info", says="there is one level"),
}
