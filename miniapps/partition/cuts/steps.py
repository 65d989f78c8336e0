"""A plan: what every rank does in one step of training, for any mesh of ranks. Plain data: no MPI, no torch, no mesh.

Everything that decides bits is here: which dims are cut into blocks, which operation is called block by block, which
partial sums arise and where they are added. A mesh adds only who owns which blocks.

**Values.** `plan.values[NAME]` is the global shape of a tensor, its dtype, its `cut` (see `axes`) and
the axes over which it is `partial`. A rank holds, for each dim, the blocks that it owns of every axis in the cut,
ascending and side by side, as one dense array whose dims are those of the tensor: the local size of a dim is the
product over its factors of the factor's size, or of the elements of owned blocks. A factor of n elements has blocks
at `axis.at(n)`. A value that is partial over axes (a, b) is one such array per pair of owned blocks of a and b, and
the tensor is their sum (`combine`: sum, max or min) over *all* blocks of a x b. An axis occurs in a value once, in
its cut or as partial.

**Steps**, carried out in order:

- `Compute`: a local operation. `target` and arguments are those of the graph; "%NAME" is a value, "@shape" the local
  shape of the first result (of kernel `create` the global one). All other numbers are global and hold on every rank,
  for the dims that they speak of are not cut. With `over` empty, it is called once on the local arrays. Otherwise it
  is called once for each owned block of `over` (product of their blocks, first axis major, ascending): operands whose
  cut has these axes are narrowed to the block, operands that are partial over them give the partial of that block,
  all others are taken as they are. A result that is partial over the axes gets one array per call; results cut by
  them are put together. A rank without blocks of some axis of the operation skips it. `fill`: what elements that pad
  the operands along `over` must be before the call (None: they do no harm).
  `windows`: dims in which the operation reads beyond its own block.
  `kernel`: the family of kernels that has its bits under `layout`:

  | family | how it keeps its bits when dims that it does not sum are cut |
  |---|---|
  | `view` | moves or copies elements |
  | `create` | elements known from their place: computed whole, of which a rank keeps its part |
  | `pointwise` | each element from those at its place |
  | `matmul` | chains over the contracted dim |
  | `conv` | chains over channels and window |
  | `rowsum` | sums over dims that are not cut, or inside one block |
  | `rowwise` | each row by itself: softmax, layer norm, attention |
  | `lookup` | rows chosen by indices |
  | `scatter` | rows added at indices, in ascending order of the samples of one block |
  | `random` | numbers keyed by node and global element |
  | `torch` | no rule: on whole tensors |
- `Reshard`: the same elements, cut otherwise; several values travel at once. `kind` says what it comes to; an executor
  may send each rank directly what it lacks of the new cut.
- `Reduce`: partial values are added over all blocks of `axes`, in one tree (`block-tree`) over the product of their
  block numbers, first axis major; all operands travel as one vector. The cuts of all results have axes beyond those of
  their operands, and each rank needs that part alone (reduce-scatter), or none has (all-reduce).

**Sources** are parameters, buffers, inputs and constants; their values have the cut in which a rank holds them between
steps. `gradients` and `updates` name values that have the cut of their parameter or buffer and are not partial; `loss`
is whole. The optimiser works element by element on what a rank holds; it is not part of the plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from miniapps.partition.cuts.axes import Axis, Cut
from miniapps.partition.graphs.graph import Source, tensors_in

SHAPE = "@shape"


@dataclass(frozen=True)
class Value:
    """A tensor of the plan; see the page above."""

    shape: tuple[int, ...]
    dtype: str
    cut: Cut
    partial: tuple[str, ...] = ()
    combine: str = "sum"


@dataclass(frozen=True)
class Window:
    """The places of dim `dim` of `operand` that are read for places [begin, end) of dim `of_dim` of the value `of`.

    A window of `kernel` elements `dilation` apart moves by `stride`, over an operand with `padding` zeros at both
    sides. `of` is the result, or, for the gradient of weights, the operand whose block the call is about. Places
    outside of the operand are zeros. The operation is called on `needs(begin, end)` with padding 0 in that dim; if
    transposed, its result is read from `skip(begin, end)` on, and is zero beyond its end.
    """

    operand: str
    dim: int
    of: str
    of_dim: int
    axis: str
    kernel: int
    stride: int
    dilation: int
    padding: int
    transposed: bool = False

    def needs(self, begin: int, end: int) -> tuple[int, int]:
        """[low, high) of the operand; low may be negative, high beyond the operand's size."""
        reach = (self.kernel - 1) * self.dilation
        if self.transposed:
            return -((reach - begin - self.padding) // self.stride), (
                end - 1 + self.padding
            ) // self.stride + 1
        return begin * self.stride - self.padding, (end - 1) * self.stride - self.padding + reach + 1

    def skip(self, begin: int, end: int) -> int:
        """Transposed: how many places of the result on `needs(begin, end)`, without padding, precede `begin`."""
        low, _ = self.needs(begin, end)
        return begin + self.padding - low * self.stride if self.transposed else 0


