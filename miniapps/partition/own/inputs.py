"""The inputs of a user's module: types and shapes, `float32[batch:32,784] int64[32]`, or a function that makes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from miniapps.errors import UsageError
from miniapps.partition.own.loading import called, is_name

TYPES = ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")
EXAMPLE = "float32[32,784] int64[32]"
ONE = re.compile(r"\s*(?P<dtype>\w+)\[(?P<dims>[^][]*)\]\s*")
DIM = re.compile(r"\s*(?:(?P<axis>[a-zA-Z]\w*)\s*:\s*)?(?P<size>[1-9][0-9]{0,11})\s*")
BATCH = "batch"
RESERVED = ("features", "norms", "stored", "stage")  # axes of recipes
INTEGERS = 2  # random integers are below: they are valid numbers of classes and of rows of any table


@dataclass(frozen=True)
class Given:
    """The inputs of a module, and for each dim of each input the axis that cuts it, or None."""

    tensors: tuple[Any, ...]
    dims: tuple[tuple[str | None, ...], ...]

    def extents(self) -> dict[str, int]:
        """The number of elements of each axis."""
        return {
            axis: n
            for tensor, dims in zip(self.tensors, self.dims, strict=True)
            for axis, n in zip(dims, tensor.shape, strict=True)
            if axis is not None
        }


def inputs_of(text: str) -> Given:
    """The inputs that --inputs describes. Raises UsageError."""
    if "[" not in text and is_name(text):
        return with_batch(tensors_of(called(text), text), ())
    return described(text)


def tensors_of(found: Any, text: str) -> tuple[Any, ...]:
    """The tensors that a user's function returned. Raises UsageError."""
    import torch

    several = tuple(found) if isinstance(found, tuple | list) else (found,)
    for k, tensor in enumerate(several):
        if not isinstance(tensor, torch.Tensor):
            raise UsageError(
                f"--inputs {text}: input {k} is {type(tensor).__name__}; return a tensor or a tuple of tensors, in the "
                "order of the arguments of forward"
            )
    return several


def described(text: str) -> Given:
    """Random tensors of the types and shapes in `text`. Raises UsageError."""
    import torch

    where, at = f"--inputs {text!r}", 0
    tensors, dims = [], []
    generator = torch.Generator().manual_seed(0)
    while at < len(text):
        found = ONE.match(text, at)
        if found is None:
            raise UsageError(
                f"{where}: {text[at:].strip()!r} is not TYPE[SIZE,...]; write for example {EXAMPLE!r}"
            )
        dtype, at = found["dtype"], found.end()
        if dtype not in TYPES:
            raise UsageError(f"{where}: unknown type {dtype}; choose {', '.join(TYPES)}")
        shape, names = [], []
        for part in found["dims"].split(",") if found["dims"].strip() else []:
            dim = DIM.fullmatch(part)
            if dim is None:
                raise UsageError(
                    f"{where}: {part.strip()!r} is not a size, such as 32, or AXIS:SIZE, such as batch:32"
                )
            if dim["axis"] in RESERVED:
                raise UsageError(f"{where}: the axis {dim['axis']} belongs to a recipe; choose another name")
            shape.append(int(dim["size"]))
            names.append(dim["axis"])
        try:
            tensors.append(drawn(dtype, shape, generator))
        except (RuntimeError, MemoryError) as error:
            raise UsageError(
                f"{where}: {dtype}{shape} needs too much memory; choose smaller sizes"
            ) from error
        dims.append(tuple(names))
    if not tensors:
        raise UsageError(f"{where}: no input; write for example {EXAMPLE!r}")
    require_same_sizes(tensors, dims, where)
    return with_batch(tuple(tensors), tuple(dims))


def drawn(dtype: str, shape: list[int], generator: Any) -> Any:
    """A random tensor: normal numbers, or integers below 2."""
    import torch

    if dtype.startswith("float"):
        return torch.randn(shape, dtype=getattr(torch, dtype), generator=generator)
    return torch.randint(0, INTEGERS, shape, generator=generator).to(getattr(torch, dtype))


def require_same_sizes(tensors: list[Any], dims: list[tuple[str | None, ...]], where: str) -> None:
    """Raise UsageError if an axis has two sizes, or cuts two dims of one input."""
    sizes: dict[str, int] = {}
    for k, (tensor, names) in enumerate(zip(tensors, dims, strict=True)):
        for axis, n in zip(names, tensor.shape, strict=True):
            if axis is None:
                continue
            if names.count(axis) > 1:
                raise UsageError(f"{where}: input {k} has the axis {axis} twice; name one dim")
            if sizes.setdefault(axis, n) != n:
                raise UsageError(
                    f"{where}: the axis {axis} has {sizes[axis]} and {n} elements; give it one size"
                )


def with_batch(tensors: tuple[Any, ...], dims: tuple[tuple[str | None, ...], ...]) -> Given:
    """The inputs; if no dim has a name, the first dim of the first input is the batch, and so is the first dim of
    each input with the same size."""
    dims = dims or tuple((None,) * tensor.dim() for tensor in tensors)
    if any(axis for names in dims for axis in names):
        return Given(tensors, dims)
    sizes = [int(tensor.shape[0]) if tensor.dim() else 0 for tensor in tensors]
    batch = next((n for n in sizes if n), 0)
    return Given(
        tensors,
        tuple(
            (BATCH, *names[1:]) if names and n == batch else names
            for names, n in zip(dims, sizes, strict=True)
        ),
    )
