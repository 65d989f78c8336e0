"""A plan: the steps of all ranks in one step of training, for any mesh. Plain data without MPI, torch or mesh.

The plan contains every choice that affects bits: the dims that are cut into blocks, the operations that are called
block by block, the partial sums, and the places where they are added. A mesh only assigns blocks to ranks.

**Values.** `plan.values[NAME]` has the global shape of a tensor, its dtype, its `cut` (see `axes`) and the axes over
which it is `partial`. A rank holds its blocks of every axis in the cut, ascending and side by side, as one dense array
with the dims of the tensor. The local size of a dim is a product over its factors: of the factor's size, or of the
number of elements in owned blocks. A factor of n elements has blocks at `axis.at(n)`. A value that is partial over axes
(a, b) is one such array per pair of owned blocks of a and b; the tensor is their sum (`combine`: sum, max or min) over
*all* blocks of a x b. An axis occurs in a value once, in its cut or as partial.

**Steps**, in the order of execution:

- `Compute`: a local operation, with target and arguments of the graph. "%NAME" is a value, "@shape" the local shape of
  the first result (for kernel `create` the global shape). All other numbers are global and valid on every rank, because
  the dims that they refer to are not cut. If `over` is empty, the operation is called once on the local arrays.
  Otherwise it is called once for each owned block of `over` (product of their blocks, first axis major, ascending):
  operands cut by these axes are narrowed to the block, operands partial over them give the partial of the block, other
  operands are passed whole. A result that is partial over the axes gets one array per call; results cut by them are
  concatenated. A rank without blocks of some axis of the operation skips it. `fill`: the value of elements that pad the
  operands along `over` (None: any value).
  `windows`: dims in which the operation reads beyond its own block.
  `kernel`: the family of kernels that keeps its bits under `layout`:

  | family | why cuts of dims that it does not sum keep its bits |
  |---|---|
  | `view` | moves or copies elements |
  | `create` | elements that depend only on their place: each rank keeps its part |
  | `pointwise` | each element from those at its place |
  | `matmul` | chains over the contracted dim |
  | `conv` | chains over channels and window |
  | `rowsum` | sums over dims that are not cut, or inside one block |
  | `rowwise` | each row separately: softmax, layer norm, attention |
  | `lookup` | rows chosen by indices |
  | `scatter` | rows added at indices, in ascending order of the samples of one block |
  | `random` | numbers keyed by node and global element |
  | `span` | a range of a cut dim, which all ranks that read it get from the ranks that hold it |
  | `torch` | no rule: on whole tensors |
- `Reshard`: the same elements in another cut, several values at once. `kind` names the collective; an executor may
  also send each rank directly the elements that it lacks in the new cut.
- `Reduce`: adds partial values over all blocks of `axes`, in one tree (`block-tree`) over the product of their block
  numbers, first axis major; all operands are sent as one vector. Either all results have axes that their operands lack,
  and each rank needs only its part (reduce-scatter), or no result has (all-reduce). With a `home` the owners of one
  block alone need the totals: a reduce-scatter of which other ranks get no element. An `early` one begins here, and no
  rank waits for it before a step reads a result.
- `Send`, `Receive`: the ranks of stage `source` send a value, as they hold it, to those of stage `target`. A pair of
  ranks that differ only in the stage exchange one message; without several ranks along the stages, nothing is sent.

**Stages.** Without an axis `stage`, every rank executes every step. With it, `stages[NAME]` names the blocks of `stage`
at which a value is computed: only their ranks hold it, and execute its step. `tasks[NODE]`: the micro-batch and the
pass (FORWARD, BACKWARD) of an operation. HEAD precedes all micro-batches, TAIL follows them. Both only say where and
when a step is executed, so the hash leaves them out, with the axis `stage` and the order of steps
(`planning.schedule`).

**Sources** are parameters, buffers, inputs and constants; their values have the cut in which a rank holds them between
steps. `gradients` and `updates` name values that have the cut of their parameter or buffer and are not partial; `loss`
is whole. The optimiser works element by element on a rank's own arrays; it is not part of the plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from miniapps.partition.cuts.axes import Axis, Cut, Dim, axes_of
from miniapps.partition.graphs.graph import Source, tensors_in

SHAPE = "@shape"
SPAN = "span"  # the kernel of a part of a dim that all ranks get that read it
# The operations of one block of keys and values; their last arguments: places of the queries, begin and end of the
# block, whether attention is causal, its scale.
ATTENTION_STEPS = ("partition.attention_step", "partition.attention_step_backward")
STAGE = "stage"  # the axis of layers that ranks compute one after the other
FORWARD, BACKWARD, HEAD, TAIL = "forward", "backward", "head", "tail"
Turn = tuple[int, str]  # the micro-batch and the pass of an operation


@dataclass(frozen=True)
class Value:
    """A tensor of the plan; see the docstring of this module."""

    shape: tuple[int, ...]
    dtype: str
    cut: Cut
    partial: tuple[str, ...] = ()
    combine: str = "sum"


@dataclass(frozen=True)
class Window:
    """The range of dim `dim` of `operand` that the operation reads for [begin, end) of dim `of_dim` of the value `of`.

    A window of `kernel` elements, `dilation` apart, moves by `stride` over an operand with `padding` zeros on both
    sides. `of` is the result or, for the gradient of weights, the operand whose block is processed. Elements outside
    the operand are zeros. The operation is called on `needs(begin, end)` with padding 0 in this dim; if transposed, its
    result is used from `skip(begin, end)` on, and is zero beyond its end. A negative stride reads backwards. `wrap`:
    places outside the operand are those at the other end.
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
    wrap: bool = False

    def needs(self, begin: int, end: int) -> tuple[int, int]:
        """[low, high) of the operand; low may be negative, high beyond the operand's size."""
        reach = (self.kernel - 1) * self.dilation
        if self.stride < 0:
            begin, end = end - 1, begin + 1
        if self.transposed:
            # With a stride longer than the window no place may be above `begin`: then from the place before it.
            low = min(-((reach - begin - self.padding) // self.stride), (begin + self.padding) // self.stride)
            return low, (end - 1 + self.padding) // self.stride + 1
        return begin * self.stride - self.padding, (end - 1) * self.stride - self.padding + reach + 1

    def skip(self, begin: int, end: int) -> int:
        """Transposed: the number of elements of the result on `needs(begin, end)`, without padding, before `begin`."""
        low, _ = self.needs(begin, end)
        return begin + self.padding - low * self.stride if self.transposed else 0


@dataclass(frozen=True)
class Compute:
    """A local operation: the node `node` of the graph, from the module `where`."""

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
    """Moves the values `operands` to the cuts of their results, before `node`, the first that needs one of them. All
    have the same dtype and axes. `kind`: slice, all-gather, all-to-all or permute. `early` as of `Reduce`. `products`:
    the results of products that follow and whose first operand is the only result; they are computed here, on own rows
    and on those that have arrived, while the others arrive in `parts`."""

    node: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    kind: str
    early: bool = False
    products: tuple[str, ...] = ()
    parts: int = 1


@dataclass(frozen=True)
class Home:
    """The ranks that own block `block` of an axis. A value at home has all of its dim `dim` there, and none of it on
    other ranks."""

    dim: int
    axis: str
    block: int


@dataclass(frozen=True)
class Reduce:
    """Adds partial values over all blocks of `axes`, before `node`, the first that needs one of the totals. `early`: no
    rank waits for it before a step needs a total. `product`: the values from the result of a product to the only
    operand, which has the same elements in the same order; it is computed here, in `parts` of its rows, each of which
    is added while the next is computed. `home`: where the totals are needed, if not on all ranks."""

    node: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    axes: tuple[str, ...]
    combine: str
    dtype: str
    early: bool = False
    product: tuple[str, ...] = ()
    parts: int = 1
    home: Home | None = None


@dataclass(frozen=True)
class Send:
    """Sends the value in `operands` from stage `source` to stage `target`, for `node`; `results` names it, too."""

    node: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    source: int
    target: int


@dataclass(frozen=True)
class Receive:
    """Receives what a `Send` sent."""

    node: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    source: int
    target: int


Step = Compute | Reshard | Reduce | Send | Receive


def step_operands(step: Step) -> tuple[str, ...]:
    """The values that a step reads, each once."""
    if isinstance(step, Compute):
        return tuple(dict.fromkeys(tensors_in((step.args, tuple(value for _, value in step.kwargs)))))
    return step.operands


def step_results(step: Step) -> tuple[str, ...]:
    """The values that a step makes."""
    return step.results


def dividing(step: Compute, values: Mapping[str, Value]) -> set[str]:
    """The axes that divide the work of an operation."""
    found = set(step.over)
    for name in step.results:
        found |= {*axes_of(values[name].cut), *values[name].partial}
    return found


@dataclass(frozen=True)
class Plan:
    """The steps of all ranks. `together`: groups of axes that never cut the same value, so that one axis of a mesh may
    carry a whole group; `reasons`: {node: why its operation is not cut}; `stages`: {value: blocks of the axis `stage`},
    `tasks`: {node: task}, both empty without this axis."""

    axes: tuple[Axis, ...]
    sources: tuple[Source, ...]
    values: Mapping[str, Value]
    steps: tuple[Step, ...]
    loss: str
    gradients: tuple[tuple[str, str], ...]
    updates: tuple[tuple[str, str], ...] = ()
    together: tuple[tuple[str, ...], ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    stages: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tasks: Mapping[str, Turn] = field(default_factory=dict)

    @cached_property
    def seen_by(self) -> Mapping[str, Dim]:
        """For each value that only the later places of a dim read, the cut of this dim: a block of keys or values of
        causal attention, which queries before it do not see."""
        found: dict[str, Dim] = {}
        for step in self.steps:
            if isinstance(step, Compute) and step.target in ATTENTION_STEPS and step.args[-2]:
                keys, values, rows = (step.args[at][1:] for at in (-9, -8, -5))
                found |= dict.fromkeys((keys, values), self.values[rows].cut[0])
        return found

    def axis(self, name: str) -> Axis:
        """The axis `name`. Raises StopIteration without one."""
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
        """SHA-256 of all choices that affect bits: plans with equal hashes have the same bits under `layout`, on any
        mesh.

        Leaves out the grouping and times of messages, on which a reduction's tree does not depend; and the stages and
        the order of steps, which fix only where and when an operation is computed.
        """
        document = self.as_json()
        del document["stages"], document["tasks"]
        document["axes"] = [axis for axis in document["axes"] if axis["name"] != STAGE]
        computed = [step for step in document["steps"] if step["step"] == "compute"]
        computed.sort(key=lambda step: step["results"])
        reduced = sorted(
            pair
            for s in self.steps
            if isinstance(s, Reduce)
            for pair in zip(s.operands, s.results, strict=True)
        )
        document |= {"steps": computed, "reduced": reduced}
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
