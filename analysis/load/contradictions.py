"""Where result.json says something else than the traces beside it: one of them is of another run, or was changed.

Identity, ends and numbers of repeats are in both. The hash of the final state is made again from what the traces
hold, where they hold all of it: for `coupled` but with a network that is never recorded (`--closure surrogate`), and
for `reductions`. Of `solver` they hold the blocks of the solution, not the hash of the whole: repeats with equal
blocks must have equal hashes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from miniapps.trace import fingerprint

SAME = ("run_id", "app", "problem", "size", "guarantee", "seed", "repeats")  # what both name
EXIT_CODES = {"done": (0, 3)}  # of a run that came to its end: all checks passed, or one failed

Columns = Mapping[str, np.ndarray]


def contradictions(
    result: Mapping[str, Any],
    heads: Sequence[Mapping[str, Any]],
    last: Mapping[int, tuple[int, bool]],
    names: Sequence[str],
    tables: Mapping[str, Columns],
) -> list[str]:
    """What `result`, the content of a result.json, says that the traces of its run contradict, a sentence each.

    `heads`: the attributes of all usable ranks; `last` {repeat: (last step, whether it is whole)}; `tables`: the
    columns of `values` and `fingerprints` of all ranks, as `assemble` merges them, whose `name` counts in `names`. What
    is not in `result`, or empty there, contradicts nothing.
    """
    told = heads[0]
    found = [
        f"result.json says {key} {result[key]}, the traces {told[key]}"
        for key in SAME
        if result.get(key) not in (None, "", 0) and key in told and result[key] != told[key]
    ]
    found += _ends(result, heads, last)
    if found or result.get("status") != "done":
        return found
    states = result.get("fingerprints") or []
    for repeat, made in _states(told, last, names, tables).items():
        if repeat < len(states) and states[repeat] and states[repeat] != made:
            found.append(
                f"result.json says that repeat {repeat} ended in the state {states[repeat]}, the traces hold {made}"
            )
    return found + _unequal(states, last, names, tables)


def _ends(result: Mapping[str, Any], heads: Sequence[Mapping[str, Any]], last: Mapping) -> list[str]:
    """Status, exit code and number of repeats against what the traces say of their end."""
    status, code, checks = result.get("status"), result.get("exit_code"), result.get("checks") or []
    failed = [check for check in checks if not _of(check, "passed")]
    found = []
    if code is not None and (code in EXIT_CODES["done"]) != (status == "done"):
        found.append(f"result.json says both {status} and exit code {code}")
    elif status == "done" and code is not None and (code == 0) == bool(failed):
        found.append(f"result.json says exit code {code} and names {len(failed)} checks that failed")
    if status != "done":
        return found
    if early := [head["rank"] for head in heads if not head["complete"]]:
        found.append(
            f"result.json says that the run is done, the trace of rank {early[0]} that it ended early"
        )
    repeats = heads[0].get("repeats")
    states = result.get("fingerprints")
    if repeats and states and len(states) != repeats:
        found.append(f"result.json has {len(states)} final states, the traces are of {repeats} repeats")
    if repeats and last and not early and sorted(last) != list(range(repeats)):
        found.append(
            f"result.json says that the run is done, the traces hold {len(last)} of {repeats} repeats"
        )
    return found


def _of(check: Any, key: str) -> Any:
    return check[key] if isinstance(check, Mapping) else getattr(check, key)


def _states(told: Mapping[str, Any], last: Mapping, names: Sequence[str], tables: Mapping) -> dict[int, str]:
    """{repeat: the hash of its final state} as the application makes it, where the traces hold all that it is of."""
    made = {"coupled": _flow, "reductions": _sums}.get(told.get("app"))
    if made is None:
        return {}
    states = {
        repeat: made(told, repeat, step, names, tables) for repeat, (step, whole) in last.items() if whole
    }
    return {repeat: state for repeat, state in states.items() if state}


def _flow(told: Mapping, repeat: int, step: int, names: Sequence[str], tables: Mapping) -> str:
    """As `miniapps.coupled.state.state_fingerprint`: vorticity and streamfunction block by block, then the weights."""
    closure = (told.get("config") or {}).get("closure")
    kind = closure.get("kind") if isinstance(closure, Mapping) else None
    table = tables["fingerprints"]
    fields = [_rows(table, names, name, repeat, step) for name in ("vorticity", "streamfunction")]
    if kind not in ("none", "physics", "online") or any(not len(rows["block"]) for rows in fields):
        return ""
    if not np.array_equal(*(rows["block"] for rows in fields)):
        return ""
    words = np.stack([rows[word] for rows in fields for word in ("hi", "lo")], axis=1)
    digest = hashlib.blake2b(words.astype(">u8").tobytes(), digest_size=16)
    if kind == "online":
        weights = _rows(table, names, "weights", repeat)
        if not len(weights["step"]):
            return ""  # nothing was learned: the first weights are not recorded
        at = int(np.argmax(weights["step"]))
        digest.update(np.array([weights["hi"][at], weights["lo"][at]], ">u8").tobytes())
    return digest.hexdigest()


def _sums(told: Mapping, repeat: int, step: int, names: Sequence[str], tables: Mapping) -> str:
    """As `miniapps.reductions.record.Record.fingerprint`: the first samples of what promises to repeat, by length,
    array and variant."""
    promised = [name for name, level in (told.get("promises") or {}).items() if level != "none"]
    firsts = []
    for name in names:
        variant, _, length = name.rpartition(":")
        if variant in promised and length.isdecimal():
            rows = _rows(tables["values"], names, name, repeat, 0)
            rows = {key: column[rows["occurrence"] == 0] for key, column in rows.items()}
            firsts += [
                (int(length), array, variant, value)
                for array, value in zip(rows["block"].tolist(), rows["value"].tolist(), strict=True)
            ]
    firsts.sort(key=lambda first: first[:3])
    return fingerprint(np.array([value for *_, value in firsts])).hex() if firsts else ""


def _unequal(states: Sequence[str], last: Mapping, names: Sequence[str], tables: Mapping) -> list[str]:
    """Repeats of `solver` whose solution has the same bits by block and another hash, or other bits and one hash."""
    seen: list[tuple[int, str, bytes]] = []
    for repeat, (step, whole) in last.items():
        rows = _rows(tables["fingerprints"], names, "x", repeat, step)
        if whole and len(rows["block"]) and repeat < len(states) and states[repeat]:
            bits = b"".join(rows[key].tobytes() for key in ("block", "hi", "lo"))
            seen.append((repeat, states[repeat], bits))
    for repeat, state, bits in seen[1:]:
        first, known, others = seen[0]
        if (state == known) != (bits == others):
            one, other = ("equal", "other") if state == known else ("different", "the same")
            return [
                f"result.json says that repeats {first} and {repeat} ended in {one} states, the traces hold "
                f"{other} bits of their solutions"
            ]
    return []


def _rows(
    table: Columns, names: Sequence[str], name: str, repeat: int, step: int | None = None
) -> dict[str, np.ndarray]:
    """The rows of a name in a repeat, and in a step where one is given, by block; occurrences in their order."""
    code = names.index(name) if name in names else -1
    keep = (table["name"] == code) & (table["repeat"] == repeat)
    if step is not None:
        keep &= table["step"] == step
    return {key: column[keep] for key, column in table.items()}
