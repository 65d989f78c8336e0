"""The fastest way to use some ranks for a problem: plans of all candidates are priced, and none of them runs.

A search is exact. It leaves out a candidate only if its weights need more memory than the device has, or if its
operations alone take longer than the fastest plan of a first round (`pricing.bounds`). Candidates with equal programs,
as those with other blocks often have without a guarantee, are priced once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from kernels.allreduce.reduction import OVER
from kernels.wires import PLAIN
from miniapps.errors import UsageError
from miniapps.partition.cuts.mesh import require_fits
from miniapps.partition.cuts.steps import Plan
from miniapps.partition.execution.orderings import usual
from miniapps.partition.graphs.flops import model_flops
from miniapps.partition.graphs.graph import Graph
from miniapps.partition.models import Problem
from miniapps.partition.planning.early import OFF
from miniapps.partition.planning.recipes import plan_of
from miniapps.partition.planning.smaller.attention import GATHERED
from miniapps.partition.pricing.bounds import least_bytes, least_seconds, limits_of
from miniapps.partition.pricing.candidates import Candidate, candidates, deck_for, named
from miniapps.partition.pricing.program import program_of
from miniapps.partition.showing.price import priced
from miniapps.trace import TraceError, read_run
from miniapps.trace.head import promised
from miniapps.untrusted.program import Program, to_json

FIRST = 8  # candidates of the first round, those with the least operations


@dataclass(frozen=True)
class Asking:
    """What `program_of` needs of a run beside plan and mesh: `name` of the model, `threads`, `anywhere`, `recorded` and
    `wire` and `ordering`; and the values of the options `calibration`, `machine` and `clock` of prices."""

    name: str
    calibrations: Sequence[str]
    machine: str | None = None
    clock: str = "wall"
    threads: int = 1
    anywhere: bool = False
    recorded: bool = False
    wire: str = PLAIN
    ordering: str = ""


@dataclass(frozen=True)
class Searched:
    """The result of a search. `price`: the document of `fpna price` on all plans that were priced; `plans`: each
    candidate with the title of its plan there; `impossible`: (candidate, reason); `slower`: (candidate, seconds that
    its operations take at least); `seconds` of the search; `unmeasured`: orderings that no calibration has."""

    price: dict[str, Any]
    plans: list[tuple[Candidate, str]]
    impossible: list[tuple[str, str]]
    slower: list[tuple[str, float]]
    seconds: float
    unmeasured: Sequence[str] = ()

    @property
    def best(self) -> list[Candidate]:
        """The candidates that are predicted to be the fastest: those with the fastest program."""
        title = self.price["tables"]["plans"][0]["title"]
        return [one for one, of in self.plans if of == title]

    def sentence(self) -> str:
        """How many candidates there were, and what became of them."""
        tables = self.price["tables"]
        count = len(tables["plans"]) + len(tables["unpriced"])
        every = len(self.plans) + len(self.slower)
        left = (
            f" {len(self.slower)} were left out, since their operations alone take longer than the fastest."
            if self.slower
            else ""
        )
        lacking = (
            f" No calibration has the orderings {', '.join(self.unmeasured)}; measure those to compare with fpna "
            f"calibrate --reduction '{self.unmeasured[0]}'."
            if self.unmeasured
            else ""
        )
        return (
            f"{every} candidates, {count} different programs priced, in {self.seconds:.1f} s.{left}{lacking}"
        )


def search(
    model: Problem, deck: Any, recipes: Sequence[str], ranks: int, asking: Asking,
    dimensions: Sequence[str] = (), level: str = "none", schedule: str = "1f1b", attention: str = GATHERED,
    overlap: str = OFF,
) -> Searched:  # fmt: skip
    """Prices all candidates, as `candidates` makes them. Raises UsageError, ChoiceError, AxisError."""
    begin = time.perf_counter()
    orderings, unmeasured = [asking.ordering], list[str]()
    if "ordering" in dimensions:
        measured = measured_in(asking)
        orderings = ["", *measured]
        unmeasured = [label for label in named(level) if label not in (*measured, usual(level))]
    how = level, schedule, asking.wire, attention, overlap, orderings
    found, refused = candidates(model, deck, recipes, ranks, dimensions, *how)
    makers = Programs(model, deck, asking)
    limits = limits_of(asking.machine)
    least = dict.fromkeys(found, 0.0)
    if limits is not None:
        for one in found:
            plan = makers.plan(one)
            needed = least_bytes(plan, one.mesh, limits)
            if needed > limits.capacity:
                refused.append(
                    (str(one), f"weights and their optimiser need {needed / 1e9:.3g} GB on a device")
                )
                del least[one]
            else:
                least[one] = least_seconds(plan, one.mesh, limits)
    if not least:
        raise UsageError(
            "every candidate needs more memory than a device has: "
            + "; ".join(f"{name}: {reason}" for name, reason in refused)
        )
    slower: list[tuple[str, float]] = []
    order = sorted(least, key=lambda one: least[one])
    if limits is not None and len(order) > FIRST:
        first = priced(makers.different(order[:FIRST])[0], asking.calibrations, asking.machine, asking.clock)
        fastest = first["tables"]["plans"][0]["p50_s"]
        slower = [(str(one), least[one]) for one in order if least[one] > fastest]
        order = [one for one in order if least[one] <= fastest]
    kept = set(order)
    programs, plans = makers.different([one for one in found if one in kept])
    price = priced(programs, asking.calibrations, asking.machine, asking.clock)
    return Searched(price, plans, refused, slower, time.perf_counter() - begin, unmeasured)


def measured_in(asking: Asking) -> list[str]:
    """The labels of all orderings in the calibrations, without those over wires. Raises UsageError without
    calibrations, and for a machine file with a device, whose links have one price for all orderings."""
    if limits_of(asking.machine) is not None or not asking.calibrations:
        raise UsageError(
            "--search ordering: a machine file has one price for all orderings; give --calibration DIR and leave the "
            "device out"
        )
    labels: dict[str, None] = {}
    for path in asking.calibrations:
        try:
            (trace,) = read_run(path, tables=[], ranks=[0])
        except TraceError as error:
            raise UsageError(f"--calibration {path}: {error}") from error
        about = trace.attributes
        labels |= dict.fromkeys(promised(about.get("reductions", {}).values(), about["size"]))
    return [label for label in labels if OVER not in label]


class Programs:
    """Programs of candidates; those that differ only in mesh, schedule or guarantee share a plan, and those that differ
    only in cuts share a graph."""

    def __init__(self, model: Problem, deck: Any, asking: Asking):
        self.model, self.deck, self.asking = model, deck, asking
        self.graphs: dict[int, Graph] = {}
        self.plans: dict[tuple, Plan] = {}
        self.made: dict[Candidate, Program] = {}

    def graph(self, one: Candidate) -> Graph:
        """The graph of a candidate's step."""
        if one.micro_batches not in self.graphs:
            from miniapps.partition.capture.shapes import graph_of

            deck = deck_for(self.model, self.deck, replace(one, blocks=()))
            self.graphs[one.micro_batches] = graph_of(self.model, deck)
        return self.graphs[one.micro_batches]

    def plan(self, one: Candidate) -> Plan:
        """The plan of a candidate. Raises UsageError for a mesh that does not fit."""
        key = one.recipe, one.blocks, one.micro_batches, one.attention, one.overlap
        if key not in self.plans:
            axes = list(self.model.RECIPES[one.recipe])
            deck = deck_for(self.model, self.deck, one)
            self.plans[key] = plan_of(
                self.model, deck, self.graph(one), axes, overlap=one.overlap, attention=one.attention
            )
        require_fits(self.plans[key], one.mesh)
        return self.plans[key]

    def program(self, one: Candidate) -> Program:
        """The program of a candidate, titled with it."""
        if one not in self.made:
            a = self.asking
            self.made[one] = program_of(
                self.plan(one), one.mesh, one.level, f"{a.name}, {one}", model_flops(self.graph(one)), a.threads,
                a.anywhere, a.recorded, one.wire, one.ordering,
            )  # fmt: skip
        return self.made[one]

    def different(self, given: Sequence[Candidate]) -> tuple[list[Program], list[tuple[Candidate, str]]]:
        """(the different programs, each candidate with the title of its program)."""
        programs: dict[bytes, Program] = {}
        titles = []
        for one in given:
            program = self.program(one)
            same = programs.setdefault(to_json(msgspec.structs.replace(program, title="-")), program)
            titles.append((one, same.title))
        return list(programs.values()), titles
