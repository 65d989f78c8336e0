"""The options that all applications share: section `run`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kernels.guarantees import LEVELS, PROCESSORS
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


SERVED = (
    "device",
    "duplicate",
    "processor",
)  # options that an application implements itself; only those with them show them


@dataclass
class RunOptions:
    """The options that every application has beside its own."""

    deck: str | None = option(
        None, role="control", flag="--deck", help="a deck of the application, or the path of a TOML file"
    )
    guarantee: str = option(
        "none",
        role="method",
        effect="reduction",
        flag="--guarantee",
        choices=LEVELS,
        help="the promise about the bits of the result",
    )
    processor: str = option(
        "this",
        role="method",
        effect="processor",
        flag="--processor",
        choices=tuple(PROCESSORS),
        help="the processors over which the guarantee holds: this kind, with its libraries and their settings, or any, "
        "where no library that chooses its code by the processor computes a recorded bit",
    )
    allreduce: str | None = option(
        None,
        role="method",
        effect="reduction",
        flag="--allreduce",
        choices=_orderings,
        instead=_instead,
        parameters=True,
        help="ordering of every all-reduce, instead of the guarantee's own, with parameters if any (k-nomial:k=8)",
    )
    accumulate: str | None = option(
        None,
        role="method",
        effect="reduction",
        flag="--accumulate",
        choices=_accumulations,
        help="type in which every all-reduce holds and sends partial sums, for orderings with a schedule; none: the "
        "guarantee's own, or working where --allreduce names an ordering",
    )
    device: str = option(
        "cpu",
        role="method",
        effect="device",
        flag="--device",
        choices=("cpu", "cuda"),
        help="the device that computes",
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
        help="record bits and the times of regions, or only bits (off)",
    )
    record: str = option(
        "state",
        role="control",
        flag="--record",
        records=tuple(f"fingerprints:{prefix}*" for prefix in (*PASSING, NODE)),
        choices=("state", "messages"),
        help="record fingerprints of the state, or also of the inputs and results of every kernel, halo exchange and "
        "all-reduce (messages), which name the cause of a difference",
    )
    fingerprint: str = option(
        "xxh3",
        role="control",
        effect="fingerprint",
        flag="--fingerprint",
        choices=FINGERPRINTS,
        help="hash of recorded arrays: XXH3 shows differences; SHA-256 also resists forgery",
    )
    trace_files: str = option(
        "rank",
        role="control",
        flag="--trace-files",
        choices=TRACE_FILES,
        help="keep one trace file per rank, or pack those of each node into one file at the end",
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
        help="directory of a run to replay: its orders of arrival, trees, and decisions from a clock",
    )
    shuffle_blocks: int = option(
        0,
        role="method",
        effect="ownership",
        flag="--shuffle-blocks",
        minimum=0,
        maximum=SEEDS,
        help="assign blocks to ranks at random by this seed; 0: in order",
    )
    fault: tuple[str, ...] = option(
        (),
        role="method",
        effect="fault",
        flag="--fault",
        help="inject a fault, such as nan@step=5,block=3; may be given several times",
    )
    links: str | None = option(
        None,
        role="method",
        effect="cost",
        flag="--links",
        help="emulate slower links between ranks: rate=20e6,latency=50e-6 (bytes per second, seconds), or a file from "
        "`python -m kernels.allreduce links`; changes times, never bits",
    )
    stall: float = option(
        0.0,
        role="control",
        flag="--stall",
        unit="s",
        minimum=0.0,
        maximum=1e6,
        help="end the run when a rank makes no progress in one call for so long, as after the loss of a node or its "
        "network; 0: never",
    )
    ledger: str | None = option(
        None,
        role="control",
        flag="--ledger",
        help="ledger of predictions: the run checks it and records its last hash, which proves which predictions came "
        "first; the file is never written",
    )
    duplicate: float = option(
        0.0,
        role="control",
        effect="cost",
        flag="--duplicate",
        minimum=0.0,
        maximum=1.0,
        help="fraction of the blocks that a second rank computes again, to name ranks that compute wrong bits (2 "
        "ranks or more, guarantee layout or exact)",
    )
    log_level: str = option(
        "info",
        role="control",
        flag="--log-level",
        choices=("debug", "info", "warning", "error"),
        help="least level of log messages",
    )
    log_all_ranks: bool = option(
        False,
        role="control",
        flag="--log-all-ranks",
        help="write the log of every rank to RUN/rank-XXXXX.log",
    )
    progress: bool = option(
        True, role="control", flag="--progress", help="show a progress bar, if rank 0 has a terminal"
    )

    @cached_property
    def policy(self) -> Policy:
        """The policy of guarantee, ordering and accumulation; later changes of these options have no effect on it."""
        return resolve(self.guarantee, self.allreduce, self.accumulate)


# Flags that stand for values of other options.
SHORTHANDS: dict[str, tuple[dict[str, Any], str]] = {
    "--quiet": (
        {"run.log_level": "warning", "run.progress": False},
        "only warnings and results: --log-level warning --no-progress",
    ),
    "--verbose": ({"run.log_level": "debug"}, "all messages: --log-level debug"),
}


@dataclass
class Common:
    """A configuration of only the common section."""

    run: RunOptions = section(RunOptions)
