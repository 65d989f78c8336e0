"""What a reduction is: one frozen description, the same on all ranks, along axes that are chosen independently.

An ordering says who sends what to whom and adds when, an accumulation in what partial sums are held, a wire how a
message is encoded. Whatever can be refused without a communicator is refused when a description is made.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kernels import wires
from kernels.allreduce import accumulate, catalog, collectives, links, operations
from kernels.allreduce.coding import Coding, coding
from kernels.allreduce.operations import Operation
from kernels.allreduce.ordering import EQUAL, Ordering, scheduled
from kernels.allreduce.packing import Packing
from kernels.allreduce.schedule import Schedule
from kernels.allreduce.tree import keeps_order
from kernels.guarantees import ChoiceError, known, meets
from kernels.wires.cells import Cells, cells_of

LIBRARY_NUMBERS = ("float64", "float32", "int64")
COLLECTIVES = ("allreduce", "reduce", "reduce-scatter", "allgather")
SHORT_BYTES = 1 << 13  # up to which fewer rounds pay, at the price of more bytes
PAIR_BYTES = 1 << 18  # as long, of two ranks, which send no more bytes in fewer rounds
IN = " in "  # between ordering and accumulation, in text
OVER = " over "  # before a wire


@dataclass(frozen=True)
class Reduction:
    """A reduction of contributions (k, *shape) of `dtype`, of k >= 0 blocks on each rank, over all blocks.

    `ordering`     a name of the catalogue, maybe with parameters: "k-nomial:k=8".
    `shape`        of a contribution; a number n stands for (n,).
    `dtype`        or its name: float64, float32, float16, bfloat16 or int64; accumulations and the library take fewer.
    `accumulation` in what partial sums are held and travel: "working", the dtype; "float64"; "compensated", pairs of
                   sum and error; "exact", numbers with the same exact sum, rounded once: every ordering has the same
                   bits. See `kernels.allreduce.accumulate`.
    `wire`         how a message is encoded: "as is"; "packed", words of 64 bits, without loss; or one that loses
                   something of float32 sums, maybe with parameters: "table:n=4,feedback=on". See `kernels.wires` and
                   `kernels.allreduce.coding`.
    `tensors`      shapes of the tensors of which a vector of such a wire consists, one after the other: every tensor is
                   encoded by itself. One of them all where not given.
    `divisor`      of such a wire, with one contribution of each rank: by what the sum is divided before it is encoded.
    `operation`    an `Operation`, or one of "sum", "prod", "min", "max".
    `collective`   "allreduce"; "reduce", to rank `root` alone; "reduce-scatter", elements evenly(n, size, rank) of the
                   flat total; "allgather", one contribution of each rank, (size, *shape). The last three for orderings
                   with a schedule.
    `bounds`       of a reduce-scatter: rank r gets elements bounds[r] to bounds[r + 1] instead, which may be none; one
                   number more than ranks, from 0 to the length of the flat total, none below the one before.
    `nodes`        the node of every rank, for two-level; found by shared memory where not given.
    `packing`      the spanning trees, for trees; read by rank 0 from the file of links that it names where not given.
    `check`        before every call verify that all ranks pass the same shape and type; after it that all hold the same
                   bits.

    Raises ChoiceError for unknown names and for what does not go together, TypeError for a dtype that the ordering
    does not take, ValueError for an impossible shape.
    """

    ordering: str = "direct"
    shape: tuple[int, ...] = ()
    dtype: np.dtype = np.dtype(np.float64)  # noqa: RUF009 (immutable)
    _: KW_ONLY
    accumulation: str = "working"
    wire: str = wires.PLAIN
    operation: Operation = operations.SUM
    collective: str = "allreduce"
    root: int = 0
    bounds: Sequence[int] | None = None
    nodes: Sequence[int] | None = None
    packing: Packing | None = None
    tensors: Sequence[tuple[int, ...]] | None = None
    divisor: int = 1
    check: bool = False

    def __post_init__(self):
        catalog.get(self.ordering)
        for name, value in (
            ("shape", _lengths(self.shape)),
            ("dtype", _type(self.dtype)),
            ("operation", operations.get(self.operation)),
            ("root", operator.index(self.root)),
            ("bounds", None if self.bounds is None else tuple(map(operator.index, self.bounds))),
            ("nodes", None if self.nodes is None else tuple(map(int, self.nodes))),
            ("tensors", None if self.tensors is None else tuple(map(_lengths, self.tensors))),
            ("divisor", operator.index(self.divisor)),
            ("check", bool(self.check)),
        ):
            object.__setattr__(self, name, value)
        known("collective", self.collective, COLLECTIVES)
        self._require_type()
        self._require_operation()
        self._require_collective()
        self._require_packing()
        self._require_bounds()
        self._require_accumulation()
        self._require_wire()
        self._require_divisor()

    @classmethod
    def named(cls, label: str, *shape_and_type, **more) -> Reduction:
        """The reduction of that `label`: "ring", "ring:start=1 in exact", "two-level in exact over packed".

        Over a wire that loses something it is of float32 where nothing else is given."""
        label, _, wire = label.partition(OVER)
        ordering, _, accumulation = label.partition(IN)
        more |= {"accumulation": accumulation or "working", "wire": wire or wires.PLAIN}
        if coding(more["wire"]) is not None and len(shape_and_type) < 2:
            more.setdefault("dtype", "float32")
        return cls(ordering, *shape_and_type, **more)

    @property
    def label(self) -> str:
        """Ordering, accumulation and wire in words, as `named` takes them."""
        label = self.ordering if self.accumulation == "working" else f"{self.ordering}{IN}{self.accumulation}"
        return label if self.wire == wires.PLAIN else f"{label}{OVER}{self.wire}"

    @cached_property
    def entry(self) -> Ordering:
        """The ordering as the catalogue has it."""
        return catalog.get(self.ordering)

    @property
    def needs_links(self) -> bool:
        """Whether a file of links is still to be read."""
        return self.packing is None and self.entry.parameters.get("links", EQUAL) != EQUAL

    @property
    def guarantee(self) -> str:
        """What is promised of the bits: by the accumulation, else by the ordering. What a wire loses makes no total
        exact, however it is added."""
        held = accumulate.ACCUMULATIONS[self.accumulation].guarantee
        if self.coding is not None and held == "exact":
            return "layout"
        return held or self.entry.guarantee

    @cached_property
    def coding(self) -> Coding | None:
        """How its wire is used, of one that loses something."""
        return coding(self.wire)

    @property
    def contributions_travel(self) -> bool:
        """Whether contributions travel as they are, to be added exactly where they meet."""
        exactly = accumulate.order_free(self.accumulation)
        return (
            self.coding is None
            and exactly
            and self.entry.contributions_meet
            and self.collective == "allreduce"
        )

    @property
    def element_bytes(self) -> float:
        """Bytes of an element in a message: of a wire that loses something, heads of cells included, the mean."""
        if self.coding is not None:
            return self.total_bytes / max(math.prod(self.shape), 1)
        if self.contributions_travel:
            return self.dtype.itemsize
        held = accumulate.get(self.accumulation, self.dtype, self.operation)
        return held.width * held.travels.itemsize

    @property
    def total_element_bytes(self) -> float:
        """Bytes of an element of the total, where that travels complete."""
        return self.dtype.itemsize if self.coding is None else self.element_bytes

    @property
    def total_bytes(self) -> int:
        """Bytes of a whole vector in messages."""
        if self.coding is not None:
            return self.coding.codec.nbytes(self.cells)
        return int(math.prod(self.shape) * self.element_bytes)

    @cached_property
    def cells(self) -> Cells:
        """The parts of the vector that a wire that loses something encodes each by itself."""
        return cells_of(math.prod(self.shape), self.tensors)

    def schedule(self, size: int, **context) -> Schedule:
        """The schedule of the collective among `size` ranks.

        `context`: `nodes`, `owners` and `packing`, of which the ordering uses what it needs. Raises ChoiceError
        for an ordering without a schedule, and for a parameter, a root or an operation that so many ranks
        cannot have.
        """
        short = self.total_bytes <= (PAIR_BYTES if size == 2 else SHORT_BYTES)
        if self.packing is not None:
            context |= {"packing": self.packing}
        schedule = self.entry.schedule(size, short, **context)
        if not (self.operation.commutative or keeps_order(schedule)):
            enough = [o.name for o in catalog.orderings() if o.scheduled and keeps_order(o.schedule(size))]
            raise ChoiceError(
                f"operation {self.operation.name!r} is not commutative, and ordering {self.ordering!r} combines the "
                f"ranks of {size} in another order than theirs; these keep it: {', '.join(enough)}"
            )
        if self.collective == "reduce":
            return collectives.reduce(schedule, self.root)
        if self.collective == "reduce-scatter":
            return collectives.reduce_scatter(schedule, self.bounds)
        return collectives.allgather(schedule) if self.collective == "allgather" else schedule

    def require(self, level: str) -> None:
        """Raise ChoiceError, listing what does, unless the guarantee meets that level."""
        if meets(self.guarantee, level):
            return
        enough = ", ".join(o.name for o in catalog.orderings() if meets(o.guarantee, level))
        held = " or ".join(
            name for name, a in accumulate.ACCUMULATIONS.items() if a.guarantee and meets(a.guarantee, level)
        )
        enough = f"orderings {enough}; " if enough else ""
        raise ChoiceError(
            f"all-reduce ordering {self.ordering!r} promises {self.guarantee!r}, less than the {level!r} asked for: "
            f"{self.entry.why}. These meet {level!r}: {enough}any ordering with a schedule, such as direct, in "
            f"accumulation {held}"
        )

    def require_links(self) -> None:
        """Raise ChoiceError where a file of links is still to be read, and is not sound."""
        if self.needs_links:
            links.read(self.entry.parameters["links"])

    def json(self) -> dict[str, Any]:
        """All that decides the bits and the bytes, as JSON has it."""
        return {
            "ordering": self._stated,
            "parameters": self.entry.parameters,
            "accumulation": self.accumulation,
            "wire": self.wire,
            "collective": self.collective,
            "operation": self.operation.name,
            "shape": list(self.shape),
            "dtype": self.dtype.name,
            "guarantee": self.guarantee,
            **({} if self.bounds is None else {"bounds": list(self.bounds)}),
            **({} if self.tensors is None else {"tensors": [list(shape) for shape in self.tensors]}),
        }

    def __str__(self) -> str:
        to = f" to rank {self.root}" if self.collective == "reduce" else ""
        text = (
            f"{self.collective}{to}, ordering {self.ordering!r}, {self.operation.name} of {self.dtype}, "
            f"shape {self.shape}"
        )
        text += "" if self.accumulation == "working" else f", accumulation {self.accumulation!r}"
        text += "" if self.wire == wires.PLAIN else f", wire {self.wire!r}"
        text += "" if self.tensors is None else f", tensors {self.tensors}"
        text += "" if self.divisor == 1 else f", divided by {self.divisor}"
        text += "" if self.bounds is None else f", bounds {self.bounds}"
        text += "" if self.nodes is None else f", nodes {self.nodes}"
        text += "" if self.packing is None else f", packing {self.packing.digest}"
        return text + (", check" if self.check else "")

    @property
    def _stated(self) -> str:
        """The ordering with the digest of its packing in place of a file, which may change."""
        if self.packing is None:
            return self.ordering
        given = self.entry.given | {"links": self.packing.digest}
        return (
            f"{self.ordering.partition(':')[0]}:{','.join(f'{key}={value}' for key, value in given.items())}"
        )

    def _require_type(self) -> None:
        taken = LIBRARY_NUMBERS if self.ordering == "library" else operations.ELEMENTS
        if self.dtype.name not in taken or not self.dtype.isnative:
            raise TypeError(
                f"ordering {self.ordering!r} reduces {', '.join(taken)} in native byte order, not {self.dtype}"
            )

    def _require_operation(self) -> None:
        name = self.operation.name
        if self.ordering == "library" and operations.OPERATIONS.get(name) is not self.operation:
            raise ChoiceError(
                f"ordering 'library' does {', '.join(operations.OPERATIONS)}, not {name!r} of the caller's"
            )
        if self.ordering == "arrival" and not self.operation.commutative:
            raise ChoiceError(
                f"operation {name!r} is not commutative, and 'arrival' combines in any order: choose direct"
            )

    def _require_collective(self) -> None:
        if self.collective != "allreduce" and not self.entry.scheduled:
            raise ChoiceError(
                f"ordering {self.ordering!r} does allreduce only, no {self.collective}, as it has no schedule: choose "
                f"{scheduled()}"
            )
        if self.collective == "allgather" and "owners" in self.entry.needs:
            raise ChoiceError(
                f"ordering {self.ordering!r} adds over blocks; an allgather has none: choose direct or ring"
            )

    def _require_packing(self) -> None:
        if self.packing is not None and "packing" not in self.entry.needs:
            raise ChoiceError(f"ordering {self.ordering!r} has no use for a packing of trees: choose trees")

    def _require_bounds(self) -> None:
        bounds, n = self.bounds, math.prod(self.shape)
        if bounds is None:
            return
        if self.collective != "reduce-scatter":
            raise ChoiceError(
                f"bounds say what ranks get of a reduce-scatter: there are none of {self.collective}"
            )
        if len(bounds) < 2 or (bounds[0], bounds[-1]) != (0, n):
            raise ValueError(
                f"bounds {_shortened(bounds)} must begin with 0 and end with {n}, the elements of the total"
            )
        wrong = next((i for i, (a, b) in enumerate(itertools.pairwise(bounds)) if b < a), None)
        if wrong is not None:
            raise ValueError(
                f"bounds must not descend: rank {wrong} would get elements {bounds[wrong]} to {bounds[wrong + 1]}"
            )

    def _require_accumulation(self) -> None:
        accumulate.get(self.accumulation, self.dtype, self.operation)
        if self.accumulation == "working":
            return
        if not self.entry.scheduled:
            raise ChoiceError(
                f"accumulation {self.accumulation!r} needs an all-reduce ordering with a schedule, not "
                f"{self.ordering!r}: choose {scheduled()}"
            )
        if self.collective == "allgather":
            raise ChoiceError(f"an allgather adds nothing in {self.accumulation!r}: leave accumulation out")

    def _require_wire(self) -> None:
        if self.tensors is not None and self.coding is None:
            raise ChoiceError(
                f"wire {self.wire!r} encodes no tensors: leave tensors out, or choose a wire that does"
            )
        if self.wire == wires.PLAIN:
            return
        label = f"wire {self.wire!r}"
        if self.coding is not None:
            self._require_coding(label, self.coding)
            return
        if not self.entry.scheduled:
            raise ChoiceError(
                f"{label} needs an all-reduce ordering with a schedule, not {self.ordering!r}: choose "
                f"{scheduled()}"
            )
        if self.contributions_travel:
            raise ChoiceError(
                f"{label}: under {self.ordering!r} in {self.accumulation!r} contributions travel as they are, and no "
                "words of 64 bits: choose another ordering, such as two-level"
            )
        wires.get(self.wire, accumulate.get(self.accumulation, self.dtype, self.operation).travels)

    def _require_divisor(self) -> None:
        if self.divisor != 1 and (self.divisor < 1 or self.coding is None or self.coding.hops != "once"):
            raise ChoiceError(
                f"divisor {self.divisor}: a wire that encodes contributions and total once has one, 1 or more; divide "
                "other totals as they come"
            )

    def _require_coding(self, label: str, coding: Coding) -> None:
        if not self.entry.scheduled:
            raise ChoiceError(
                f"{label} needs an all-reduce ordering with a schedule, not {self.ordering!r}: choose "
                f"{scheduled()}"
            )
        if self.collective != "allreduce" or self.operation is not operations.SUM or self.dtype != np.float32:
            raise ChoiceError(
                f"{label} carries all-reduces that sum float32, not {self.collective} of {self.operation.name}, "
                f"{self.dtype}: leave the wire out"
            )
        if coding.hops == "once" and self.ordering != "direct":
            raise ChoiceError(
                f"{label} encodes contributions and total once, and under {self.ordering!r} partial sums travel: "
                "choose ordering direct, or add hops=every to the wire, which encodes what travels at each hop"
            )
        if coding.hops == "every" and self.accumulation != "working":
            raise ChoiceError(
                f"{label} encodes partial sums, which {self.accumulation!r} does not hold as float32: leave hops=every "
                "or the accumulation out"
            )
        if coding.hops == "every" and coding.feedback:
            raise ChoiceError(
                f"{label}: what partial sums lose at a hop belongs to no block: leave hops=every or feedback=on out"
            )
        self.cells  # noqa: B018 (refuses tensors that do not fill the vector)


def labels(text: str) -> list[str]:
    """Labels between commas; a parameter behind a comma, `fold=wrap`, belongs to the ordering before it."""
    names: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if "=" in part.partition(":")[0] and names:
            names[-1] += f",{part}"
        else:
            names.append(part)
    return names


def _shortened(numbers: Sequence[int]) -> str:
    return str(numbers) if len(numbers) <= 8 else f"({numbers[0]}, ..., {numbers[-1]})"


def _lengths(shape) -> tuple[int, ...]:
    lengths = tuple(operator.index(n) for n in np.atleast_1d(np.asarray(shape, dtype=object)))
    if any(n < 0 for n in lengths):
        raise ValueError(f"shape {lengths} has a negative length")
    return lengths


def _type(dtype) -> np.dtype:
    """`dtype`; bfloat16 may also be given by its name."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)
