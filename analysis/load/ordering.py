"""Names the ordering of each run: runs whose planned reductions agree get the same text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from miniapps.trace.head import label_of, orderings

SAME = ("app", "problem", "guarantee")


def assign_orderings(rows: Sequence[dict[str, Any]]) -> None:
    """Sets `ordering` in each of `rows`, one per run and repeat, with `reductions` as JSON.

    Runs of one SAME are a family if no reduction of one name is planned in two ways. A run that ended early may have
    planned fewer reductions, so `ordering` lists the orderings of the whole family. A run without any reduction joins
    the first family with a run of the same options.
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
