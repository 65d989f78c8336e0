"""Read and match the recorded numbers of several runs of one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kernels.sizes import UNITS, sampled
from miniapps.trace import builds, layouts, read_run
from miniapps.trace.layouts import NOWHERE, Layout
from miniapps.trace.records import ADDED, CHAIN, NO_NUMBERS, PASSING, SOURCE, TOTAL

KEY = np.dtype([(field, ">u4") for field in ("repeat", "step", "name", "block", "occurrence")])
PROJECTIONS = ("p0", "p1", "p2", "p3")


@dataclass
class Sizes:
    """The recorded numbers of a run, in the order of `keys`.

    `keys`: (n,) of KEY as bytes, ascending. `numbers`: (n, 4) projections, or the numbers themselves if there are at
    most four. `l1`: (n,) sums of absolute values. `count`: (n,) how many numbers. `unit`: (n,) the unit roundoff of
    their type, 0 for integers. `sources`: the sources of messages received from any source, by the name of the call.
    `layout`: the number of ranks and the reductions of their records.
    """

    keys: np.ndarray
    numbers: np.ndarray
    l1: np.ndarray
    count: np.ndarray
    unit: np.ndarray
    sources: dict[str, list[int]]
    layout: Layout


def read(run: Path, names: dict[str, int]) -> Sizes:
    """Reads the recorded numbers of the directory `run`. Raises TraceError.

    `names` gives each name a number, and grows. Calls of another build get the names of the first run that was read.
    """
    own = [name for trace in read_run(run, tables=[]) for name in trace.names]
    renamed = builds.as_in(names, own)
    parts: list[tuple[np.ndarray, ...]] = []
    sources: dict[str, list[int]] = {}
    layout = Layout(1, {}, {})
    for trace in read_run(run, tables=["sizes", "values"]):
        texts = [renamed.get(text, text) for text in trace.names]
        if trace.attributes["rank"] == 0:
            sums = trace.attributes.get("reductions", {})
            stated = {renamed.get(name, name): own for name, own in sums.items()}
            layout = Layout(trace.attributes["size"], trace.attributes.get("options", {}), stated)
        known = np.array([names.setdefault(text, len(names)) for text in texts] or [0], np.int64)
        values, sizes = trace.tables["values"], trace.tables["sizes"]
        source = np.array([text.startswith((*NO_NUMBERS, CHAIN)) for text in texts] or [False])
        for name in {text for text in texts if text.startswith(SOURCE)}:
            taken = (
                values["value"][np.array(texts, object)[values["name"]] == name]
                if len(values["name"])
                else []
            )
            sources.setdefault(name, []).extend(int(rank) for rank in taken)
        kept = ~source[values["name"]] if len(values["name"]) else np.zeros(0, bool)
        value = values["value"][kept]
        ones = np.ones(len(value), np.int64)
        of_values = known[values["name"]][kept] if len(kept) else np.zeros(0, np.int64)
        parts.append(
            _rows(values, of_values, kept, value[:, None], np.abs(value), ones, ones * UNITS["float64"])
        )
        every = np.ones(len(sizes["name"]), bool)
        projections = np.stack([sizes[p] for p in PROJECTIONS], axis=1)
        units = np.array([UNITS.get(text, 0.0) for text in texts] or [0.0])
        unit = units[sizes["dtype"]] if len(every) else np.zeros(0)
        of_sizes = known[sizes["name"]] if len(every) else np.zeros(0, np.int64)
        for row in np.flatnonzero(
            sizes["sample"] > 1
        ):  # a name of its own for each sample: two do not compare
            text = f"{texts[sizes['name'][row]]}, {sampled(int(sizes['sample'][row]))}"
            of_sizes[row] = names.setdefault(text, len(names))
        parts.append(_rows(sizes, of_sizes, every, projections, sizes["l1"], sizes["count"], unit))
    keys = np.concatenate([keys for keys, *_ in parts])
    order = np.argsort(keys, kind="stable")
    numbers, l1, count, unit = (
        np.concatenate(columns)[order] for columns in list(zip(*parts, strict=True))[1:]
    )
    return Sizes(keys[order], numbers, l1, count, unit, sources, layout)


def _rows(
    table: dict[str, np.ndarray],
    names: np.ndarray,
    kept: np.ndarray,
    numbers: np.ndarray,
    l1: np.ndarray,
    count: np.ndarray,
    unit: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """(keys as bytes, numbers, l1, count, unit) of the rows of one table of one rank that are `kept`, and whose names
    have the numbers `names`."""
    keys = np.zeros(int(kept.sum()), KEY)
    for field in ("repeat", "step", "block"):
        keys[field] = table[field][kept].astype(np.int64) & 0xFFFFFFFF
    keys["name"] = names
    keys["occurrence"] = _occurrences(keys)
    padded = np.zeros((len(keys), len(PROJECTIONS)))
    padded[:, : numbers.shape[1]] = numbers
    return keys.view(f"V{KEY.itemsize}"), padded, np.asarray(l1, float), np.asarray(count, np.int64), unit


def _occurrences(keys: np.ndarray) -> np.ndarray:
    """For each row, the number of earlier rows with the same key."""
    _, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
    order = np.argsort(which, kind="stable")
    begins = np.repeat(np.cumsum(counts) - counts, counts)
    occurrence = np.empty(len(keys), np.int64)
    occurrence[order] = np.arange(len(keys)) - begins
    return occurrence


def common(runs: Sequence[Sizes]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The keys that all `runs` have, and for each run the rows with these keys."""
    keys = runs[0].keys
    for run in runs[1:]:
        keys = np.intersect1d(keys, run.keys)
    return keys, [np.searchsorted(run.keys, keys) for run in runs]


