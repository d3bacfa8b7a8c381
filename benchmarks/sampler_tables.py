"""Make the tables of trainings that benchmarks/samplers.py searches: `python benchmarks/sampler_tables.py [--quick]`.

Every point of the space is trained: five families of models on two data sets of scikit-learn by three folds, and networks
for two epochs of the digits by two folds. A training that fails, or ends with a loss that is not finite, has the error
`inf`.
"""

import argparse
import gzip
import math
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sampler_problems import DIGITS, FAMILIES, TABLES, Point

from nnlo_lib.config.search import SearchConfig
from nnlo_lib.search.space.space import SearchSpace

QUICK: Point = {"optimizer": "adam", "lr": 0.01, "batch": 64, "layers": 1, "units": 16, "dropout": 0.0}


def sklearn_errors(point: Point, features: Any, labels: Any) -> list[float]:
    """Return the share of wrong labels of a model by fold."""
    from sklearn.ensemble import AdaBoostClassifier, RandomForestClassifier
    from sklearn.model_selection import StratifiedKFold
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    def model() -> Any:
        match point["family"]:
            case "svm":
                return SVC(C=point["c"], gamma=point["gamma"], kernel=point["kernel"], max_iter=2000)
            case "forest":
                return RandomForestClassifier(
                    20, max_depth=point["depth"], max_features=point["features"], random_state=0
                )
            case "boosting":
                tree = DecisionTreeClassifier(
                    max_depth=point["depth"], max_features=point["features"], random_state=0
                )
                return AdaBoostClassifier(tree, n_estimators=15, learning_rate=point["rate"], random_state=0)
            case "knn":
                return KNeighborsClassifier(point["neighbors"], weights=point["weights"])
        return MLPClassifier(
            (point["units"],), activation=point["activation"], learning_rate_init=point["step"], solver=point["solver"],
            max_iter=15, random_state=0,
        )  # fmt: skip

    found = []
    for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(features, labels):
        try:
            each = model().fit(features[train], labels[train])
            wrong = float((each.predict(features[test]) != labels[test]).mean())
        except ValueError:  # the weights overflowed
            wrong = math.inf
        if point["family"] == "mlp" and not math.isfinite(getattr(each, "loss_", math.inf)):
            wrong = math.inf
        found.append(wrong)
    return [math.inf] * len(found) if math.inf in found else found


def digits_errors(point: Point, features: Any, labels: Any) -> list[float]:
    """Return the validation loss of a network after two epochs, by fold."""
    import torch

    torch.set_num_threads(1)
    inputs, targets = torch.tensor(features / 16, dtype=torch.float32), torch.tensor(labels)
    found = []
    for fold in range(2):
        torch.manual_seed(fold)
        order = torch.randperm(len(inputs))
        train, test = order[400:], order[:400]
        layers: list[torch.nn.Module] = []
        for i in range(point["layers"]):
            layers += [
                torch.nn.Linear(64 if i == 0 else point["units"], point["units"]),
                torch.nn.ReLU(),
                torch.nn.Dropout(point["dropout"]),
            ]
        model = torch.nn.Sequential(*layers, torch.nn.Linear(point["units"], 10))
        if point["optimizer"] == "sgd":
            optimizer: Any = torch.optim.SGD(model.parameters(), point["lr"], momentum=point["momentum"])
        else:
            optimizer = torch.optim.Adam(model.parameters(), point["lr"])
        for _ in range(2):
            for batch in train[torch.randperm(len(train))].split(point["batch"]):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs[batch]), targets[batch]).backward()
                optimizer.step()
        model.eval()
        with torch.no_grad():
            loss = float(torch.nn.functional.cross_entropy(model(inputs[test]), targets[test]))
        # A training that ends worse than guessing by far has diverged.
        found.append(loss if loss < 5 else math.inf)
    return [math.inf] * len(found) if math.inf in found else found


def errors(name: str, point: Point) -> list[float]:
    """Return the errors of a table's point by fold."""
    from sklearn.datasets import load_digits, load_wine
    from sklearn.preprocessing import scale

    warnings.simplefilter("ignore")
    features, labels = (load_wine if name == "sklearn-wine" else load_digits)(return_X_y=True)
    if name == "digits-training":
        return digits_errors(point, features, labels)
    # Few samples and noise leave room between good and bad settings.
    chosen = np.random.default_rng(0).permutation(len(labels))[:500]
    noise = np.random.default_rng(1).standard_normal(features[chosen].shape)
    return sklearn_errors(point, scale(features[chosen]) + 1.0 * noise, labels[chosen])


def rows(name: str, space: dict[str, Any], pool: ProcessPoolExecutor) -> Iterator[dict[str, Any]]:
    """Yield a row for each point of a space."""
    points = list(SearchSpace(SearchConfig.model_validate({"space": space}).space).points())
    for point, values in zip(
        points, pool.map(errors, [name] * len(points), points, chunksize=20), strict=True
    ):
        yield point | {f"fold_{fold}": f"{value:.5g}" for fold, value in enumerate(values)}


def main() -> None:
    """Write each table that is missing; with --quick, only print the errors of one point of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="train one point of each table and write nothing"
    )
    if parser.parse_args().quick:
        print(errors("sklearn-wine", {"family": "knn", "neighbors": 3, "weights": "uniform"}))
        print(errors("digits-training", QUICK))
        return
    TABLES.mkdir(exist_ok=True)
    with ProcessPoolExecutor(2) as pool:
        for name, space in {
            "sklearn-digits": FAMILIES,
            "sklearn-wine": FAMILIES,
            "digits-training": DIGITS,
        }.items():
            path = TABLES / f"{name}.csv.gz"
            if path.exists():
                continue
            found = list(rows(name, space, pool))
            with gzip.GzipFile(path, "wb", mtime=0) as packed:
                lines = [",".join([*space, *(key for key in found[0] if key.startswith("fold_"))])]
                lines += [",".join(str(row.get(key, "")) for key in lines[0].split(",")) for row in found]
                packed.write(("\n".join(lines) + "\n").encode())
            print(f"{path}: {len(found)} trainings, {sum('inf' in row.values() for row in found)} failed")


if __name__ == "__main__":
    main()
