"""Draw the graphs of a run in advance, to check that its redraws will succeed."""

from collections.abc import Iterator
from itertools import count, islice, takewhile
from typing import NamedTuple

from nnlo_lib.config.topology import DrawnGraphConfig, TopologyConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.topology.random_graphs import RandomGraph, draw_connected, draw_target
from nnlo_lib.topology.time_varying import graph_at_round, member_graphs, round_of

MAX_PROBED_GRAPHS = 200  # redraws to try in advance, per redrawn graph


class Redraw(NamedTuple):
    """A graph that is redrawn in some round of a run.

    Attributes:
        settings: settings of the graph.
        seed: seed of the graph.
        own: number of earlier rounds in which the graph was used.
    """

    settings: RandomGraph
    seed: int
    own: int


def redraw_error(settings: TopologyConfig, nodes: int, seed: int, rounds: int | None) -> str | None:
    """Return why a redraw will fail, or will probably fail, in some round of the run; None if all succeed.

    Args:
        settings: topology of the run.
        nodes: number of nodes.
        seed: seed of the run.
        rounds: number of rounds of the run, if known.
    """
    faults = (_fault(redraws, nodes) for redraws in _redraws(settings, seed, rounds))
    return next(filter(None, faults), None)


def _redraws(settings: TopologyConfig, seed: int, rounds: int | None) -> Iterator[Iterator[Redraw]]:
    """Yield, for each graph of the topology that is redrawn, an iterator of its redraws.

    Args:
        settings: topology of the run.
        seed: seed of the run.
        rounds: number of rounds of the run; None if it is unknown: then the iterators do not end.
    """
    for index, graph in enumerate(member_graphs(settings)):
        if isinstance(graph, DrawnGraphConfig) and (every := graph.redraw_every):
            starts = (round_of(settings, index, own) for own in count(0, every))
            within = takewhile(lambda round: rounds is None or round < rounds, starts)
            yield (Redraw(*graph_at_round(settings, seed, round)) for round in within)  # type: ignore[arg-type]


def _fault(redraws: Iterator[Redraw], nodes: int) -> str | None:
    try:
        needed = [
            (draw_connected(each.settings, nodes, each.seed, each.own)[1], each)
            for each in islice(redraws, MAX_PROBED_GRAPHS)
        ]
    except UserError as error:
        return str(error)
    if next(redraws, None) is None:  # every redraw of the run was tried
        return None
    most, each = max(needed, key=lambda pair: pair[0])
    # Redraws that were not tried may need more draws than these: accept only half of the permitted draws.
    # If every probed graph took one draw, `gen_attempts: 1` is accepted, too.
    if most == 1 or 2 * most <= each.settings.gen_attempts:
        return None
    key, searched = draw_target(each.settings)
    return (
        f"topology.{key}: one of the first {MAX_PROBED_GRAPHS} graphs took {most} of "
        f"{each.settings.gen_attempts} draws until a drawn graph {searched}; a later redraw may fail; "
        f"change {key} or raise topology.gen_attempts"
    )
