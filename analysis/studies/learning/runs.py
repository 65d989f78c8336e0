"""Reads runs that recorded accuracy and loss by step: the result of every training, and its accuracy over time.

A *family* is all runs of one problem, with any seeds and learning rates. A *line* is the runs of a family with the same
wire, policy that chooses it, guarantee, ordering, links and rank count: they differ only in seeds and rate. Seeds are
the options of the section `seeds`, or `run.seed` without that section; the learning rate is the option whose name ends
in `rate`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.groups import UNSET, cases, problem_names
from analysis.history import named, series
from analysis.load.frames import Frames
from analysis.runs import ids
from analysis.studies.contract import frame
from kernels.as_json import Column
from miniapps.trace.head import orderings

ACCURACY, LOSS = "accuracy", "loss"
QUALITY = ("wire_error", "wire_cosine", "wire_length")  # of the encoded gradient, by tensor
HELD_OUT = ("held_out_accuracy", "held_out_loss")  # of which policies expect values
AS_IS, FIXED = "as is", "fixed"
# Lossless wires: the first one among the runs is the reference of the others.
WIDEST = (AS_IS, "float32")
MEASURING = ("evaluate", "record", "checkpoint")  # regions that measure or write, and train nothing
LARGEST = 1e18  # larger rates are ignored
POLICY = "training.policy"
SEED, SEEDS = "run.seed", "seeds."
FIRST = ("init", "data", "dropout")  # seeds that come first, in this order

LINE = {"family": Column("str"), "line": Column("str")}
SEEDS_OF = Column("str", "`init=1, data=1`")
RATE = Column("float64", "learning rate")
RUN = {"run": Column("str"), "repeat": Column("int64")}
ENCODED = "of the encoded gradient, median over encoded tensors and steps"
RUNS = {
    **LINE, "case": Column("str"), "wire": Column("str", "or the policy that chose it"), "guarantee": Column("str"),
    "ordering": Column("str"), "ranks": Column("int64"), "rate": RATE, "seeds": SEEDS_OF, **RUN,
    "complete": Column("bool"), "emulated": Column("bool", "emulated links"), "steps": Column("int64", "of training"),
    "last_step": Column("int64"), "accuracy": Column("float64", "the last, a fraction"),
    "loss": Column("float64", "the last"), "seconds": Column("float64", "of training, until the last accuracy", "s"),
    "bytes": Column("float64", "of a rank and step"), "wire_error": Column("float64", ENCODED),
    "wire_cosine": Column("float64", ENCODED), "wire_length": Column("float64", ENCODED),
    "curve_error": Column("float64", "of the predicted loss, median size over decisions"),
}  # fmt: skip
CURVES = {
    **LINE, "rate": RATE, "seeds": SEEDS_OF, **RUN, "step": Column("int64"),
    "seconds": Column("float64", "of training", "s"), "accuracy": Column("float64"),
}  # fmt: skip


@dataclass(frozen=True)
class Trainings:
    """Runs that recorded accuracy and loss, without runs with an injected fault.

    runs     a row per repeat of a launch, columns RUNS. `wire`: the policy if one chose, else the wires of the
             reductions; `steps` of training; the last `accuracy` and `loss`; `seconds`: wall time of the regions that
             train, on the slowest rank of each step, until the last accuracy; `bytes` of a rank's reductions per step,
             a mean; `wire_error`, `wire_cosine`, `wire_length`: medians over encoded tensors and steps; `curve_error`:
             the median size over decisions. NaN where not recorded
    curves   accuracy over steps and seconds, a row per evaluation, columns CURVES
    levels   {(run, repeat): {factor: level}} of the factors that may change the accuracy: seeds, wire, guarantee,
             ordering, ranks
    words    {case: its description}
    """

    frames: Frames
    runs: pd.DataFrame
    curves: pd.DataFrame
    levels: dict[tuple[str, int], dict[str, str]]
    words: dict[str, str]


def trainings(frames: Frames) -> Trainings:
    """The trainings among the runs of `frames`; empty frames without runs that recorded accuracy and loss."""
    learning = [
        {ACCURACY, LOSS} <= set(frames.recorded("values", *run)) for run in ids(frames.runs)
    ]  # fmt: skip
    known = _lines(frames.runs[np.array(learning, bool)])
    rows, curves = [], []
    for run in known.to_dict("records"):
        values = frames.of("values", run["run"], run["repeat"])
        curve = _curve(frames, run, values)
        if curve.empty:
            continue
        place = {key: run[key] for key in ("family", "line", "rate", "seeds", "run", "repeat")}
        curves.append(curve.assign(**place))
        rows.append(_training(frames, run, values, curve))
    return Trainings(
        frames=frames,
        runs=frame(rows, RUNS),
        curves=frame(pd.concat(curves, ignore_index=True) if curves else [], CURVES),
        levels={(run["run"], run["repeat"]): run["levels"] for run in known.to_dict("records")},
        words=dict(zip(known["case"], known["words"], strict=True)),
    )


def _lines(runs: pd.DataFrame) -> pd.DataFrame:
    """`runs` without injected faults, with the columns `family`, `case`, `words`, `line`, `wire`, `rate`, `seeds`,
    `levels`, `emulated`."""
    stated = [json.loads(text) for text in runs["problem_options"]]
    methods = [json.loads(text) for text in runs["method"]]
    seeded = [
        _seeds(options, int(seed)) | _seeds_of_orders(method)
        for options, method, seed in zip(stated, methods, runs["seed"], strict=True)
    ]
    runs = runs.assign(
        method=[
            json.dumps({k: v for k, v in method.items() if not k.startswith(SEEDS)}) for method in methods
        ]
    )
    fixed = [{key: value for key, value in o.items() if not (_is_seed(key) or _is_rate(key))} for o in stated]
    keys = [
        hashlib.blake2b(json.dumps([app, own or problem], sort_keys=True).encode(), digest_size=8).hexdigest()
        for app, own, problem in zip(runs["app"], fixed, runs["problem"], strict=True)
    ]
    runs = runs.assign(
        problem=keys,
        problem_options=list(map(json.dumps, fixed)),
        rate=[_rate(options) for options in stated],
        seeds=[", ".join(f"{name}={value}" for name, value in seeds.items()) for seeds in seeded],
        wire=[_wire(json.loads(m), json.loads(r)) for m, r in zip(runs["method"], runs["reductions"], strict=True)],
        emulated=[_of(json.loads(method), "links") not in UNSET for method in runs["method"]],
    )  # fmt: skip
    names = problem_names(runs)
    apps = runs["app"].nunique() > 1
    runs["family"] = [
        " ".join(filter(None, [app if apps or not names[key] else "", names[key]]))
        for app, key in zip(runs["app"], keys, strict=True)
    ]
    runs["levels"] = [
        {
            **seeds, "wire": row.wire, "guarantee": row.guarantee,
            "ordering": ", ".join(_orderings(json.loads(row.reductions))), "ranks": str(row.size),
        }
        for seeds, row in zip(seeded, runs.itertuples(index=False), strict=True)
    ]  # fmt: skip
    runs = cases(runs, "family")
    told = runs.groupby(["family", "wire"])["case"].nunique() if len(runs) else {}
    runs["line"] = [
        wire if told[family, wire] == 1 else f"{wire}, {case}"
        for family, wire, case in zip(runs["family"], runs["wire"], runs["case"], strict=True)
    ]
    runs["place"] = [
        2 * bool(_policy(json.loads(method))) + (wire not in WIDEST)
        for method, wire in zip(runs["method"], runs["wire"], strict=True)
    ]  # lossless wires first, policies last
    by = ["family", "place", "wire", "case", "rate", "seeds", "run", "repeat"]
    return runs.sort_values(by, kind="stable").drop(columns="place").reset_index(drop=True)


def _is_seed(key: str) -> bool:
    return key == SEED or key.startswith(SEEDS)


def _is_rate(key: str) -> bool:
    return key.rpartition(".")[2] == "rate"


def _seeds(options: Mapping[str, Any], seed: int) -> dict[str, str]:
    """{last part of the option name: seed}; the run's seed without others."""
    own = {key.removeprefix(SEEDS): str(value) for key, value in options.items() if key.startswith(SEEDS)}
    own = dict(sorted(own.items(), key=lambda item: FIRST.index(item[0]) if item[0] in FIRST else len(FIRST)))
    return own or {"seed": str(options.get(SEED, seed))}


