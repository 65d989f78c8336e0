"""How much runs differ at their end: distinct outcomes, the published metrics, and what no difference
means."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np
import pandas as pd

from analysis.divergence.among import among
from analysis.divergence.recorded import TELLING, common
from analysis.groups import grouped
from analysis.load.columns import PAYLOAD
from analysis.load.frames import Frames
from analysis.runs import Id, ids, label
from kernels import bits
from kernels.bits import bound
from miniapps.trace.records import is_state

TABLES = ("fingerprints", "values")
EACH_OTHER = "each other"

PAIRS = {"group": "str", "cell": "str", "name": "str", "kind": "str", "step": "int32", "against": "str",
         "a": "str", "b": "str", "elements": "int64", "v_c": "float64", "v_s": "float64", "v_ermv": "float64",
         "max_ulp": "float64", "mean_ulp": "float64", "undefined": "int64"}  # fmt: skip
METRICS = ("v_s_median", "v_s_max", "v_ermv_mean", "v_ermv_max", "v_c_mean", "v_c_max", "ulp_mean", "ulp_max")
VARIABILITY = ["group", "cell", "ranks", "name", "kind", "step", "against", "runs", "distinct",
               "effective", "pairs", *METRICS, "undefined", "bound"]  # fmt: skip


def effective(counts: list[int]) -> float:
    """Effective number of outcomes 1 / sum p_k^2: 1 where all are equal, the number of runs where none
    are."""
    p = np.array(counts) / sum(counts)
    return float(1 / (p * p).sum())


def final(frames: Frames, table: str, name: str, runs: list[Id]) -> tuple[int, list[np.ndarray]] | None:
    """(step, bits of each run) of what all `runs` recorded as `name` in the last step in which all did:
    uint64 (rows, words), sorted by occurrence and block. None where there is no such step, or the runs
    recorded other blocks. Runs whose hashes are equal share one array."""
    recorded = _last(frames, table, name, runs)
    if recorded is None or len({keys for _, keys, _ in recorded[1]}) > 1:
        return None
    known: dict[bytes, np.ndarray] = {}
    words = []
    for run, (places, _, bits_) in zip(runs, recorded[1], strict=True):
        if bits_ not in known:
            known[bits_] = _words(frames, table, run[0], places)
        words.append(known[bits_])
    return recorded[0], words


def outcomes(frames: Frames, runs: pd.DataFrame) -> list[str] | None:
    """What each row of `runs` came to, as a hash: of every final fingerprint and value that all of them recorded, and
    of the state in result.json where all have one, of one step. Equal bits, equal hash: a row that one of them lacks
    is no other outcome. None where there is nothing that all recorded."""
    hashes = [hashlib.blake2b(digest_size=16) for _ in range(len(runs))]
    compared = 0
    rows = runs[list(TELLING)].to_dict("records")
    rules = [common(rows[0], row) for row in rows[1:]]
    for table in TABLES:
        for name in _names(frames, table):
            if any(each.dropped(table, name) for each in rules):
                continue
            if recorded := _last(frames, table, name, ids(runs)):
                last = recorded[1]
                if len({keys for _, keys, _ in last}) > 1:
                    parts = _in_all(frames, table, ids(runs), last)
                else:
                    parts = [keys + bits_ for _, keys, bits_ in last]
                compared += any(parts)
                for digest, part in zip(hashes, parts, strict=True):
                    digest.update(part)
    hashed = any(rule.hashed for rule in rules)
    if (runs["state"] != "").all() and runs["last_step"].nunique() == 1 and not hashed:
        compared += 1
        for digest, state in zip(hashes, runs["state"], strict=True):
            digest.update(state.encode())
    return [digest.hexdigest() for digest in hashes] if compared else None


def reference(runs: pd.DataFrame) -> Id | None:
    """The run of `grouped` runs of one problem that the others are compared with where none is given: the
    first complete one of the strongest guarantee, which must be at least `run`, without an injected fault."""
    complete = runs[runs["complete"] & ~runs["faulty"]]
    for level in ("exact", "layout", "run"):
        if candidates := ids(complete[complete["guarantee"] == level]):
            return candidates[0]
    return None


def pairs(frames: Frames, against: Id | None = None) -> pd.DataFrame:
    """Every complete run against every other of its cell, and against the reference of its problem; columns
    PAIRS.

    The two are told apart by `against`: run-to-run variation has EACH_OTHER there, the change of algorithm
    the label of the reference (not for the cell that it is in), which is `against` or, where that is None or
    of another problem, `reference`. One row per pair and name: `v_c` is the fraction of blocks
    (fingerprints) or elements (values) whose bits differ; the other metrics are of values, `v_s` only where
    there is one element (kernels.bits).
    """
    runs = grouped(frames.runs)
    names = [(table, name) for table in TABLES for name in _names(frames, table)]
    pieces: list[Columns] = []
    for _, problem in runs[runs["complete"]].groupby(["app", "problem"], sort=False):
        chosen = against if against in ids(problem) else reference(problem)
        for (group, cell), members in problem.groupby(["group", "cell"], sort=False):
            own = ids(members)
            for table, name in names:
                where = {"group": group, "cell": cell, "name": name, "kind": table}
                pieces += _within(frames, where, own)
                if chosen is not None and chosen not in own:
                    pieces += _to_reference(frames, where, chosen, own)
    if not pieces:
        return pd.DataFrame(columns=list(PAIRS))
    return pd.DataFrame({key: np.concatenate([piece[key] for piece in pieces]) for key in PAIRS}).astype(
        PAIRS
    )


def variability(
    frames: Frames, against: Id | None = None, compared: pd.DataFrame | None = None
) -> pd.DataFrame:
    """One row per (group, cell, name, against): `runs`, `distinct` bit patterns, `effective` outcomes,
    `pairs` compared and, over these, the median and maximum of |V_s|, mean and maximum of V_ermv, V_c and
    ULP.

    `bound` is filled where no difference was seen, and no run lacks records that it must have: the probability of
    a difference is below it at 95 % confidence.
    `compared` is what `pairs` returned, where the caller has it.
    """
    compared = pairs(frames, against) if compared is None else compared
    runs = grouped(frames.runs)
    runs = runs[runs["complete"]]
    rows = []
    names = {table: _names(frames, table) for table in TABLES}
    for (group, cell), members in runs.groupby(["group", "cell"], sort=False):
        whole = comparable(frames, ids(members))
        for table in TABLES:
            for name in names[table]:
                last = final(frames, table, name, ids(members))
                if last is None:
                    continue
                counts = _counts(last[1])
                here = compared[
                    (compared["cell"] == cell) & (compared["name"] == name) & (compared["kind"] == table)
                ]
                for against_ in dict.fromkeys([EACH_OTHER, *here["against"]]):
                    some = here[here["against"] == against_]
                    same = whole and len(some) and not (some["v_c"] > 0).any()
                    tries = len(members) if against_ == EACH_OTHER else len(some)
                    rows.append(
                        {
                            "group": group, "cell": cell, "ranks": sorted(set(members["size"])),
                            "name": name, "kind": table, "step": last[0], "against": against_,
                            "runs": len(members), "distinct": len(counts), "effective": effective(counts),
                            "pairs": len(some), **_summary(some),
                            "bound": bound(tries) if same else np.nan,
                        }
                    )  # fmt: skip
    return pd.DataFrame(rows, columns=VARIABILITY)


def comparable(frames: Frames, runs: list[Id]) -> bool:
    """Whether none of `runs`, which are judged against each other, lacks records that it must have."""
    return all(comparison.comparable for comparison in among(frames, runs).comparisons)


def _summary(some: pd.DataFrame) -> dict[str, float]:
    size = some["v_s"].abs()
    return {
        "v_s_median": size.median(), "v_s_max": size.max(),
        "v_ermv_mean": some["v_ermv"].mean(), "v_ermv_max": some["v_ermv"].max(),
        "v_c_mean": some["v_c"].mean(), "v_c_max": some["v_c"].max(),
        "ulp_mean": some["mean_ulp"].mean(), "ulp_max": some["max_ulp"].max(),
        "undefined": int(some["undefined"].sum()),
    }  # fmt: skip


Columns = dict[
    str, np.ndarray
]  # PAIRS, as arrays: hundreds of small frames would take longer than their contents


def _within(frames: Frames, where: dict[str, str], runs: list[Id]) -> list[Columns]:
    last = final(frames, where["kind"], where["name"], runs) if len(runs) > 1 else None
    if last is None:
        return []
    step, words = last
    return [
        _metrics(
            where | {"step": step, "against": EACH_OTHER}, runs[i], words[i], runs[i + 1 :], words[i + 1 :]
        )
        for i in range(len(runs) - 1)
    ]


def _to_reference(frames: Frames, where: dict[str, str], chosen: Id, runs: list[Id]) -> list[Columns]:
    pieces = []
    for run in runs:  # one by one, so that a run that recorded other blocks leaves out only itself
        if last := final(frames, where["kind"], where["name"], [chosen, run]):
            step, (a, b) = last
            pieces.append(_metrics(where | {"step": step, "against": label(chosen)}, chosen, a, [run], [b]))
    return pieces


def _metrics(
    where: dict[str, Any], a: Id, one: np.ndarray, others: list[Id], many: list[np.ndarray]
) -> Columns:
    """Rows of PAIRS: `one` (rows, words) of `a` against each of `many`."""
    stacked = np.stack(many)
    changed = np.any(stacked != one, axis=2)
    columns = where | {
        "a": label(a), "b": np.array([label(run) for run in others], object), "elements": len(one),
        "v_c": changed.mean(axis=1), "v_s": np.nan, "v_ermv": np.nan, "max_ulp": np.nan, "mean_ulp": np.nan,
        "undefined": 0,
    }  # fmt: skip
    if where["kind"] == "values":
        x, y = one[:, 0].view(np.float64), stacked[:, :, 0].view(np.float64)
        distance = bits.ulp_distance(x[None], y)
        columns["v_ermv"], columns["undefined"] = bits.v_ermv(x[None], y)
        columns["max_ulp"], columns["mean_ulp"] = bits.largest(distance), bits.mean(distance)
        if len(one) == 1:
            columns["v_s"] = bits.v_s(x, y[:, 0])
    words = (key for key, dtype in PAIRS.items() if dtype == "str" and key != "b")
    columns |= {key: np.array([columns[key]], object) for key in words}
    return {key: np.broadcast_to(value, len(others)) for key, value in columns.items()}


def _counts(words: list[np.ndarray]) -> list[int]:
    """How many runs had each outcome."""
    seen: dict[bytes, int] = {}
    for word in words:
        seen[word.tobytes()] = seen.get(word.tobytes(), 0) + 1
    return list(seen.values())


def _names(frames: Frames, table: str) -> list[str]:
    """The names of states and results in `table`, in the order in which they are recorded within a step."""
    first: dict[int, int] = {}
    for run in ids(frames.runs):
        tree = frames.leaves(table, *run)
        codes, where = np.unique(tree.name, return_inverse=True)
        least = np.full(len(codes), np.iinfo(np.int32).max, np.int32)
        np.minimum.at(least, where, tree.seq)
        for code, seq in zip(codes.tolist(), least.tolist(), strict=True):
            first[code] = min(seq, first.get(code, seq))
    names = [frames.names[code] for code in sorted(first, key=lambda code: (first[code], code))]
    return [name for name in names if is_state(name)]


Last = tuple[
    list[tuple[int, int]], bytes, bytes
]  # places of the rows, hash of their keys, hash of their bits


def _last(frames: Frames, table: str, name: str, runs: list[Id]) -> tuple[int, list[Last]] | None:
    """The last step in which all `runs` recorded `name`, and what each run recorded there."""
    code = frames.names.index(name)
    trees = [frames.leaves(table, *run) for run in runs]
    recorded = [tree.of(code) for tree in trees]
    if not all(len(steps) for _, steps in recorded):
        return None
    step = min(int(steps[-1]) for _, steps in recorded)
    if not all(_has(steps, step) for _, steps in recorded):
        shared = set.intersection(*(set(steps.tolist()) for _, steps in recorded))
        if not shared:
            return None
        step = max(shared)
    rows = []
    for tree, (leaves, steps) in zip(trees, recorded, strict=True):
        here = leaves[np.searchsorted(steps, step) : np.searchsorted(steps, step, side="right")]
        keys = [column[here].tobytes() for column in (tree.occurrence, tree.leaf, tree.rows, tree.keys)]
        hashes = tree.hi[here].tobytes() + tree.lo[here].tobytes()
        rows.append((tree.places(here), b"".join(keys), hashes))
    return step, rows


def _in_all(frames: Frames, table: str, runs: list[Id], last: list[Last]) -> list[bytes]:
    """The bits of the rows of `last` that all `runs` recorded, in one order."""
    rows = [
        frames.at(table, run, places).set_index(["occurrence", "block"])
        for (run, _), (places, _, _) in zip(runs, last, strict=True)
    ]
    shared = functools.reduce(lambda one, other: one.intersection(other), (each.index for each in rows))
    shared = shared.sort_values()
    return [
        b"".join(each.loc[shared, column].to_numpy().tobytes() for column in PAYLOAD[table]) for each in rows
    ]


def _has(ascending: np.ndarray, value: int) -> bool:
    place = np.searchsorted(ascending, value)
    return bool(place < len(ascending) and ascending[place] == value)


def _words(frames: Frames, table: str, run: str, places: list[tuple[int, int]]) -> np.ndarray:
    frame = frames.at(table, run, places)
    return np.stack([frame[column].to_numpy().view(np.uint64) for column in PAYLOAD[table]], axis=1)
