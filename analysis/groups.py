"""Sorts runs into groups, and groups into cells of runs that are judged against each other.

Runs of one problem and one method form a group, on any number of ranks. `layout` and `exact` promise one result for any
number of ranks, ownership of blocks and threads, so such a group is one cell. Under `run` and `none` each rank count is
a cell, so that a change of layout is never counted as run-to-run variation.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection
from operator import add
from pathlib import PurePath
from typing import Any

import pandas as pd

from kernels.guarantees import LEVELS, meets

SPANS_LAYOUTS = tuple(level for level in LEVELS if meets(level, "layout"))

# Effects of options (`miniapps.trace.schema.EFFECTS`), which the trace states.
# IN_LABEL: the label has the ordering that ran instead of the requested one. LAYOUT: they assign work to ranks.
# FREE: `layout` promises results that do not depend on them. CHOSEN: a guarantee chooses them; all other options must
# be equal for the times of two guarantees to be compared. NO_CONDITION: their consequences are recorded too.
IN_LABEL = ("reduction",)
LAYOUT = ("ownership", "spread")
FREE = (*LAYOUT, "threads")
CHOSEN = (*IN_LABEL, "replay", "guarantee", "processor")
NO_CONDITION = ("source", "restart")
UNSET = (None, "", 0, False)  # values of factors that mean "not set"

# Guarantees in words, for people who do not know their names.
PROMISED = {
    "none": "no guarantee",
    "run": "guaranteed on one number of ranks (run)",
    "layout": "guaranteed on any number of ranks (layout)",
    "exact": "guaranteed on any number of ranks, sums correctly rounded (exact)",
}


def grouped(runs: pd.DataFrame) -> pd.DataFrame:
    """`runs`, sorted by app, problem, guarantee (weakest first), group, rank count, run and repeat, with more columns.

    `group` and `cell` are labels, unique over all problems; `words` is the group in words, for people; `device`;
    `faulty`: True if a fault was injected, so that other runs must not be judged by this one."""
    runs = runs.reset_index(drop=True)
    names = problem_names(runs)
    stated = list(zip(runs["method"], runs["options"], strict=True))
    own_factors = [
        factors(*each, (*IN_LABEL, *(FREE if level in SPANS_LAYOUTS else ())))
        for each, level in zip(stated, runs["guarantee"], strict=True)
    ]
    base = runs["app"] + " " + runs["guarantee"] + "/" + runs["ordering"].str.replace(",", "+")
    runs["device"] = [" ".join(map(str, of_effect(*each, "device").values())) for each in stated]
    runs["faulty"] = [any(v not in UNSET for v in of_effect(*each, "fault").values()) for each in stated]
    groups, words = [""] * len(runs), [""] * len(runs)
    columns = list(zip(base, runs["app"], runs["problem"], runs["guarantee"], runs["ordering"], strict=True))
    for same in runs.groupby(["problem", base], sort=False).indices.values():
        telling = differing_factors([own_factors[i] for i in same])
        for i in same.tolist():
            text, app, problem, guarantee, ordering = columns[i]
            extra = [
                f"{key}={own_factors[i][key]}" for key in telling if own_factors[i].get(key) not in UNSET
            ]
            extra += [names[problem]] if names[problem] else []
            groups[i] = text + (f" ({', '.join(extra)})" if extra else "")
            parts = [
                PROMISED.get(guarantee, guarantee),
                sums_in_words(ordering),
                *_in_words(extra, *stated[i]),
            ]
            words[i] = f"{app}: {', '.join(part for part in parts if part)}"
    runs["group"], runs["words"] = (pd.Series(texts, runs.index, "str") for texts in (groups, words))
    spans = runs["guarantee"].isin(SPANS_LAYOUTS)
    runs["cell"] = runs["group"].where(
        spans, runs["group"] + " on " + runs["size"].map(ranks_text).astype("str")
    )
    runs["strength"] = runs["guarantee"].map({level: i for i, level in enumerate(LEVELS)}).fillna(0)
    by = ["app", "problem", "strength", "group", "size", "run", "repeat"]
    return runs.sort_values(by, kind="stable").drop(columns="strength").reset_index(drop=True)


def cases(runs: pd.DataFrame, by: str) -> pd.DataFrame:
    """`runs` without injected faults, grouped separately for each value of the column `by`, with the column `case`.

    `case` is the label of the group among the groups of that value, without the application's name, and the rank count;
    `words` is the same in words."""
    pieces = []
    for _, same in runs.groupby(by, sort=False):
        same = grouped(same)
        same = same[~same["faulty"].astype(bool)]
        on = [f" on {ranks_text(size)}" for size in same["size"]]
        labels = [group.removeprefix(f"{app} ") for group, app in same[["group", "app"]].values]
        words = [text.removeprefix(f"{app}: ") for text, app in same[["words", "app"]].values]
        pieces.append(same.assign(case=[*map(add, labels, on)], words=[*map(add, words, on)]))
    if not pieces:
        return runs.assign(case=pd.Series(dtype="str"), words=pd.Series(dtype="str"))
    return pd.concat(pieces, ignore_index=True)


def sums_in_words(ordering: str) -> str:
    """`sums in order of arrival` for `arrival`, `sums by direct in exact and float64 arithmetic` for `direct in
    exact,direct in float64`; empty where nothing was summed."""
    if not ordering:
        return ""
    accumulations: dict[str, list[str]] = {}
    for name, _, accumulation in (part.partition(" in ") for part in ordering.split(",")):
        accumulations.setdefault(name, []).append(accumulation)
    known = {"arrival": "in order of arrival", "library": "by the MPI library"}
    parts = []
    for name, own in accumulations.items():
        arithmetic = " and ".join(filter(None, own))
        parts.append(known.get(name, f"by {name}") + (f" in {arithmetic} arithmetic" if arithmetic else ""))
    return f"sums {' and '.join(parts)}"


def _in_words(extra: list[str], method: str, options: str) -> list[str]:
    """The parts `key=value` of a label for people: replays and faults are named as such."""
    words = {"replay": "replaying", "fault": "with the fault"}
    known = {
        f"{key.rpartition('.')[2]}={value}": f"{words[effect]} {value}"
        for effect in words
        for key, value in of_effect(method, options, effect).items()
    }
    return [known.get(text, text) for text in extra]


def ranks_text(size: int) -> str:
    """`1 rank`, `4 ranks`."""
    return f"{size} rank{'s' if size != 1 else ''}"


def problem_names(runs: pd.DataFrame) -> dict[str, str]:
    """{problem hash: its name among the problems of its app}; empty names if an app has one problem.

    The name has the deck, and if several problems have that deck, the options that differ."""
    names: dict[str, str] = {}
    for _, same in runs.groupby("app", sort=False):
        problems = same.drop_duplicates("problem")
        if len(problems) == 1:
            names[problems["problem"].iloc[0]] = ""
            continue
        options = dict(zip(problems["problem"], _defining(problems, same), strict=True))
        decks = _decks(same)
        several = len(set(decks.values())) > 1
        words: dict[str, str] = {}
        for deck in dict.fromkeys(decks.values()):
            own = {key: o for key, o in options.items() if decks[key] == deck}
            words |= _within_deck(deck if several else "", own)
        texts = list(words.values())
        for problem, text in words.items():
            alone = text and texts.count(text) == 1
            names[problem] = text if alone else f"{text}, problem {problem[:8]}".removeprefix(", ")
    return names


def _decks(runs: pd.DataFrame) -> dict[str, str]:
    """{problem: the deck that its runs name}; empty if they name none or several."""
    decks: dict[str, set[str]] = {}
    for problem, config in runs[["problem", "config"]].drop_duplicates().itertuples(index=False):
        decks.setdefault(problem, set()).add(str(_flat(config).get("run.deck") or ""))
    return {
        problem: PurePath(next(iter(own))).name.removesuffix(".toml") if len(own) == 1 else ""
        for problem, own in decks.items()
    }


def _within_deck(deck: str, options: dict[str, dict[str, Any]]) -> dict[str, str]:
    """{problem: `deck S, steps=12`}: the deck, and the options in which the problems with this deck differ."""
    telling = _telling(list(options.values()))
    named = [f"deck {deck}"] if deck else []
    return {
        problem: ", ".join([*named, *(f"{key.rpartition('.')[2]}={_setting(o.get(key))}" for key in telling)])
        for problem, o in options.items()
    }


def _defining(problems: pd.DataFrame, runs: pd.DataFrame) -> list[dict[str, Any]]:
    """The options that define each of `problems` among `runs`.

    If traces do not state them: all options, without factors of the method and options that differ within a problem."""
    stated = [json.loads(text) for text in problems["problem_options"]]
    if all(stated):
        return stated
    beside = {key for method in runs["method"].unique() for key in json.loads(method)}
    for _, same in runs.groupby("problem", sort=False):
        options = [_options(config) for config in same["config"].unique()]
        beside |= {key for key in options[0] if len({json.dumps(o.get(key)) for o in options}) > 1}
    return [
        {key: value for key, value in _options(config).items() if key not in beside}
        for config in problems["config"]
    ]


def _setting(value: Any) -> Any:
    return "default" if value is None else value


def _telling(options: list[dict[str, Any]]) -> list[str]:
    """Options that distinguish the problems: the first three that differ, if these suffice.

    Else options are added one by one while they distinguish more, those of the section `problem` first."""

    def kinds(keys: list[str]) -> int:
        return len({json.dumps([o.get(key) for key in keys]) for o in options})

    differ = [key for key in dict.fromkeys(key for o in options for key in o) if kinds([key]) > 1]
    if kinds(differ[:3]) == kinds(differ):
        return differ[:3]
    chosen: list[str] = []
    for key in sorted(differ, key=lambda key: not key.startswith("problem.")):
        if kinds([*chosen, key]) > kinds(chosen):
            chosen.append(key)
    return chosen


def conditions(runs: pd.DataFrame, but: Collection[str] = (), sized: bool = True) -> list[str]:
    """A text for each of `runs`; the times of runs can be compared if their texts are equal.

    It has the application, the factors of the method except those of the effects `but`, and all options that may cost
    time. Of the section `run` these are the seed and options of the effect `cost`; of other sections all options except
    those of the effects NO_CONDITION and, unless `sized`, of the effect `size`."""
    left_out = NO_CONDITION if sized else (*NO_CONDITION, "size")
    texts = []
    columns = (runs[name] for name in ("app", "method", "config", "options"))
    for app, method, config, options in zip(*columns, strict=True):
        known, apart = effects(options), json.loads(method)
        left = {
            key: value
            for key, value in _flat(config).items()
            if (_defines(key) or known.get(key) == "cost")
            and key not in apart
            and known.get(key) not in left_out
        }
        texts.append(json.dumps([app, factors(method, options, but), left], sort_keys=True))
    return texts


def _flat(config: str) -> dict[str, Any]:
    sections = {section: own for section, own in json.loads(config).items() if isinstance(own, dict)}
    return {f"{section}.{key}": value for section, own in sections.items() for key, value in own.items()}


def _defines(key: str) -> bool:
    """True if an option may define a problem; of the options that all applications share, only the seed may."""
    return not key.startswith("run.") or key == "run.seed"


def _options(config: str) -> dict[str, Any]:
    return {key: value for key, value in _flat(config).items() if _defines(key)}


@functools.lru_cache(maxsize=1024)
def effects(options: str) -> dict[str, str]:
    """{option: effect} from the options that the trace states (JSON)."""
    return {key: stated.get("effect", "") for key, stated in json.loads(options).items()}


def calibrates(options: str) -> bool:
    """True if a run measured its machine, by the options that the trace states (JSON)."""
    return "machine" in effects(options).values()


def of_effect(method: str, options: str, *wanted: str) -> dict[str, Any]:
    """{key: value} of the factors of `method` (JSON) that have one of the `wanted` effects; lists become text."""
    known = effects(options)
    return {key: _plain(value) for key, value in json.loads(method).items() if known.get(key) in wanted}


def factors(method: str, options: str, left_out: Collection[str]) -> dict[str, Any]:
    """{name without section: value} of the factors of `method` (JSON), without the effects `left_out`; lists become
    text."""
    known = effects(options)
    return {
        key.rpartition(".")[2]: _plain(value)
        for key, value in json.loads(method).items()
        if known.get(key) not in left_out
    }


def _plain(value: Any) -> str | int | float | None:
    return value if isinstance(value, str | int | float | None) else " ".join(map(str, value))


def differing_factors(methods: list[dict[str, Any]]) -> list[str]:
    """The factors in which some of `methods` differ."""
    keys = dict.fromkeys(key for factors in methods for key in factors)
    return [key for key in keys if len({factors.get(key) for factors in methods}) > 1]
