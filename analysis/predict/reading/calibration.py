"""The measurements of a calibration (`python -m miniapps.calibrate`): its cases, its noise, its machine."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.groups import calibrates
from analysis.load.guard import read_run
from analysis.predict.reading.cores import cores_of
from analysis.predict.reading.measured import hash_of_run
from miniapps.trace import TraceError
from miniapps.trace.schema import COLLECTIVE, COMPUTE
from miniapps.untrusted import Refused
from miniapps.untrusted.program import Program
from miniapps.untrusted.records import decode

# Quantiles of a case's times that stand for a quiet machine; the model adds noise separately. A call that waits for
# other ranks meets the noise of all of them: on a busy machine, nearly every call does.
QUIET, QUIET_TOGETHER = 0.25, 0.05
MACHINE = ("cpu", "instructions", "cores")  # entries of the environment that rates belong to
SOFTWARE = ("python", "mpi", "packages.numpy", "packages.torch", "sources")
TICK_S = 1e-9  # a tick of the traces' clock: the least time of a call
SHARE = "noise"  # name of the values that are noise windows
QUANTUM = "quantum"  # region of a fixed work quantum
CHAIN = "chain"  # region of a fixed number of cycles
TURN, BURST = "turn", "burst"  # region of work while the others of its core wait; value with its CPU seconds
ALONE = 1.1  # times that its work takes, on a core that those who wait do not use
DISTURBED = "disturbed "  # before the name of a disturbed work
# A quantum beyond LONGER times a short one, than which a share SHORT of its rank's is shorter: another used the core
LONGER, SHORT = 1.25, 0.1


@dataclass(frozen=True)
class Calibration:
    """`cases`, a row per case: `region`, `seconds` of a call (a low quantile over all rounds and ranks), `flops`,
    `nbytes`, `spread` (standard deviation of the logarithm between rounds or launches), and every parameter, NaN if a
    case lacks it. `noise` (windows, ranks): CPU over wall time. `delays` (n,): for each call on rank 0 that waits for
    other ranks, in order, the seconds beyond a quick call of its case. `spinning`: CPU over wall time in such calls.
    `reductions` as in the trace. `hashes`: of the run, or of each launch. `cores`: of all ranks together, None if a
    trace does not say. `steps`: programs that all ranks ran, and the median of a step's seconds; `step_spread`:
    standard deviation of its logarithm between visits or launches, of all programs; NaN if none was run in two.
    `undisturbed`: share of all calls before and after which a quantum of work was short; a case that has such calls is
    timed by them alone. `chain`: seconds of a fixed number of cycles, median over all ranks; NaN if none was recorded.
    Clocks of processors change, and it says how fast they ran. `leaves`: for how many seconds a rank that waits leaves
    its core to those that work, before it takes an even share; 0 if it was not measured."""

    path: str
    size: int
    cases: pd.DataFrame
    noise: np.ndarray
    delays: np.ndarray
    spinning: float
    reductions: Mapping[str, Mapping[str, object]]
    environment: Mapping[str, object]
    hashes: tuple[str, ...]
    cores: int | None = None
    steps: tuple[tuple[Program, float], ...] = ()
    step_spread: float = float("nan")
    undisturbed: float = 1.0
    chain: float = float("nan")
    leaves: float = 0.0

    @property
    def hash(self) -> str:
        """The hash of the run, or of those of several launches; "" for none."""
        return hash_of(self.hashes)

    def of(self, *prefixes: str) -> pd.DataFrame:
        """The cases whose region begins with one of `prefixes`."""
        return self.cases[self.cases["region"].str.startswith(prefixes)]

    @property
    def overhead(self) -> float:
        """Seconds of a region with one call and no work; 0 if not measured. On a CPU these are Lin's overheads T1 and
        T5 (arXiv 2201.07821, section 3)."""
        return float(self.of("overhead.")["seconds"].sum())

    @property
    def memory(self) -> float:
        """Bytes/s that a rank reads and writes in memory while all ranks do the same; NaN if not measured."""
        known = self.of("memory.")
        if known.empty:
            return float("nan")
        nbytes, seconds = float(known["nbytes"].sum()), float(known["seconds"].sum())
        return nbytes / seconds if nbytes > 0 and seconds > 0 else float("nan")

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm of a kernel's time between rounds, median over cases; NaN if no kernel
        was measured in more than two rounds."""
        spreads = self.cases.loc[self.cases["flops"] > 0, "spread"].dropna()
        return float(spreads.median()) if len(spreads) else float("nan")