def _seeds_of_orders(method: Mapping[str, Any]) -> dict[str, str]:
    """{last part of the option name: seed} of the seeds among the factors of the method, which draw orders."""
    return {
        key.removeprefix(SEEDS): str(value)
        for key, value in method.items()
        if key.startswith(SEEDS) and value not in UNSET
    }


def _rate(options: Mapping[str, Any]) -> float:
    rates = [value for key, value in options.items() if _is_rate(key) and isinstance(value, int | float)]
    return float(rates[0]) if rates and abs(rates[0]) < LARGEST else np.nan


def _of(method: Mapping[str, Any], name: str) -> Any:
    """The value of the factor whose last part of the name is `name`; None without one."""
    return next((value for key, value in method.items() if key.rpartition(".")[2] == name), None)


def _policy(method: Mapping[str, Any]) -> str:
    """The policy that chose the wires; empty without one."""
    policy = method.get(POLICY)
    return "" if policy in (*UNSET, FIXED) else str(policy)


def _wire(method: Mapping[str, Any], reductions: Mapping[str, Mapping[str, Any]]) -> str:
    """The policy that chose the wires, or else the wires of the reductions."""
    if policy := _policy(method):
        return policy
    lossy = {stated.get("wire", AS_IS) for stated in _own(reductions).values()} - {AS_IS}
    return " + ".join(sorted(lossy)) or AS_IS


