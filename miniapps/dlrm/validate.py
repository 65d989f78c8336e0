"""Checks the configuration before a run creates anything, and estimates memory and the targets of faults."""

from __future__ import annotations

import sys
from math import prod
from typing import Any

from kernels.guarantees import ChoiceError
from miniapps.checkpoints import options as checkpoints
from miniapps.dlrm import problem, ratings
from miniapps.dlrm.checkpoint import HOLDING
from miniapps.dlrm.config import RECORDED, Embeddings
from miniapps.errors import UsageError
from miniapps.learning.course import checks
from miniapps.learning.course.options import AUTO
from miniapps.runner.faults import Targets
from miniapps.system.resources import Need
from miniapps.untrusted.program import Program
from miniapps.untrusted.text import tell

# The data to which an option applies, if not to all.
DRAWN = dict.fromkeys(("rows", "tables", "zipf", "pooling"), ("zipf",)) | {
    "features": ("zipf", RECORDED), "lookups": (RECORDED,),
}  # fmt: skip
TORCH = 2**27  # bytes of torch in a process


def complete(config: Any, options: Any, size: int) -> None:
    """Fill in the seeds that follow from the run's seed, the calls of the network (which the guarantee decides unless
    an option does), the sharding of --sharding auto, and how often the state is rounded. Raises UsageError if that has
    no prices."""
    checkpoints.complete(config.output)
    config.training.calls = checks.calls(config, options)
    checks.complete_seeds(config.seeds, options.seed)
    if config.embeddings.sharding == AUTO:
        config.embeddings.sharding = _fastest(config, options, size)
    elif config.embeddings.calibration:
        raise UsageError(
            f"--calibration: --sharding {config.embeddings.sharding} uses no prices; choose --sharding auto, or leave "
            "it out"
        )


def _fastest(config: Any, options: Any, size: int) -> str:
    """The sharding that is predicted to be the fastest. Raises UsageError without a calibration."""
    from miniapps.dlrm.choosing import compare

    if not config.embeddings.calibration:
        raise UsageError(
            f"--sharding auto: compares prices; time kernels and messages by mpirun -n {size} fpna calibrate --out cal "
            "--plan dlrm, and give --calibration cal"
        )
    config.embeddings.sharding = "table"
    validate(config, options, size)
    found = compare(config, options, size, config.embeddings.calibration)
    for name, reason in found.left:
        tell(f"dlrm: --sharding auto: {name} is not compared: {reason}", sys.stderr)
    return found.best


def validate(config: Any, options: Any, size: int) -> None:
    """Raise UsageError or ChoiceError with the option, its allowed values and the remedy."""
    data, embeddings, training = config.data.name, config.embeddings, config.training
    for name, users in DRAWN.items():
        if data not in users and getattr(embeddings, name) != getattr(Embeddings(), name):
            raise UsageError(
                f"embeddings.{name} applies to --data {' and '.join(users)}, not to --data {data}; choose --data "
                f"{users[0]}, or leave it out"
            )
    if data == RECORDED and not embeddings.lookups:
        raise UsageError(f"--data {RECORDED}: --lookups DIR is missing; name the directory of a run of dlrm")
    HOLDING.require(config)
    checks.validate(config, options, "dlrm")
    checks.require_blocks(training, size)
    if training.seconds:
        checks.require_clock(options, "--seconds", "time")
    _require_promise(config, options, size)
    if data == "ml-100k":
        checks.require_samples(config, ratings.COUNTS[0])
        ratings.load(config.data.dir)
    HOLDING.check(config, options, size)


def _require_promise(config: Any, options: Any, size: int) -> None:
    """Raise ChoiceError if the sums of bags promise too little."""
    order, level = config.model.aggregate, options.policy.level
    if level == "exact" and order != "exact":
        raise ChoiceError(
            f"--aggregate {order} meets guarantee layout, below exact: each of its additions rounds; choose "
            "--aggregate exact"
        )
    shardings = {of.sharding for of in problem.placed(config, options, size)}
    if not shardings <= set(problem.allowed(config, options)):
        raise ChoiceError(
            f"--sharding row-pooled with --aggregate sorted meets guarantee run, below {level}: the sum of a bag then "
            "depends on the ranks of its rows; choose --aggregate exact, or --sharding row"
        )


def memory(config, options, size: int) -> Need:
    """The memory that the rank with the largest part of the tables needs."""
    of_all = problem.placed(config, options, size)
    held = max(sum(4 * of.rows(rank).m * of.width(rank) for of in of_all) for rank in range(size))
    whole = (
        max(of.table.nbytes for of in of_all)
        if config.output.checkpoint_every or config.output.restart
        else 0
    )
    own = config.embeddings
    pooling = max(own.pooling, *(of.table.lookups for of in of_all))
    looked = int(40 * config.training.batch * max(1, pooling) * own.columns * len(of_all))
    return Need(
        TORCH + held + whole + looked + 2**25,
        f"tables of {sum(of.table.nbytes for of in of_all) / 2**20:.0f} MiB, --sharding {own.sharding}",
        lambda share: "choose fewer --rows, another --sharding, or more nodes",
    )


def targets(config: Any, options: Any, size: int) -> Targets:
    """The tensors of both perceptrons, then the tables, of which each rank has parts."""
    tables = [table.rows * table.columns for table in problem.tables(config.data.name, config.embeddings)]
    sizes = [*map(prod, HOLDING.tensors(config).values()), *tables]
    return Targets(config.training.last, blocks=lambda fault: checks.tensors_struck(fault, sizes))


def priceable(config: Any, options: Any, size: int) -> tuple[Program, int]:
    """(the program of a step, the number of steps until the run stops)."""
    from miniapps.dlrm.program import planned

    return planned(config, options, size), config.training.last