def read_calibration(path: str | os.PathLike) -> Calibration:
    """The calibration in the directory `path`. Raises TraceError for another kind of run, an unfinished one, or a time
    that is negative or not finite."""
    pieces, chains, noise, first = [], [], {}, None
    environments = []
    programs: dict[str, Program] = {}
    for trace in read_run(path, tables=["events", "values", "choices"]):
        head = trace.attributes
        if not calibrates(json.dumps(head.get("options", {}))):
            raise TraceError(f"{path}: a run of {head['app']}, not a calibration; make one: fpna calibrate")
        if not head["complete"]:
            raise TraceError(f"{path}: the calibration did not finish; calibrate again")
        first = head if head["rank"] == 0 else first
        environments.append(head.get("environment", {}))
        samples, own, noise[head["rank"]] = _of_rank(trace)
        pieces.append(samples)
        chains.append(own)
        programs |= _programs(trace)
    assert first is not None
    samples = pd.concat(pieces, ignore_index=True)
    samples["disturbed"] = _disturbed_anywhere(samples)
    turns = samples[samples["region"] == TURN]
    samples = samples[samples["region"] != TURN].drop(columns=BURST, errors="ignore")
    together = samples["region"].isin(programs.keys())
    steps, samples = samples[together], samples[~together]
    cases = _cases(samples, path)
    whole = {str(name): _slowest(own) for name, own in steps.groupby("region", sort=False)}
    delays, spinning = _delays(samples)
    shortest = min(map(len, noise.values()))
    cores = cores_of(environments)
    return Calibration(
        os.fspath(path),
        first["size"],
        cases,
        np.array([noise[rank][:shortest] for rank in sorted(noise)]).T.reshape(shortest, len(noise)),
        delays,
        spinning,
        first.get("reductions", {}),
        first["environment"],
        (hash_of_run(path),),
        cores,
        tuple((programs[name], max(float(slowest.median()), TICK_S)) for name, slowest in whole.items()),
        _step_spread(whole.values()),
        1.0 - float(samples["disturbed"].mean()),
        max(float(pd.concat(chains).median()), TICK_S),  # NaN stays NaN
        leaves_of(turns, (cores or first["size"]) / first["size"]),
    )


def hash_of(hashes: Sequence[str]) -> str:
    """The hash of a calibration, or of the `hashes` of several (SHA-256 of their hex, hex); "" for none."""
    if len(hashes) < 2:
        return "".join(hashes)
    return hashlib.sha256(" ".join(hashes).encode()).hexdigest()


def elsewhere(calibration: Calibration, environment: Mapping[str, object]) -> list[str]:
    """The differences between the calibration's machine and software and a run's `environment`, each in words."""
    wrong = []
    for key in (*MACHINE, *SOFTWARE):
        mine, theirs = (_entry(each, key) for each in (calibration.environment, environment))
        if mine != theirs:
            wrong.append(f"{key}: {mine} in the calibration, {theirs} in the run")
    return wrong


def of_another(calibration: Calibration, path: str, wrong: Sequence[str]) -> str:
    """The message that the calibration belongs to another machine than the run `path`; `wrong` from `elsewhere`."""
    return (
        f"{calibration.path}: calibrated on another machine or version than {path} ({'; '.join(wrong)}); calibrate on "
        "the machine of the run, or use it as it is with --any-machine"
    )


