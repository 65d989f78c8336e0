"""Lowers a graph to a schedule: layouts, kernels, packed weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels import _native
from kernels.inference.graph import MAPS, PAIRS, REDUCTIONS, Graph, Node, Unsupported, elements
from kernels.inference.layouts import Value, aligned, joined, panels, steps
from kernels.inference.schedule import Buffer, Kernel, Schedule, place_buffers, rounded

TILE = 16  # samples whose rows share a pass over the weights of a linear layer
LANES = 8  # results have a multiple of 8 columns in memory
FUNCTIONS, PAIR_CODES, REDUCTION_CODES, MODES = (
    {name: k for k, name in enumerate(_native.STATIC[key])}
    for key in ("functions", "pairs", "reductions", "modes")
)
TURNED = {"sub": "rsub", "rsub": "sub", "div": "rdiv", "rdiv": "div"}


def plan(graph: Graph, tile: int = TILE) -> Schedule:
    """The schedule of a graph; `tile`: samples per pass where a layer profits from several at once."""
    return Lowering(graph).run(tile)


class Lowering:
    """The kernels of a graph, node by node."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.kernels: list[Kernel] = []
        self.values: dict[str, Value] = {}
        self.pieces: list[np.ndarray] = []  # constants
        self.tables: list[np.ndarray] = []
        self.lengths = {"pieces": 0, "tables": 0}
        self.fused: set[str] = set()

    def run(self, tile: int) -> Schedule:
        graph = self.graph
        self.values[graph.input] = source = self.dense(graph.input, graph.sample)
        source.buffer.space, source.buffer.step = "input", elements(graph.sample)
        for node in graph.nodes:
            if node.name not in self.fused:
                getattr(self, f"_{KINDS.get(node.operation, node.operation)}")(node)
        result = self.values[graph.output]
        output = self.dense("output", result.shape)
        output.buffer.space, output.buffer.step = "output", elements(result.shape)
        self.copy(result, output, "store", canonical=True)
        together = self.groups()
        schedule = Schedule(
            self.kernels, aligned(self.pieces), np.concatenate([np.zeros(0, np.int64), *self.tables]),
            graph.sample, result.shape, tile if together and graph.batched else 1, batched=graph.batched,
        )  # fmt: skip
        place_buffers(schedule)
        return schedule

    def groups(self) -> bool:
        """Numbers the groups of kernels; returns whether a group takes the samples of a tile together.

        A layer with one row per sample takes all rows of a tile at once. The kernels after it join its group, up to the
        next kernel with enough work in one sample.
        """
        together, group = False, 1
        for k, kernel in enumerate(self.kernels):
            wanted = bool(kernel.parameters[11]) if kernel.code == "products" else together
            if k and wanted != together:
                group += 1
            together = kernel.together = wanted
            kernel.group = group
        return any(kernel.together for kernel in self.kernels)

    # ---- buffers, constants, copies ----

    def dense(self, name: str, shape: Sequence[int]) -> Value:
        """A new value whose rows have no gaps between them."""
        shape = tuple(shape)
        columns = shape[-1] if shape else 1
        return Value(Buffer(name, elements(shape[:-1]), columns, columns), shape, columns)

    def like(self, name: str, shape: Sequence[int], pixels: bool = False, pitch: int = 0) -> Value:
        """A new value with a pitch that is a multiple of 8, or `pitch`; a single column has no gaps."""
        value = Value(Buffer(name, 0, 0, 0), tuple(shape), 0, pixels)
        pitch = pitch or (1 if value.columns == 1 and not pixels else rounded(value.columns, LANES))
        buffer = Buffer(name, value.rows, value.columns, pitch)
        return Value(buffer, value.shape, pitch, pixels)

    def constant(self, array: np.ndarray) -> Buffer:
        """Appends an array to the constants, at a multiple of 64 bytes; returns its buffer."""
        flat = np.zeros(rounded(array.size), np.float32)
        flat[: array.size] = array.reshape(-1)
        at = self.lengths["pieces"]
        self.pieces.append(flat)
        self.lengths["pieces"] += flat.size
        return Buffer("constants", 1, array.size, array.size, "constants", at)

    def table(self, places) -> int:
        at = self.lengths["tables"]
        self.tables.append(np.asarray(places, np.int64).reshape(-1))
        self.lengths["tables"] += self.tables[-1].size
        return at

    def emit(self, code, text, inputs, output, parameters, order="", **more) -> None:
        places = [v.buffer if isinstance(v, Value) else v for v in inputs]
        self.kernels.append(
            Kernel(code, text, places, output.buffer, [int(p) for p in parameters], order, **more)
        )

    def copy(
        self, source: Value, to: Value, text: str, canonical=False, edge=(0, 0), at=0, zero=False
    ) -> None:
        """Copies a value into the layout `to`, shifted by `edge` pixels from its edges and by `at` elements."""
        n, a = steps(source)
        _, y = steps(to)
        at += edge[0] * y[1] + edge[1] * y[2] if to.pixels else 0
        parameters = [*joined(n, a, y), to.buffer.size if zero else 0, canonical, at]
        self.emit("copy", text, [source], to, parameters)

    def flat(self, value: Value) -> Value:
        """The value with its axes in row-major order; copies pixels."""
        return (
            value
            if not value.pixels
            else self._copied(value, self.dense(value.buffer.name, value.shape), "flatten")
        )

    def _copied(self, value: Value, to: Value, text: str) -> Value:
        self.copy(value, to, text, zero=to.pitch > to.columns)
        return to

    def wide(self, value: Value) -> Value:
        """The value in the arena; with more than one column, its pitch is a multiple of 8."""
        if value.buffer.space == "arena" and (
            value.pitch % LANES == 0 or (value.columns == 1 == value.pitch)
        ):
            return value
        return self._copied(value, self.like(value.buffer.name, value.shape, value.pixels), "widen")

    def refusal(self, node: Node, why: str) -> Unsupported:
        return Unsupported(f"{node.operation} (node {node.name!r}, {node.where or 'no line known'}): {why}")

    def source(self, node: Node, k: int = 0) -> Value:
        return self.values[node.inputs[k]]

    # ---- sums of products ----

    def products(self, node: Node, x: Value, weight, bias, to: Value, runs, places, text, order) -> None:
        """Emits sums of products of x with `weight` (columns, terms) at `places` (terms,); fuses a relu that is the
        only reader of the result."""
        columns, terms = weight.shape
        padded = rounded(columns, LANES)
        users = self.graph.users(node.name)
        relu = len(users) == 1 and users[0].operation == "relu" and node.name != self.graph.output
        if relu:
            self.fused.add(users[0].name)
            self.values[users[0].name] = to
        self.values[node.name] = to
        wide = np.zeros((terms, padded), np.float32)
        wide[:, :columns] = weight.T
        packed = self.constant(np.concatenate([wide[:, a:b].reshape(-1) for a, b in panels(padded)]))
        start = np.zeros(padded, np.float32)
        start[:columns] = 0.0 if bias is None else bias
        number, run, rows, step = runs
        merged = number * rows == 1
        self.emit(
            "products", f"{text}{' relu' if relu else ''}", [x], to,
            [number, run, rows, step, terms, self.table(places), padded, packed.at, self.constant(start).at,
             relu, to.pitch, merged],
            f"{order}, from {'+0.0' if bias is None else 'the bias'}",
            flops=2 * number * rows * columns * terms, weights=4 * (weight.size + columns),
            nodes=(node.name, users[0].name) if relu else (node.name,),
        )  # fmt: skip

    def _linear(self, node: Node) -> None:
        x, weight = self.flat(self.source(node)), self.graph.constants[node.constants["weight"]]
        to = self.like(node.name, node.shape, pitch=rounded(len(weight), LANES))
        self.products(
            node, x, weight, self.bias(node), to, (1, 0, x.rows, x.pitch), np.arange(weight.shape[1]),
            f"linear {weight.shape[1]} to {len(weight)}", "k = column, ascending",
        )  # fmt: skip

    def bias(self, node: Node) -> np.ndarray | None:
        return self.graph.constants[node.constants["bias"]] if "bias" in node.constants else None

    def _conv2d(self, node: Node) -> None:
        weight, x = self.graph.constants[node.constants["weight"]], self.source(node)
        (down, right), (over, along), (high, wide) = (
            node.attributes[name] for name in ("stride", "padding", "dilation")
        )
        channels, height, width = x.shape
        if not x.pixels or over or along:
            pitch = x.pitch if x.pixels else channels
            padded = (channels, height + 2 * over, width + 2 * along)
            to = self.like(f"{x.buffer.name}.padded", padded, True, pitch)
            self.copy(
                x, to, "pad" if over or along else "to pixels", edge=(over, along), zero=bool(over or along)
            )
            x = to
        pixels = x.shape[2]
        _, c, i, j = np.indices((1, *weight.shape[1:]))
        places = ((i * high * pixels + j * wide) * x.pitch + c).reshape(-1)
        to = self.like(node.name, node.shape, True)
        _, rows, columns = node.shape
        self.products(
            node, x, weight.reshape(len(weight), -1), self.bias(node), to,
            (rows, down * pixels * x.pitch, columns, right * x.pitch), places,
            f"conv {channels} to {len(weight)}, {weight.shape[2]} x {weight.shape[3]}",
            "k = (channel, row, column), ascending",
        )  # fmt: skip

    # ---- everything else ----

    def _pool(self, node: Node) -> None:
        x = self.source(node)
        if not x.pixels:
            x = self._copied(x, self.like(f"{x.buffer.name}.pixels", x.shape, True), "to pixels")
        x = self.wide(x)
        (high, wide), (down, right) = node.attributes["window"], node.attributes["stride"]
        _, rows, columns = node.shape
        self.values[node.name] = to = self.like(node.name, node.shape, True, x.pitch)
        average = node.operation == "avg_pool2d"
        self.emit(
            "pool_average" if average else "pool_max",
            f"{'average' if average else 'max'} of {high} x {wide}", [x], to,
            [rows, columns, x.pitch, high, wide, down, right, x.shape[2] * x.pitch],
            "row by row, from +0.0" if average else "row by row",
            flops=elements(node.shape) * high * wide, nodes=(node.name,),
        )  # fmt: skip

    def _map(self, node: Node) -> None:
        x = self.wide(self.source(node))
        self.values[node.name] = to = self.like(node.name, node.shape, x.pixels, x.pitch)
        self.emit("map", node.operation, [x], to, [FUNCTIONS[node.operation], x.span], nodes=(node.name,),
                  flops=elements(node.shape))  # fmt: skip

    def _pair(self, node: Node) -> None:
        operation, x, y, mode = self._operands(node)
        self.values[node.name] = to = self.like(node.name, node.shape, x.pixels, x.pitch)
        rows, pitch = (x.rows, x.pitch) if mode == "column" else (1, x.span)
        self.emit("combine", f"{operation}, {mode}", [x, y], to, [PAIR_CODES[operation], rows, pitch, MODES[mode]],
                  nodes=(node.name,), flops=elements(node.shape))  # fmt: skip

    def _operands(self, node: Node) -> tuple[str, Value, Value | Buffer, str]:
        """(operation, first operand, second operand, mode) of a binary node; the first has the shape of the result."""
        operation, x = node.operation, self.source(node)
        if "other" in node.constants:
            constant, x = self.graph.constants[node.constants["other"]], self.wide(x)
            if x.shape != node.shape:
                raise self.refusal(node, f"{x.shape} broadcast to {node.shape}")
            if constant.size == 1:
                return operation, x, self.constant(constant), "scalar"
            if constant.shape[-1] == 1 < x.columns and not x.pixels:
                return operation, x, self.constant(np.broadcast_to(constant, (*x.shape[:-1], 1))), "column"
            return operation, x, self.laid_out(constant, x), "full"
        other = self.source(node, 1)
        if x.shape != node.shape:
            x, other, operation = other, x, TURNED.get(operation, operation)
        if x.shape == node.shape == other.shape:
            if x.pixels != other.pixels:
                x, other = self.flat(x), self.flat(other)
            x, other = self.wide(x), self.wide(other)
            if x.pitch != other.pitch:
                x, other = (
                    self._copied(v, self.like(v.buffer.name, v.shape, v.pixels), "widen") for v in (x, other)
                )
            return operation, x, other, "full"
        if x.shape == node.shape and other.shape == (*x.shape[:-1], 1):
            return operation, self.wide(self.flat(x)), self.wide(self.flat(other)), "column"
        raise self.refusal(node, f"{x.shape} with {other.shape}: only equal shapes, or one of (..., 1)")

    def laid_out(self, other: np.ndarray, x: Value) -> Buffer:
        """A constant broadcast to the shape of x, in its layout."""
        whole = np.broadcast_to(other, x.shape)
        matrix = whole.reshape(x.columns, -1).T if x.pixels else whole.reshape(-1, x.columns)
        padded = np.zeros((x.rows, x.pitch), np.float32)
        padded[:, : x.columns] = matrix
        return self.constant(padded)

    def _reduce(self, node: Node) -> None:
        x = self.flat(self.source(node))
        self.values[node.name] = to = self.dense(node.name, node.shape)
        self.emit("reduce", node.operation, [x], to, [REDUCTION_CODES[node.operation], x.rows, x.columns, x.pitch],
                  "column, ascending" + ("" if node.operation == "max" else ", from +0.0"),
                  flops=elements(x.shape) * (2 if node.operation == "norm" else 1), nodes=(node.name,))  # fmt: skip

    def _reshape(self, node: Node) -> None:
        x = self.flat(self.source(node))
        columns = node.shape[-1] if node.shape else 1
        if x.pitch != x.columns and columns != x.columns:
            x = self._copied(x, self.dense(x.buffer.name, x.shape), "compact")
        pitch = x.pitch if columns == x.columns else columns
        self.values[node.name] = Value(x.buffer, node.shape, pitch)

    def _concat(self, node: Node) -> None:
        axis, parts = node.attributes["axis"], [self.source(node, k) for k in range(len(node.inputs))]
        pixels = axis == 0 and all(part.pixels for part in parts)
        to = self.like(node.name, node.shape, True) if pixels else self.dense(node.name, node.shape)
        at = 0
        for part in parts:
            part = part if pixels else self.flat(part)
            if pixels:
                n, a, y = (part.rows, 1, part.columns), (part.pitch, 0, 1), (to.pitch, 0, 1)
                length = part.columns
            else:  # elements after the axis are contiguous in the target
                inner, outer = elements(node.shape[axis + 1 :]), elements(node.shape[:axis])
                if axis + 1 < len(node.shape) and part.pitch != part.columns:
                    part = self._copied(part, self.dense(part.buffer.name, part.shape), "compact")
                length = part.shape[axis] * inner
                step = part.pitch if axis + 1 == len(node.shape) else length
                n, a, y = (outer, 1, length), (step, 0, 1), (node.shape[axis] * inner, 0, 1)
            self.emit("copy", "concat", [part], to, [*n, *a, *y, 0, 0, at], nodes=(node.name,))
            at += length
        self.values[node.name] = to

    def _gather(self, node: Node) -> None:
        x, index = self.flat(self.source(node)), self.graph.constants[node.constants["index"]]
        self.require_rows(node, x, index, x.shape[0])
        self.values[node.name] = to = self.like(node.name, node.shape, pitch=x.pitch)
        self.emit("gather", f"gather {len(index)}", [x], to,
                  [len(index), x.columns, self.table(index), x.pitch, to.pitch], nodes=(node.name,))  # fmt: skip

    def _index_add(self, node: Node) -> None:
        x, index = self.flat(self.source(node)), self.graph.constants[node.constants["index"]]
        self.require_rows(node, x, index, node.shape[0])
        to = self.like(node.name, node.shape, pitch=rounded(x.columns, LANES))
        if "start" in node.constants:
            start = np.broadcast_to(self.graph.constants[node.constants["start"]], node.shape)
            begin = Value(self.constant(np.ascontiguousarray(start)), node.shape, x.columns)
        else:
            begin = self.flat(self.source(node, 1))
        self.copy(begin, to, "start", zero=True)
        self.emit("index_add", f"index_add {len(index)}", [x], to,
                  [len(index), x.columns, self.table(index), x.pitch, to.pitch], "place in the index, ascending",
                  flops=elements(x.shape), nodes=(node.name,))  # fmt: skip
        self.values[node.name] = to

    def require_rows(self, node: Node, x: Value, index: np.ndarray, rows: int) -> None:
        if len(x.shape) != 2 or index.ndim != 1:
            raise self.refusal(
                node, f"rows of {x.shape} by an index of {index.shape}: only a matrix and a vector"
            )
        if index.size and not (index.min() >= 0 and index.max() < rows):
            raise self.refusal(
                node, f"the index reaches from {index.min()} to {index.max()}, beyond 0 ... {rows - 1}"
            )


KINDS = {
    **dict.fromkeys(MAPS, "map"), **dict.fromkeys(PAIRS, "pair"), **dict.fromkeys(REDUCTIONS, "reduce"),
    "max_pool2d": "pool", "avg_pool2d": "pool",
}  # fmt: skip
