"""Programs of batch normalization over all ranks, run on each rank."""

import torch
from torch import nn

from nnlo_lib.train.replica.sync_batch_norm import convert_sync_batch_norm

STEPS, CLASSES = 3, 3
COUNTS = {1: (9,), 2: (5, 4), 4: (4, 0, 2, 3)}  # samples of each rank in a step, by number of ranks


def network(kind):
    """Return a small network with two batch normalizations."""
    torch.manual_seed(1)
    if kind == "vectors":
        layers = [
            nn.Linear(6, 5),
            nn.BatchNorm1d(5),
            nn.Tanh(),
            nn.BatchNorm1d(5, affine=False, momentum=None),
        ]
        return nn.Sequential(*layers, nn.Linear(5, CLASSES)).double()
    layers = [
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.Conv2d(4, 3, 3, stride=2),
        nn.BatchNorm2d(3),
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(3 * 4, CLASSES)).double()


def samples(kind, step):
    """Return the global batch of a step."""
    draw = torch.Generator().manual_seed(step)
    shape = (6,) if kind == "vectors" else (2, 5, 5)
    inputs = torch.randn(9, *shape, generator=draw, dtype=torch.float64) * 2 + 100
    return inputs, torch.randint(CLASSES, (9,), generator=draw)


def learn(module, inputs, labels, gathered):
    """Take one step of gradient descent.

    Args:
        module: network.
        inputs: samples of this rank.
        labels: classes of the samples.
        gathered: function that combines each gradient over ranks, in place.
    """
    module.zero_grad()
    loss = nn.functional.cross_entropy(module(inputs), labels)
    loss.backward()
    for parameter in module.parameters():
        gathered(parameter.grad)
        parameter.data.sub_(parameter.grad, alpha=0.1)


def on_all(comm, kind):
    """Train with the samples distributed over ranks; return weights and statistics after each step."""
    peers, counts = comm.pass_collectives(), COUNTS[comm.size]
    start, mine = sum(counts[: comm.rank]), counts[comm.rank]
    module, path = convert_sync_batch_norm(network(kind), peers), []

    def mean(grad):
        vector = torch.zeros_like(grad).copy_(grad).mul_(mine / 9).view(-1)
        comm.allreduce(vector)
        grad.copy_(vector.view_as(grad))

    for step in range(STEPS):
        inputs, labels = (each[start : start + mine] for each in samples(kind, step))
        peers.weight = mine / 9
        peers.run(lambda inputs=inputs, labels=labels: _backward(module, inputs, labels))
        for parameter in module.parameters():
            mean(parameter.grad)
            parameter.data.sub_(parameter.grad, alpha=0.1)
        path.append({name: tensor.tolist() for name, tensor in module.state_dict().items()})
    return path


def _backward(module, inputs, labels):
    module.zero_grad()
    nn.functional.cross_entropy(module(inputs), labels).backward()


def drawn(comm):
    """Return the dropout masks after a batch normalization, in two steps with the seed set to the rank."""
    peers = comm.pass_collectives()
    module = nn.Sequential(convert_sync_batch_norm(nn.BatchNorm1d(4), peers), nn.Dropout(0.5))

    def work():
        torch.manual_seed(comm.rank)
        return (module(torch.arange(32.0).view(8, 4)) != 0).tolist()

    return [peers.run(work) for _ in range(2)]


def fails(comm):
    """Return the error message that reaches a rank if the computation on every rank fails."""

    def work():
        raise ValueError("no good")

    try:
        comm.pass_collectives().run(work)
    except ValueError as error:
        return str(error)
    return "nothing"
