"""Model classes with their own iterations, as users of Theano-MPI port them to torch: a linear regression."""

import torch

FEATURES, BATCH = 3, 4


class LinearData:
    """Random batches; each rank has its own, and the same ones in each epoch."""

    def __init__(self, rank, size, batches=6):
        source = torch.Generator().manual_seed(100 + rank)
        x = torch.randn(batches, BATCH, FEATURES, generator=source, dtype=torch.float64)
        y = x.sum(-1) + 0.1 * torch.randn(batches, BATCH, generator=source, dtype=torch.float64)
        self.train, self.val = list(zip(x, y, strict=True)), [(x[0], y[0])]
        self.n_batch_train, self.n_batch_val = batches, 1


class LinearModel:
    """y = w x + b, trained by plain gradient descent in `train_iter`."""

    n_subb, epoch, lr = 1, 0, 0.05

    def __init__(self, config, n_epochs=2):
        self.config, self.n_epochs = config, n_epochs
        self.params = [torch.full((FEATURES,), 0.5, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)]
        self.data = LinearData(config["rank"], config["size"])
        self.calls, self.place = [], 0

    def compile_iter_fns(self):
        self.calls.append("compile_iter_fns")

    def residual(self, x, y):
        return x @ self.params[0] + self.params[1] - y

    def gradients(self, x, y):
        residual = self.residual(x, y)
        return [2 * x.T @ residual / len(y), 2 * residual.mean(0, keepdim=True)]

    def train_iter(self, count, recorder):
        recorder.start()
        x, y = self.data.train[self.place % self.data.n_batch_train]
        self.place += 1
        self.move()
        recorder.train_error(count, (self.residual(x, y) ** 2).mean(), 0.5)
        self.update(self.gradients(x, y))
        recorder.end("calc")

    def move(self):
        """Step by values that were exchanged before; this model has none."""

    def update(self, gradients):
        for parameter, gradient in zip(self.params, gradients, strict=True):
            parameter -= self.lr * gradient

    def val_iter(self, count, recorder):
        x, y = self.data.val[0]
        recorder.val_error(count, (self.residual(x, y) ** 2).mean(), 0.25, 0.125)

    def reset_iter(self, mode):
        self.calls.append(f"reset {mode}")
        self.place = 0

    def scale_lr(self, size):
        self.calls.append(f"scale_lr {size}")
        self.lr *= size

    def adjust_hyperp(self, epoch):
        self.calls.append(f"adjust_hyperp {epoch}")
        self.lr /= 2

    def cleanup(self):
        self.calls.append("cleanup")


class MomentumModel(LinearModel):
    """The same with momentum by Theano-MPI's `cdd`: the sum of the workers' momenta moves the parameters."""

    momentum = 0.9

    def __init__(self, config, n_epochs=2):
        super().__init__(config, n_epochs)
        self.vels = [torch.zeros_like(each) for each in self.params]
        self.vels2 = [torch.zeros_like(each) for each in self.params]

    def move(self):
        # As there: first the step with the sum of the last exchange, then the new momentum.
        for place, parameter in enumerate(self.params):
            parameter -= self.lr * self.vels2[place] / self.config["size"]

    def update(self, gradients):
        for place, gradient in enumerate(gradients):
            self.vels[place].mul_(self.momentum).add_(gradient)


class EarlyModel(LinearModel):
    """Ends the training at the first validation."""

    def val_iter(self, count, recorder):
        super().val_iter(count, recorder)
        return "stop"


class JumpingModel(LinearModel):
    """Uses two batches of an epoch in each call, and says so."""

    def train_iter(self, count, recorder):
        super().train_iter(count, recorder)
        self.place += 1
        return self.place


class FailingModel(LinearModel):
    """Lacks its data on rank 1."""

    def __init__(self, config):
        super().__init__(config)
        if config["rank"] == 1:
            raise FileNotFoundError("no batches in /data/made-up")


class UnfinishedModel:
    """A class without iterations."""

    def __init__(self, config):
        self.params, self.epoch = [], 0


class ArrayModel(LinearModel):
    """Parameters that are no tensors."""

    def __init__(self, config):
        super().__init__(config)
        self.params = [[0.5, 0.5]]


class UnequalModel(LinearModel):
    """More batches on rank 1."""

    def __init__(self, config):
        super().__init__(config)
        self.data.n_batch_train += config["rank"]


class MixedModel(LinearModel):
    """Parameters of two types."""

    def __init__(self, config):
        super().__init__(config)
        self.params[1] = self.params[1].float()
