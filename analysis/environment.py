"""Finds differences between the machines and software of runs, and runs that a guarantee does not cover.

A guarantee covers one environment: one kind of processor, one set of library versions, one set of settings
(`miniapps.system.scope`). Runs of several environments are judged separately.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import pandas as pd

from miniapps.system.scope import NOT_RECORDED, NOT_SET, apart, mixed

FEW, LONGEST = 4, 80  # most entries or values, and most characters of a value, that are shown


def by_environment(runs: pd.DataFrame, guarantee: str) -> list[list[int]]:
    """Groups the places of `runs` by environment, as `guarantee` defines it.

    A run whose ranks differ is a group by itself, since it has no single environment."""
    environments: list[tuple[dict[str, str], bool, list[int]]] = []
    known: dict[str, list[int]] = {}
    for place, text in enumerate(runs["environment"]):
        if text in known:
            known[text].append(place)
            continue
        flat = json.loads(text)
        own = bool(mixed(flat, guarantee))
        same = next(
            (each for each in environments if not (own or each[1] or apart(each[0], flat, guarantee))), None
        )
        if same is None:
            environments.append(same := (flat, own, []))
        same[0].update(flat)  # adds entries of libraries that only some runs loaded
        same[2].append(place)
        if not own:
            known[text] = same[2]
    return [places for _, _, places in environments]


def several(runs: pd.DataFrame, guarantee: str) -> list[str]:
    """The entries in which the environments of `runs` differ, such as `cpu: A; B`; if there are many, the first FEW.

    Entries in which ranks of one run differ come first."""
    flat = [json.loads(text) for text in dict.fromkeys(runs["environment"])]
    parts = dict.fromkeys(
        f"{key}: {short(value)} on the ranks of one run"
        for own in flat
        for key, value in mixed(own, guarantee)
    )
    seen: dict[str, str] = dict(flat[0]) if flat else {}
    keys: dict[str, None] = {}
    for own in flat[1:]:
        keys |= dict.fromkeys(key for key, *_ in apart(seen, own, guarantee))
        seen = own | seen
    for key in keys:
        missing = NOT_SET if key.startswith("variables.") else NOT_RECORDED
        parts[f"{key}: {few(map(short, dict.fromkeys(own.get(key, missing) for own in flat)), '; ')}"] = None
    return list(parts) if len(parts) <= FEW else [few(parts, ", ")]


def few(items: Iterable[str], between: str) -> str:
    """The first FEW of `items` joined by `between`, and the number of the others."""
    items = list(items)
    more = [f"and {len(items) - FEW} more"] if len(items) > FEW else []
    return between.join([*items[:FEW], *more])


def short(value: str) -> str:
    """`value`, shortened to LONGEST characters and `...`; `empty` for an empty text."""
    return (value if len(value) <= LONGEST else f"{value[:LONGEST]}...") or "empty"


def differences(runs: pd.DataFrame) -> pd.DataFrame:
    """Environment entries that differ between launches: one row per (key, value), with the `runs` that have
    it.

    `telling` is False for keys with another value in every one of three or more launches, such as job ids:
    they cannot explain why some runs are equal and others are not.
    """
    launches = runs.drop_duplicates("run")
    environments = {
        run: json.loads(text) for run, text in zip(launches["run"], launches["environment"], strict=True)
    }
    rows = []
    for key in dict.fromkeys(key for environment in environments.values() for key in environment):
        by_value: dict[str, list[str]] = {}
        for run, environment in environments.items():
            by_value.setdefault(environment.get(key, "not set"), []).append(run)
        if len(by_value) > 1:
            telling = len(by_value) < max(3, len(environments))
            rows += [(key, value, having, telling) for value, having in by_value.items()]
    return pd.DataFrame(rows, columns=["key", "value", "runs", "telling"])
