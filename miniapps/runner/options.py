"""The options that all applications share: section `run`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kernels.guarantees import LEVELS
from kernels.threads import MOST as MOST_THREADS
from miniapps.runner.config import SEEDS, option, section
from miniapps.runner.policy import Policy, resolve
from miniapps.trace.node import FILES as TRACE_FILES
from miniapps.trace.records import NODE, PASSING
from miniapps.trace.schema import FINGERPRINTS
from miniapps.trace.writer import LEVELS as TRACE_LEVELS


def _orderings() -> list[str]:
    from kernels import allreduce

    return [ordering.name for ordering in allreduce.orderings()]


def _accumulations() -> list[str]:
    from kernels.allreduce.accumulate import ACCUMULATIONS

    return list(ACCUMULATIONS)


def _instead() -> dict[str, str]:
    from kernels.allreduce.catalog import INSTEAD

    return INSTEAD


SERVED = ("device", "duplicate")  # what an application has to do itself: options of those that say they do


@dataclass
class RunOptions:
    """What every application is told apart from its own configuration."""

    deck: str | None = option(
        None, role="control", flag="--deck", help="a deck of the application, or a path to a TOML file"
    )
    guarantee: str = option(
        "none",
        role="method",
        effect="reduction",
        flag="--guarantee",
        choices=LEVELS,
        help="what the bits of the result are promised to be",
    )
    allreduce: str | None = option(
        None,
        role="method",
        effect="reduction",
        flag="--allreduce",
        choices=_orderings,
        instead=_instead,
        parameters=True,
        help="ordering of every all-reduce instead of that by guarantee, maybe with parameters (k-nomial:k=8)",
    )
    accumulate: str | None = option(
        None,
        role="method",
        effect="reduction",
        flag="--accumulate",
        choices=_accumulations,
        help="in what the partial sums of every all-reduce are held and travel, for orderings with a schedule; none: "
        "by guarantee, or working where --allreduce names an ordering",
    )
    device: str = option(
        "cpu",
        role="method",
        effect="device",
        flag="--device",
        choices=("cpu", "cuda"),
        help="where to compute",
    )
    repeats: int = option(
        1,
        role="control",
        flag="--repeats",
        minimum=1,
        maximum=1_000_000,
        help="repeats in this launch, each from the same seed",
    )
    seed: int = option(1, flag="--seed", minimum=0, maximum=SEEDS, help="seed of all random numbers")
    out: str | None = option(
        None,
        role="control",
        flag="--out",
        help="directory of the run, new or empty; none: runs/APP-TIME-XXXX",
    )
    threads: int = option(
        1,
        role="method",
        effect="threads",
        flag="--threads",
        minimum=1,
        maximum=MOST_THREADS,
        help="OpenMP and torch threads per rank",
    )
    trace: str = option(
        "regions",
        role="control",
        flag="--trace",
        choices=TRACE_LEVELS,
        help="record the times of regions, or the bits only",
    )
    record: str = option(
        "state",
        role="control",
        flag="--record",
        records=tuple(f"fingerprints:{prefix}*" for prefix in (*PASSING, NODE)),
        choices=("state", "messages"),
        help="record fingerprints of the state, or also of what every kernel, halo exchange and all-reduce took and "
        "gave, which names the cause of a difference",
    )
    fingerprint: str = option(
        "xxh3",
        role="control",
        effect="fingerprint",
        flag="--fingerprint",
        choices=FINGERPRINTS,
        help="how the bits of arrays are recorded: by XXH3, which tells differences, or by SHA-256, which nobody can "
        "forge either",
    )
    trace_files: str = option(
        "rank",
        role="control",
        flag="--trace-files",
        choices=TRACE_FILES,
        help="one trace file per rank, or, at the end, those of a node packed into one",
    )
    check_ranks: bool = option(
        False,
        role="control",
        effect="cost",
        flag="--check-ranks",
        help="after every all-reduce, verify that all ranks hold the same bits",
    )
    replay: str | None = option(
        None,
        role="method",
        effect="replay",
        flag="--replay",
        help="directory of a run whose orders of arrival, and what it decided from a clock, are to be repeated",
    )
    shuffle_blocks: int = option(
        0,
        role="method",
        effect="ownership",
        flag="--shuffle-blocks",
        minimum=0,
        maximum=SEEDS,
        help="deal blocks to ranks at random by this seed; 0: in order",
    )
    fault: tuple[str, ...] = option(
        (),
        role="method",
        effect="fault",
        flag="--fault",
        help="inject a fault, such as nan@step=5,block=3; may be repeated",
    )
    links: str | None = option(
        None,
        role="method",
        effect="cost",
        flag="--links",
        help="emulate links between ranks, slower than this machine's: rate=20e6,latency=50e-6 (bytes per second and "
        "seconds), or a file that `kernels.allreduce links` wrote; changes times, never bits",
    )
    stall: float = option(
        0.0,
        role="control",
        flag="--stall",
        unit="s",
        minimum=0.0,
        maximum=1e6,
        help="end the run when a rank is in one call for so long without progress, as where a node or its network is "
        "lost; 0: never",
    )
    ledger: str | None = option(
        None,
        role="control",
        flag="--ledger",
        help="ledger of predictions, which is checked and whose last hash goes into the trace: so the run proves which "
        "predictions were there before it; it is never written",
    )
    duplicate: float = option(
        0.0,
        role="control",
        effect="cost",
        flag="--duplicate",
        minimum=0.0,
        maximum=1.0,
        help="fraction of the blocks that another rank computes again, to name ranks that compute wrong bits (2 "
        "ranks or more, guarantee layout)",
    )
    log_level: str = option(
        "info",
        role="control",
        flag="--log-level",
        choices=("debug", "info", "warning", "error"),
        help="how much rank 0 says",
    )
    log_all_ranks: bool = option(
        False,
        role="control",
        flag="--log-all-ranks",
        help="write the log of every rank to RUN/rank-XXXXX.log",
    )
    progress: bool = option(
        True, role="control", flag="--progress", help="a progress bar, if rank 0 has a terminal"
    )

    @cached_property
    def policy(self) -> Policy:
        """What guarantee, ordering and accumulation come to; options are not changed once it was asked for."""
        return resolve(self.guarantee, self.allreduce, self.accumulate)


# Flags that stand for values of other options.
SHORTHANDS: dict[str, tuple[dict[str, Any], str]] = {
    "--quiet": (
        {"run.log_level": "warning", "run.progress": False},
        "warnings and results alone: --log-level warning --no-progress",
    ),
    "--verbose": ({"run.log_level": "debug"}, "all that there is to say: --log-level debug"),
}


@dataclass
class Common:
    """The configuration made of the common section alone."""

    run: RunOptions = section(RunOptions)
