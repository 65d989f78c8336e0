"""Prices a program: works by their kernels, waits by their messages, and a replay of all ranks with noise.

The error of a kernel's model is the same for all its calls of a size, and in all programs of one replay, so that plans
with the same kernels can be compared though their kernels' times are uncertain. A part of it is the same for all sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi

import numpy as np

from analysis.errors import Unreachable
from analysis.predict.costs.collectives import Collectives
from analysis.predict.costs.machines import Machine
from analysis.predict.plans.devices import DeviceMessages, DeviceTimes, device_memory
from analysis.predict.plans.kernels import KERNEL, REST, WorkTimes, works_in
from analysis.predict.plans.steps import Laid, Messages, laid_out, often
from analysis.predict.plans.whole import FEWEST as FEWEST_STEPS
from analysis.predict.plans.whole import UNFITTED, Whole, doubt, doubted, off, whole_of
from analysis.predict.reading.calibration import Calibration, hash_of
from analysis.predict.simulation.model import quantiles_of
from analysis.predict.simulation.noise import Noise, Quiet, Waiting, even_share, shared_out, turns_of
from analysis.predict.simulation.replay import Replays, simulate
from analysis.predict.simulation.sharing import share_of
from analysis.predict.simulation.spread import LEAST_SPREAD
from miniapps.untrusted import program as programs
from miniapps.untrusted.prediction import Prediction
from miniapps.untrusted.program import Program

MODEL = "plan-1"
MOST, FEWEST = 40_000_000, 8  # simulated waits of all ranks and replays; replays
ROUGH = 40  # replays of a step of the calibration
ROUNDING_S = 1e-12


@dataclass(frozen=True)
class Priced:
    """The price of a step. Seconds of each rank: `compute` of kernels, `overhead` between them, `communication` that
    adds to the step, `overlapped` of messages that pass while ranks work, `waiting` for ranks that are late, each
    (ranks,). `clock`: of the replays. `memory` (ranks,): bytes. `each` (works,): seconds of a call. `calibrations`:
    their hashes. `extrapolated`: what was not measured. `fit`: the factors of whole steps, which the seconds have."""

    program: Program
    compute: np.ndarray
    overhead: np.ndarray
    communication: np.ndarray
    overlapped: np.ndarray
    waiting: np.ndarray
    replays: Replays
    clock: str
    memory: np.ndarray
    each: np.ndarray
    calibrations: tuple[str, ...]
    extrapolated: tuple[str, ...]
    fit: Whole

    @property
    def samples(self) -> np.ndarray:
        """(replays,) seconds of the step."""
        return self.replays.wall if self.clock == "wall" else self.replays.cpu


class Prices:
    """Prices programs on the machine of some calibrations, or on devices that a machine file describes. Kernels come
    from the calibration on a number of ranks nearest to the program's. So do messages, if it timed groups of as many
    ranks as take part; else from the calibration on the nearest number of these."""

    def __init__(self, calibrations: Sequence[Calibration], machine: Machine | None = None):
        self.machine = machine or Machine()
        self._calibrations = calibrations
        self._times: dict[str, WorkTimes] = {}
        self._wholes: dict[tuple[str, str], Whole] = {}

    @property
    def measured(self) -> bool:
        """Whether kernels and messages were measured, so that the error of their prices is known."""
        return self.machine.device is None

    def of(self, program: Program, *, replays: int = 200, clock: str = "cpu", seed: int = 1) -> Priced:
        """The price of a program. Replay k has the same machine rate for every program of one seed. Raises Unreachable
        for kernels or messages without a price."""
        size, device = program.size, self.machine.device
        messages: Messages
        times: WorkTimes | DeviceTimes
        if device is None:
            calibration = self._nearest(size, "programs")
            times = self._works(calibration)
            hashes = tuple(sorted({name for each in self._calibrations for name in each.hashes}))
            messages = _Calibrated(self, size, self.machine.cores or calibration.cores)
            fit = self._whole(calibration, program.guarantee)
        else:
            assert self.machine.link is not None
            times, hashes, fit = DeviceTimes(device), (), UNFITTED
            messages = DeviceMessages(device, self.machine.link)
        laid = laid_out(program, times, messages, size if device is None else device.node, fit)
        replays = int(np.clip(MOST // max(laid.costs.size, 1), FEWEST, replays))
        noise_rng, rate_rng, rng = np.random.default_rng(seed).spawn(3)
        exposed = laid.exposed
        if device is None:
            rate = self._rate(calibration, replays, rate_rng)
            doubts = doubts_of(program, laid)
            rate *= doubted(doubts, float(laid.worked.mean()) + exposed, replays, seed) * off(
                fit, program.title, replays, seed
            )
            found = self._noisy(laid, calibration, size, noise_rng, rng, rate)
        else:  # no noise was measured
            found = laid.quiet
        memory = np.empty(size)
        for of in program.classes:
            memory[list(of.ranks)] = sum(of.memory) if device is None else device_memory(device, *of.memory)
        if device is not None and memory.max() > device.capacity:
            raise Unreachable(
                f"rank {int(memory.argmax())} needs {memory.max() / 1e9:.3g} GB, and a device has "
                f"{device.capacity / 1e9:.3g} GB; use more ranks, or a mesh that cuts more"
            )
        return Priced(
            program, laid.work.sum(axis=(0, 1)), laid.rest.sum(axis=(0, 1)), laid.costs.sum(axis=0) + exposed,
            _above(laid.beside.sum(axis=0) - exposed), _above(laid.hidden.wall[0] - laid.worked), found, clock, memory,
            laid.each, hashes, (*laid.marks, *messages.extrapolated), fit,
        )  # fmt: skip

    def _works(self, calibration: Calibration) -> WorkTimes:
        if calibration.path not in self._times:
            self._times[calibration.path] = WorkTimes(calibration)
        return self._times[calibration.path]

    def _whole(self, calibration: Calibration, guarantee: str) -> Whole:
        """How far off the prices of the steps are that a calibration ran with all ranks: of those under this
        `guarantee`, which has kernels of its own, or of all, if these are too few to fit."""
        about = calibration.path, guarantee
        if about not in self._wholes:
            rows, doubts = [], []
            messages = _Calibrated(self, calibration.size, calibration.cores)
            programs_with = Counter(work for program, _ in calibration.steps for work in set(program.works))
            own = [step for step in calibration.steps if step[0].guarantee == guarantee]
            for program, seconds in own if len(own) >= FEWEST_STEPS else calibration.steps:
                alone = {work for work in program.works if programs_with[work] == 1}
                try:
                    laid = laid_out(program, self._works(calibration).without(alone), messages, program.size)
                except Unreachable:  # other ranks than the measured one call other kernels
                    continue
                quiet = float(laid.quiet.wall[0])
                rest = float(laid.rest.sum(axis=(0, 1)).mean())
                sent = float(laid.costs.sum(axis=0).mean()) + laid.exposed
                noise_rng, rng = np.random.default_rng(0).spawn(2)
                noisy = self._noisy(laid, calibration, program.size, noise_rng, rng, np.ones(ROUGH))
                longer = float(np.median(noisy.wall)) / quiet  # by noise, as the measured steps
                parts = np.array([quiet - rest - sent, rest, sent])
                rows.append((*(longer * parts), seconds))
                doubts.append(doubt(doubts_of(program, laid), quiet))
            steps = np.array(rows, float).reshape(-1, 4)
            # The variance of a median of n numbers over that of one: 1 for one, and pi / 2n for many.
            share = pi / (2 * max(len(calibration.hashes), 1) + pi - 2)
            scatter = share * float(np.nan_to_num(calibration.step_spread)) ** 2
            apart = scatter + float(np.mean(np.square(doubts or [0.0])))
            self._wholes[about] = whole_of(steps[:, :-1], steps[:, -1], apart)
        return self._wholes[about]

    def _rate(self, calibration: Calibration, replays: int, rng: np.random.Generator) -> np.ndarray:
        """(replays,) factors of the time of all work, from run to run: as of whole steps from round to round, or as of
        kernels, if no step was measured in two rounds."""
        known = calibration.spread if np.isnan(calibration.step_spread) else calibration.step_spread
        spread = max(LEAST_SPREAD, float(np.nan_to_num(known)))
        return np.exp(spread * rng.standard_normal(replays))

    def _noisy(
        self, laid: Laid, calibration: Calibration, size: int, noise_rng, rng, rate: np.ndarray
    ) -> Replays:
        """Replays of a step, one for each `rate`, with the noise of the machine."""
        cores = self.machine.cores or calibration.cores
        turns = turns_of(size, cores, calibration.size, calibration.cores)
        if cores:
            turns *= share_of(laid.step, size, cores, calibration.leaves) / even_share(size, cores)
        noise: Noise | Quiet = Quiet()
        if len(calibration.noise):
            mean = float(np.clip(turns * calibration.noise.mean(), 0.05, 1.0))
            shares = shared_out(calibration.noise, calibration.cores)
            noise = Noise(shares, size, len(rate), 2.0 * laid.busiest / mean, noise_rng, turns)
        waiting = Waiting(calibration.delays, min(1.0, calibration.spinning * turns))
        return simulate([laid.step], 1, size, noise, rate, rng, waiting)

    def _nearest(self, size: int, what: str) -> Calibration:
        """The calibration on a number of ranks nearest to `size` that measured `what`: programs, or messages."""
        fitting = [c for c in self._calibrations if (len(works_in(c)) if what == "programs" else c.size > 1)]
        if not fitting and what == "programs":
            raise Unreachable(
                "no calibration has times of kernels as plans call them; calibrate with the plans to be priced: fpna "
                "calibrate --out cal --plan 'MODEL RECIPE SIZE=LOW..HIGH'"
            )
        if not fitting:
            raise Unreachable(
                f"messages between {size} ranks have no price: the calibrations have one rank; run mpirun -n {size} "
                "fpna calibrate --out cal, and give it too: --calibration cal"
            )
        return min(fitting, key=lambda c: (abs(log(c.size / size)), c.path))


def doubts_of(program: Program, laid: Laid) -> list[tuple[str, float, float]]:
    """(key, seconds in a step, standard deviation of their logarithm) of what may be off in a laid out program."""
    kernels, sizes = (work.key for work in program.works), map(str, program.works)
    taken = often(program) * laid.each
    return [
        *zip(kernels, taken, laid.errors[:, 0], strict=True),
        *zip(sizes, taken, laid.errors[:, 1], strict=True),
        (REST, laid.rest.sum(axis=(0, 1)).mean(), laid.rest_error),
    ]


def _above(seconds: np.ndarray) -> np.ndarray:
    return np.where(seconds > ROUNDING_S, seconds, 0.0)


class _Calibrated:
    """Messages as the calibrations of `prices` measured them, for a program of `ranks` ranks on `cores`."""

    def __init__(self, prices: Prices, ranks: int, cores: int | None):
        self._prices, self._ranks, self._cores = prices, ranks, cores
        self._known: dict[str, Collectives] = {}

    @property
    def extrapolated(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(mark for each in self._known.values() for mark in each.extrapolated))

    def cost(self, wait: programs.Wait, size: int, near: int) -> tuple[float, float]:
        messages = self._among(size)
        if wait.kind != "reduction":
            return float(messages.exchange(np.array([wait.nbytes]), np.array([len(wait.offsets)]))[0]), 0.0
        about = wait.label, wait.elements, wait.itemsize
        local = messages.local(*about, wait.contributions, wait.scatters)
        return messages.allreduce(*about, size, wait.contributions, wait.scatters, near), local

    def beside(self, wait: programs.Wait, size: int) -> float:
        messages = self._among(size)
        if wait.kind == "reduction":
            return messages.beside(wait.label, wait.elements * wait.itemsize)
        return messages.beside("exchange", wait.nbytes)

    def _among(self, size: int) -> Collectives:
        own = self._of(self._prices._nearest(self._ranks, "messages"))
        return own if own.timed(size) else self._of(self._prices._nearest(size, "messages"))

    def _of(self, calibration: Calibration) -> Collectives:
        if calibration.path not in self._known:
            turns = turns_of(self._ranks, self._cores, calibration.size, calibration.cores)
            self._known[calibration.path] = Collectives(calibration, self._prices.machine.link, turns)
        return self._known[calibration.path]


def kernels_of(priced: Priced) -> list[tuple[str, str, float, float, float]]:
    """(key of a kernel, its dims as text, calls, seconds, share of all kernels' seconds) in a step, mean over ranks,
    longest first."""
    works, calls = priced.program.works, often(priced.program)
    seconds = calls * priced.each
    share = seconds / max(seconds.sum(), 1e-300)
    return [
        (works[k].key.removeprefix(KERNEL), "x".join(map(str, works[k].dims)), float(calls[k]), float(seconds[k]),
         float(share[k]))
        for k in np.argsort(-seconds, kind="stable")
    ]  # fmt: skip


def prediction_of(priced: Priced) -> Prediction:
    """The prediction for a ledger. Raises Unreachable if the program belongs to no application."""
    program = priced.program
    if not program.app:
        raise Unreachable(
            f"--ledger: {program.title} belongs to no run; let the application write its plan: fpna mesh ... "
            "--save-plan FILE"
        )
    parts = {"kernels": priced.compute, "between": priced.overhead, "messages": priced.communication}
    return Prediction(
        app=program.app,
        problem=program.problem,
        method=program.method,
        ranks=program.size,
        quantiles=quantiles_of(priced.samples),
        model=MODEL,
        mesh=programs.mesh_text(program.mesh),
        clock="wall" if priced.clock == "wall" else "cpu",
        regions={name: float(part.mean()) for name, part in parts.items()},
        traces=priced.calibrations if len(priced.calibrations) > 1 else (),
        calibration=hash_of(priced.calibrations),
        extrapolated=priced.extrapolated,
    )
