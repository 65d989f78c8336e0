"""What injected faults can strike: tensors of weights, and gradients of micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from miniapps.runner.faults import Fault, Struck, Targets
from miniapps.training import dlrm_problem
from miniapps.training.data import EDGE
from miniapps.training.models import network

WORDS = 32  # bits of a float32


def targets(config, options, size: int) -> Targets:
    """The steps and the tensors of the configuration, one function for each kind of trainer."""
    if config.meshed:
        blocks = _over_mesh(config)
    elif config.model.name == "dlrm":
        blocks = _with_tables(config)
    else:
        blocks = _of_replicas(config)
    # Trials take more steps than the problem has.
    return Targets(None if config.training.tries else config.training.last, blocks=blocks)


def _of_replicas(config) -> Callable[[Fault], Struck]:
    shapes = list(network(config.model.name).shapes(config.model, EDGE[config.data.name]).values())

    def blocks(fault: Fault) -> Struck:
        if fault.kind == "kernel-bit":  # of a micro-batch the gradient of tensor `call`
            if fault.call >= len(shapes):
                return Struck(0)
            return Struck(config.training.blocks, lambda block: prod(shapes[fault.call]), WORDS)
        return _tensors(fault, [prod(shape) for shape in shapes])

    return blocks


def _with_tables(config) -> Callable[[Fault], Struck]:
    """The tensors of both perceptrons, then the tables, of which a rank has parts."""
    data, embeddings = config.data.name, config.embeddings
    shapes = dlrm_problem.shapes(data, config.model.hidden, embeddings).values()
    tables = [table.rows * table.columns for table in dlrm_problem.tables(data, embeddings)]
    return lambda fault: _tensors(fault, [*map(prod, shapes), *tables])


def _over_mesh(config) -> Callable[[Fault], Struck | None]:
    """Parameters, of which a rank has parts. Results of a node are cut as the plan says, which is not made yet."""
    import torch

    from miniapps.partition import models
    from miniapps.training.mesh_problem import deck

    with torch.device("meta"):  # nothing is allocated or drawn
        whole = models.model(config.model.name).module(deck(config))
    sizes = [parameter.numel() for parameter in whole.parameters()]
    return lambda fault: None if fault.kind == "kernel-bit" else _tensors(fault, sizes)


def _tensors(fault: Fault, sizes: list[int]) -> Struck:
    return Struck(0) if fault.kind not in ("nan", "bitflip") else Struck(len(sizes), sizes.__getitem__, WORDS)
