"""The graph that is used in each round."""

import math

from nnlo_lib.config.topology import (
    DrawnGraphConfig,
    GraphConfig,
    GraphSequenceConfig,
    OnePeerExponentialGraphConfig,
    TopologyConfig,
    UndirectedGraphConfig,
)
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.topology.graphs import ceil_log2


def graph_at_round(settings: TopologyConfig, seed: int, round: int) -> tuple[GraphConfig, int, int]:
    """Return the graph of a round: its settings, its seed and its own round.

    The own round is the number of earlier rounds in which this graph was used.

    Args:
        settings: topology of the run.
        seed: seed of the run.
        round: round of the run.
    """
    if not isinstance(settings, GraphSequenceConfig):
        return settings, seed, round
    turns, now = divmod(round, settings.rounds)
    cycle, index = divmod(turns, len(settings.of))
    return (
        settings.of[index],
        # Random graphs with equal settings must differ within a sequence.
        derive_seed(seed, "topology of a sequence", index),
        # Rounds of other graphs do not count, so that a graph continues where its last turn ended.
        cycle * settings.rounds + now,
    )


def first_round_of_graph(settings: GraphConfig, nodes: int, round: int) -> int:
    """Return the first (own) round that has the same graph as a given one.

    Args:
        settings: settings of the graph.
        nodes: number of nodes.
        round: own round of the graph.
    """
    if isinstance(settings, DrawnGraphConfig) and settings.redraw_every:
        return round - round % settings.redraw_every
    return round % period(settings, nodes)


def period(settings: TopologyConfig, nodes: int) -> int:
    """Return the number of rounds after which the graphs repeat, redrawn graphs aside."""
    match settings:
        case OnePeerExponentialGraphConfig():
            return max(1, ceil_log2(nodes))
        case GraphSequenceConfig(of=of, rounds=rounds):
            # A pass through the sequence takes len(of) * rounds rounds; in it, the own round of each graph
            # advances by `rounds`.
            return len(of) * math.lcm(rounds, *(period(graph, nodes) for graph in of))
        case _:
            return 1


def drop_probability(settings: GraphConfig) -> float:
    """Return the probability that a link is lost in a round."""
    return settings.drop if isinstance(settings, UndirectedGraphConfig) else 0.0


def has_drops(settings: TopologyConfig) -> bool:
    """Return True if links may be lost."""
    return any(drop_probability(graph) for graph in member_graphs(settings))


def has_redraws(settings: TopologyConfig) -> bool:
    """Return True if graphs are redrawn during the run."""
    return any(
        isinstance(graph, DrawnGraphConfig) and graph.redraw_every for graph in member_graphs(settings)
    )


def member_graphs(settings: TopologyConfig) -> tuple[GraphConfig, ...]:
    """Return the settings of the graphs that take turns."""
    return settings.of if isinstance(settings, GraphSequenceConfig) else (settings,)