def _entry(environment: Mapping[str, object], key: str) -> object:
    value: object = environment
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _of_rank(trace) -> tuple[pd.DataFrame, pd.Series, np.ndarray]:
    """(a row per call of one rank, with its time and parameters; seconds of its chains; its noise windows)."""
    names = np.array(trace.names, object)
    events, values = trace.tables["events"], trace.tables["values"]
    kinds = trace.attributes.get("regions", {})
    is_share = names[values["name"]] == SHARE if len(values["name"]) else np.zeros(0, bool)
    order = np.argsort(values["step"][is_share], kind="stable")
    shares = values["value"][is_share][order]
    parameters = pd.DataFrame(
        {key: values[key][~is_share] for key in ("repeat", "step", "value")}
        | {"name": names[values["name"][~is_share]]}
    ).pivot_table(index=["repeat", "step"], columns="name", values="value", aggfunc="last")
    parameters["cpu"] = parameters.get("cpu", np.nan)  # programs record none
    calls = pd.DataFrame(
        {
            **{key: events[key] for key in ("repeat", "step", "flops")},
            "nbytes": events["bytes"],
            "region": names[events["name"]],
            "seconds": (events["end"] - events["start"]) / 1e9,
        }
    )
    chains = calls["seconds"][calls["region"] == CHAIN]
    by_quanta = _disturbed(calls["region"] == QUANTUM, calls["seconds"], events["end"])
    told = calls["region"].str.startswith(DISTURBED)
    calls["disturbed"] = np.where(calls["region"].str.contains("@", regex=False), told, by_quanta)
    calls["kind"] = calls["region"].map(kinds)
    calls["region"] = calls["region"].str.removeprefix(DISTURBED)
    calls = calls[~calls["region"].isin((SHARE, QUANTUM, CHAIN)) & calls["step"].gt(0)].join(
        parameters, on=["repeat", "step"]
    )
    # The first call of a collective in a round waits for ranks that are late from the case before.
    warm = calls.groupby(["repeat", "step", "region"]).cumcount() > 0
    calls = calls[warm | (calls["kind"] != COLLECTIVE)].assign(rank=trace.attributes["rank"])
    return calls, chains, shares


def _disturbed(quantum: pd.Series, seconds: pd.Series, end: np.ndarray) -> np.ndarray:
    """Of each event, whether the quantum before it or after it took too long."""
    if not quantum.any():
        return np.zeros(len(quantum), bool)
    order = np.argsort(end[quantum], kind="stable")
    at, taken = end[quantum][order], seconds[quantum].to_numpy()[order]
    bad = taken > LONGER * np.quantile(taken, SHORT)
    after = np.searchsorted(at, end)
    return bad[np.maximum(after - 1, 0)] | bad[np.minimum(after, len(bad) - 1)]


def _disturbed_anywhere(samples: pd.DataFrame) -> pd.Series:
    """Of each call, whether something disturbed it; a call that waits for other ranks, whether one of them was."""
    call = ["repeat", "step", "region"]
    number = samples.groupby(["rank", *call]).cumcount()
    anywhere = samples.groupby([*(samples[name] for name in call), number])["disturbed"].transform("any")
    return samples["disturbed"].where(samples["kind"] == COMPUTE, anywhere)


def _undisturbed(calls: pd.DataFrame) -> pd.DataFrame:
    """The calls that nothing disturbed; all, if there are none."""
    return calls if calls["disturbed"].all() else calls[~calls["disturbed"]]


def _programs(trace) -> dict[str, Program]:
    """The programs of whole steps, by the name of their region. Raises TraceError for one that is none."""
    names = np.array(trace.names, object)
    choices = trace.tables["choices"]
    texts = (
        dict(zip(names[choices["name"]], names[choices["choice"]], strict=True))
        if len(choices["name"])
        else {}
    )
    try:
        return {name: decode(text.encode(), Program, f"{trace.path}: {name}") for name, text in texts.items()}
    except Refused as error:
        raise TraceError(str(error)) from None


def _slowest(own: pd.DataFrame) -> pd.Series:
    """Seconds of each step of a program, those of the rank that takes longest, by repeat, round and number."""
    number = own.groupby(["rank", "repeat", "step"]).cumcount()
    return _undisturbed(own).groupby(["repeat", "step", number])["seconds"].max()


