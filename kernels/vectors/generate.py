"""Generates CUDA C++ from the steps of fused vector updates: the macros of kernels/cuda/vectors.cu."""

from __future__ import annotations

from kernels.vectors.fused import Bound
from kernels.vectors.steps import Term

TYPES = {"float64": "double", "float32": "float"}


def memories(bound: Bound) -> dict[int, object]:
    """The vectors by address, each once, in the order of the kernel's parameters v0, v1, ..."""
    return {bound.same[name]: array for name, array in bound.arrays.items()}


def macros(bound: Bound) -> dict[str, str]:
    """The macros for `kernels.cuda.kernel("vectors", "update", ...)`, for a program bound to vectors.

    e{k} is element i of vector k: loaded if its old value is needed, updated, and stored if a step writes it. c{t} is
    the coefficient of term t of the program, s{j} scalar j.
    """
    program, number = bound.program, TYPES[bound.dtype.name]
    place = {address: k for k, address in enumerate(memories(bound))}
    read = {place[address] for address in program.read(bound.same)}
    element = {name: place[address] for name, address in bound.same.items()}
    written = sorted({element[name] for name in program.targets})
    scalar = {name: f" * NUMBER(s{j})" for j, name in enumerate(program.scalars)} | {None: ""}

    terms: list[Term] = []
    lines = [f"NUMBER e{k}{f' = v{k}[i]' if k in read else ''};" for k in place.values()]
    for step in program.steps:
        texts = []
        for term in step.terms:
            texts.append(" * ".join([f"c{len(terms)}", *(f"e{element[name]}" for name in term.vectors)]))
            terms.append(term)
        lines.append(f"e{element[step.target]} = {' + '.join(texts)};")
    lines += [f"v{k}[i] = e{k};" for k in written]

    parameters = [f"{'' if k in written else 'const '}NUMBER *__restrict__ v{k}" for k in place.values()]
    return {
        "NUMBER": number,
        "DOTS": str(len(program.dots)),
        "PARAMETERS": ", ".join(parameters + [f"double s{j}" for j in range(len(program.scalars))]),
        "COEFFICIENTS": " ".join(
            f"const NUMBER c{t} = NUMBER({term.by.hex()}){scalar[term.scalar]};"
            for t, term in enumerate(terms)
        ),
        "STEPS": " ".join(lines),
        "PRODUCTS": " ".join(
            f"sums[{k}] += double(e{element[a]}) * double(e{element[b]});"
            for k, (a, b) in enumerate(program.dots)
        ),
    }
