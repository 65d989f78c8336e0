"""Traces of schema 3: what newer ones state is derived from the names that the applications of that time used."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from miniapps.trace.records import NODE, PASSING
from miniapps.trace.schema import COLLECTIVE, COMPUTE, EXCHANGE, FILE, NOT_IN_3, OTHER, TABLES, WAIT

# What older names of orderings and accumulations are called today: (ordering, accumulation).
TODAY = {
    "native": ("library", "working"),
    "exact": ("direct", "exact"),
    "fixed-point": ("direct", "fixed-point"),
}
SCALARS = 16  # elements of a reduction, above which it went by the ordering for vectors
# Effects of options: of the method by their last name, of the configuration by their key.
OF_METHOD = {"guarantee": "reduction", "allreduce": "reduction", "accumulate": "reduction", "replay": "replay",
             "batch": "guarantee", "spmv": "guarantee", "shuffle_blocks": "ownership", "ownership": "ownership",
             "threads": "threads", "device": "device", "fault": "fault"}  # fmt: skip
OF_CONFIG = {"run.check_ranks": "cost", "problem.matrix": "source", "problem.right_side_file": "source",
             "grid.points_per_rank": "source", "output.restart": "restart", "grid.nx": "size", "grid.ny": "size",
             "grid.nz": "size", "problem.sizes": "size", "problem.arrays": "size"}  # fmt: skip
RECORDS = {
    "run.record": [f"fingerprints:{prefix}*" for prefix in (*PASSING, NODE)],
    "record.every": ["fingerprints:*"],
    "record.true_every": ["values:true_residual"],
    "record.error": ["values:error"],
    "record.orthogonality": ["values:orthogonality"],
    "drift.samples": ["values:difference", "values:drift_residual", "values:drift_iterations"],
    "method.samples": ["values:*:*"],
    "method.worst": ["values:worst-low:*", "values:worst-high:*"],
    "output.restart": ["values:cg_iterations"],
}
OF_RANKS = ("drift.samples",)
AROUND = {"step": OTHER, "iteration": OTHER, "record": OTHER, "checkpoint": FILE}
REDUCTION = re.compile(r"allreduce\.(?!dt$)(.*)", re.DOTALL)


def adapt(trace, wanted: Iterable[str] = ()) -> None:
    """Give a RankTrace of schema 3 the attributes and columns of one of today, and those of the `wanted` tables that
    it lacks, empty."""
    for table in set(wanted).intersection(NOT_IN_3):
        trace.tables[table] = {column: np.empty(0, dtype) for column, dtype in TABLES[table].items()}
    attributes, events = trace.attributes, trace.tables.get("events")
    if events is not None:
        events["flops"] = np.zeros(len(events["name"]), np.int64)
    method = dict(attributes.get("method", {}))
    known = method.pop("orderings", None)
    if method.get("closure.batch") == "auto":  # what it came to is recorded today
        method["closure.batch"] = "block" if attributes.get("guarantee") in ("layout", "exact") else "rank"
    if "method" in attributes:
        attributes["method"] = method
    attributes["options"] = options(method, attributes.get("config", {}))
    attributes["regions"] = {name: _kind(name, trace.names) for name in trace.names}
    asked = "option" if method.get("run.allreduce") or method.get("run.replay") else "guarantee"
    orderings = [name for name in str(attributes.get("ordering", "")).split(",") if name]
    if isinstance(known, dict) and {"scalars", "vectors"} <= known.keys():
        orderings = [str(known["scalars"]), str(known["vectors"])]
    accumulation = str(method.get("run.accumulate") or "working")
    common = {
        "accumulation": accumulation,
        "decided": asked,
        "guarantee": attributes.get("guarantee", "none"),
    }
    attributes["reductions"] = _reductions(trace.names, orderings, common)


def options(method: Iterable[str], config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What the options of `method` (keys) and `config` (by section) are, as a trace of today states it."""
    sections = {section: own for section, own in config.items() if isinstance(own, dict)}
    keys = [*method, *(f"{section}.{name}" for section, own in sections.items() for name in own)]
    stated: dict[str, dict[str, Any]] = {}
    for key in keys:
        last = key.rpartition(".")[2]
        effect = OF_METHOD.get(last, "") if key in method else OF_CONFIG.get(key, "")
        if effect or key in RECORDS:
            stated[key] = {"effect": effect, "records": RECORDS.get(key, []), "of_ranks": key in OF_RANKS}
    return stated


def _kind(name: str, names: list[str]) -> str:
    if name.startswith("allreduce."):
        return COLLECTIVE
    if name == "halo":  # inside a product it covered the waiting alone
        return WAIT if "spmv" in names else EXCHANGE
    return AROUND.get(name, COMPUTE)


def _reductions(names: list[str], orderings: list[str], common: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By name as the trace has it, or one for each of `orderings`, where it has none."""
    if not orderings:
        return {}
    reductions = {}
    for region in names:
        if (match := REDUCTION.fullmatch(region)) is None:
            continue
        name = match[1]
        number = re.search(r"[a-z](\d{1,9})$", name)
        length = int(number[1]) if number else 1
        ordering = orderings[-1] if name == "gradients" or length > SCALARS else orderings[0]
        reductions[name] = common | {"ordering": ordering, "region": region, "shape": [length]}
        if name == "gradients":
            reductions[name]["shape"] = [SCALARS + 1]  # more than scalars have: how many was not recorded
        if re.fullmatch(r"exact\d+", name):  # the reference of a study, not how the run added
            reductions[name] |= {"ordering": "exact", "accumulation": "working", "decided": "application"}
    return {
        name: _today(own)
        for name, own in (reductions or {name: common | {"ordering": name} for name in orderings}).items()
    }


def _today(reduction: dict[str, Any]) -> dict[str, Any]:
    ordering, accumulation = reduction["ordering"], reduction["accumulation"]
    accumulation = "fixed-point" if accumulation == "order-free" else accumulation
    ordering, accumulation = TODAY.get(ordering, (ordering, accumulation))
    return reduction | {"ordering": ordering, "accumulation": accumulation}
