"""How the replicas agree."""

from typing import Annotated

from pydantic import Field

from nnlo_lib.config.collective import AllReduce, Average, DiLoCo, Individual
from nnlo_lib.config.gossip import ADPSGD, SGP, GoSGD
from nnlo_lib.config.neighbour import CADMM, D2, DSGD, DSGT, NEXT, ChocoSGD, DiNNO, ProxPDA
from nnlo_lib.config.server import EASGD, GEM, Downpour

Collective = AllReduce | Average | DiLoCo | Individual
Served = Downpour | EASGD | GEM
Gossip = GoSGD | SGP | ADPSGD
Neighbour = DSGD | DSGT | D2 | CADMM | DiNNO | ProxPDA | NEXT | ChocoSGD

Algorithm = Annotated[Collective | Served | Gossip | Neighbour, Field(discriminator="name")]
