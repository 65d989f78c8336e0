"""Orderings of runs: the reductions that each planned, in the same words for runs with the same plan."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from miniapps.trace.head import label_of, orderings

SAME = ("app", "problem", "guarantee")


def assign_orderings(rows: Sequence[dict[str, Any]]) -> None:
    """Set `ordering` of each of `rows` (one per run and repeat, with `reductions` as JSON): its orderings and those of
    the runs of the same problem and guarantee that planned no reduction of one name in another way.

    Runs may plan fewer reductions than others of their method, as those that ended early: a run without any goes with
    the first of the same options, and all have the words of all.
    """
    families: dict[tuple, list[dict[str, Any]]] = {}
    family_of: dict[tuple, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["reductions"] == "{}"):
        key = (*(row[name] for name in SAME), row["reductions"])
        asked = row["method"]
        if row["reductions"] == "{}":
            key += (asked,)
        if key not in family_of:
            own = json.loads(row["reductions"])
            same = families.setdefault(key[: len(SAME)], [])
            family = next((each for each in same if _agree(each, own, asked)), None)
            if family is None:
                same.append(family := {"reductions": {}, "asked": set()})
            family["reductions"] |= own
            family_of[key] = family
        family_of[key]["asked"].add(asked)
        row["ordering"] = family_of[key]
    for row in rows:
        row["ordering"] = ",".join(orderings(row["ordering"]["reductions"]))


def _agree(family: dict[str, Any], own: dict[str, Any], asked: str) -> bool:
    if not own:
        return asked in family["asked"]
    known = family["reductions"]
    return all(label_of(own[name]) == label_of(known[name]) for name in own.keys() & known.keys())
