"""Limits of a YAML text, so that a small hostile file needs neither much time nor much memory."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml

MAX_FILE_BYTES = 2_000_000
MAX_NODES = 20_000  # some seconds of PyYAML; an experiment has some hundreds
MAX_CHARS = 10_000_000  # of all texts after aliases are expanded
MAX_LEVELS = 50  # an experiment has at most 10; PyYAML fails above some hundreds
# PyYAML's integers of base 60 and the pattern of floating-point numbers take quadratic time.
MAX_NUMBER_CHARS = 1000
NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
REMEDY = "write the file without so many aliases (*name), or split the experiment into several files"


class NodeExtent(NamedTuple):
    """Size of a node with everything below, as if each alias was a copy.

    Attributes:
        nodes: number of nodes.
        chars: number of characters of the scalars.
        levels: number of nested levels.
    """

    nodes: int
    chars: int
    levels: int


class BoundedLoader(yaml.SafeLoader):
    """Loader that refuses a text above the limits while it builds the nodes, without expanding aliases."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._extents: dict[yaml.Node, NodeExtent] = {}  # of complete nodes
        self._open_levels = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        """Return the next node. Raises yaml.YAMLError if it exceeds a limit or contains itself."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        start = event.start_mark
        self._open_levels += 1
        # Of the part that was read, so that the rest of a long file is not read.
        _refuse_above("nested levels", self._open_levels, MAX_LEVELS, start)
        _refuse_above("keys and values", len(self._extents), MAX_NODES, start)
        node: yaml.Node = super().compose_node(parent, index)  # type: ignore[assignment]  # the event starts a node
        self._open_levels -= 1
        if not isinstance(event, yaml.AliasEvent):
            self._extents[node] = self._extent(node, start)
        elif node not in self._extents:
            raise yaml.MarkedYAMLError(
                problem=f"the alias *{event.anchor} is inside the mapping or list &{event.anchor}; remove the alias",
                problem_mark=start,
            )
        return node

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """Return the tag of a node; long plain text is text without a trial as a number.

        Args:
            kind: class of the node.
            value: text of a scalar.
            implicit: whether the text is plain, and whether it is quoted.
        """
        if kind is yaml.ScalarNode and len(value) > MAX_NUMBER_CHARS:
            return self.DEFAULT_SCALAR_TAG
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]

    def _extent(self, node: yaml.Node, start: yaml.Mark) -> NodeExtent:
        if isinstance(node, yaml.ScalarNode):
            if node.tag in NUMBER_TAGS:
                _refuse_above("characters in a number", len(node.value), MAX_NUMBER_CHARS, start)
            return NodeExtent(1, len(node.value), 0)
        parts = [self._extents[part] for part in _parts(node)]
        nodes, chars = 1 + sum(part.nodes for part in parts), sum(part.chars for part in parts)
        levels = 1 + max((part.levels for part in parts), default=0)
        _refuse_above("keys and values", nodes, MAX_NODES, start)
        _refuse_above("characters", chars, MAX_CHARS, start)
        _refuse_above("nested levels", levels, MAX_LEVELS, start)
        return NodeExtent(nodes, chars, levels)


def _parts(node: yaml.Node) -> Sequence[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value)


def _refuse_above(what: str, number: int, limit: int, start: yaml.Mark) -> None:
    """Raise yaml.YAMLError if a number is above its limit.

    Args:
        what: what is counted.
        number: the number.
        limit: largest allowed number.
        start: place of the node in the text.
    """
    if number > limit:
        raise yaml.MarkedYAMLError(
            problem=f"more than {limit:,} {what}, counted with expanded aliases; {REMEDY}", problem_mark=start
        )