@dataclass(frozen=True)
class Compute:
    """A local operation, of the node `node` of the graph, which belongs to the module `where`."""

    node: str
    target: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    results: tuple[str, ...]
    kernel: str
    over: tuple[str, ...] = ()
    windows: tuple[Window, ...] = ()
    fill: float | None = None
    where: str = ""


@dataclass(frozen=True)
class Reshard:
    """The values `operands`, each in the cut of its result; for the node `node`, the first that needs one of them.
    Several have one dtype and are cut by the same axes. `kind`: slice, all-gather, all-to-all or permute."""

    node: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    kind: str


@dataclass(frozen=True)
class Reduce:
    """Partial values, added over all blocks of `axes`; before the node `node`, the first that needs one of them."""

    node: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    axes: tuple[str, ...]
    combine: str
    dtype: str


Step = Compute | Reshard | Reduce


def step_operands(step: Step) -> tuple[str, ...]:
    """The values that a step reads, each once."""
    if isinstance(step, Compute):
        return tuple(dict.fromkeys(tensors_in((step.args, tuple(value for _, value in step.kwargs)))))
    return step.operands


def step_results(step: Step) -> tuple[str, ...]:
    """The values that a step makes."""
    return step.results


@dataclass(frozen=True)
class Plan:
    """The steps of all ranks. `together`: axes that never cut one value, so that one axis of a mesh may carry all of a
    group; `reasons`: why operations are not cut, by node."""

    axes: tuple[Axis, ...]
    sources: tuple[Source, ...]
    values: Mapping[str, Value]
    steps: tuple[Step, ...]
    loss: str
    gradients: tuple[tuple[str, str], ...]
    updates: tuple[tuple[str, str], ...] = ()
    together: tuple[tuple[str, ...], ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)

    def axis(self, name: str) -> Axis:
        """The axis of that name; KeyError without one."""
        return next(axis for axis in self.axes if axis.name == name)

    def as_json(self) -> dict[str, Any]:
        """The plan as a document; constants by their hash."""
        document = asdict(self)
        for source in document["sources"]:
            source["data"] = hashlib.sha256(source["data"]).hexdigest() if source["data"] else None
        for step, own in zip(document["steps"], self.steps, strict=True):
            step["step"] = type(own).__name__.lower()
        return document

    @cached_property
    def hash(self) -> str:
        """SHA-256 of what decides bits: plans of one hash have the same bits under `layout`, whatever the mesh.

        What travels together, and when, is left out, as a reduction's tree does not depend on it.
        """
        document = self.as_json()
        computed = [step for step in document["steps"] if step["step"] == "compute"]
        reduced = sorted(
            pair
            for s in self.steps
            if isinstance(s, Reduce)
            for pair in zip(s.operands, s.results, strict=True)
        )
        document |= {"steps": computed, "reduced": reduced}
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
