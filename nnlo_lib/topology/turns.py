"""Which graph has its turn in which round."""

import math

from nnlo_lib import config
from nnlo_lib.config.topology import Drawn, Undirected
from nnlo_lib.streams import stream
from nnlo_lib.topology.graphs import hops


def turn(settings: config.Topology, seed: int, round: int) -> tuple[config.Graph, int, int]:
    """Return the graph's settings whose turn it is, its own seed, and how many rounds it had before."""
    if not isinstance(settings, config.Sequence):
        return settings, seed, round
    turns, now = divmod(round, settings.rounds)
    cycle, index = divmod(turns, len(settings.of))
    return settings.of[index], stream(seed, "topology of a sequence", index), cycle * settings.rounds + now


def round_of(settings: config.Topology, index: int, own: int) -> int:
    """Return the round in which graph `index` of those that take turns has its turn number `own`; `turn` reversed."""
    if not isinstance(settings, config.Sequence):
        return own
    cycle, now = divmod(own, settings.rounds)
    return (cycle * len(settings.of) + index) * settings.rounds + now


def since(settings: config.Graph, nodes: int, round: int) -> int:
    """Return the first round that has the same graph as `round`."""
    if isinstance(settings, Drawn) and settings.redraw_every:
        return round - round % settings.redraw_every
    return round % period(settings, nodes)


def period(settings: config.Topology, nodes: int) -> int:
    """Return after how many rounds the same graphs come again, apart from what is redrawn."""
    match settings:
        case config.OnePeerExponential():
            return max(1, hops(nodes))
        case config.Sequence(of=of, rounds=rounds):
            return len(of) * math.lcm(rounds, *(period(graph, nodes) for graph in of))
        case _:
            return 1


def drop(settings: config.Graph) -> float:
    """Return the probability that a link is lost in a round."""
    return settings.drop if isinstance(settings, Undirected) else 0.0


def drops(settings: config.Topology) -> bool:
    """Tell whether links are lost."""
    return any(drop(graph) for graph in graphs(settings))


def redrawn(settings: config.Topology) -> bool:
    """Tell whether fresh graphs are drawn as the run goes on."""
    return any(isinstance(graph, Drawn) and graph.redraw_every for graph in graphs(settings))


def graphs(settings: config.Topology) -> tuple[config.Graph, ...]:
    """Return the graphs that take turns."""
    return settings.of if isinstance(settings, config.Sequence) else (settings,)
