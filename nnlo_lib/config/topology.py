"""Settings of the graph between nodes and of the mixing weights."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from nnlo_lib.config.base import ConfigModel, UserPath, raise_config_error

Node = Annotated[int, Field(ge=0)]
Edge = tuple[Node, Node]
MixingWeights = Literal["metropolis", "lazy_metropolis", "max_degree", "uniform"]


class BaseGraphConfig(ConfigModel):
    """Settings of every graph."""

    @property
    def graphs(self) -> "tuple[BaseGraphConfig, ...]":
        """The graphs of a sequence, or this graph."""
        return (self,)


class UndirectedGraphConfig(BaseGraphConfig):
    """Settings of every undirected graph."""

    weights: MixingWeights = "metropolis"
    """Mixing weight of a neighbor's parameters. metropolis: 1 / (1 + the larger degree of the two nodes);
    lazy_metropolis: half of it, so that a node's own weight is at least 1/2; max_degree: 1 / (1 + the largest degree of
    the graph); uniform: 1 / (1 + degree), only for graphs whose nodes all have the same degree. Not used by dinno,
    prox_pda and adpsgd."""
    drop: float = Field(0.0, ge=0, lt=1)
    """Probability that a link fails in a round, in both directions; its weight is added to the node's own weight."""


class DrawnGraphConfig(UndirectedGraphConfig):
    """Settings of every random graph."""

    redraw_every: int | None = Field(None, ge=1)
    """Rounds after which a new graph is drawn; null: one graph for the whole run."""
    gen_attempts: int = Field(100, ge=1)
    """Maximum number of draws until a graph is connected; then the run fails."""


class IrregularGraphConfig(DrawnGraphConfig):
    """A random graph whose nodes have unequal degrees, so that uniform weights are not doubly stochastic."""

    @model_validator(mode="after")
    def _weights_average(self) -> Self:
        if self.weights == "uniform":
            raise_config_error(
                "uniform requires nodes of equal degree, which this graph does not have; set `weights: metropolis`",
                "weights",
            )
        return self


class WheelGraphConfig(UndirectedGraphConfig):
    """A cycle of all nodes except node 0, which is linked with every node."""

    name: Literal["wheel"] = "wheel"


class CycleGraphConfig(UndirectedGraphConfig):
    """Every node is linked with the previous and the next node."""

    name: Literal["cycle"] = "cycle"


class StarGraphConfig(UndirectedGraphConfig):
    """Node 0 is linked with every other node; there are no other links."""

    name: Literal["star"] = "star"


class PathGraphConfig(UndirectedGraphConfig):
    """A cycle without the link between the last node and the first."""

    name: Literal["path"] = "path"


class CompleteGraphConfig(UndirectedGraphConfig):
    """Every node is linked with every other node."""

    name: Literal["complete"] = "complete"


class RectangularGraphConfig(UndirectedGraphConfig):
    """Nodes numbered row by row."""

    rows: int | None = Field(None, ge=1)
    """Number of rows; null: the most square arrangement of all nodes."""
    columns: int | None = Field(None, ge=1)
    """Number of columns; null: nodes / rows."""


class GridGraphConfig(RectangularGraphConfig):
    """Nodes in rows and columns, each linked with up to four neighbors."""

    name: Literal["grid"] = "grid"


class TorusGraphConfig(RectangularGraphConfig):
    """A grid with links between opposite sides."""

    name: Literal["torus"] = "torus"


class HypercubeGraphConfig(UndirectedGraphConfig):
    """Nodes are linked if their numbers differ in one bit; the number of nodes must be a power of two."""

    name: Literal["hypercube"] = "hypercube"


class ExponentialGraphConfig(BaseGraphConfig):
    """Node i sends to i + 1, i + 2, i + 4, ... every round (Ying et al. 2021, arXiv:2110.13363); directed."""

    name: Literal["exponential"] = "exponential"


class OnePeerExponentialGraphConfig(BaseGraphConfig):
    """Node i sends to i + 2^(round mod ceil(log2 nodes)) only (Assran et al. 2019, arXiv:1811.10792); directed."""

    name: Literal["one_peer_exponential"] = "one_peer_exponential"


class BaseKGraphConfig(BaseGraphConfig):
    """At most k neighbors per round, and the exact average after few rounds (Takezawa et al. 2023, arXiv:2305.11420)."""

    name: Literal["base_k"] = "base_k"
    k: int = Field(1, ge=1)
    """Largest number of neighbors of a node in a round; the average takes at most 2 log(nodes) / log(k + 1) + 2 rounds."""


class EquiTopoGraphConfig(BaseGraphConfig):
    """One random peer per round, and differences that shrink at the same rate for any number of nodes (Song et al. 2022, arXiv:2210.07881)."""

    name: Literal["equitopo"] = "equitopo"
    directed: bool = False
    """Each node sends to one node and receives from another (OD-EquiDyn), instead of pairs that exchange (OU-EquiDyn)."""
    eta: float = Field(0.5, gt=0, le=1)
    """Share of the mixing: a peer's parameters have the weight eta (nodes - 1) / nodes."""


class CompleteBipartiteGraphConfig(UndirectedGraphConfig):
    """Every even node is linked with every odd node."""

    name: Literal["complete_bipartite"] = "complete_bipartite"


class GnpGraphConfig(IrregularGraphConfig):
    """Every pair of nodes is linked with the same probability."""

    p: float = Field(gt=0, le=1, examples=[0.3])
    """Probability that two nodes are linked."""


