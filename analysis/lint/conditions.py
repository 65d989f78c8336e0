"""Rules on the conditions under which runs were made: machines, software, placement, threads and frequency."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from analysis.environment import by_environment, several
from analysis.limits import NOTE, WARNING, Limit
from analysis.lint.experiment import COST, GROUPS, TIMES, Experiment, listed
from kernels.guarantees import conditions
from miniapps.system.scope import AMONG, ENTRIES, HANDLES, OF_RANKS, over

# Prefixes of the environment's keys on which bits and times depend; others (node, pid) change from launch to launch.
TELLING = ("python", "packages.", "mpi", "hdf5", "cpu", "instructions", "sources", "system", "frequency")
NEEDED = {
    "threads": "the number of threads",
    "frequency": "the frequency policy of the processor",
    "cpu": "the CPU model",
}


def mixed_environments(experiment: Experiment) -> Iterator[Limit]:
    """Launches of one problem with different libraries, compilers or processors are compared (rule 9)."""
    for (app, _), same in experiment.launches.groupby(["app", "problem"], sort=False):
        anywhere = all(over(flat) == "any" for flat in same["flat"])
        telling = tuple(key for key in TELLING if not (anywhere and key in ENTRIES["processor"]))
        for key in dict.fromkeys(key for flat in same["flat"] for key in flat if key.startswith(telling)):
            values = dict.fromkeys(flat.get(key, "not recorded") for flat in same["flat"])
            if len(values) > 1:
                groups = same["group"].drop_duplicates()
                yield Limit(
                    WARNING, GROUPS, listed(groups),
                    f"{key} is not the same in all launches of {app}: {listed(values)}",
                    "promises hold for one kind of processor and one set of libraries; repeat what differs, or "
                    "analyse the two apart",
                )  # fmt: skip


def outside_the_promise(experiment: Experiment) -> Iterator[Limit]:
    """Runs that should be equal ran in environments between which their guarantee does not hold (rule 9)."""
    for (_, cell), same in experiment.runs.groupby(["group", "cell"], sort=False):
        guarantee = same["guarantee"].iloc[0]
        if entries := several(same, guarantee):
            count = len(by_environment(same, guarantee))
            needed = conditions(guarantee, over(json.loads(same["environment"].iloc[0])))
            ones = ", ".join(f"one {'' if each == 'processor' else 'set of '}{each}" for each in needed)
            yield Limit(
                WARNING, GROUPS, cell,
                f"{count} environment{'s' * (count != 1)} among {len(same)} runs: {listed(entries)}",
                f"{guarantee} holds for {ones}; repeat the runs in one environment, or claim nothing across them",
            )  # fmt: skip


def past_the_wrapper(experiment: Experiment) -> Iterator[Limit]:
    """Packages used the MPI handle of a wrapped communicator: their sums do not keep its guarantee (rule 9)."""
    for row in experiment.launches.itertuples():
        if names := row.flat.get(HANDLES):
            yield Limit(
                WARNING, GROUPS, row.run,
                f"{names.replace(AMONG, '; ')}: sums over the MPI handle of a communicator that was to keep "
                f"{row.guarantee} are the MPI library's",
                f"start the program by fpna run --guarantee {row.guarantee}, which adds these too, or claim nothing of "
                "what they give",
            )  # fmt: skip


def mixed_nodes(experiment: Experiment) -> Iterator[Limit]:
    """Launches of one group and rank count ran on different numbers of nodes (rule 9)."""
    for (group, size), same in experiment.launches.groupby(["group", "size"], sort=False):
        counts = sorted({_count(flat.get("node", "")) for flat in same["flat"]} - {0})
        if len(counts) > 1:
            yield Limit(
                WARNING, TIMES, f"{group} on {size} ranks", f"ran on {', '.join(map(str, counts))} nodes",
                "times over one node and over several are not of one distribution; analyse them apart",
            )  # fmt: skip


def one_allocation(experiment: Experiment) -> Iterator[Limit]:
    """All launches shared one allocation, so that the placement of ranks was never sampled (rule 9)."""
    timed = experiment.launches[experiment.launches["run"].isin(experiment.timed["run"])]
    for (app, _), same in timed.groupby(["app", "problem"], sort=False):
        known = set(same["allocation_id"]) - {""}
        if len(known) > 1:
            continue
        what = f"allocation {known.pop()}" if known else "no batch allocation, on one machine"
        count = f"{len(same)} launches" if len(same) > 1 else "1 launch"
        yield Limit(
            NOTE, TIMES, app, f"{count} in {what}: times hold for this placement only",
            "submit the campaign several times (such as an array of jobs) before speaking of the machine",
        )  # fmt: skip


def not_recorded(experiment: Experiment) -> Iterator[Limit]:
    """Threads, processor or frequency are unknown, so the times cannot be reproduced (rule 9)."""
    for key, name in NEEDED.items():
        without = [row.run for row in experiment.launches.itertuples() if not row.flat.get(key)]
        if without:
            yield Limit(
                NOTE, TIMES, listed(without), f"{name} is not recorded",
                "note it beside the runs; where the frequency may change, times vary with temperature and load",
            )  # fmt: skip


def oversubscribed(experiment: Experiment) -> Iterator[Limit]:
    """Ranks have more threads than cores: they take turns, and the scheduler decides their times (rule 9)."""
    launches = []
    for row in experiment.launches.itertuples():
        shared = sharing(row.flat, row.size)
        if shared and row.run in set(experiment.timed["run"]):
            unless = "" if row.flat.get("affinity") else ", unless each rank is bound to cores of its own"
            launches.append(f"{row.run}: {shared[0]} threads on {shared[1]} cores{unless}")
    if launches:
        yield Limit(
            WARNING, COST, listed(launches),
            "ranks share cores: collectives wait for ranks that do not run, and no time says what the code needs",
            "no more ranks times threads than cores; the bits are not concerned",
        )  # fmt: skip


def sharing(flat: dict[str, Any], size: int) -> tuple[int, int] | None:
    """(threads, cores) of a node, or of a bound rank, if there are more threads than cores; else None.

    `affinity` is the list of cores that a rank may use. If all ranks have the same list, they share these cores.
    """
    cores, threads = _least(flat.get("cores")), _least(flat.get("threads")) or 1
    if not cores:
        return None
    bound = _count(flat.get("affinity", "")) > 1
    wanted = threads if bound else -(-size // max(_count(flat.get("node", "")), 1)) * threads
    return (wanted, cores) if wanted > cores else None


def _least(text: str | None) -> int:
    """The smallest number among the values of the ranks; 0 if there is none."""
    numbers = [int(part) for part in str(text or "").split(AMONG) if part.isdecimal()]
    return min(numbers, default=0)


def _count(text: str) -> int:
    """The number of distinct values of an environment entry over the ranks."""
    if text.endswith(OF_RANKS):
        return int(text.removesuffix(OF_RANKS))
    return len(set(text.split(AMONG))) if text else 0
