"""Who talks with whom: the graph between nodes and the weights they mix with."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from nnlo_lib.config.base import ConfigModel, raise_config_error

Node = Annotated[int, Field(ge=0)]
Edge = tuple[Node, Node]
MixingWeights = Literal["metropolis", "lazy_metropolis", "max_degree", "uniform"]


class UndirectedGraphConfig(ConfigModel):
    """What every graph has whose links carry both ways."""

    weights: MixingWeights = Field(
        "metropolis",
        description="How received parameters are weighted: metropolis 1 / (1 + larger degree of the two), "
        "lazy_metropolis half of that and half the node itself, max_degree 1 / (1 + largest degree of all), "
        "uniform 1 / (1 + degree), for graphs whose nodes all have the same degree.",
    )
    drop: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Probability that a link is lost in a round, both ways; its weight goes to the node itself.",
    )


class DrawnGraphConfig(UndirectedGraphConfig):
    """What every random graph has."""

    redraw_every: int | None = Field(
        None,
        ge=1,
        description="Rounds after which a fresh graph is drawn; null: one graph for the whole run.",
    )
    gen_attempts: int = Field(
        100, ge=1, description="Graphs drawn in search of a connected one before giving up."
    )


class IrregularGraphConfig(DrawnGraphConfig):
    """A random graph whose nodes differ in degree, so that uniform weights would not average."""

    @model_validator(mode="after")
    def _weights_average(self) -> Self:
        if self.weights == "uniform":
            raise_config_error(
                "uniform needs equal degrees, which this graph does not have; use metropolis", "weights"
            )
        return self


class WheelGraphConfig(UndirectedGraphConfig):
    """A cycle and a hub, node 0, linked with all."""

    name: Literal["wheel"] = "wheel"


class CycleGraphConfig(UndirectedGraphConfig):
    """Every node is linked with the one before and the one after."""

    name: Literal["cycle"] = "cycle"


class StarGraphConfig(UndirectedGraphConfig):
    """Node 0 is linked with all others, and they with nobody else."""

    name: Literal["star"] = "star"


class PathGraphConfig(UndirectedGraphConfig):
    """A cycle without the link between the last node and the first."""

    name: Literal["path"] = "path"


class CompleteGraphConfig(UndirectedGraphConfig):
    """Every node is linked with every other."""

    name: Literal["complete"] = "complete"


class RectangularGraphConfig(UndirectedGraphConfig):
    """Nodes numbered row by row."""

    rows: int | None = Field(None, ge=1, description="Rows; null: the most square rectangle of all nodes.")
    columns: int | None = Field(None, ge=1, description="Columns; null: nodes / rows.")


class GridGraphConfig(RectangularGraphConfig):
    """Nodes in rows and columns, each linked with up to four neighbours."""

    name: Literal["grid"] = "grid"


class TorusGraphConfig(RectangularGraphConfig):
    """A grid whose opposite sides are linked."""

    name: Literal["torus"] = "torus"


class HypercubeGraphConfig(UndirectedGraphConfig):
    """Nodes whose numbers differ in one bit are linked; needs a power of two."""

    name: Literal["hypercube"] = "hypercube"


class ExponentialGraphConfig(ConfigModel):
    """Node i sends to i + 1, i + 2, i + 4, ... every round (Ying et al. 2021, arXiv:2110.13363); directed."""

    name: Literal["exponential"] = "exponential"


class OnePeerExponentialGraphConfig(ConfigModel):
    """Node i sends to i + 2^(round mod ceil(log2 nodes)) only (Assran et al. 2019, arXiv:1811.10792); directed."""

    name: Literal["one_peer_exponential"] = "one_peer_exponential"


class CompleteBipartiteGraphConfig(UndirectedGraphConfig):
    """Every even node is linked with every odd node."""

    name: Literal["complete_bipartite"] = "complete_bipartite"


class GnpGraphConfig(IrregularGraphConfig):
    """Every pair of nodes is linked with the same probability."""

    p: float = Field(gt=0, le=1, examples=[0.3], description="Probability that two nodes are linked.")


class ErdosRenyiGraphConfig(GnpGraphConfig):
    """Every pair of nodes is linked with probability p, drawn until connected (Gilbert 1959)."""

    name: Literal["erdos_renyi"] = "erdos_renyi"


class RandomGraphConfig(GnpGraphConfig):
    """Another name of erdos_renyi."""

    name: Literal["random"] = "random"


class WattsStrogatzGraphConfig(IrregularGraphConfig):
    """A small world: a ring with k neighbours each, some links moved at random (Watts, Strogatz 1998)."""

    name: Literal["watts_strogatz"] = "watts_strogatz"
    k: int = Field(4, ge=2, multiple_of=2, description="Neighbours on the ring, half on either side.")
    p: float = Field(0.1, ge=0, le=1, description="Probability that a link is moved.")


class RandomRegularGraphConfig(DrawnGraphConfig):
    """Every node has `degree` neighbours at random."""

    name: Literal["random_regular"] = "random_regular"
    degree: int = Field(3, ge=1, description="Neighbours of each node; degree * nodes must be even.")


class DiskGraphConfig(IrregularGraphConfig):
    """Random points in the unit square, linked where close: robots with radios."""

    name: Literal["disk"] = "disk"
    radius: float | None = Field(
        None, gt=0, description="Largest distance of a link; the square's side is 1."
    )
    connectivity: float | None = Field(
        None,
        gt=0,
        examples=[1.0],
        description="Algebraic connectivity (Fiedler value) to reach within 0.01, by the radius.",
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.radius is None) == (self.connectivity is None):
            raise_config_error("give either radius or connectivity", "radius")
        return self


class EdgeListConfig(ConfigModel):
    """What a graph written link by link has."""

    edges: tuple[Edge, ...] = Field(
        examples=[[[0, 1]]], description="Pairs of nodes, numbered from 0: [[0, 1], [1, 2]]."
    )

    @model_validator(mode="after")
    def _no_loops(self) -> Self:
        for one, other in self.edges:
            if one == other:
                raise_config_error(f"[{one}, {other}] links a node with itself", "edges")
        return self


class EdgesGraphConfig(EdgeListConfig, UndirectedGraphConfig):
    """A graph of your own, link by link."""

    name: Literal["edges"] = "edges"


class DirectedEdgesGraphConfig(EdgeListConfig):
    """A directed graph of your own: the first node of each pair sends to the second."""

    name: Literal["directed_edges"] = "directed_edges"


GraphConfig = Annotated[
    WheelGraphConfig | CycleGraphConfig | StarGraphConfig | PathGraphConfig | CompleteGraphConfig | GridGraphConfig | TorusGraphConfig | HypercubeGraphConfig | ExponentialGraphConfig | OnePeerExponentialGraphConfig
    | CompleteBipartiteGraphConfig | ErdosRenyiGraphConfig | RandomGraphConfig | WattsStrogatzGraphConfig | RandomRegularGraphConfig | DiskGraphConfig | EdgesGraphConfig | DirectedEdgesGraphConfig,
    Field(discriminator="name"),
]  # fmt: skip


class GraphSequenceConfig(ConfigModel):
    """Several graphs in turn, over and over."""

    name: Literal["sequence"] = "sequence"
    of: tuple[GraphConfig, ...] = Field(
        min_length=1,
        examples=[[{"name": "cycle"}, {"name": "star"}]],
        description="The graphs, in the order they are used.",
    )
    rounds: int = Field(1, ge=1, description="Rounds each graph is used before the next one's turn.")


TopologyConfig = Annotated[GraphConfig | GraphSequenceConfig, Field(discriminator="name")]
