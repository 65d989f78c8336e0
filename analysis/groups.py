"""Which runs belong together, and which of them are promised to be equal.

Runs of one problem and one method form a group, whatever their rank count. Inside it, a cell holds the runs
that are judged against each other: `layout` and `exact` promise one result for any number of ranks,
ownership of blocks and threads, so that their group is one cell; `run` and `none` are judged at each rank
count apart, so that a change of layout is never counted as run-to-run variation.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pandas as pd

LEVELS = ("none", "run", "layout", "exact")  # weakest first, as traces name them
SPANS_LAYOUTS = ("layout", "exact")

# Factors that do not make another group: rank counts; what `layout` promises independence of beside them; and
# what the label says already, `allreduce` and `orderings` as the ordering that was used.
COUNTS = ("size", "ranks")
OWNERSHIP = ("shuffle_blocks", "ownership", "threads")
IN_LABEL = ("guarantee", "allreduce", "orderings")
UNSET = (None, "", 0, False)  # values of factors that say nothing
# What a guarantee chooses: the orderings of all-reduces, how their sums are held, whether network and sparse products
# are evaluated block by block. All other factors must be equal for the times of two guarantees to be compared.
CHOSEN = (*IN_LABEL, "accumulate", "replay", "batch", "spmv")
# Options that say where a problem comes from, or from which others follow that are recorded too.
NO_CONDITION = ("problem.matrix", "problem.right_side_file", "grid.points_per_rank", "output.restart")


def grouped(runs: pd.DataFrame) -> pd.DataFrame:
    """`runs` with the columns `group` and `cell` (labels, unique over all problems), `device`, and `faulty`
    (a fault was injected, so that the run is no measure for others), sorted by app, problem, guarantee
    (weakest first), group, rank count, run and repeat."""
    runs = runs.reset_index(drop=True)
    names = problem_names(runs)
    own_factors = [
        _factors(method, level) for method, level in zip(runs["method"], runs["guarantee"], strict=True)
    ]
    base = runs["app"] + " " + runs["guarantee"] + "/" + runs["ordering"].str.replace(",", "+")
    runs["device"] = [str(own.get("device", "")) for own in own_factors]
    runs["faulty"] = [own.get("fault") not in UNSET for own in own_factors]
    runs["group"] = ""
    for _, same in runs.assign(base=base).groupby(["problem", "base"], sort=False):
        telling = told_apart([own_factors[i] for i in same.index])
        for i in same.index:
            extra = [
                f"{key}={own_factors[i][key]}" for key in telling if own_factors[i].get(key) not in UNSET
            ]
            extra += [names[runs.at[i, "problem"]]] if names[runs.at[i, "problem"]] else []
            runs.at[i, "group"] = base[i] + (f" ({', '.join(extra)})" if extra else "")
    spans = runs["guarantee"].isin(SPANS_LAYOUTS)
    runs["cell"] = runs["group"].where(
        spans, runs["group"] + " on " + runs["size"].map(ranks_text).astype("str")
    )
    runs["strength"] = runs["guarantee"].map({level: i for i, level in enumerate(LEVELS)}).fillna(0)
    by = ["app", "problem", "strength", "group", "size", "run", "repeat"]
    return runs.sort_values(by, kind="stable").drop(columns="strength").reset_index(drop=True)


def ranks_text(size: int) -> str:
    """`1 rank`, `4 ranks`."""
    return f"{size} rank{'s' if size != 1 else ''}"


def problem_names(runs: pd.DataFrame) -> dict[str, str]:
    """{problem hash: what tells it from the other problems of its app, in words}; empty where there is
    one."""
    names: dict[str, str] = {}
    for _, same in runs.groupby("app", sort=False):
        problems = same.drop_duplicates("problem")
        if len(problems) == 1:
            names[problems["problem"].iloc[0]] = ""
            continue
        options = _defining(problems, same)
        telling = _telling(options)
        words = [
            ", ".join(f"{key.rpartition('.')[2]}={_told(o.get(key))}" for key in telling) for o in options
        ]
        for problem, text in zip(problems["problem"], words, strict=True):
            alone = text and words.count(text) == 1
            names[problem] = text if alone else f"{text}, problem {problem[:8]}".removeprefix(", ")
    return names


def _defining(problems: pd.DataFrame, runs: pd.DataFrame) -> list[dict[str, Any]]:
    """The options that define each of `problems` among `runs`. Old traces do not say which do: then all but those
    that are seen not to, the factors of the method and what differs within one problem."""
    told = [json.loads(text) for text in problems["problem_options"]]
    if all(told):
        return told
    beside = {key for method in runs["method"].unique() for key in json.loads(method)}
    for _, same in runs.groupby("problem", sort=False):
        options = [_options(config) for config in same["config"].unique()]
        beside |= {key for key in options[0] if len({json.dumps(o.get(key)) for o in options}) > 1}
    return [
        {key: value for key, value in _options(config).items() if key not in beside}
        for config in problems["config"]
    ]


def _told(value: Any) -> Any:
    return "default" if value is None else value


def _telling(options: list[dict[str, Any]]) -> list[str]:
    """The first three options that differ; where these do not tell all apart, the fewest that do, of the problem
    before others."""

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


def conditions(runs: pd.DataFrame, but: Collection[str] = (), sizes: Collection[str] = ()) -> list[str]:
    """What must be equal for the times of runs to be compared, a text for each of `runs`: application, method factors
    other than rank counts and `but`, and all options other than `sizes` (keys "section.name"), those of section `run`
    (its seed and its checks count) and NO_CONDITION."""
    found = []
    for app, method, config in zip(runs["app"], runs["method"], runs["config"], strict=True):
        options = _options(config) | {"run.check_ranks": json.loads(config).get("run", {}).get("check_ranks")}
        apart = {*NO_CONDITION, *sizes, *json.loads(method)}
        left = {key: value for key, value in options.items() if key not in apart}
        found.append(json.dumps([app, factors(method, (*COUNTS, *but)), left], sort_keys=True))
    return found


def _options(config: str) -> dict[str, Any]:
    sections = json.loads(config)
    return {
        f"{section}.{key}": value
        for section, options in sections.items()
        if isinstance(options, dict)
        for key, value in options.items()
        if section != "run" or key == "seed"
    }


def _factors(method: str, guarantee: str) -> dict[str, Any]:
    """The factors that define a group."""
    return factors(method, (*COUNTS, *IN_LABEL, *(OWNERSHIP if guarantee in SPANS_LAYOUTS else ())))


def factors(method: str, left_out: Collection[str]) -> dict[str, Any]:
    """The factors of `method` (JSON) but those `left_out`, by their last name, and as text where they are not plain."""
    every = {key.rpartition(".")[2]: value for key, value in json.loads(method).items()}
    return {
        key: value if isinstance(value, str | int | float | None) else " ".join(map(str, value))
        for key, value in every.items()
        if key not in left_out
    }


def told_apart(methods: list[dict[str, Any]]) -> list[str]:
    """The factors in which some of `methods` differ."""
    keys = dict.fromkeys(key for factors in methods for key in factors)
    return [key for key in keys if len({factors.get(key) for factors in methods}) > 1]
