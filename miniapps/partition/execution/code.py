"""Writes the program of a rank as straight-line Python, one assignment per call.

    writer = Writer(bound, kernels, moved, total)
    text = writer.text(names)                     # of step(given, number) -> the values `names`

Running it costs little more than the calls of torch themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from miniapps.partition.cuts.steps import SHAPE
from miniapps.partition.execution import rings
from miniapps.partition.execution.blockwise import Blocks, blocks_of
from miniapps.partition.execution.bound import Added, Bound, Called, Incoming, Moved, Operation, Outgoing
from miniapps.partition.execution.compute import Kernels
from miniapps.partition.execution.lines import Lines
from miniapps.partition.execution.pieces import cut, filled, joins, narrowed, partial_of
from miniapps.partition.execution.place import Halo, Part
from miniapps.partition.execution.regions import region_of, talks
from miniapps.partition.execution.totals import Total, tree
from miniapps.trace.schema import COMPUTE, EXCHANGE

KEPT_BYTES = 1 << 20  # constant tensors up to this size are kept from step to step
LONG = ("matmul", "conv")  # kernels after which reductions under way advance
FRESH = ("matmul", "conv", "rowsum", "scatter")  # kernels whose results share no memory


class Writer:
    """The lines of the steps, and the variables of each value: one, or a list for a partial value."""

    def __init__(
        self,
        bound: Bound,
        kernels: Kernels,
        moved: Callable,
        total: Callable,
        watch: Callable | None = None,
        timed: Callable | None = None,
        seed: int = 0,
        relay: Callable | None = None,
        region: Callable = region_of,
    ):
        self.relay: Any = relay
        self.region = region  # the calls of a manual region with messages
        self.bound, self.kernels, self.watch, self.timed, self.seed = bound, kernels, watch, timed, seed
        self.moved, self.total = moved, total
        self.lines = Lines({"torch": torch})
        self.put, self.constant = self.lines.put, self.lines.constant
        self.unsigned: set[str] = set()  # variables whose zeros have no sign
        # Messages under way: the values that they make, the names of `progress`, and what writes their end.
        self.begun: list[tuple[tuple[str, ...], list[str], Callable[[], None]]] = []
        self.variables: dict[str, Any] = {}
        self.given = [self.lines.variable() for _ in bound.plan.sources]
        self.variables.update(zip((s.tensor.name for s in bound.plan.sources), self.given, strict=True))
        for step in bound.steps:
            self.finish(step.operands if not isinstance(step, Outgoing) else step.results)
            if isinstance(step, Operation):
                self.operation(step)
            elif isinstance(step, Moved):
                self.move(step)
            elif isinstance(step, Added):
                self.add(step)
            else:
                self.pass_on(step)
            if isinstance(step, Operation) and step.kernel in LONG and step.calls:
                self.advance()
            if watch is not None and not isinstance(step, Outgoing):
                self.watched(step)

    def literal(self, argument: Any, operands: Sequence[str], shape: Sequence[int]) -> str:
        """An argument as source text."""
        if isinstance(argument, str):
            if argument == SHAPE:
                return repr(tuple(shape))
            if argument.startswith("%"):
                return operands[int(argument[1:])]
            if argument.startswith("torch."):
                return argument
            return repr(argument)
        if isinstance(argument, tuple):
            return "(" + "".join(self.literal(part, operands, shape) + ", " for part in argument) + ")"
        if isinstance(argument, float) and not math.isfinite(argument):
            return self.constant(argument)
        return repr(argument)

    # ---- operations

    def operation(self, step: Operation) -> None:
        """Write a line per call, and further lines that cut, join or add parts."""
        if step.kernel in ("create", "random"):
            self.create(step)
            return
        if (blocks := self.blocks(step)) is not None:
            self.variables[step.results[0]] = self.over_blocks(step, blocks)
            return
        pieces: list[list[tuple[Called, str]]] = [[] for _ in step.results]
        adders = [self.adder(step, r) for r in range(len(step.results))]
        function = self.kernels.function(step.target, step.kernel, dict(step.kwargs))
        together = talks(step)
        done = iter(self.together(step, function)) if together else iter(())
        for call in step.calls:
            if together:
                variables = next(done)
            else:
                operands = [self.operand(step, call, k) for k in range(len(step.operands))]
                variables = self.called(step, call, operands, function)
            for r, variable in enumerate(variables):
                pieces[r].append((call, variable))
            for r, adder in enumerate(adders):
                if adder is not None:
                    adder(pieces[r])
        for r, name in enumerate(step.results):
            if adders[r] is None:
                self.variables[name] = self.result(step, r, pieces[r])
            else:
                self.variables[name] = [variable for _, variable in pieces[r]]
            if step.kernel == "view" and self.unsigned.issuperset(self.listed(step.operands[0])):
                self.unsigned.update(self.listed(name))

    def listed(self, name: str) -> list[str]:
        """The variables of a value."""
        variables = self.variables[name]
        return variables if isinstance(variables, list) else [variables]

    def blocks(self, step: Operation) -> Blocks | None:
        """The blocks of an operation whose kernel takes all blocks at once, None for other operations. The kernel adds
        the blocks in pairs, or keeps their sums separate."""
        values = self.bound.plan.values
        if not self.kernels.layout or step.counts[0] is None or not values.keys() >= set(step.operands):
            return None
        dtypes = {name: values[name].dtype for name in step.operands}
        return blocks_of(step, dtypes, step.results[0] in self.bound.merged)

    def over_blocks(self, step: Operation, blocks: Blocks) -> list[str]:
        """Write one call for all blocks, or one per subtree; returns the variables of the result."""
        added = step.results[0] in self.bound.merged
        runs = self.rows(step.results[0]).subtrees if added else ((0, len(step.calls)),)
        found: list[str] = []
        for begin, end in runs:
            lengths = blocks.lengths[0][begin:end]
            operands = []
            for name, dim, begins in zip(step.operands, blocks.dims, blocks.begins, strict=True):
                (variable,) = self.listed(name)
                if sum(lengths) < self.bound.shape(name)[dim]:  # without other subtrees and padding
                    variable = self.put(
                        f"{variable}.narrow({dim}, {begins[begin]}, {sum(lengths)})", [variable]
                    )
                operands.append(variable)
            function = self.kernels.over_blocks(step.target, lengths, apart=not added)
            (variable,) = self.called(step, step.calls[0], operands, function)
            if added:
                found.append(variable)
                if len(lengths) > 1:
                    self.unsigned.add(variable)
            else:
                found += [self.put(f"{variable}[{k}]", [variable]) for k in range(len(lengths))]
        return found

    def operand(self, step: Operation, call: Called, k: int) -> str:
        """The variable of an operand, or of the part that a call uses."""
        variable = self.variables[step.operands[k]]
        if isinstance(variable, list):
            at = call.partials[k]
            assert at is not None, f"{step.node}: which partial of {step.operands[k]}"
            variable = variable[at]
        if call.padding and call.padding[k]:
            assert step.fill is not None, f"{step.node}: what pads {step.operands[k]}"
            function = partial(filled, parts=call.padding[k], value=step.fill)
            variable = self.put(f"{self.constant(function, 'p')}({variable})", [variable])
        part = call.parts[k]
        if part is None:
            return variable
        # torch's operations on rows ignore the strides of some operands.
        dense = ".contiguous()" if step.kernel in ("rowwise", "scatter") else ""
        return self.put(cut(variable, part) + dense, [variable])

    def called(self, step: Operation, call: Called, operands: list[str], function: Callable) -> list[str]:
        """Write a call; returns the variables of its results."""
        kwargs = dict(step.kwargs)
        args = [self.literal(argument, operands, call.shape) for argument in step.args]
        if call.sides:
            args += [repr(call.sides), repr(tuple(call.shape[2:]))]
        args += [f"{key}={self.literal(value, operands, call.shape)}" for key, value in kwargs.items()]
        if call.where:
            function = partial(function, where=call.where)
        if self.timed is not None:
            function = self.timed(f"node.{step.node}", COMPUTE, function, 0)
        text = f"{self.constant(function, 'f')}({', '.join(args)})"
        return self.results(step, self.put(text, operands))

    def together(self, step: Operation, function: Callable) -> list[list[str]]:
        """Write the calls of a manual region whose blocks send messages; returns the variables of each call's
        results."""
        calls, uses = [], []
        for call in step.calls:
            operands = [self.operand(step, call, k) for k in range(len(step.operands))]
            calls.append(self.literal(step.args, operands, call.shape))
            uses += operands
        region: Callable = self.region(step, function)
        if self.timed is not None:
            region = self.timed(f"node.{step.node}", COMPUTE, region, 0)
        several = self.put(f"{self.constant(region, 'f')}({', '.join(calls)})", uses)
        return [self.results(step, self.put(f"{several}[{k}]", [several])) for k in range(len(calls))]

    def results(self, step: Operation, variable: str) -> list[str]:
        """The variables of those results of a call that later steps read."""
        numbers = [name.partition("@")[0].removeprefix(step.node).removeprefix(".") for name in step.results]
        if numbers == [""]:
            return [variable]
        return [self.put(f"{variable}[{number}]", [variable]) for number in numbers]

    def result(self, step: Operation, r: int, pieces: list[tuple[Called, str]]) -> Any:
        """The variables of a result, joined from its pieces."""
        count = step.counts[r]
        if count is None:
            return self.joined(step, r, pieces)
        by: list[list[tuple[Called, str]]] = [[] for _ in range(count)]
        for call, variable in pieces:
            by[call.into[r][0] or 0].append((call, variable))
        return [self.joined(step, r, some) for some in by]

    def joined(self, step: Operation, r: int, pieces: list[tuple[Called, str]]) -> str:
        """Write the join of pieces; returns the variable of the array."""
        shape, dtype = step.shapes[r], step.dtypes[r]
        if not pieces:
            return self.constant(torch.zeros(shape, dtype=getattr(torch, dtype)))
        by: dict[Part | None, str] = {}
        for call, variable in pieces:  # runs of blocks of one part are not kept separately: add them
            part = call.into[r][1]
            by[part] = (
                self.put(f"torch.add({by[part]}, {variable})", [by[part], variable])
                if part in by
                else variable
            )
        if None in by:
            return by[None]
        parts, variables = list(by), list(by.values())
        padded = self.bound.place.padded
        dims = {
            part.ranges[0][0] if part and part.factors is None and len(part.ranges) == 1 else -1
            for part in parts
        }
        if len(dims) == 1 and dims != {-1} and not padded:
            return self.put(f"torch.cat(({', '.join(variables)},), {dims.pop()})", variables)
        whole = self.put(f"torch.{'zeros' if padded else 'empty'}({shape!r}, dtype=torch.{dtype})", [])
        for part, variable in zip(parts, variables, strict=True):
            assert part is not None, f"{step.node}: one of several calls has all of {step.results[r]}"
            inner = Part(part.factors, part.ranges, ())
            piece = variable
            if part.factors is not None:
                piece += f".reshape({narrowed(part)!r})"
            self.put(f"{cut(whole, inner)}.copy_({piece})", [whole, variable])
        return whole

    def adder(self, step: Operation, r: int) -> Callable | None:
        """A function that adds two partials of a result as soon as one level of the tree has both; None if partials are
        kept, or were added already."""
        name = step.results[r]
        if name not in self.bound.merged or not step.calls:
            return None
        if step.counts[r] == len(step.calls) and all(
            call.into[r] == (k, None) for k, call in enumerate(step.calls)
        ):
            rows = self.rows(name)
            if len(rows.numbers) == len(rows.subtrees) or step.kernel == "view":
                return None
        if any(call.into[r][1] is not None for call in step.calls):
            return None
        rows = self.rows(name)
        fresh = step.kernel in FRESH

        def adder(pieces: list) -> None:
            # Calls come in ascending order of blocks: join all subtrees that end here, from the smallest up.
            done = pieces[-1][0].into[r][0] + 1
            for begin, end in rows.subtrees:
                if begin < done <= end:
                    level = joins(begin, end, done)
                    for _ in range(level):
                        (_, right), (call, left) = pieces.pop(), pieces.pop()
                        text = f"{left}.add_({right})" if fresh else f"torch.add({left}, {right})"
                        pieces.append((call, self.put(text, [left, right])))
                        pieces[-1] = (partial_of(call, done - 1, r), pieces[-1][1])

        return adder

    def rows(self, name: str):
        """The partials of a value on this rank."""
        return self.bound.place.rows(self.bound.plan.values[name].partial)

    def create(self, step: Operation) -> None:
        """Write elements that depend on their place only, and random elements."""
        (shape, dtype), place = (step.shapes[0], getattr(torch, step.dtypes[0])), self.bound.place
        whole = self.bound.plan.values[step.results[0]].shape
        indices = [place.indices(dim, n) for dim, n in zip(step.wanted[0], whole, strict=True)]
        if step.kernel == "random":
            variables = [self.variables[name] for name in step.operands]
            drawn = self.constant(self.kernels.drawn(step, indices, whole, self.seed), "f")
            text = f"{drawn}({', '.join(['number', *variables])})"
            self.variables.update(
                zip(step.results, self.results(step, self.put(text, variables)), strict=True)
            )
            return
        name = step.target.split(".")[1]
        if name == "rows":
            self.variables[step.results[0]] = self.constant(torch.from_numpy(np.array(indices[0])))
            return
        if name == "full":
            value = step.args[1]
            if math.prod(shape) * dtype.itemsize > KEPT_BYTES:
                text = (
                    f"torch.full({shape!r}, {self.literal(value, (), shape)}, dtype=torch.{step.dtypes[0]})"
                )
                self.variables[step.results[0]] = self.put(text, [])
                return
            tensor = torch.full(shape, value, dtype=dtype)
        else:
            function = self.kernels.function(step.target, "create", {})
            tensor = function(*step.args).to(dtype)
            for d, index in enumerate(indices):
                tensor = tensor.index_select(d, torch.from_numpy(np.maximum(index, 0)))
        self.variables[step.results[0]] = self.constant(tensor)

    # ---- what other ranks hold

    def move(self, step: Moved) -> None:
        """Write a reshard or a halo exchange."""
        if step.products:
            rings.write_arriving(self, step)
            return
        exchange = self.moved(step)
        early = step.early and self.watch is None and exchange.waits
        ends = exchange.finish if early else exchange
        if self.timed is not None and exchange.nbytes:
            region = "halo" if any(isinstance(dim, Halo) for dim in step.wanted[0]) else "reshard"
            ends = self.timed(region, EXCHANGE, ends, exchange.nbytes)
        uses = [self.variables[name] for name in step.operands]

        def end(given: list[str]) -> None:
            several = self.put(f"{self.constant(ends, 'm')}({', '.join(given)})", given)
            for k, name in enumerate(step.results):
                self.variables[name] = self.put(f"{several}[{k}]", [several])

        if not early:
            end(uses)
            return
        self.put(f"{self.constant(exchange.start, 'm')}({', '.join(uses)})", uses)
        self.begun.append((step.results, [self.constant(exchange.progress, "m")], lambda: end([])))

    def pass_on(self, step: Outgoing) -> None:
        """Write a message between stages."""
        function = self.relay(step)
        if self.timed is not None:
            function = self.timed(*function.region, function, function.nbytes)
        if isinstance(step, Incoming):
            variable = self.put(f"{self.constant(function, 'm')}()", [])
            several = step.count is not None
            self.variables[step.name] = (
                [self.put(f"{variable}[{k}]", [variable]) for k in range(step.count or 0)]
                if several
                else self.put(f"{variable}[0]", [variable])
            )
        else:
            uses = self.listed(step.name)
            self.put(f"{self.constant(function, 'm')}({', '.join(uses)})", uses)

    def add(self, step: Added) -> None:
        """Write a reduction."""
        if step.product is not None:
            rings.write(self, step)
            return
        total: Total = self.total(step)
        if total.reducer is None:
            self.added(step, total, self.alone(step))
            return
        self.pack(step, total)
        if step.early and self.watch is None:
            self.put(f"{self.constant(total.start, 't')}()", [])
            progress = self.constant(total.progress, "t")
            ends = lambda: self.added(step, total, self.split(step, total.finish))  # noqa: E731
            self.begun.append((step.results, [progress], ends))
        else:
            self.added(step, total, self.split(step, total.total))

    def advance(self) -> None:
        """Write the calls that advance the messages under way."""
        for _, progress, _ in self.begun:
            for name in progress:
                self.put(f"{name}()", [])

    def finish(self, names: Sequence[str]) -> None:
        """Write the ends of those messages under way that make one of the values `names`."""
        for each in [each for each in self.begun if not set(each[0]).isdisjoint(names)]:
            self.begun.remove(each)
            each[-1]()

    def added(self, step: Added, total: Total, found: list[str]) -> None:
        """Make the variables `found` of totals those of the results, which a rank may keep in part."""
        for k, (operand, result) in enumerate(zip(step.operands, step.results, strict=True)):
            if (wanted := step.wanted[k]) is not None and total.scatter is None:
                kept = self.moved(Moved(step.node, (operand,), (result,), (wanted,)))
                found[k] = self.put(f"{self.constant(kept, 'm')}({found[k]})[0]", [found[k]])
            self.variables[result] = found[k]

    def alone(self, step: Added) -> list[str]:
        """Write the totals of a rank with all blocks."""
        found = []
        for k, operand in enumerate(step.operands):
            variables = self.variables[operand]
            if isinstance(variables, list):
                if not step.merged[k]:
                    variables = [self.summed(step, variables, *bounds) for bounds in step.rows.subtrees]
                (variable,) = variables
                # Totals of several ranks have zeros without a sign, so this one must have too.
                if variable not in self.unsigned and not step.dtype.startswith("int"):
                    variable = self.put(f"{variable}.add{'_' if step.merged[k] else ''}(0)", [variable])
                found.append(variable)
            else:
                found.append(variables)
        return found

    def summed(self, step: Added, variables: list[str], begin: int, end: int) -> str:
        """Write the sum over a subtree of partials."""
        function = {"sum": "torch.add", "max": "torch.maximum", "min": "torch.minimum"}[step.combine]
        return tree(
            step.rows.numbers, begin, end,
            lambda a, b: self.put(f"{function}({a}, {b})", [a, b]),
            variables.__getitem__,
        )  # fmt: skip

    def pack(self, step: Added, total: Total) -> None:
        """Write the packing of partials into the memory of the reducer, for a total over several ranks."""
        for k, operand in enumerate(step.operands):
            packers = total.packers(k)
            variables = self.variables[operand]
            if isinstance(variables, list) and not step.merged[k] and total.trees:
                variables = [self.summed(step, variables, *bounds) for bounds in step.rows.subtrees]
            variables = variables if isinstance(variables, list) else [variables]
            if not step.rows.numbers:
                continue
            for pack, variable in zip(packers, variables, strict=True):
                self.put(f"{self.constant(pack, 'r')}({variable})", [variable])

    def split(self, step: Added, total: Callable) -> list[str]:
        """Write the call that returns the totals; returns their variables."""
        several = self.put(f"{self.constant(total, 't')}()", [])
        return [self.put(f"{several}[{k}]", [several]) for k in range(len(step.operands))]

    def watched(self, step) -> None:
        """Write the call that watches the results of a step."""
        for name in step.results:
            variables = self.variables[name]
            listed = f"[{', '.join(variables)}]" if isinstance(variables, list) else variables
            uses = variables if isinstance(variables, list) else [variables]
            self.put(f"{self.constant(self.watch, 'w')}({name!r}, {listed})", uses)

    def text(self, names: Sequence[str]) -> str:
        """The source text of `step(given, number)`, which returns those of the values `names` that this rank has."""
        self.finish([name for results, *_ in self.begun for name in results])
        return self.lines.text(self.given, [self.variables[name] for name in names])