def _own(reductions: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The reductions without those whose ordering the application chose."""
    return {name: r for name, r in reductions.items() if r.get("decided") != "application"}


def _orderings(reductions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The orderings of a run, without their wires."""
    return orderings({name: {**stated, "wire": AS_IS} for name, stated in reductions.items()})


def _curve(frames: Frames, run: dict[str, Any], values: pd.DataFrame) -> pd.DataFrame:
    """`step`, `seconds` and `accuracy` of each evaluation of one repeat."""
    steps, accuracy = series(values, ACCURACY)
    accuracy = np.where(np.isfinite(accuracy), accuracy, np.nan)
    seconds = elapsed(frames, run["run"], run["repeat"], steps)
    return pd.DataFrame({"step": steps, "seconds": seconds, "accuracy": accuracy})


def elapsed(frames: Frames, run: str, repeat: int, steps: np.ndarray) -> np.ndarray:
    """(steps,) seconds of training up to the end of each of `steps`, on the slowest rank of each step, without the
    regions MEASURING; NaN without recorded times."""
    events = frames.of("events", run, repeat)
    measuring = events["name"].isin(MEASURING).to_numpy()
    own = events["exclusive_ns"].to_numpy() - np.where(measuring, events["total_ns"].to_numpy(), 0)
    by_rank = pd.Series(own).groupby([events["step"].to_numpy(), events["rank"].to_numpy()]).sum()
    slowest = by_rank.groupby(level=0).max().sort_index()
    until = np.searchsorted(slowest.index.to_numpy(), steps, side="right")
    total = np.concatenate([[0.0], slowest.to_numpy().cumsum() / 1e9])
    return total[until] if len(slowest) else np.full(len(steps), np.nan)


def _training(
    frames: Frames, run: dict[str, Any], values: pd.DataFrame, curve: pd.DataFrame
) -> dict[str, Any]:
    """The row of RUNS of one repeat."""
    steps, loss = series(values, LOSS)
    row = {key: run[key] for key in ("family", "line", "case", "wire", "guarantee", "ordering", "rate", "seeds", "run",
                                     "repeat", "complete", "emulated", "last_step")}  # fmt: skip
    encoded = values[values["block"].isin(_encoded(values)).to_numpy()]
    quality = {name: _middle(encoded, name) for name in QUALITY}
    return row | quality | {
        "ranks": run["size"],
        "steps": len(steps),
        "accuracy": curve["accuracy"].iloc[-1],
        "loss": loss[-1] if len(loss) else np.nan,
        "seconds": curve["seconds"].iloc[-1],
        "bytes": _bytes(frames, run, len(steps)),
        "curve_error": _curve_error(frames, run, values),
    }  # fmt: skip


def expected(choices: pd.DataFrame, values: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """(steps int64, errors float64) of decisions about a wire that stated a value to come: that value less the last
    measured one before the next decision. NaN where nothing was measured."""
    wires = choices[(choices["name"] == "wire").to_numpy()].sort_values("step", kind="stable")
    steps, stated = wires["step"].to_numpy(np.int64), wires["score"].to_numpy(np.float64)
    measured = values[values["name"].isin(HELD_OUT).to_numpy()].sort_values("step", kind="stable")
    at = measured["step"].to_numpy()
    last = np.searchsorted(at, np.append(steps[1:], np.iinfo(np.int64).max), side="right") - 1
    there = np.where(last >= np.searchsorted(at, steps, side="right"), last, -1)
    found = np.append(measured["value"].to_numpy(np.float64), np.nan)[there]
    known = ~np.isnan(stated)
    return steps[known], (stated - found)[known]


def _curve_error(frames: Frames, run: dict[str, Any], values: pd.DataFrame) -> float:
    """The median size of the errors of expected values; NaN without any."""
    errors = np.abs(expected(frames.of("choices", run["run"], run["repeat"]), values)[1])
    errors = errors[np.isfinite(errors)]
    return float(np.median(errors)) if len(errors) else np.nan


def _encoded(values: pd.DataFrame) -> np.ndarray:
    """The tensors that lost precision on a wire in some step, or all tensors if none did. Small tensors travel
    unencoded, so they say nothing about the wire."""
    own = values[named(values, QUALITY[0])]
    lost = own[(own["value"] != 0).to_numpy()]
    return (lost if len(lost) else own)["block"].unique()


def _middle(values: pd.DataFrame, name: str) -> float:
    """The median size of all finite numbers called `name`, over steps and blocks; NaN without any."""
    own = np.abs(values["value"].to_numpy()[named(values, name)])
    own = own[np.isfinite(own)]
    return float(np.median(own)) if len(own) else np.nan


def _bytes(frames: Frames, run: dict[str, Any], steps: int) -> float:
    """Bytes of the run's reductions per rank and step; NaN without recorded times."""
    regions = {stated.get("region") for stated in _own(json.loads(run["reductions"])).values()}
    events = frames.of("events", run["run"], run["repeat"])
    own = events["bytes"].to_numpy()[events["name"].isin(regions).to_numpy()]
    return float(own.sum()) / run["size"] / steps if len(own) and steps else np.nan
