"""Base-(k+1) graphs: rounds of at most k neighbors per node after which all nodes have the exact average.

Takezawa et al., Beyond Exponential Graph, NeurIPS 2023, arXiv:2305.11420. A round is a list of links and
their mixing weights; the other nodes wait.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence

import networkx as nx

Round = list[tuple[int, int, float]]


def base_k_graph(nodes: int, k: int, round: int) -> nx.Graph:
    """Return the graph of a round, whose links have their mixing weight as `weight`."""
    graph = nx.empty_graph(nodes)
    rounds = base_k_rounds(nodes, k)
    if rounds:
        graph.add_weighted_edges_from(rounds[round % len(rounds)])
    return graph


@functools.lru_cache(maxsize=64)
def base_k_rounds(nodes: int, k: int) -> tuple[Round, ...]:
    """Return the rounds of algorithm 3 or 2 of the paper, whichever has fewer; one node has none."""
    smooth = max(size for size in range(1, nodes + 1) if nodes % size == 0 and _factors(size, k) is not None)
    size = nodes // smooth
    # Nodes that have the average of their part, then the average over the parts.
    parts = [range(start, start + size) for start in range(0, nodes, size)]
    equals = _at_once(_hypercube(range(place, nodes, size), k) for place in range(size))
    composed = _at_once(_simple(part, k) for part in parts) + equals
    simple = _simple(range(nodes), k)
    return tuple(simple if len(simple) < len(composed) else composed)


def _simple(members: Sequence[int], k: int) -> list[Round]:
    """Return the rounds of algorithm 2: parts of a (k+1)^p nodes, a at most k, one for each digit of their number."""
    if _factors(len(members), k) is not None:
        return _hypercube(members, k)
    parts = list(_parts(members, k))
    later: list[list[Round]] = []
    for turn, (part, size, rest) in enumerate(parts[:-1]):
        pieces = [part[start : start + size] for start in range(0, len(part), size)]
        # Each node of the rest gets the average of part and rest: from one node of each piece.
        weight = len(part) / (len(part) + len(rest)) / len(pieces)
        links = [(*pair, weight) for piece in pieces for pair in zip(piece, rest, strict=False)]
        # The others have the part's average still; what training changes meanwhile is averaged without a further round.
        idle = [node for piece in pieces for node in piece[len(rest) :]]
        links += _average(idle[start : start + k + 1] for start in range(0, len(idle), k + 1))
        # Each piece now has the common average as its own.
        ends = _at_once(_hypercube(piece, k) for piece in pieces)
        later.append([[]] * turn + [links] + ends)
    return _at_once(_hypercube(part, k) for part, *_ in parts) + _at_once(later)


def _parts(members: Sequence[int], k: int) -> Iterator[tuple[Sequence[int], int, Sequence[int]]]:
    """Yield the parts of algorithm 2, the largest first, with the size (k+1)^p of their pieces and the rest after them."""
    size = 1
    while size * (k + 1) <= len(members):
        size *= k + 1
    while members:
        length = len(members) // size * size
        if length:
            yield members[:length], size, members[length:]
        members, size = members[length:], size // (k + 1)


def _hypercube(members: Sequence[int], k: int) -> list[Round]:
    """Return the rounds of algorithm 1, the k-peer hyper-hypercube: each averages groups of at most k + 1 nodes."""
    rounds, stride = [], 1
    for factor in _factors(len(members), k) or ():
        block = stride * factor
        firsts = (first for first in range(len(members)) if first % block < stride)
        rounds.append(_average(members[first : first + block : stride] for first in firsts))
        stride = block
    return rounds


@functools.lru_cache(maxsize=4096)
def _factors(number: int, k: int) -> tuple[int, ...] | None:
    """Return the fewest factors of at most k + 1 with this product; None if a prime factor is larger."""
    if number == 1:
        return ()
    divisors = (each for each in range(2, min(number, k + 1) + 1) if number % each == 0)
    found = [(*rest, each) for each in divisors if (rest := _factors(number // each, k)) is not None]
    return min(found, key=len, default=None)


def _average(groups: Iterable[Sequence[int]]) -> Round:
    """Return the round that links all nodes of each group, so that each gets the mean of its group."""
    return [(*pair, 1 / len(group)) for group in groups for pair in itertools.combinations(group, 2)]


def _at_once(sequences: Iterable[list[Round]]) -> list[Round]:
    """Return the rounds of sequences of disjoint nodes that run side by side."""
    rounds = itertools.zip_longest(*sequences, fillvalue=[])
    return [list(itertools.chain(*each)) for each in rounds]