def _step_spread(programs: Iterable[pd.Series]) -> float:
    """Standard deviation, between visits, of the logarithm of the median of a program's steps in a visit."""
    squares, freedom = 0.0, 0
    for steps in programs:
        visits = np.log(steps.groupby(level=[0, 1]).median().clip(lower=TICK_S))
        squares += float(((visits - visits.mean()) ** 2).sum())
        freedom += len(visits) - 1
    return float(np.sqrt(squares / freedom)) if freedom else float("nan")


def _cases(samples: pd.DataFrame, path: str | os.PathLike) -> pd.DataFrame:
    if (bad := ~np.isfinite(samples["seconds"]) | (samples["seconds"] < 0)).any():
        row = samples[bad].iloc[0]
        raise TraceError(f"{path}: rank {row['rank']}, step {row['step']}: a call of {row['region']} took "
                         f"{row['seconds']} s, so its clock is wrong; calibrate again")  # fmt: skip
    fixed = ("repeat", "step", "rank", "seconds", "cpu", "kind", "disturbed")
    parameters = [name for name in samples if name not in (*fixed, "region", "flops", "nbytes")]
    # Only the trace of rank 0 has the counts on other rank counts.
    shared = [name for name in parameters if ":" not in name]
    keys = ["region", "flops", *shared]
    rows = []
    for key, calls in samples.groupby(keys, dropna=False, sort=False):
        own = _undisturbed(calls)
        rounds = own.groupby(["repeat", "step"])["seconds"].median()
        counts = {
            name: own[name].dropna().iloc[0] for name in parameters if ":" in name and own[name].notna().any()
        }
        rows.append(
            dict(zip(keys, key, strict=True))
            | counts
            | {
                "seconds": max(_quiet(own), TICK_S),
                "nbytes": float(own["nbytes"].median()),
                "spread": float(np.log(rounds[rounds > 0]).std()) if len(rounds) > 2 else np.nan,
            }
        )
    return pd.DataFrame(rows)


def _delays(samples: pd.DataFrame) -> tuple[np.ndarray, float]:
    """(`delays`, `spinning`) of the calls that wait for other ranks; without such calls, no delay and a share of 1."""
    together = samples[(samples["kind"] != COMPUTE) & (samples.get("ranks", 0) != 1)]
    if together.empty:
        return np.zeros(1), 1.0
    mine = _undisturbed(together[together["rank"] == 0])
    quiet = mine.groupby(["region", "nbytes"])["seconds"].transform(
        lambda each: each.quantile(QUIET_TOGETHER)
    )
    return (mine["seconds"] - quiet).clip(lower=0.0).to_numpy(), _share(together)


def leaves_of(turns: pd.DataFrame, even: float) -> float:
    """For how long a rank that waits leaves its core to those that work, which then have the `even` share of it; from
    the mean of their bursts, part of which was as fast as alone."""
    if turns.empty or even >= 1.0 or BURST not in turns:
        return 0.0
    taken, alone = float(turns["seconds"].mean()), float(turns[BURST].mean())
    if taken < ALONE * alone:
        return float("inf")
    return max((alone / even - taken) / (1.0 / even - 1.0), 0.0)


def _share(together: pd.DataFrame) -> float:
    by = together.groupby(["rank", "repeat", "step"])
    used, walls = by["cpu"].first() * by.size(), by["seconds"].sum()
    return float(np.clip(used.sum() / walls.sum(), 0.0, 1.0))


def _quiet(own: pd.DataFrame) -> float:
    """Seconds of a call on a quiet machine, from all calls of one case."""
    if own["kind"].iloc[0] != COMPUTE:
        return float(own["seconds"].quantile(QUIET_TOGETHER))
    # On a busy machine a long call seldom has its processor to itself; then its CPU time is the better estimate.
    low = own[["seconds", "cpu"]].quantile(QUIET)
    return float(low.min())
