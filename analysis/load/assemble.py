"""Joins the traces of a run's ranks into one run: sorts the rows of all ranks, and notes what does not fit."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from analysis.load.columns import KEY, PAYLOAD, STORED
from analysis.load.keys import changes, order_by
from analysis.load.pool import alone
from analysis.load.rankfile import Head, Piece, joined
from analysis.load.stated import Stated, packed
from analysis.load.tree import leaves
from miniapps.system.scope import flatten
from miniapps.trace import TraceError, how_to_recover
from miniapps.trace.contradictions import contradictions
from miniapps.trace.schema import NAMED, TABLES
from miniapps.untrusted import Refused
from miniapps.untrusted.result import RESULT, Result, read_result
from miniapps.untrusted.text import printable

# Suffixes of environment variables that differ between ranks by design, so that their differences mean nothing.
OF_EACH_RANK = ("RANK", "PROCID", "LOCALID", "NODEID", "TASK_PID")
SHARED = ("run_id", "size", "problem")  # equal on all ranks of a run
SHOWN = 4  # ranks, steps or names listed before "and N more"


@dataclass
class Run:
    """The contents of one run directory.

    rows     for the frame of runs, one per repeat
    names    the names to which the codes in `name` columns refer
    tables   {table: {column: array}}
    trees    hash trees over the tables in PAYLOAD
    notes    (what, path, reason, kept) of each part that was left out or is doubtful
    stated   facts that its ranks state beside their rows
    """

    path: Path
    rows: list[dict[str, Any]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    tables: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    trees: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    notes: list[tuple[str, str, str, str]] = field(default_factory=list)
    stated: Stated = field(default_factory=Stated)

    def note(self, what: str, path: str, reason: str, kept: str) -> None:
        self.notes.append((what, path, reason, kept))


def assemble(path: Path, pieces: list[Piece]) -> Run:
    """Joins the `pieces` read from the files in `path` into a run; removes the tables from `pieces`.

    Without a usable file the run has no rows, and its notes state the reason."""
    run = Run(path)
    shown = printable(str(path))
    result = _result(run, shown)
    ranks = _usable(run, [head for piece in pieces for head in piece.heads], shown)
    if not ranks:
        if not run.notes:
            advice = how_to_recover(shown) or "the run ended before it wrote one"
            run.note("no trace", shown, f"{shown}: no rank-*.h5; {advice}", "nothing")
        return run
    if len(ranks) < sum(isinstance(head, Head) for piece in pieces for head in piece.heads):
        usable = list(dict.fromkeys(head.path for head in ranks))
        pieces = alone(usable)
    first = ranks[0].attributes
    if result is None and first.get("result") and not run.notes:
        reason = f"{shown}/{RESULT}: is gone, and the trace of rank {first['rank']} says what was in it"
        run.note(
            "damaged result", f"{shown}/{RESULT}", f"{reason}; copy the whole directory again", "the traces"
        )
    recorded = set().union(*(rank.ends for rank in ranks))
    if result is not None and (contradiction := contradictions(result, ranks, recorded)):
        advice = "the run was changed, or files of several are mixed: copy the whole directory again"
        run.note("contradiction", shown, f"{shown}: {'; '.join(contradiction)}; {advice}", "nothing")
        return run
    missing = first["size"] - len(ranks)
    if missing:
        known = {head.rank for head in ranks}
        some = list(islice((rank for rank in range(first["size"]) if rank not in known), SHOWN))
        reason = f"{shown}: a run of {first['size']} ranks without usable traces of {listed('rank', some, missing)}"
        advice = how_to_recover(shown) or "copy the whole directory again, or repeat the run"
        run.note("missing ranks", shown, f"{reason}; {advice}", "other ranks")
    last = _last_steps(run, ranks, bool(missing), shown)
    if not last and not run.notes:
        run.note("empty", shown, f"{shown}: the traces hold no rows; repeat the run", "nothing")
    for repeat, (step, complete) in last.items():
        run.rows.append(_row(ranks, repeat, step, complete, result))
    run.stated = Stated(packed(head.attributes for head in ranks))
    run.names = list(dict.fromkeys(name for piece in pieces for name in piece.names))
    for table in TABLES:
        columns = _combined(table, pieces, last, run.names)
        if table in PAYLOAD:
            columns = _merged(run, table, columns)
            run.trees[table] = leaves(columns, PAYLOAD[table])
        else:
            order = order_by(columns["repeat"], columns["rank" if "rank" in STORED[table] else "repeat"])
            columns = {key: column[order] for key, column in columns.items()}
        run.tables[table] = {key: columns[key] for key in STORED[table]}
    return run


def listed(noun: str, items: list, count: int | None = None) -> str:
    """`rank 3`, `ranks 1, 2`, `ranks 0, 1, 2, 3 and 60 more`; `items` may be only the first of `count`."""
    count = len(items) if count is None else count
    shown = ", ".join(map(str, items[:SHOWN]))
    more = f" and {count - SHOWN} more" if count > SHOWN else ""
    return f"{noun}{'s' if count > 1 else ''} {shown}{more}"


def _result(run: Run, shown: str) -> Result | None:
    """The contents of RUN/result.json, None if it is missing or damaged; its failures become notes of `run`."""
    path = f"{shown}/{RESULT}"
    try:
        result = read_result(run.path)
    except FileNotFoundError:
        return None
    except Refused as error:
        run.note("damaged result", path, str(error), "the traces")
        return None
    except OSError as error:
        reason = f"{path}: cannot be read: {error.strerror}; make it readable"
        run.note("damaged result", path, reason, "the traces")
        return None
    if result.status == "failed":
        reason = printable(result.error) or "the run failed"
        run.note("failed", path, f"{path}: {reason}", "the records")
    for check in result.checks:
        if not check.passed:
            where = f" (repeat {check.repeat})" if check.repeat >= 0 else ""
            reason = f"{path}: check {printable(check.name)}{where} failed: {printable(check.detail)}"
            run.note("check failed", path, reason, "everything")
    return result


def _usable(run: Run, files: list[Head | TraceError], shown: str) -> list[Head]:
    """The files that can be read and belong together, by rank."""
    errors = [file for file in files if isinstance(file, TraceError)]
    for error in errors[:SHOWN]:
        run.note("unreadable", shown, str(error), "nothing of this rank")
    if len(errors) > SHOWN:
        reason = f"{shown}: {len(errors) - SHOWN} more files cannot be read either; copy the run again"
        run.note("unreadable", shown, reason, "nothing of these ranks")
    ranks: dict[int, Head] = {}
    for head in files:
        if isinstance(head, TraceError):
            continue
        first, here = next(iter(ranks.values()), head), printable(str(head.path))
        if other := [key for key in SHARED if head.attributes[key] != first.attributes[key]]:
            other_run = printable(str(head.attributes[other[0]]))
            reason = f"{here}: of another launch than {first.path.name} ({other[0]} {other_run})"
            run.note("foreign rank", here, f"{reason}; give every run its own directory", "nothing of it")
            continue
        if head.rank in ranks:
            reason = f"{here}: holds rank {head.rank}, as {ranks[head.rank].path.name} does; remove one"
            run.note("foreign rank", here, reason, "nothing of it")
            continue
        if head.backwards:
            reason = f"{here}: {head.backwards} events end before they start: the clock of the node jumped"
            run.note("clock", here, f"{reason}; do not trust the times of this run", "all other events")
        ranks[head.rank] = head
    return [ranks[rank] for rank in sorted(ranks)]


def _last_steps(run: Run, ranks: list[Head], missing: bool, shown: str) -> dict[int, tuple[int, bool]]:
    """{repeat: (last step to use, True if the repeat is whole)}.

    The run is used up to the last step that all ranks reached. A rank that failed may have recorded only part of this
    step; the part can be used, since rows are compared one by one.
    """
    ended = [rank.ends for rank in ranks]
    stopped = [head.rank for head in ranks if not head.attributes["complete"]]
    last = {}
    for repeat in sorted(set().union(*ended)):
        done = not stopped or all(max(end, default=-1) > repeat for end in ended)
        if done:
            last[repeat] = (max(end.get(repeat, -1) for end in ended), not missing)
        elif all(repeat in end for end in ended):
            last[repeat] = (min(end[repeat] for end in ended), False)
    if stopped:
        cut = [f"repeat {repeat} to step {step}" for repeat, (step, whole) in last.items() if not whole]
        reason = f"{shown}: ended early ({listed('rank', stopped)} marked incomplete), {len(last)} of "
        reason += (
            f"{ranks[0].attributes.get('repeats', '?')} repeats begun; see the log of the run, or repeat it"
        )
        run.note("incomplete", shown, reason, ", ".join(cut) or ("whole repeats" if last else "nothing"))
    return last


def _row(ranks: list[Head], repeat: int, step: int, complete: bool, result: Result | None) -> dict[str, Any]:
    first = ranks[0].attributes
    states = result.fingerprints if result else []
    spans = [int(end - start) for rank in ranks for r, start, end in rank.spans if r == repeat]
    return {
        "repeat": repeat,
        "run_id": first["run_id"],
        "allocation_id": first.get("allocation_id", ""),
        "app": first["app"],
        "problem": first["problem"],
        "size": first["size"],
        "guarantee": first["guarantee"],
        "seed": first.get("seed", -1),
        "complete": complete,
        "last_step": step,
        "state": states[repeat] if complete and repeat < len(states) else "",
        "wall_s": max(spans) / 1e9 if spans else np.nan,
        "events": sum(rank.attributes["tracer"].get("events", 0) for rank in ranks),
        "tracing_s": max(map(_tracing_ns, ranks)) / 1e9,
        "started": first.get("started", ""),
        "method": json.dumps(first["method"], sort_keys=True),
        "config": json.dumps(first.get("config", {}), sort_keys=True),
        "environment": json.dumps(_environment(ranks), sort_keys=True),
        "promises": json.dumps(first.get("promises", {}), sort_keys=True),
        "problem_options": json.dumps(first.get("problem_options", {}), sort_keys=True),
        "options": json.dumps(first.get("options", {}), sort_keys=True),
        "regions": json.dumps(_regions(ranks), sort_keys=True),
        "reductions": json.dumps(first.get("reductions", {}), sort_keys=True),
        "unseen": json.dumps(_unseen(ranks), sort_keys=True),
        "unreached": json.dumps(_unreached(ranks), sort_keys=True),
        "neighbours": json.dumps(_neighbours(ranks), sort_keys=True),
    }


def _unseen(ranks: list[Head]) -> dict[str, int]:
    """{function: calls of all ranks} that were counted and not recorded."""
    counts: Counter[str] = Counter()
    for rank in ranks:
        counts.update(rank.attributes.get("unseen", {}))
    return dict(counts)


def _unreached(ranks: list[Head]) -> list[dict[str, Any]]:
    """The sums that a guarantee did not reach, with the calls of all ranks; the most first."""
    counts: Counter[tuple[str, str]] = Counter()
    for rank in ranks:
        for own in rank.attributes.get("unreached", []):
            counts[own["call"], own["why"]] += own["calls"]
    return [{"call": call, "why": why, "calls": calls} for (call, why), calls in counts.most_common()]


def _neighbours(ranks: list[Head]) -> dict[str, dict[str, list[int]]]:
    """{call: {rank: the ranks from which it receives}} of neighbourhood collectives."""
    found: dict[str, dict[str, list[int]]] = {}
    for rank in ranks:
        for call, own in rank.attributes.get("neighbours", {}).items():
            found.setdefault(call, {})[str(rank.attributes["rank"])] = own["from"]
    return found


def _regions(ranks: list[Head]) -> dict[str, str]:
    """{region: kind} of all ranks; if ranks state several kinds, the kind of the lowest rank."""
    kinds: dict[str, str] = {}
    for rank in ranks:
        kinds = rank.attributes.get("regions", {}) | kinds
    return kinds


def _tracing_ns(rank: Head) -> float:
    """The time that tracing cost this rank, in ns, as the rank recorded it; 0 if the run was killed."""
    tracer = rank.attributes["tracer"]
    return tracer.get("events", 0) * tracer.get("ns_per_event", 0) + tracer.get("flush_ns", 0)


def _environment(ranks: list[Head]) -> dict[str, str]:
    """The environment of a run, flat; where ranks differ, up to SHOWN values joined by " | ", else their number."""
    flat = [flatten(rank.attributes.get("environment") or {}) for rank in ranks]
    merged = {}
    for key in dict.fromkeys(key for environment in flat for key in environment):
        if key.endswith(OF_EACH_RANK):
            continue
        seen = list(dict.fromkeys(environment.get(key, "not set") for environment in flat))
        merged[key] = " | ".join(seen) if len(seen) <= SHOWN else f"{len(seen)} values over the ranks"
    return merged


def _combined(
    table: str, pieces: list[Piece], last: dict[int, tuple[int, bool]], names: list[str]
) -> dict[str, np.ndarray]:
    """The rows of `table` up to the `last` step of each repeat, rank by rank, with codes of `names` as `name`.

    Takes the table out of `pieces`, to save memory."""
    places = {name: place for place, name in enumerate(names)}
    parts: list[dict[str, np.ndarray]] = []
    for piece in pieces:
        columns = piece.tables.pop(table)
        if not len(columns["name"]) and parts:
            continue
        local = np.array([places[name] for name in piece.names], np.int32)
        if len(columns["name"]):
            columns |= {key: local[columns[key]] for key in NAMED if key in columns}
        keep = np.zeros(len(columns["name"]), bool)
        for repeat, (step, _) in last.items():
            keep |= (columns["repeat"] == repeat) & (columns["step"] <= step)
        parts.append(columns if keep.all() else {key: rows[keep] for key, rows in columns.items()})
    columns = {key: joined([part.pop(key) for part in parts]) for key in list(parts[0])}
    if (np.diff(columns["rank"]) < 0).any():  # files of nodes may hold ranks that are not consecutive
        order = np.argsort(columns["rank"], kind="stable")
        columns = {key: rows[order] for key, rows in columns.items()}
    return columns


def _merged(run: Run, table: str, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Sorts rows by KEY and keeps one row per key, of the lowest rank; `columns` are rank by rank.

    If ranks recorded different bits for a key, `run` gets a note. All rows of one (repeat, step, name, occurrence) get
    the same `seq`, the largest."""
    order = order_by(*(columns[key] for key in KEY))  # stable: the lowest rank first
    if not len(order):
        return columns
    if (np.diff(order) < 0).any():  # a single rank records most tables in this order
        for key, rows in columns.items():
            columns[key] = rows[order]
    del order
    new = changes(*(columns[key] for key in KEY))
    if not new.all():
        first = np.flatnonzero(new)[np.cumsum(new) - 1]
        payload = [columns[key].view(np.uint64) for key in PAYLOAD[table]]
        differ = np.any([bits != bits[first] for bits in payload], axis=0)
        if differ.any() and table != "sizes":  # the note about fingerprints covers sizes
            _disagree(run, table, {key: columns[key][differ] for key in (*KEY, "rank")})
        for key, rows in columns.items():
            columns[key] = rows[new]
    begin = changes(*(columns[key] for key in KEY[:-1]))
    first = np.flatnonzero(begin)
    columns["seq"] = np.maximum.reduceat(columns["seq"], first)[np.cumsum(begin) - 1]
    return columns


def _disagree(run: Run, table: str, rows: dict[str, np.ndarray]) -> None:
    shown = printable(str(run.path))
    name, step, repeat = printable(run.names[rows["name"][0]]), rows["step"][0], rows["repeat"][0]
    ranks = sorted(set(rows["rank"].tolist()))
    reason = f"{shown}: {listed('rank', ranks)} recorded other bits than the lowest rank for the same {name}"
    where = f"{len(rows['rank'])} {table}, first at repeat {repeat}, step {step}"
    advice = "what ranks hold in common must be equal: run with --check-ranks"
    run.note("ranks disagree", shown, f"{reason} ({where}); {advice}", "bits of the lowest rank")
