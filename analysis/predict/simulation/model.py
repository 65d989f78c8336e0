"""Predicts from runs and a calibration: it prices the segments of a run's program and replays it on other ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from analysis.errors import Unreachable
from analysis.predict.costs.collectives import Collectives
from analysis.predict.costs.laws import laws_of
from analysis.predict.costs.machines import Machine
from analysis.predict.costs.segments import ONE, SegmentCost, segment_costs
from analysis.predict.costs.speeds import at_speeds
from analysis.predict.reading.calibration import Calibration
from analysis.predict.reading.skeleton import Key
from analysis.predict.simulation.communication import Communication
from analysis.predict.simulation.noise import Noise, Quiet, Waiting, shared_out, turns_of
from analysis.predict.simulation.replay import Replays, Step, Wait, chosen_steps, simulate
from analysis.predict.simulation.spread import spread_of
from analysis.predict.simulation.target import Target
from miniapps.untrusted.prediction import PERCENTS, Prediction

MODEL = "replay-5"
NOTHING = np.ones(1)
NOT_MEASURED = (
    "the overheads T2, T3 and T4 (before, after and of a launch) are of a GPU and were not measured"
)


@dataclass(frozen=True)
class Predicted:
    """A prediction with its parts: `regions`, a row per region: `region`, `seconds` per step by the prediction's clock,
    mean over ranks, without noise and the spread between runs, `how` they were fitted; the `replays`; the `target`."""

    prediction: Prediction
    regions: pd.DataFrame
    replays: Replays
    target: Target

    @property
    def samples(self) -> np.ndarray:
        """(replays,) seconds per step by the prediction's clock. Replay k has the same machine rate for every target of
        one seed, so two targets can be compared replay by replay."""
        return self.replays.wall if self.prediction.clock == "wall" else self.replays.cpu


@dataclass
class _Notes:
    extrapolated: dict[str, None] = field(default_factory=dict)
    remarks: dict[str, None] = field(default_factory=dict)


def predict(
    target: Target,
    calibration: Calibration | None,
    *,
    replays: int = 200,
    clock: str = "cpu",
    seed: int = 1,
    machine: Machine | None = None,
    elsewhere: Sequence[str] = (),
) -> Predicted:
    """Predicts the time per step of `target`. `elsewhere`: the differences between the calibration's machine and the
    runs', in words.

    Raises Unreachable if messages have no price: several ranks without a calibration of collectives.
    """
    machine = machine or Machine()
    notes = _Notes(dict.fromkeys(target.extrapolated), dict.fromkeys(target.remarks))
    # Noise has its own generator, so that replay k of every target has the same machine rate.
    size, (noise_rng, rate_rng, rng) = target.size, np.random.default_rng(seed).spawn(3)
    run = target.program
    laws = laws_of(target.runs, target.varied, target.sizes, target.work) if target.varied else None
    if laws is None:
        least = 0.0 if calibration is None else calibration.overhead
        costs = segment_costs(target.runs, target.program, least)
    else:
        costs = dict(laws.costs)
        notes.extrapolated |= dict.fromkeys(laws.extrapolated)
        notes.remarks |= dict.fromkeys(laws.remarks)
    if machine.speed is not None or machine.memory is not None:
        costs, extrapolated, remark = at_speeds(costs, run, calibration, machine)
        notes.extrapolated |= dict.fromkeys(extrapolated)
        notes.remarks[remark] = None
    if machine.cores is not None:
        notes.extrapolated[f"{machine.cores} cores"] = None
    prices = _prices(target, calibration, machine, notes)
    waits, steps = target.program.waits, target.program.steps
    chosen = steps[chosen_steps(len(steps), len(waits), size, replays)]
    program, work = _program(target, chosen.tolist(), costs, prices)
    noise = _noise(target, calibration, machine, replays, noise_rng, work, notes)
    moved = target.size != run.size or target.problem != run.attributes["problem"]
    calibrated = math.nan if calibration is None else calibration.spread
    spread = spread_of(target.runs, run, costs, calibrated, clock, moved and laws is None, size)
    if laws is not None:
        spread = replace(spread, fit=laws.error, fit_freedom=laws.freedom)
    spread = replace(spread, counts=target.law, iterating=target.iterating)
    notes.remarks |= dict.fromkeys(spread.remarks)
    rate = spread.factors(replays, rate_rng, np.random.default_rng([seed, int(run.hash[:8] or "0", 16)]))
    waiting = None if calibration is None else _waiting(target, calibration, machine)
    result = simulate(program, len(steps), size, noise, rate, rng, waiting)
    if prices is not None:
        notes.extrapolated |= prices.extrapolated
    if elsewhere:
        notes.extrapolated["another machine"] = None
        notes.remarks |= dict.fromkeys(
            f"the calibration is of another machine or software: {each}" for each in elsewhere
        )
    if target.size > target.program.size and target.program.size > 1:
        notes.remarks[
            "no run on one rank was given: the prediction leaves out the local work of collectives"
        ] = None
    if all(cost.how == ONE for cost in costs.values()):
        remark = "all runs have one share of the work: the calibrated overhead of a call is the fixed part"
        notes.remarks[f"{remark}; give a run of half the deck on one rank"] = None
    notes.remarks[NOT_MEASURED] = None
    by_wall = _regions(target, costs, result)
    spinning = 1.0 if clock == "wall" else (waiting or Waiting()).spinning
    regions = _regions(target, costs, result, spinning)
    samples = result.wall if clock == "wall" else result.cpu
    attributes = target.program.attributes
    prediction = Prediction(
        app=attributes["app"],
        problem=target.problem,
        method=target.method,
        ranks=size,
        quantiles=quantiles_of(samples),
        model=MODEL,
        clock="wall" if clock == "wall" else "cpu",
        regions={row.region[:200]: float(row.seconds) for row in by_wall.itertuples(index=False)},
        traces=tuple(run.hash for run in target.runs),
        calibration="" if calibration is None else calibration.hash,
        extrapolated=tuple(notes.extrapolated),
        remarks=tuple(notes.remarks),
    )
    return Predicted(prediction, regions, result, target)


def _prices(
    target: Target, calibration: Calibration | None, machine: Machine, notes: _Notes
) -> Collectives | None:
    if machine.link is not None:
        notes.extrapolated["a network that was not measured"] = None
    if calibration is None:
        if target.size > 1:
            raise Unreachable(
                f"--ranks {target.size}: messages have no price without a calibration; run `mpirun -n {target.size} "
                "fpna calibrate --out cal` and give it: --calibration cal"
            )
        return None
    if target.size > 1 and calibration.size == 1 and machine.link is None:
        raise Unreachable(
            f"--ranks {target.size}: the calibration has one rank and so no collectives; run `mpirun -n "
            f"{target.size} fpna calibrate --out cal` and give it: --calibration cal"
        )
    return Collectives(calibration, machine.link, _turns(target, calibration, machine))


def _waiting(target: Target, calibration: Calibration, machine: Machine) -> Waiting:
    """Waits on the calibration's machine. If ranks share cores in turns, a waiting rank uses its own turns only."""
    spinning = calibration.spinning * _turns(target, calibration, machine)
    return Waiting(calibration.delays, min(1.0, spinning))


