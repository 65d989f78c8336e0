"""The smallest application, for tests of what all applications share: sums blocks over and over."""

import resource
from dataclasses import dataclass

import numpy as np

from miniapps.errors import UsageError
from miniapps.layout.blocks import Blocks
from miniapps.runner.config import option, section
from miniapps.runner.main import App, Check, Context, Outcome, RunError
from miniapps.runner.options import RunOptions
from miniapps.trace import fingerprint


@dataclass
class Work:
    """What is summed, and how often."""

    steps: int = option(6, help="steps", minimum=1, flag="--steps", maximum=1_000_000)
    blocks: int = option(8, help="blocks", minimum=1, maximum=1_000_000)
    cells: int = option(16, help="cells per block", unit="cells", minimum=1, maximum=1_000_000)
    regions: int = option(
        0, role="control", help="empty regions per step, to fill the trace", minimum=0, maximum=1_000_000
    )
    scale: float = option(1.0, help="factor of the initial state", minimum=-1e9, maximum=1e9)
    method: str = option("plain", help="a choice", choices=("plain", "fancy"), role="method")
    limit: float | None = option(None, help="largest sum that passes the check", minimum=-1e9, maximum=1e9)
    file_limit: int = option(
        -1,
        role="control",
        help="largest file that the last rank may write",
        unit="bytes",
        minimum=-1,
        maximum=2**40,
    )
    diverge: int = option(-1, help="step at which to give up; -1: never", minimum=-1, maximum=1_000_000)


@dataclass
class TinyConfig:
    """The configuration of `tiny`."""

    work: Work = section(Work)


def validate(config: TinyConfig, options: RunOptions, size: int) -> None:
    """More ranks than blocks cannot be run."""
    Blocks(config.work.blocks, 1, 1, 1, size)
    if config.work.scale == 0:
        raise UsageError("work.scale is 0, which leaves nothing to sum; choose another factor")


def initial(work: Work, seed: int, block: int) -> np.ndarray:
    """The cells of a block at first: keyed by the block, not by its owner."""
    return work.scale * np.random.Generator(np.random.Philox(key=[seed, block])).random(work.cells)


def run(ctx: Context) -> Outcome:
    """Sum the blocks, scale each by the sum, over and over."""
    work = ctx.config.work
    if ctx.rank == ctx.size - 1 and work.file_limit >= 0:  # as good as a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (work.file_limit, work.file_limit))
    blocks = Blocks(work.blocks, 1, 1, 1, ctx.size, ctx.rank, ctx.options.shuffle_blocks)
    state = np.stack([initial(work, ctx.seed, block) for block in blocks.own])
    local = {block: i for i, block in enumerate(blocks.own)}
    reduce = ctx.reducer("total")
    region = ctx.tracer.name("region")
    total = 0.0

    def peek(block: int) -> np.ndarray | None:
        return state[local[block]] if block in local else None

    for step in range(1, work.steps + 1):
        ctx.begin_step(step, work.steps, peek)
        if step == work.diverge:
            raise RunError(f"gave up in step {step}, as work.diverge asks")
        for _ in range(work.regions):
            ctx.tracer.event(region, ctx.tracer.clock())
        total = float(reduce(np.array([row.sum() for row in state])))
        state += total / (work.blocks * work.cells)
        ctx.tracer.value("total", total)
        for block, row in zip(blocks.own, state, strict=True):
            ctx.tracer.fingerprint("state", block, fingerprint(row))
    parts = ctx.comm.allgather(dict(zip(blocks.own.tolist(), state, strict=True)))
    whole = np.stack([row for _, row in sorted((b, row) for part in parts for b, row in part.items())])
    limit = np.inf if work.limit is None else work.limit
    checks = [Check("finite", bool(np.isfinite(whole).all()), "the state is not finite")]
    checks.append(Check("limit", not total > limit, f"the sum {total} exceeds work.limit = {limit}"))
    return Outcome({"total": (total, "")}, checks, fingerprint(whole).hex())


APP = App(
    "tiny",
    TinyConfig,
    "Sums blocks over and over.",
    run,
    validate,
    package="tests.miniapps.tiny",
    serves=("device",),
)
