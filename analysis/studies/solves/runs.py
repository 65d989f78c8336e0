"""Reads runs that recorded a residual: the result of every solve, its history, and the study of injected orders.

A step of such a run is an iteration. Options of `solver` (`solve.method`, `solve.preconditioner`, `problem`, `grid`)
name families, if a run has them.

Runs of one problem by one method, preconditioner and precision are a *family*: in exact arithmetic they would agree,
so all differences are rounding. A *case* is the solves of a family with the same guarantee, ordering, matrix product
and rank count: they are repeats of each other.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.groups import UNSET, cases, of_effect, problem_names
from analysis.history import named, series
from analysis.load.frames import Frames
from analysis.runs import Id, ids
from analysis.studies.contract import frame
from kernels import bits
from kernels.as_json import Column
from miniapps.trace.records import DECISION

RESIDUAL, TRUE_RESIDUAL = "residual", "true_residual"
DRIFT, DRIFT_RESIDUAL, DRIFT_ITERATIONS = "difference", "drift_residual", "drift_iterations"

SOLVES = {
    "family": Column("str"), "case": Column("str"), "guarantee": Column("str"), "ordering": Column("str"),
    "ranks": Column("int64"), "run": Column("str"), "repeat": Column("int64"), "complete": Column("bool"),
    "tolerance": Column("float64"), "last_step": Column("int64"), "iterations": Column("float64"),
    "converged": Column("float64", "1 or 0"), "residual": Column("float64", "the last"),
    "true_residual": Column("float64", "the last"),
    "gap": Column("float64", "distance of the two residuals at their last common iteration"),
    "attained": Column("float64", "the smallest true residual"), "error": Column("float64", "the last"),
    "orthogonality": Column("float64", "the largest, which is the worst"),
    "not_finite": Column("int64", "residuals that are NaN or infinite"),
    "history": Column("str", "hash of all residuals"), "solution": Column("str", "hash of the solution"),
}  # fmt: skip
SAMPLES = {
    "family": Column("str"), "case": Column("str"), "run": Column("str"), "repeat": Column("int64"),
    "seed": Column("int64"), "sample": Column("int64"), "step": Column("int64", "iteration"),
    "difference": Column("float64", "relative distance of the iterate from that by exact sums"),
    "residual": Column("float64"),
}  # fmt: skip
ENDS = {
    "family": Column("str"), "case": Column("str"), "run": Column("str"), "repeat": Column("int64"),
    "sample": Column("int64"), "iterations": Column("float64"),
}  # fmt: skip


@dataclass(frozen=True)
class Solves:
    """Runs that recorded a residual, without runs with an injected fault.

    solves   a row per repeat of a launch, columns SOLVES, sorted by family, case, run and repeat. `residual` and
             `true_residual`: the last ones; `gap`: |true - recurrence| at their last common iteration; `attained`: the
             smallest true residual; `error`: the last; `orthogonality`: the largest, which is the worst; `not_finite`:
             number of residuals that are NaN or infinite; `history`: hash of all residuals; `solution`: hash of the
             last fingerprints and the state in result.json, empty without them
    samples  the drift study, a row per sample and iteration, columns SAMPLES; NaN where not recorded
    ends     iterations of each complete sample of the drift study, columns ENDS
    words    {case: its description}
    replays  number of samples left out, since an earlier repeat of the case drew the same orders from the same seed
    """

    frames: Frames
    solves: pd.DataFrame
    samples: pd.DataFrame
    ends: pd.DataFrame
    words: dict[str, str]
    replays: int

    def history(self, run: Id, name: str = RESIDUAL) -> tuple[np.ndarray, np.ndarray]:
        """(iterations int64, values float64) of the global value `name` in a repeat, by ascending iteration."""
        return series(self.frames.of("values", *run), name)


def solves(frames: Frames) -> Solves:
    """The solves of the runs in `frames` that recorded a residual; empty frames without such runs."""
    solving = [RESIDUAL in frames.recorded("values", *run) for run in ids(frames.runs)]
    runs = _cases(frames.runs[np.array(solving, bool)])
    rows, samples, ends = [], [], []
    for run in runs.to_dict("records"):
        values = frames.of("values", run["run"], run["repeat"])
        if row := _solve(frames, run, values):
            rows.append(row)
            place = {key: row[key] for key in ("family", "case", "run", "repeat")}
            samples.append(_samples(values).assign(**place, seed=run["seed"]))
            ends.append(_blocks(values, DRIFT_ITERATIONS, "iterations").drop(columns="step").assign(**place))
    studied, replays = _without_replays(_frame(samples, SAMPLES))
    kept = studied[["run", "repeat", "sample"]].drop_duplicates()
    return Solves(
        frames=frames,
        solves=frame(rows, SOLVES),
        samples=studied,
        ends=_frame(ends, ENDS).merge(kept, on=["run", "repeat", "sample"]),
        words=dict(zip(runs["case"], runs["words"], strict=True)),
        replays=replays,
    )


def _cases(runs: pd.DataFrame) -> pd.DataFrame:
    """`runs` without injected faults, with the columns `family`, `case`, `words` (of the case) and `tolerance`."""
    configs = [json.loads(config) for config in runs["config"]]
    stated = zip(runs["method"], runs["options"], strict=True)
    recipes = [_recipe(*each) for each in stated]
    families = [
        json.dumps([problem, recipe], sort_keys=True)
        for problem, recipe in zip(runs["problem"], recipes, strict=True)
    ]
    labels = _labels(runs["problem"].tolist(), configs, recipes, families)
    tolerances = [_positive(_option(config, "solve", "tolerance")) for config in configs]
    runs = runs.assign(key=families, family=[labels[key] for key in families], tolerance=tolerances)
    return cases(runs, "key")


def _recipe(method: str, options: str) -> dict[str, Any]:
    """The factors that change the mathematics: the app's own factors, without those that a guarantee sets, since these
    change only bits."""
    decided = of_effect(method, options, "guarantee")
    return {
        key: value
        for key, value in json.loads(method).items()
        if "." in key and not key.startswith("run.") and key not in decided
    }


def _labels(problems: list[str], configs: list, recipes: list, families: list[str]) -> dict[str, str]:
    """{family: `poisson27 32 x 32 x 32, cg with jacobi`}, unique names."""
    words: dict[str, str] = {}
    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    telling = [key for key in keys if len({json.dumps(recipe.get(key)) for recipe in recipes}) > 1]
    named = _named_problems(problems, configs)
    for problem, recipe, family in zip(problems, recipes, families, strict=True):
        method, preconditioner = recipe.get("solve.method"), recipe.get("solve.preconditioner")
        how = str(method or "")
        how += f" with {preconditioner}" if preconditioner not in (*UNSET, "none") else ""
        more = [
            f"{key.rpartition('.')[2]}={recipe[key]}"
            for key in telling
            if key not in ("solve.method", "solve.preconditioner") and recipe.get(key) not in UNSET
        ]
        words[family] = ", ".join(filter(None, (named[problem], how, *more))) or "all runs"
    several = {text for text in words.values() if list(words.values()).count(text) > 1}
    return {
        key: f"{text} [{hashlib.blake2b(key.encode(), digest_size=4).hexdigest()}]"
        if text in several
        else text
        for key, text in words.items()
    }


def _named_problems(problems: list[str], configs: list[dict]) -> dict[str, str]:
    """{problem: the system in words}, with the options that distinguish systems of the same name."""
    known = pd.DataFrame({"app": [_problem(config) for config in configs], "problem": problems})
    known["config"] = [json.dumps(_of_the_problem(config)) for config in configs]
    apart = problem_names(known.assign(method="{}", problem_options="{}"))  # an app for each name
    named = dict(zip(known["problem"], known["app"], strict=True))
    return {
        problem: f"{what} ({apart[problem]})".strip() if apart[problem] else what
        for problem, what in named.items()
    }


def _of_the_problem(config: dict) -> dict:
    """The sections that describe the system, and the tolerance; `record` and `drift` do not affect it."""
    own = {key: config[key] for key in ("run", "problem", "grid") if key in config}
    return own | {"solve": {"tolerance": _option(config, "solve", "tolerance")}}


def _problem(config: dict) -> str:
    """The system in words: `poisson27 32 x 32 x 32`, or the name of the file."""
    if matrix := _option(config, "problem", "matrix"):
        return str(matrix).replace("\\", "/").rpartition("/")[2]
    kind = _option(config, "problem", "kind") or ""
    edges = [_option(config, "grid", edge) for edge in ("nx", "ny", "nz")]
    return f"{kind} {' x '.join(map(str, edges))}".strip() if None not in edges else str(kind)


def _option(config: dict, section: str, name: str) -> Any:
    own = config.get(section)
    return own.get(name) if isinstance(own, dict) else None


def _positive(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else np.nan


def _solve(frames: Frames, run: dict[str, Any], values: pd.DataFrame) -> dict[str, Any] | None:
    """The row of SOLVES for one repeat; None if it recorded no residual."""
    steps, residual = series(values, RESIDUAL)
    if not len(steps):
        return None
    true_steps, true = series(values, TRUE_RESIDUAL)
    _, at, true_at = np.intersect1d(steps, true_steps, return_indices=True)
    orthogonality = series(values, "orthogonality")[1]
    with np.errstate(invalid="ignore"):
        gaps = np.abs(true[true_at] - residual[at])
    row = {key: run[key] for key in ("family", "case", "guarantee", "ordering", "run", "repeat", "complete",
                                     "tolerance", "last_step")}  # fmt: skip
    return row | {
        "ranks": run["size"],
        "iterations": _last(values, f"{DECISION}iterations"),
        "converged": _last(values, f"{DECISION}converged"),
        "residual": residual[-1],
        "true_residual": true[-1] if len(true) else np.nan,
        "gap": gaps[-1] if len(gaps) else np.nan,
        "attained": np.fmin.reduce(true, initial=np.nan),
        "error": _last(values, "error"),
        "orthogonality": np.fmax.reduce(orthogonality, initial=np.nan),
        "not_finite": int((~np.isfinite(residual)).sum()),
        "history": _digest(steps.tobytes(), bits.words(residual).tobytes()),
        "solution": _solution(frames, run),
    }


def _last(values: pd.DataFrame, name: str) -> float:
    recorded = series(values, name)[1]
    return float(recorded[-1]) if len(recorded) else np.nan


def _solution(frames: Frames, run: dict[str, Any]) -> str:
    """A hash of the last fingerprints and of the final state; empty without both."""
    rows = frames.of("fingerprints", run["run"], run["repeat"])
    if rows.empty and not run["state"]:
        return ""
    rows = rows[(rows["step"] == rows["step"].max()).to_numpy()]
    names = ",".join(rows["name"].astype("str"))
    columns = [rows[column].to_numpy().tobytes() for column in ("step", "occurrence", "block", "hi", "lo")]
    return _digest(run["state"].encode(), names.encode(), *columns)


def _digest(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _blocks(values: pd.DataFrame, name: str, column: str) -> pd.DataFrame:
    """`sample`, `step` and, as `column`, the value of the rows of blocks called `name`."""
    own = values[named(values, name) & (values["block"] >= 0).to_numpy()]
    return pd.DataFrame({"sample": own["block"], "step": own["step"], column: own["value"]})


def _samples(values: pd.DataFrame) -> pd.DataFrame:
    """The drift study of one repeat: sample, step, difference, residual; sorted by sample and step."""
    parts = [_blocks(values, DRIFT, "difference"), _blocks(values, DRIFT_RESIDUAL, "residual")]
    return parts[0].merge(parts[1], on=["sample", "step"], how="outer").sort_values(["sample", "step"])


def _without_replays(samples: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """(`samples` without repeated ones, number of repeated ones). A sample repeats if an earlier repeat of the case has
    its number and seed: it has the same orders."""
    drawn = samples[["family", "case", "seed", "sample", "run", "repeat"]].drop_duplicates()
    again = drawn.duplicated(["family", "case", "seed", "sample"])
    return samples.merge(drawn[~again], on=list(drawn)), int(again.sum())


def _frame(pieces: list[pd.DataFrame], columns: dict[str, Column]) -> pd.DataFrame:
    known = [piece for piece in pieces if len(piece)]
    return frame(pd.concat(known, ignore_index=True) if known else [], columns)