def _turns(target: Target, calibration: Calibration, machine: Machine) -> float:
    return turns_of(target.size, machine.cores or calibration.cores, calibration.size, calibration.cores)


def _noise(
    target: Target,
    calibration: Calibration | None,
    machine: Machine,
    replays: int,
    rng,
    work: float,
    notes: _Notes,
) -> Noise | Quiet:
    if calibration is None or not len(calibration.noise):
        notes.remarks["noise was not measured: the prediction assumes none"] = None
        return Quiet()
    cores = machine.cores or calibration.cores
    if cores and target.size > cores:
        notes.extrapolated[f"{target.size} ranks share {cores} cores in turns"] = None
    if target.size > calibration.size:
        notes.extrapolated[f"noise of {target.size} ranks, measured on {calibration.size}"] = None
    turns = _turns(target, calibration, machine)
    if turns < 1.0:
        share = "ranks have less of a core than in the calibration"
        notes.remarks[f"{share}: work and messages slow down, links between nodes do not"] = None
    mean = float(np.clip(turns * calibration.noise.mean(), 0.05, 1.0))
    shares = shared_out(calibration.noise, calibration.cores)
    return Noise(shares, target.size, replays, 2.0 * work / mean, rng, turns)


def _program(
    target: Target, chosen: Sequence[int], costs: Mapping[Key, SegmentCost], prices: Collectives | None
) -> tuple[list[Step], float]:
    """The `chosen` steps of the target, and the busiest rank's seconds of work and messages in them."""
    program, share = target.program, target.shares * target.work
    seconds = {key: cost.seconds(share) for key, cost in costs.items()}
    work: dict[tuple[int, bool, int], tuple[np.ndarray, np.ndarray]] = {}
    wanted = program.segments[program.segments["step"].isin(chosen)]
    for (wait, inside, step), own in wanted.groupby(["wait", "inside", "step"], sort=False):
        keys = own["key"].tolist()
        each = [seconds[key] for key in keys]
        longest = keys[int(np.argmax([part.max() for part in each]))]
        work[wait, inside, step if wait < 0 else -1] = np.sum(each, axis=0), costs[longest].residuals
    nothing = np.zeros(target.size), NOTHING
    communication = Communication(target, prices)
    names, kinds, steps = (
        program.waits[c].tolist() if len(program.waits) else [] for c in ("name", "kind", "step")
    )
    sent = program.waits["bytes"].tolist() if len(program.waits) else []
    by_step: dict[int, list[tuple[int, bool, bool]]] = {step: [] for step in chosen}
    for node in program.order:
        if steps[node[0]] in by_step:
            by_step[steps[node[0]]].append(node)
    program_steps, busiest = [], np.zeros(target.size)
    for step in chosen:
        places: dict[int, int] = {}
        waits: list[Wait] = []
        for group, _, _ in by_step[step]:
            if group in places:
                continue
            places[group] = len(waits)
            cost, partners = communication.of(names[group], kinds[group], sent[group])
            before, inside = (work.get((group, where, -1), nothing) for where in (False, True))
            waits.append(Wait(names[group], cost, partners, before[0], inside[0], before[1], inside[1]))
            busiest += before[0] + inside[0] + cost
        tail, residuals = work.get((-1, False, step), nothing)
        busiest += tail
        order = [(places[group], posts, ends) for group, posts, ends in by_step[step]]
        program_steps.append(Step(waits, order, tail, residuals))
    return program_steps, float(busiest.max())


