"""What an unknown key may mean: a word of another library, a key spelled alike, or a key of another section."""

import difflib
from collections.abc import Iterable, Iterator
from functools import cache

from nnlo_lib.config.base import ConfigModel, block_types, suggest_name
from nnlo_lib.config.experiment import Experiment
from nnlo_lib.config.run import Run

MAX_PLACES = 2  # keys with the same last part in one hint
# Words of PyTorch, Lightning, Keras, transformers, scikit-learn, Optuna, Ray and Slurm, by the key or section of NNLO.
OTHER_WORDS = {
    "train.epochs": "epoch max_epochs n_epochs num_epochs nb_epoch num_train_epochs",
    "train.batch_size": "batch minibatch batchsize train_batch_size per_device_train_batch_size",
    "train.accumulate": "accumulate_grad_batches gradient_accumulation_steps",
    "train.clip_norm": "gradient_clip_val max_grad_norm clip_grad_norm grad_clip",
    "train.precision": "amp fp16 bf16",
    "train.optimizer": "optim solver",
    "train.optimizer.lr": "lr learning_rate learn_rate base_lr init_lr learning_rate_init",
    "train.optimizer.momentum": "momentum",
    "train.optimizer.weight_decay": "weight_decay l2 l2_penalty",
    "train.schedule": "lr_scheduler scheduler lr_schedule",
    "train.warm_up": "warmup warmup_steps warmup_epochs",
    "train.early_stopping": "early_stop patience",
    "train.restore_best": "restore_best_weights load_best_model_at_end",
    "train.validate_every": "val_check_interval check_val_every_n_epoch eval_steps",
    "data.dataset": "data.name",
    "data.source": "data_dir data_path dataset_path",
    "data.validation": "validation_split val_split val_fraction val_size",
    "data.augment": "augmentation transforms",
    "model.args": "hidden hidden_size hidden_layers units layers dropout",
    "model.weights": "pretrained init_weights",
    "data.reader.weight": "sample_weight sample_weights weight_column",
    "problem.mixup": "mixup_alpha",
    "problem.cutmix": "cutmix_alpha",
    "problem.class_weights": "class_weight pos_weight problem.weights",
    "loss": "criterion loss_fn loss_function",
    "metrics": "metric acc",
    "algorithm": "strategy",
    "seeds": "random_state random_seed manual_seed",
    "folds": "cv n_folds n_splits",
    "parallel.ranks": "workers n_workers processes num_processes nproc nproc_per_node world_size ntasks",
    "parallel.gpus_per_rank": "gpus gpu num_gpus n_gpus devices device accelerator cuda",
    "parallel.threads_per_rank": "threads num_threads cpus cpus_per_task",
    "resources.nodes": "num_nodes n_nodes nnodes",
    "resources.runtime": "walltime time_limit time",
    "resources.mem_mb": "mem memory ram",
    "resources.partition": "queue",
    "search.trials": "n_trials num_trials max_trials n_iter",
    "search.parallel": "n_jobs max_concurrent_trials",
    "search.method": "sampler tuner",
    "search.fidelity": "pruner",
    "search.space": "search_space param_grid param_distributions",
    "checkpoint.every": "save_every save_steps",
    "checkpoint.keep": "save_total_limit save_top_k",
}  # fmt: skip
KEY_OF_WORD = {word: key for key, words in OTHER_WORDS.items() for word in words.split()}
# Names of algorithms elsewhere, by what to write.
OTHER_ALGORITHMS = {
    "fedavg": "{name: average, participation: 0.25}", "fedprox": "{name: average, proximal: 0.01}",
    "local_sgd": "average", "ddp": "allreduce", "bsp": "allreduce", "eamsgd": "{name: easgd, momentum: 0.9}",
}  # fmt: skip
# Words for which NNLO has no key.
REMARKS = {
    "num_workers": "remove it, because each rank loads its own batches; parallel.ranks is the number of processes that train",
}


def unknown_key(path: str, known: Iterable[str]) -> str:
    """Return the sentence on an unknown key at a dotted path; `known`: keys of its section."""
    known = set(known)
    word = path.rpartition(".")[2]
    hint = REMARKS.get(word, "")
    # A path that exists, such as train.optimizer.momentum, belongs to another `name` of the section.
    if not hint and path not in all_keys(Experiment):
        meant = KEY_OF_WORD.get(path) or KEY_OF_WORD.get(word, "")
        near = meant.rpartition(".")[2]
        elsewhere = [] if difflib.get_close_matches(word, known, n=1) else _same_name(word)
        places = [near if near in known else meant] if meant else elsewhere
        # For `train.seeds`, `seeds` alone would be the key that the file has.
        hint = (
            f"did you mean {' or '.join(map(repr, places))}{' at the top level' * (places == [word])}?"
            if places
            else ""
        )
    return f"unknown key '{word}'; {hint or suggest_name(word, known)}"


def similar_keys(key: str) -> list[str]:
    """Return keys of a run for an unknown dotted one: the key of another library's word, similar ones, or none."""
    last = key.rpartition(".")[2]
    if last in KEY_OF_WORD:
        return [KEY_OF_WORD[last]]
    same_end = [each for each in all_keys(Run) if each.rpartition(".")[2] == last]
    return difflib.get_close_matches(key, same_end, n=MAX_PLACES, cutoff=0.6) or difflib.get_close_matches(
        key, all_keys(Run), n=1
    )


def _same_name(word: str) -> list[str]:
    """Return keys with this last part, in the fewest sections."""
    found = [each for each in all_keys(Experiment) if each.rpartition(".")[2] == word]
    fewest = min((each.count(".") for each in found), default=0)
    return [each for each in found if each.count(".") == fewest][:MAX_PLACES]


@cache
def all_keys(block: type[ConfigModel]) -> tuple[str, ...]:
    """Return the dotted keys of a section and of the sections inside it, sorted."""
    return tuple(sorted(set(_keys(block))))


def _keys(block: type[ConfigModel], above: str = "", depth: int = 0) -> Iterator[str]:
    for name, field in block.model_fields.items():
        yield f"{above}{name}"
        if depth < 3:
            for inner in block_types(field.annotation):
                yield from _keys(inner, f"{above}{name}.", depth + 1)