def added(run: Sizes, names: dict[str, int], keys: np.ndarray) -> np.ndarray:
    """(n,) for each of `keys`: the sum of absolute values of all contributions to this total; 0 if `run` has not
    recorded them, or the record is no total."""
    calls = {number: name.removeprefix(ADDED).partition(" by rank ")[0]
             for name, number in names.items() if name.startswith(ADDED)}  # fmt: skip
    totals = {number: names[f"{TOTAL}{call}"] for number, call in calls.items() if f"{TOTAL}{call}" in names}
    of_run = run.keys.view(KEY)
    given = np.isin(of_run["name"], list(totals))
    own = of_run[given].copy()
    own["name"] = [totals[int(number)] for number in own["name"]]
    known, where = np.unique(own.view(f"V{KEY.itemsize}"), return_inverse=True)
    found = np.zeros(len(keys))
    both = np.isin(keys, known)
    found[both] = np.bincount(where, run.l1[given], len(known))[np.searchsorted(known, keys[both])]
    return found


def on_ranks_alone(a: Sizes, b: Sizes, name: str) -> bool:
    """Whether records of this name cannot be compared, since `a` and `b` have different numbers of ranks."""
    both = a.layout, b.layout
    if both[0].size == both[1].size:
        return False
    if any(layouts.of_a_rank(table, name, *both) for table in ("fingerprints", "values")):
        return True
    return name.startswith(PASSING) and layouts.partial(name, *both)


def at_steps_of(a: Sizes, run: Sizes, names: dict[str, int]) -> Sizes:
    """`run` with the steps of `a`, if both count calls of all ranks on different numbers of ranks; up to the first
    different call."""
    both = a.layout, run.layout
    if both[0].size == both[1].size or not all(layout.counts_calls for layout in both):
        return run
    kept = [number for name, number in names.items()
            if name.startswith(PASSING) and not on_ranks_alone(a, run, name)]  # fmt: skip
    fields = [each.keys.view(KEY) for each in (a, run)]
    shared = np.intersect1d(np.intersect1d(fields[0]["name"], fields[1]["name"]), kept)
    calls = []
    for each in fields:
        own = each[np.isin(each["name"], shared)]
        calls.append(np.unique(np.stack([own["step"], own["name"]]).astype(np.int64), axis=1))
    alignment = layouts.align(*calls)
    moved = fields[1].copy()
    steps = alignment.in_a(moved["step"])
    there = steps != NOWHERE
    if alignment.parted is not None:
        there &= steps < alignment.parted
    moved["step"] = np.where(there, steps, 0)
    keys = moved.view(f"V{KEY.itemsize}")[there]
    order = np.argsort(keys, kind="stable")
    numbers, l1, count, unit = (column[there][order] for column in (run.numbers, run.l1, run.count, run.unit))
    return replace(run, keys=keys[order], numbers=numbers, l1=l1, count=count, unit=unit)
