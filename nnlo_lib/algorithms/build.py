"""Build the algorithm that an experiment describes."""

from typing import assert_never

from nnlo_lib import config
from nnlo_lib.algorithms.adpsgd import ADPSGD
from nnlo_lib.algorithms.algorithm import Algorithm, Role
from nnlo_lib.algorithms.allreduce import AllReduce, CompressedAllReduce
from nnlo_lib.algorithms.average import Average, CompressedAverage
from nnlo_lib.algorithms.choco_sgd import ChocoSGD
from nnlo_lib.algorithms.d2 import D2
from nnlo_lib.algorithms.diloco import DiLoCo
from nnlo_lib.algorithms.dinno import DiNNO
from nnlo_lib.algorithms.downpour import Downpour
from nnlo_lib.algorithms.dsgd import DSGD
from nnlo_lib.algorithms.dsgt import DSGT
from nnlo_lib.algorithms.easgd import EASGD
from nnlo_lib.algorithms.gem import GEM
from nnlo_lib.algorithms.gosgd import GoSGD
from nnlo_lib.algorithms.grouped import Grouped
from nnlo_lib.algorithms.individual import Individual
from nnlo_lib.algorithms.neighbourhood import Neighbourhood
from nnlo_lib.algorithms.next import NEXT
from nnlo_lib.algorithms.prox_pda import ProxPDA
from nnlo_lib.algorithms.sgp import SGP
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compress.build import build as compressor
from nnlo_lib.comm.compress.compressor import Compressor
from nnlo_lib.comm.compress.feedback import Feedback
from nnlo_lib.topology.topology import topology


def build(run: config.Run, comm: Communicator, seed: int) -> Algorithm:
    """Return the rank's part of the run's algorithm."""
    group, servers = run.parallel.processes_per_worker, roles(run, comm.size).count("server")
    if group > 1:
        return Grouped(comm, group, servers, lambda leaders: _single(run, leaders, seed))
    return _single(run, comm, seed)


def _single(run: config.Run, comm: Communicator, seed: int) -> Algorithm:
    match run.algorithm:
        case config.AllReduce() | config.Average() | config.DiLoCo() | config.Individual() as settings:
            return _collective(settings, comm, Feedback(compressor(run.compression, seed), comm.rank))
        case config.Downpour() | config.EASGD() | config.GEM() as settings:
            return _served(settings, comm, Feedback(compressor(run.compression, seed), comm.rank))
        case config.GoSGD() | config.SGP() | config.ADPSGD() as settings:
            return _gossip(settings, comm, run.topology, seed, compressor(run.compression, seed))
        case settings:
            graph = topology(run.topology, comm.size, seed)
            return _neighbour(settings, Neighbourhood(comm, graph, compressor(run.compression, seed)))


def _collective(settings: config.Collective, comm: Communicator, feedback: Feedback) -> Algorithm:
    match settings:
        case config.AllReduce() if not feedback.compressor.lossless:
            return CompressedAllReduce(comm, feedback)
        case config.AllReduce():
            return AllReduce(comm, round(1e6 * settings.bucket_mb))
        case config.Average() if not feedback.compressor.lossless:
            return CompressedAverage(comm, settings.sync_every, feedback)
        case config.Average():
            return Average(comm, settings.sync_every)
        case config.DiLoCo():
            return DiLoCo(comm, settings.sync_every, settings.outer_lr, settings.outer_momentum, feedback)
        case config.Individual():
            return Individual(comm)
    assert_never(settings)


def _served(settings: config.Served, comm: Communicator, feedback: Feedback) -> Algorithm:
    match settings:
        case config.Downpour():
            return Downpour(comm, settings.synchronous, settings.sync_every, settings.masters, feedback)
        case config.EASGD():
            return EASGD(
                comm,
                settings.synchronous,
                settings.sync_every,
                settings.elastic_force,
                settings.alpha,
                settings.masters,
                feedback,
            )
        case config.GEM():
            return GEM(
                comm,
                settings.sync_every,
                settings.momentum,
                settings.kappa,
                settings.largest_scale,
                settings.masters,
                feedback,
            )
    assert_never(settings)


def _gossip(
    settings: config.Gossip, comm: Communicator, graph: config.Topology, seed: int, cast: Compressor
) -> Algorithm:
    match settings:
        case config.GoSGD():
            return GoSGD(comm, seed, settings.probability, settings.synchronous, cast)
        case config.SGP():
            return SGP(comm, topology(graph, comm.size, seed), cast)
        case config.ADPSGD():
            return ADPSGD(comm, topology(graph, comm.size, seed), seed, cast)
    assert_never(settings)


def _neighbour(settings: config.Neighbour, around: Neighbourhood) -> Algorithm:
    match settings:
        case config.DSGD():
            return DSGD(around, in_place=settings.mixing == "in_place")
        case config.DSGT():
            return DSGT(around)
        case config.D2():
            return D2(around)
        case config.DiNNO():
            return DiNNO(
                around,
                settings.rho,
                settings.rho_scaling,
                settings.primal_iterations,
                settings.persistent_optimizer,
            )
        case config.ProxPDA():
            return ProxPDA(around, settings.beta)
        case config.NEXT():
            return NEXT(around, settings.inner_steps, settings.tau, settings.step, settings.step_decay)
        case config.ChocoSGD():
            return ChocoSGD(around, settings.gamma)
    assert_never(settings)


def roles(run: config.Run, size: int) -> list[Role]:
    """Return the role of each of `size` ranks: servers come first."""
    servers = run.algorithm.masters if isinstance(run.algorithm, config.Server) else 0
    return ["server" if rank < servers else "worker" for rank in range(size)]
