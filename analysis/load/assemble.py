"""One run from the traces of its ranks: rows of all ranks in one order, and what does not fit named."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from analysis.load.rankfile import RankData
from miniapps.trace import TraceError

KEY = ("repeat", "step", "name", "occurrence", "block")  # what tells rows of values and fingerprints apart
PAYLOAD = {"values": ("value",), "fingerprints": ("hi", "lo")}
# Ends of the names of variables that tell ranks apart by design, so that their differences say nothing.
OF_EACH_RANK = ("RANK", "PROCID", "LOCALID", "NODEID", "TASK_PID")
SHOWN = 4  # ranks, steps or names listed before "and N more"


@dataclass
class Run:
    """One run directory: `rows` for the frame of runs (one per repeat), `tables` of columns with `name` as
    codes of a dict shared by all runs, and `notes`: (what, path, reason, kept) of all that was left out or
    is doubtful."""

    label: str
    path: Path
    rows: list[dict[str, Any]] = field(default_factory=list)
    tables: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    notes: list[tuple[str, Path, str, str]] = field(default_factory=list)

    def note(self, what: str, path: Path, reason: str, kept: str) -> None:
        self.notes.append((what, path, reason, kept))


def assemble(label: str, path: Path, files: list[RankData | TraceError], codes: dict[str, int]) -> Run:
    """The run in directory `path` from what was read of its files; `codes` numbers the names of all runs and
    grows. Without a usable file the run has no rows and the notes say why."""
    run = Run(label, path)
    result = _result(run)
    ranks = _usable(run, files)
    if not ranks:
        if not run.notes:
            run.note("no trace", path, f"{path}: no rank-*.h5; the run ended before it wrote one", "nothing")
        return run
    first = ranks[0].attributes
    missing = sorted(set(range(first["size"])) - {rank.attributes["rank"] for rank in ranks})
    if missing:
        reason = f"{path}: a run of {first['size']} ranks without usable traces of {listed('rank', missing)}"
        advice = "copy the whole directory again, or repeat the run"
        run.note("missing ranks", path, f"{reason}; {advice}", "other ranks")
    last = _last_steps(run, ranks, bool(missing))
    if not last and not run.notes:
        run.note("empty", path, f"{path}: the traces hold no rows; repeat the run", "nothing")
    for repeat, (step, complete) in last.items():
        run.rows.append(_row(run, ranks, repeat, step, complete, result))
    for table in ("events", "values", "fingerprints", "order"):
        run.tables[table] = _combined(run, table, ranks, last, codes)
    return run


def listed(noun: str, items: list) -> str:
    """`rank 3`, `ranks 1, 2`, `ranks 0, 1, 2, 3 and 60 more`."""
    shown = ", ".join(map(str, items[:SHOWN]))
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return f"{noun}{'s' if len(items) > 1 else ''} {shown}{more}"


def _result(run: Run) -> dict[str, Any]:
    """RUN/result.json; empty where there is none. What it says about failures becomes a note."""
    path = run.path / "result.json"
    if not path.is_file():
        return {}
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        failed = [check for check in result.get("checks", []) if not check["passed"]]
        if result.get("status") == "failed":
            run.note("failed", path, f"{path}: {result.get('error', 'the run failed')}", "what was recorded")
        for check in failed:
            where = f" (repeat {check['repeat']})" if check.get("repeat", -1) >= 0 else ""
            reason = f"{path}: check {check['name']}{where} failed: {check.get('detail', '')}"
            run.note("check failed", path, reason, "everything")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        run.note("damaged result", path, f"{path}: cannot be used ({error}); copy it again", "the traces")
        return {}
    return result


def _usable(run: Run, files: list[RankData | TraceError]) -> list[RankData]:
    """The files that can be read and belong together, by rank."""
    errors = [file for file in files if isinstance(file, TraceError)]
    for error in errors[:SHOWN]:
        run.note("unreadable", run.path, str(error), "nothing of this rank")
    if len(errors) > SHOWN:
        reason = f"{run.path}: {len(errors) - SHOWN} more files cannot be read either; copy the run again"
        run.note("unreadable", run.path, reason, "nothing of these ranks")
    ranks: list[RankData] = []
    for file in files:
        if isinstance(file, TraceError):
            continue
        if ranks and any(file.attributes[k] != ranks[0].attributes[k] for k in ("run_id", "size", "problem")):
            reason = f"{file.path}: of another launch than {ranks[0].path.name}"
            run.note(
                "foreign rank", file.path, f"{reason}; give every run its own directory", "nothing of it"
            )
            continue
        if file.backwards:
            reason = (
                f"{file.path}: {file.backwards} events end before they start: the clock of the node jumped"
            )
            run.note("clock", file.path, f"{reason}; do not trust the times of this run", "all other events")
        ranks.append(file)
    return sorted(ranks, key=lambda rank: rank.attributes["rank"])


def _last_steps(run: Run, ranks: list[RankData], missing: bool) -> dict[int, tuple[int, bool]]:
    """{repeat: (last step to use, whether the repeat is whole)}.

    The run is used as far as all ranks went. A rank that failed may have recorded part of that step: rows are
    compared one by one, so that the part is of use.
    """
    ended = [_ends(rank) for rank in ranks]
    stopped = [r.attributes["rank"] for r in ranks if not r.attributes["complete"]]
    last = {}
    for repeat in sorted(set().union(*ended)):
        done = not stopped or all(max(end, default=-1) > repeat for end in ended)
        if done:
            last[repeat] = (max(end.get(repeat, -1) for end in ended), not missing)
        elif all(repeat in end for end in ended):
            last[repeat] = (min(end[repeat] for end in ended), False)
    if stopped:
        cut = [f"repeat {repeat} to step {step}" for repeat, (step, whole) in last.items() if not whole]
        reason = f"{run.path}: ended early ({listed('rank', stopped)} marked incomplete), {len(last)} of "
        reason += (
            f"{ranks[0].attributes.get('repeats', '?')} repeats begun; see the log of the run, or repeat it"
        )
        run.note("incomplete", run.path, reason, ", ".join(cut) or ("whole repeats" if last else "nothing"))
    return last


def _ends(rank: RankData) -> dict[int, int]:
    """{repeat: last step} over all tables of one rank."""
    ends: dict[int, int] = {}
    for table in rank.tables.values():
        for repeat in np.unique(table["repeat"]).tolist():
            ends[repeat] = max(ends.get(repeat, -1), int(table["step"][table["repeat"] == repeat].max()))
    return ends


def _row(
    run: Run, ranks: list[RankData], repeat: int, step: int, complete: bool, result: dict
) -> dict[str, Any]:
    first = ranks[0].attributes
    states = result.get("fingerprints") or []
    spans = [int(end - start) for rank in ranks for r, start, end in rank.spans if r == repeat]
    return {
        "run": run.label,
        "repeat": repeat,
        "path": str(run.path),
        "run_id": first["run_id"],
        "allocation_id": first.get("allocation_id", ""),
        "app": first["app"],
        "problem": first["problem"],
        "size": first["size"],
        "guarantee": first["guarantee"],
        "ordering": first.get("ordering", ""),
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
    }


def _tracing_ns(rank: RankData) -> float:
    """What tracing cost this rank, by its own account; 0 where the run was killed."""
    tracer = rank.attributes["tracer"]
    return tracer.get("events", 0) * tracer.get("ns_per_event", 0) + tracer.get("flush_ns", 0)


def _environment(ranks: list[RankData]) -> dict[str, str]:
    """The environment of a run, flat; where ranks differ, what was seen, joined by " | "."""
    flat = [flatten(rank.attributes.get("environment") or {}) for rank in ranks]
    merged = {}
    for key in dict.fromkeys(key for environment in flat for key in environment):
        if key.endswith(OF_EACH_RANK):
            continue
        seen = list(dict.fromkeys(environment.get(key, "not set") for environment in flat))
        merged[key] = " | ".join(seen) if len(seen) <= SHOWN else f"{len(seen)} values over the ranks"
    return merged


def flatten(tree: Any, prefix: str = "") -> dict[str, str]:
    """Leaves of nested dicts by dotted key, as text."""
    if not isinstance(tree, dict):
        return {prefix: tree if isinstance(tree, str) else json.dumps(tree)}
    flat: dict[str, str] = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}.{key}" if prefix else str(key))
    return flat


def _combined(
    run: Run, table: str, ranks: list[RankData], last: dict[int, tuple[int, bool]], codes: dict[str, int]
) -> dict[str, np.ndarray]:
    pieces = []
    for rank in ranks:
        columns = dict(rank.tables[table])
        local = np.array([codes.setdefault(name, len(codes)) for name in rank.names], np.int32)
        columns["name"] = local[columns["name"]] if len(columns["name"]) else columns["name"].astype(np.int32)
        columns["rank"] = np.full(len(columns["name"]), rank.attributes["rank"], np.int32)
        if "ranks" in columns:
            columns["ranks"] = _packed(columns["ranks"])
        keep = np.zeros(len(columns["name"]), bool)
        for repeat, (step, _) in last.items():
            keep |= (columns["repeat"] == repeat) & (columns["step"] <= step)
        pieces.append(columns if keep.all() else {k: v[keep] for k, v in columns.items()})
    columns = {key: np.concatenate([piece[key] for piece in pieces]) for key in pieces[0]}
    if table in PAYLOAD:
        return _merged(run, table, columns, codes)
    order = np.argsort(columns["repeat"], kind="stable")
    return {key: column[order] for key, column in columns.items()}


def _packed(orders: np.ndarray) -> np.ndarray:
    """Rows of uint16 `orders` (n, size) as n bytes objects, equal ones shared."""
    known: dict[bytes, bytes] = {}
    packed = np.empty(len(orders), object)
    for i, row in enumerate(np.ascontiguousarray(orders, "<u2")):
        packed[i] = known.setdefault(key := row.tobytes(), key)
    return packed


def _merged(
    run: Run, table: str, columns: dict[str, np.ndarray], codes: dict[str, int]
) -> dict[str, np.ndarray]:
    """Rows in the order of KEY, one per key: what several ranks recorded is kept from the lowest; where they
    hold other bits, a note says so. `seq` becomes the same for all rows of one (repeat, step, name,
    occurrence)."""
    order = np.lexsort([columns[key] for key in ("rank", *reversed(KEY))])
    columns = {key: column[order] for key, column in columns.items()}
    if not len(order):
        return columns
    new = _changes(columns, KEY)
    first = np.flatnonzero(new)[np.cumsum(new) - 1]
    payload = [columns[key].view(np.uint64) for key in PAYLOAD[table]]
    differ = np.any([bits != bits[first] for bits in payload], axis=0)
    if differ.any():
        _disagree(run, table, {k: columns[k][differ] for k in (*KEY, "rank")}, list(codes))
    columns = {key: column[new] for key, column in columns.items()}
    step = _changes(columns, KEY[:-1])
    begin = np.flatnonzero(step)
    columns["seq"] = np.maximum.reduceat(columns["seq"], begin)[np.cumsum(step) - 1]
    return columns


def _changes(columns: dict[str, np.ndarray], keys: tuple[str, ...]) -> np.ndarray:
    """Whether each row differs from the one before in any of `keys`; true for the first."""
    new = np.ones(len(columns[keys[0]]), bool)
    new[1:] = np.any([columns[key][1:] != columns[key][:-1] for key in keys], axis=0)
    return new


def _disagree(run: Run, table: str, rows: dict[str, np.ndarray], names: list[str]) -> None:
    name, step, repeat = names[rows["name"][0]], rows["step"][0], rows["repeat"][0]
    ranks = sorted(set(rows["rank"].tolist()))
    reason = (
        f"{run.path}: {listed('rank', ranks)} recorded other bits than the lowest rank for the same {name}"
    )
    where = f"{len(rows['rank'])} {table}, first at repeat {repeat}, step {step}"
    advice = "what ranks hold in common must be equal: run with --check-ranks"
    run.note("ranks disagree", run.path, f"{reason} ({where}); {advice}", "bits of the lowest rank")