def _regions(
    target: Target, costs: Mapping[Key, SegmentCost], result: Replays, waits: float = 1.0
) -> pd.DataFrame:
    """Seconds per step by region, and the form of their fit. `waits`: the share of waiting time that counts: 1 on the
    wall clock, a waiting rank's share of CPU time on the CPU clock."""
    share = target.shares * target.work
    counts = target.program.segments.groupby("key", sort=False).size()
    seconds: dict[str, float] = {}
    hows: dict[str, dict[str, None]] = {}
    for key, count in counts.items():
        region = key[2]
        each = float(costs[key].seconds(share).mean())
        seconds[region] = seconds.get(region, 0.0) + each * count / len(target.program.steps)
        hows.setdefault(region, {})[costs[key].how] = None
    for region, waited in result.waiting.items():
        seconds[region] = seconds.get(region, 0.0) + waits * waited
        if target.size > 1:
            hows.setdefault(region, {})["messages and waiting"] = None
    rows = [(region, s, ", ".join(hows.get(region, {}))) for region, s in seconds.items()]
    table = pd.DataFrame(rows, columns=["region", "seconds", "how"])
    return table.sort_values("seconds", ascending=False, kind="stable", ignore_index=True)


def quantiles_of(seconds: Iterable[float]) -> tuple[float, ...]:
    """The quantiles PERCENTS of `seconds` per step, one value per replay. Raises ValueError without values, or for one
    that is not finite."""
    samples = np.asarray(list(seconds), float)
    if not samples.size or not np.isfinite(samples).all():
        raise ValueError(f"only {np.isfinite(samples).sum()} of {samples.size} replays gave a finite time")
    return tuple(np.quantile(samples, np.array(PERCENTS) / 100).tolist())
