"""The options and regions that the synthetic runs of the tests declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from miniapps.trace.records import NODE, PASSING
from miniapps.trace.schema import FILE, OTHER

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


def options(method: Iterable[str], config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What the options of `method` (keys) and `config` (by section) are, as a trace states it."""
    sections = {section: own for section, own in config.items() if isinstance(own, dict)}
    keys = [*method, *(f"{section}.{name}" for section, own in sections.items() for name in own)]
    stated: dict[str, dict[str, Any]] = {}
    for key in keys:
        last = key.rpartition(".")[2]
        effect = OF_METHOD.get(last, "") if key in method else OF_CONFIG.get(key, "")
        if effect or key in RECORDS:
            stated[key] = {"effect": effect, "records": RECORDS.get(key, []), "of_ranks": key in OF_RANKS}
    return stated