class ErdosRenyiGraphConfig(GnpGraphConfig):
    """Every pair of nodes is linked with probability p; redrawn until connected (Gilbert 1959)."""

    name: Literal["erdos_renyi"] = "erdos_renyi"


class RandomGraphConfig(GnpGraphConfig):
    """Another name of `erdos_renyi`."""

    name: Literal["random"] = "random"


class WattsStrogatzGraphConfig(IrregularGraphConfig):
    """A small world: a ring of nodes with k neighbors each; some links are rewired at random (Watts, Strogatz 1998)."""

    name: Literal["watts_strogatz"] = "watts_strogatz"
    k: int = Field(4, ge=2, multiple_of=2)
    """Number of neighbors on the ring, half on each side."""
    p: float = Field(0.1, ge=0, le=1)
    """Probability that a link is rewired."""


class RandomRegularGraphConfig(DrawnGraphConfig):
    """A random graph in which every node has `degree` neighbors."""

    name: Literal["random_regular"] = "random_regular"
    degree: int = Field(3, ge=1)
    """Number of neighbors of each node; degree * nodes must be even."""


class DiskGraphConfig(IrregularGraphConfig):
    """Points within `radius` are linked, like robots with radios: random ones in the unit square, given ones, or moving robots."""

    name: Literal["disk"] = "disk"
    positions: Literal["random", "trajectory"] | UserPath | tuple[UserPath, ...] = "random"
    """random: points in the unit square; trajectory: the robots of the data set lidar, one per node, so that the graph
    of each round follows from where they are; a `.npy` or `.csv` file: rows x, y, one per node, which stays there; a
    list of such files, one per node: the places that the node passes in turn. Paths of files are relative to the
    current folder."""
    rounds: int | None = Field(None, ge=1)
    """Rounds in which the nodes pass their paths once, mostly those of an epoch; then they begin again. Required for
    `positions: trajectory` and for a list of files."""
    radius: float | None = Field(None, gt=0)
    """Maximum length of a link; the side of the square is 1, the longer side of a building is 2; in files, any unit."""
    connectivity: float | None = Field(None, gt=0, examples=[1.0])
    """Algebraic connectivity (Fiedler value); the radius is chosen so that it is reached within 0.01."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.radius is None) == (self.connectivity is None):
            raise_config_error("set either `radius` or `connectivity`, not both", "radius")
        listed = isinstance(self.positions, tuple)
        for each in self.positions if isinstance(self.positions, tuple) else [self.positions]:
            if not each.endswith((".npy", ".csv")) and (listed or each not in ("random", "trajectory")):
                raise_config_error(
                    f"'{each}' is no .npy or .csv file; or set random or trajectory", "positions"
                )
        moves = self.positions == "trajectory" or listed
        if moves != (self.rounds is not None):
            raise_config_error(
                "set the rounds in which nodes pass their paths once"
                if moves
                else "only nodes with paths move; set `positions: trajectory` or a list of files, or remove it",
                "rounds",
            )
        if self.positions != "random" and (self.radius is None or self.redraw_every):
            key = "redraw_every" if self.redraw_every else "connectivity"
            raise_config_error(
                "nodes with given positions have the links of their `radius` in each round; remove it", key
            )
        return self


class DelaunayGraphConfig(IrregularGraphConfig):
    """The Delaunay triangulation of random points in the unit square (Delaunay 1934): planar, always connected."""

    name: Literal["delaunay"] = "delaunay"


class EdgeListConfig(BaseGraphConfig):
    """Settings of a graph that is given as a list of links."""

    edges: tuple[Edge, ...] = Field(examples=[[[0, 1]]])
    """Pairs of nodes, numbered from 0: [[0, 1], [1, 2]]."""

    @model_validator(mode="after")
    def _no_loops(self) -> Self:
        for one, other in self.edges:
            if one == other:
                raise_config_error(f"[{one}, {other}] links a node with itself; remove it", "edges")
        return self


class EdgesGraphConfig(EdgeListConfig, UndirectedGraphConfig):
    """An undirected graph, given as a list of links."""

    name: Literal["edges"] = "edges"


class DirectedEdgesGraphConfig(EdgeListConfig):
    """A directed graph, given as a list of links: the first node of each pair sends to the second."""

    name: Literal["directed_edges"] = "directed_edges"


GraphConfig = Annotated[
    WheelGraphConfig | CycleGraphConfig | StarGraphConfig | PathGraphConfig | CompleteGraphConfig | GridGraphConfig | TorusGraphConfig | HypercubeGraphConfig | ExponentialGraphConfig | OnePeerExponentialGraphConfig
    | BaseKGraphConfig | EquiTopoGraphConfig | CompleteBipartiteGraphConfig | ErdosRenyiGraphConfig | RandomGraphConfig | WattsStrogatzGraphConfig | RandomRegularGraphConfig | DiskGraphConfig | DelaunayGraphConfig | EdgesGraphConfig | DirectedEdgesGraphConfig,
    Field(discriminator="name"),
]  # fmt: skip


class GraphSequenceConfig(BaseGraphConfig):
    """Several graphs in turn, repeated until the run ends."""

    name: Literal["sequence"] = "sequence"
    of: tuple[GraphConfig, ...] = Field(min_length=1, examples=[[{"name": "cycle"}, {"name": "star"}]])
    """The graphs, in the order of their use."""
    rounds: int = Field(1, ge=1)
    """Number of rounds for each graph before the next graph is used."""

    @property
    def graphs(self) -> tuple[BaseGraphConfig, ...]:
        """The graphs, in turn."""
        return self.of


TopologyConfig = Annotated[GraphConfig | GraphSequenceConfig, Field(discriminator="name")]
