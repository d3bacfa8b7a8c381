"""Reference implementation of GEM in numpy, as an oracle for the tests."""

import numpy as np

from helpers.least_squares import DIMENSION, START, gradient_of


class EnergyMatching:
    """A worker of Hermans and Louppe 2018 with plain SGD and learning rate eta."""

    def __init__(self, worker, tau=1, mu=0.9, kappa=1.0, largest=5.0, eta=0.05):
        self.worker, self.tau, self.mu, self.kappa, self.largest, self.eta = (
            worker,
            tau,
            mu,
            kappa,
            largest,
            eta,
        )
        self.theta = self.stale = START
        self.m, self.step, self.path = np.zeros(DIMENSION), 0, []

    def compute(self, counts):
        """Take up to tau local steps; return the sum u of their updates."""
        u = np.zeros(DIMENSION)
        for count in counts[self.step : self.step + self.tau]:
            u = u - self.eta * gradient_of(self.theta + u, self.worker, self.step, count)
            self.step += 1
            self.path.append(self.theta + u)
        return u

    def scaled(self, u, centre):
        self.m = self.mu * self.m + u
        pi = (self.kappa * abs(self.m) - abs(centre - self.stale)) / (abs(u) + 1e-12)
        self.stale = centre
        return np.clip(pi, 0, self.largest) * u

    def move(self, centre, update):
        self.theta = centre + update
        self.path[-1] = self.theta
