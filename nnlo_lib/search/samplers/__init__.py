"""Samplers: each proposes the next point as a pure function of settings, trial number and known results."""
