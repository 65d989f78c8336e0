"""Reads runs that compare variants: every computed sum, and its time.

Names in their traces are OPERATION:VARIANT:BACKEND:N (docs/reference/definitions.md). A *case* is one problem by one
method on one rank count. Only sums of one case are compared, so other data, another order of the all-reduce and other
rank counts never count as run-to-run variation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.groups import cases
from analysis.load.frames import Frames
from analysis.runs import samples as compare_variants
from kernels import bits

EMULATED = "emulated"  # the backend that draws orders of arrival from a seed; it has no price
TRUTH = "truth"
WORST = ("worst-low", "worst-high")
DEFAULT_REFERENCE = "sptr"

SERIES = ["case", "operation", "variant", "backend", "n"]
CELL = [*SERIES, "array"]
PLACE = ["case", "operation", "n", "array"]  # one array of numbers, for any variant
UNKNOWN = "not recorded"  # the guarantee of a variant without a recorded one


class NoReference(Exception):
    """The requested reference cannot be one; the message gives the reason, and the possible ones."""


@dataclass(frozen=True)
class Sums:
    """The records of runs that compare variants. All frames have `case`. Names of cases, operations, variants and
    backends are categoricals: cases in the order of `cases`, the others in recorded order.

    cases    case, run, repeat, ranks: the repeats of each case. The name of a case has the data, the group as in the
             table of groups, and the rank count
    samples  SERIES, array int32, run, repeat, sample int32, value float64; sorted by CELL, then as recorded
    times    SERIES, run, repeat, rank, sample int32, calls int64, seconds float64 and nbytes float64 per call; `team`:
             ranks of one team share a sum; a rank with its own arrays is a team
    truth    case, n int64, array int32, value float64: the correctly rounded value
    worst    case, variant, backend, n, array, low, high float64: least and largest sum of the search
    promises {case: {(operation, variant, backend): guarantee}}
    words    {case: its description}
    replays  number of emulated samples left out, since an earlier run of the case drew the same orders from its seed
    """

    cases: pd.DataFrame
    samples: pd.DataFrame
    times: pd.DataFrame
    truth: pd.DataFrame
    worst: pd.DataFrame
    promises: dict[str, dict[tuple[str, str, str], str]]
    words: dict[str, str]
    replays: int

    def guarantee(self, case: str, operation: str, variant: str, backend: str) -> str:
        """The guarantee of the variant, or UNKNOWN."""
        return self.promises.get(case, {}).get((operation, variant, backend), UNKNOWN)


def parse(name: str) -> tuple[str, str, str, int] | None:
    """(operation, variant, backend, n) of a name in the trace; None for a name of another form."""
    parts = name.split(":")
    if len(parts) != 4 or not all(parts) or not (parts[3].isascii() and parts[3].isdecimal()):
        return None
    return parts[0], parts[1], parts[2], int(parts[3])


def sums(frames: Frames) -> Sums:
    """The records of the runs in `frames` that compare variants, without runs with an injected fault; empty frames
    without such runs."""
    runs = _cases(frames.runs[compare_variants(frames.runs).to_numpy()])
    members = runs[["case", "run", "repeat", "size"]].rename(columns={"size": "ranks"})
    known = list(dict.fromkeys(members["case"]))
    codes = {label: i for i, label in enumerate(known)}
    numbers = {(run, repeat): codes[c] for c, run, repeat, _ in members.itertuples(index=False)}
    names = enumerate(frames.values["name"].cat.categories)
    parsed = {i: parts for i, name in names if (parts := parse(name))}
    # Variants are listed in the order of their runs: truth and search, which are recorded first, go last.
    parsed = dict(sorted(parsed.items(), key=lambda item: item[1][0] in (TRUTH, *WORST)))
    recorded = _recorded(frames.values, numbers, parsed, known)
    operation = recorded["operation"]
    samples, replays = _samples(recorded[~operation.isin([TRUTH, *WORST]).to_numpy()])
    truth = recorded[(operation == TRUTH).to_numpy()].drop_duplicates(["case", "n", "array"])
    times = _recorded(frames.events, numbers, parsed, known)
    promises = runs.drop_duplicates("case").set_index("case")["promises"]
    return Sums(
        cases=members,
        samples=samples,
        times=_times(times[~times["operation"].isin([TRUTH, *WORST]).to_numpy()], runs),
        truth=truth[["case", "n", "array", "value"]].reset_index(drop=True),
        worst=_worst(recorded[operation.isin(WORST).to_numpy()]),
        promises={case: _promised(text) for case, text in promises.items()},
        words=dict(zip(runs["case"], runs["words"], strict=True)),
        replays=replays,
    )


def references(sums: Sums, wanted: str | None = None) -> tuple[pd.DataFrame, list[str]]:
    """(the references S_d, a row per place: columns PLACE, `value`, `reference` (variant and backend); notes).

    `wanted` is a variant, VARIANT@BACKEND, or "truth". Without it, the reference of each case and operation is `sptr`
    if it was run, else the variant with the strongest guarantee, else the correctly rounded value. A variant can be a
    reference only if all its samples of each array have the same bits. Raises NoReference if `wanted` is a reference
    for no case.
    """
    constant, firsts = _constant(sums.samples)
    pieces, notes, refused = [], [], []
    for (case, operation), members in constant.groupby(["case", "operation"], observed=True, sort=False):
        choice = _choose(sums, case, operation, members, wanted)
        if choice == TRUTH:
            values = sums.truth[sums.truth["case"] == case].assign(operation=operation, reference=TRUTH)
            pieces.append(values)
        elif choice is None:
            refused.append((case, operation))
        else:
            own = (members["variant"] == choice[0]) & (members["backend"] == choice[1])
            keys = ["case", "operation", "variant", "backend"]
            values = firsts.merge(members.loc[own, keys].astype("str"), on=keys)
            pieces.append(values.assign(reference=f"{choice[0]} ({choice[1]})"))
    if wanted is not None and not pieces:
        raise NoReference(_refusal(sums, constant, wanted))
    for case, operation in refused:
        asked = f"no reference {wanted!r}" if wanted else "no variant whose samples all agree, and no truth"
        notes.append(f"{case}, {operation}: {asked}, so only differences within a variant are known")
    columns = [*PLACE, "value", "reference"]
    if not pieces:
        return pd.DataFrame(columns=columns), notes
    return pd.concat([piece[columns].astype({key: "str" for key in PLACE[:2]}) for piece in pieces],
                     ignore_index=True), notes  # fmt: skip


def _cases(runs: pd.DataFrame) -> pd.DataFrame:
    """`runs` without injected faults, grouped, with the columns `case` (data, group and rank count) and `words`.

    The numbers of sizes and arrays do not distinguish data: numbers are drawn by array and size, so runs of a case may
    have different sizes.
    """
    data = [_data(config, problem) for config, problem in zip(runs["config"], runs["problem"], strict=True)]
    runs = runs.assign(
        data=[what for what, _, _ in data],
        problem=[key for _, key, _ in data],
        config=[rest for _, _, rest in data],
    )
    runs = cases(runs, "data")
    data = runs["data"].astype("str")
    return runs.assign(case=data + runs["case"], words=data + runs["words"])


def _data(config: str, problem: str) -> tuple[str, str, str]:
    """(data in words, such as `uniform float64, `; a key of the data; the configuration without sizes and arrays)."""
    sections = json.loads(config)
    if not isinstance(own := sections.get("problem"), dict):
        return "", problem, config
    own = {key: value for key, value in own.items() if key not in ("sizes", "arrays")}
    words = " ".join(str(own[key]) for key in ("distribution", "dtype") if own.get(key))
    key = json.dumps([own, sections.get("run", {}).get("seed")], sort_keys=True)
    return f"{words}, " if words else "", key, json.dumps(sections | {"problem": own}, sort_keys=True)


def _recorded(frame: pd.DataFrame, numbers: dict, parsed: dict, known: list[str]) -> pd.DataFrame:
    """The rows of `frame` (values or events) with a run in `numbers` and a name in `parsed`, with `case` and the parts
    of the name as columns."""
    # A hash lookup, since a table over repeats would be as long as the largest number in a file.
    places = {name: place << 32 for place, name in enumerate(frame["run"].cat.categories)}
    codes = {places[name] + repeat: code for (name, repeat), code in numbers.items() if name in places}
    pairs = frame["run"].cat.codes.to_numpy(np.int64) << 32 | frame["repeat"].to_numpy()
    case = np.array([*codes.values(), -1], np.int32)[pd.Index(list(codes), dtype=np.int64).get_indexer(pairs)]
    names = frame["name"].cat.codes.to_numpy()
    meant = np.zeros(len(frame["name"].cat.categories) + 1, bool)
    meant[list(parsed)] = True
    keep = (case >= 0) & meant[names]
    rows = frame[keep]
    columns = {"case": pd.Categorical.from_codes(case[keep], known)}
    for k, part in enumerate(("operation", "variant", "backend")):
        kinds = list(dict.fromkeys(parts[k] for parts in parsed.values()))
        code = np.full(len(meant), -1, np.int16)
        code[list(parsed)] = [kinds.index(parts[k]) for parts in parsed.values()]
        columns[part] = pd.Categorical.from_codes(code[names[keep]], kinds)
    sizes = np.zeros(len(meant), np.int64)
    sizes[list(parsed)] = [parts[3] for parts in parsed.values()]
    columns["n"] = sizes[names[keep]]
    renamed = {"block": "array", "step": "sample"}
    rest = {renamed.get(c, c): rows[c].to_numpy() for c in rows.columns if c not in ("name", "run")}
    return pd.DataFrame({**columns, "run": rows["run"].array, **rest})


def _samples(rows: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """(the frame `samples`, the number of emulated replays left out)."""
    rows = rows.iloc[np.argsort(keys(rows, CELL), kind="stable")]
    keep = np.ones(len(rows), bool)
    emulated = (rows["backend"] == EMULATED).to_numpy()
    if emulated.any():
        keep[emulated] = ~rows.loc[emulated, [*CELL, "sample", "occurrence"]].duplicated().to_numpy()
    columns = [*CELL, "run", "repeat", "sample", "value"]
    return rows.loc[keep, columns].reset_index(drop=True), int((~keep).sum())


def keys(rows: pd.DataFrame, columns: list[str]) -> np.ndarray:
    """(rows,) integer keys that are equal and ordered as the rows are in `columns` (categoricals by their order);
    uint16 if that suffices."""
    key = np.zeros(len(rows), np.int64)
    most = 1
    for column in columns:
        if isinstance(rows[column].dtype, pd.CategoricalDtype):
            code, count = rows[column].cat.codes.to_numpy(), len(rows[column].cat.categories)
        else:
            code, known = pd.factorize(rows[column].to_numpy(), sort=True)
            count = len(known)
        key = key * max(count, 1) + code
        most *= max(count, 1)
    return key.astype(np.uint16) if most <= 1 << 16 else key  # NumPy sorts 16 bits in linear time


def pieces(rows: pd.DataFrame, columns: list[str]) -> np.ndarray:
    """The beginnings of stretches of rows that are equal in `columns`; `rows` must be sorted by them."""
    key = keys(rows, columns)
    return np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.empty(0, np.intp)


def _times(rows: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    columns = [*SERIES, "run", "repeat", "rank", "sample"]
    calls = rows["count"].to_numpy() if len(rows) else np.empty(0, np.int64)
    split = {
        run: json.loads(config).get("method", {}).get("split")
        for run, config in runs[["run", "config"]].values
    }
    alone = rows["run"].isin([run for run, how in split.items() if how == "arrays"]).to_numpy(bool)
    return rows[columns].assign(
        calls=calls, seconds=rows["total_ns"].to_numpy() / calls / 1e9, nbytes=rows["bytes"].to_numpy() / calls,
        team=np.where(alone, rows["rank"].to_numpy(), 0),
    ).reset_index(drop=True)  # fmt: skip


def _worst(rows: pd.DataFrame) -> pd.DataFrame:
    """`low` and `high` side by side; the extremes of several searches."""
    place = ["case", "variant", "backend", "n", "array"]
    sides = [
        rows[(rows["operation"] == side).to_numpy()]
        .groupby(place, observed=True)["value"]
        .agg(how)
        .rename(name)
        for side, how, name in zip(WORST, ("min", "max"), ("low", "high"), strict=True)
    ]
    return pd.concat(sides, axis=1).reset_index()


def _promised(text: str) -> dict[tuple[str, str, str], str]:
    """{(operation, variant, backend): guarantee} of the JSON in the frame of runs."""
    return {tuple(name.split(":")): level for name, level in json.loads(text).items() if name.count(":") == 2}


def _constant(samples: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(a row per case, operation, variant and backend: whether all samples of each array have the same bits
    (`constant`); the first value of each CELL)."""
    begin = pieces(samples, CELL)
    words = bits.words(samples["value"].to_numpy())
    first = np.repeat(words[begin], np.diff(begin, append=len(samples)))
    firsts = samples.iloc[begin][[*CELL, "value"]].reset_index(drop=True)
    same = np.logical_and.reduceat(words == first, begin) if len(begin) else np.empty(0, bool)
    whole = firsts.assign(constant=same).groupby(SERIES[:4], observed=True, sort=True)["constant"].all()
    return whole.reset_index(), firsts.astype({key: "str" for key in SERIES[:4]})


