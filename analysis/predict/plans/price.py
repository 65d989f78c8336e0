"""Prices a program: works by their kernels, waits by their messages, and a replay of all ranks with noise."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from analysis.predict.costs.collectives import Collectives
from analysis.predict.costs.machines import Machine
from analysis.predict.plans.kernels import WorkTimes
from analysis.predict.reading.calibration import Calibration
from analysis.predict.simulation.noise import Noise, Quiet, Waiting, shared_out, turns_of
from analysis.predict.simulation.replay import Replays, Step, Wait, simulate
from analysis.predict.simulation.spread import LEAST_SPREAD
from miniapps.untrusted import program as programs
from miniapps.untrusted.program import Program

MODEL = "plan-1"
MOST = 40_000_000  # simulated waits of all ranks and replays
NOTHING = np.ones(1)


@dataclass(frozen=True)
class Priced:
    """The price of a step. Seconds of each rank: `compute` of kernels, `overhead` between them, `communication`,
    `waiting` for ranks that are late, each (ranks,). `samples` (replays,): seconds of the step by `clock`. `memory`
    (ranks,): bytes. `extrapolated`: what was not measured."""

    program: Program
    compute: np.ndarray
    overhead: np.ndarray
    communication: np.ndarray
    waiting: np.ndarray
    replays: Replays
    clock: str
    memory: np.ndarray
    extrapolated: tuple[str, ...]

    @property
    def samples(self) -> np.ndarray:
        """(replays,) seconds of the step."""
        return self.replays.wall if self.clock == "wall" else self.replays.cpu


def price(
    program: Program,
    calibration: Calibration,
    *,
    replays: int = 200,
    clock: str = "cpu",
    seed: int = 1,
    machine: Machine | None = None,
) -> Priced:
    """Prices a program on a calibration's machine. Raises Unreachable for kernels or messages without a price."""
    machine = machine or Machine()
    size = program.size
    times = WorkTimes(calibration)
    turns = turns_of(size, machine.cores or calibration.cores, calibration.size, calibration.cores)
    messages = Collectives(calibration, machine.link, turns)
    work, rest = _segments(program, times)
    costs, local = _costs(program, messages)
    work[1:] += local  # what a reduction does on each rank alone
    replays = int(np.clip(MOST // max(size * len(costs), 1), 8, replays))
    noise_rng, rate_rng, rng = np.random.default_rng(seed).spawn(3)
    total = work + rest
    waits = [
        Wait(wait.name, cost, _partners(program, k), total[k], np.zeros(size), NOTHING, NOTHING)
        for k, (wait, cost) in enumerate(zip(program.classes[0].waits, costs, strict=True))
    ]
    order = [(k, True, True) for k in range(len(waits))]
    step = Step(waits, order, total[-1], NOTHING)
    rate = np.exp(max(LEAST_SPREAD, np.nan_to_num(calibration.spread)) * rate_rng.standard_normal(replays))
    busiest = float((total.sum(axis=0) + costs.sum(axis=0)).max()) if len(costs) else float(total.max())
    noise: Noise | Quiet = Quiet()
    if len(calibration.noise):
        mean = float(np.clip(turns * calibration.noise.mean(), 0.05, 1.0))
        shares = shared_out(calibration.noise, calibration.cores)
        noise = Noise(shares, size, replays, 2.0 * busiest / mean, noise_rng, turns)
    waiting = Waiting(calibration.delays, min(1.0, calibration.spinning * turns))
    found = simulate([step], 1, size, noise, rate, rng, waiting)
    quiet = simulate([step], 1, size, Quiet(), np.ones(1), rng)
    memory = np.empty(size)
    for each in program.classes:
        memory[list(each.ranks)] = sum(each.memory)
    communication = costs.sum(axis=0) if len(costs) else np.zeros(size)
    worked = total.sum(axis=0) + communication
    return Priced(
        program, work.sum(axis=0), rest.sum(axis=0), communication, np.maximum(quiet.wall[0] - worked, 0.0), found,
        clock, memory, (*times.extrapolated, *messages.extrapolated),
    )  # fmt: skip


def _segments(program: Program, times: WorkTimes) -> tuple[np.ndarray, np.ndarray]:
    """(segments, ranks) seconds of kernels, and of all between them."""
    each = times.seconds(program.works)
    shape = len(program.classes[0].segments), program.size
    work, rest = np.zeros(shape), np.zeros(shape)
    for of in program.classes:
        ranks = list(of.ranks)
        calls = [sum(each[number] * count for number, count in s.calls) for s in of.segments]
        work[:, ranks] = np.array(calls)[:, None]
        rest[:, ranks] = times.rest(np.array([s.rest for s in of.segments]))[:, None]
    return work, rest


def _costs(program: Program, messages: Collectives) -> tuple[np.ndarray, np.ndarray]:
    """((waits, ranks) seconds of messages, and of the work for them on each rank alone)."""
    shape = len(program.classes[0].waits), program.size
    costs, local = np.zeros(shape), np.zeros(shape)
    known: dict[tuple, tuple[float, float]] = {}
    for of in program.classes:
        ranks = list(of.ranks)
        for k, wait in enumerate(of.waits):
            size = prod(program.mesh[axis] for axis in wait.along)
            key = (wait.kind, size, wait.label, wait.elements, wait.itemsize, wait.contributions, wait.nbytes,
                   len(wait.offsets))  # fmt: skip
            if key not in known:
                known[key] = _cost(wait, size, messages)
            costs[k, ranks], local[k, ranks] = known[key]
    return costs, local


def _cost(wait: programs.Wait, size: int, messages: Collectives) -> tuple[float, float]:
    if wait.kind == "exchange":
        return float(messages.exchange(np.array([wait.nbytes]), np.array([len(wait.offsets)]))[0]), 0.0
    about = wait.label, wait.elements, wait.itemsize
    return messages.allreduce(*about, size, wait.contributions), messages.local(*about, wait.contributions)


def _partners(program: Program, k: int) -> np.ndarray | None:
    """(ranks, most) the ranks for which each rank waits in wait k; None: all."""
    sizes = list(program.mesh.values())
    places = np.stack(np.unravel_index(np.arange(program.size), sizes), axis=1)
    along = program.classes[0].waits[k].along
    if program.classes[0].waits[k].kind == "reduction":
        if prod(program.mesh[axis] for axis in along) == program.size:
            return None
        steps = np.stack(
            np.meshgrid(*[np.arange(n if name in along else 1) for name, n in program.mesh.items()], indexing="ij"),
            axis=-1,
        ).reshape(-1, len(sizes))
        kept = np.array([name not in along for name in program.mesh])
        there = np.where(kept, places[:, None], steps[None])
        return np.ravel_multi_index(tuple(np.moveaxis(there, -1, 0)), sizes)
    width = 1 + max(len(of.waits[k].offsets) for of in program.classes)
    partners = np.tile(np.arange(program.size)[:, None], (1, width))
    for of in program.classes:
        ranks = np.array(of.ranks)
        for j, offset in enumerate(of.waits[k].offsets):
            there = (places[ranks] + offset) % sizes  # a rank of this class whose neighbour is elsewhere wraps around
            partners[ranks, j] = np.ravel_multi_index(tuple(there.T), sizes)
    return partners