def _choose(
    sums: Sums, case: str, operation: str, members: pd.DataFrame, wanted: str | None
) -> tuple[str, str] | str | None:
    """(variant, backend) of the reference, TRUTH, or None."""
    from analysis.groups import LEVELS

    candidates = members[members["constant"]]
    names = list(zip(candidates["variant"], candidates["backend"], strict=True))
    truth = TRUTH if (sums.truth["case"] == case).any() else None
    if wanted == TRUTH:
        return truth
    if wanted is not None:
        return next((name for name in names if wanted in (name[0], "@".join(name))), None)
    if default := [name for name in names if name[0] == DEFAULT_REFERENCE]:
        return default[0]
    level = {name: sums.guarantee(case, operation, *name) for name in names}
    promised = [name for name in names if level[name] in LEVELS[1:]]
    return max(promised, key=lambda name: LEVELS.index(level[name]), default=truth)


def _refusal(sums: Sums, constant: pd.DataFrame, wanted: str) -> str:
    """The message that `wanted` is not a reference: the reason, and the possible references."""
    good = [
        f"{v}@{b}" for v, b, c in constant[["variant", "backend", "constant"]].itertuples(index=False) if c
    ]
    good += [TRUTH] if len(sums.truth) else []
    can = ", ".join(dict.fromkeys(good)) or "none in these runs"
    ran = [wanted in (v, f"{v}@{b}") for v, b in constant[["variant", "backend"]].itertuples(index=False)]
    why = (
        "gave several results for one array, so it cannot be a reference" if any(ran) else "was not recorded"
    )
    return f"--reference {wanted}: {why}; possible references: {can}"
