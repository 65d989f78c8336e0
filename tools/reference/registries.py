"""What can be chosen, from the registries by which the program chooses: guarantees, orderings, wires, variants."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import kernels
from kernels import allreduce, registry, wires
from kernels.allreduce.accumulate import ACCUMULATIONS
from kernels.guarantees import LEVELS, MEANINGS, SCOPE, WHY
from kernels.wires.codecs import codec
from tools.reference.markdown import code, page, table

PLACE = "reference"


def pages() -> dict[str, str]:
    """{path: page}."""
    return {
        f"{PLACE}/guarantees.md": guarantees(),
        f"{PLACE}/orderings.md": orderings(),
        f"{PLACE}/wires.md": codecs(),
        f"{PLACE}/kernels.md": variants(),
    }


def guarantees() -> str:
    """The levels, weakest first."""
    rows = [(code(level), MEANINGS[level], ", ".join(SCOPE[level])) for level in LEVELS]
    return page(
        "Guarantees",
        "What `--guarantee LEVEL` promises about bits. Each level keeps the promises of those before it.",
        table(("level", "promises", "takes for granted"), rows),
        "Runs that differ in something that a level takes for granted may have other bits, and no promise is broken:",
        table(("taken for granted", "why"), WHY.items()),
    )


def orderings() -> str:
    """The orderings of an all-reduce, and the formats of its partial sums."""
    rows = [
        (code(o.name), code(o.guarantee), o.summary, o.why,
         ", ".join(code(f"{k}={v}") for k, v in o.parameters.items()), o.needs)
        for o in allreduce.orderings()
    ]  # fmt: skip
    held = [(code(name), code(a.guarantee or ""), a.summary) for name, a in ACCUMULATIONS.items()]
    return page(
        "Orderings of an all-reduce",
        "`--allreduce NAME` chooses the order in which the contributions of ranks are added; parameters follow a "
        "colon: `k-nomial:k=8`. [All-reduce](../explanation/allreduce.md) says how to choose.",
        table(("ordering", "guarantee", "is", "why", "parameters", "needs"), rows),
        "## Accumulations",
        "`--accumulate NAME` chooses the format in which partial sums are held and travel.",
        table(("accumulation", "guarantee", "is"), held),
    )


def codecs() -> str:
    """The wires of messages."""
    rows = []
    for name, text in wires.LOSSY.items():
        smallest = codec(f"{name}:n=1" if name == "table" else name)
        rows.append((code(name), "N" if name == "table" else smallest.bits,
                     "2^N" if name == "table" else smallest.head or "", text))  # fmt: skip
    return page(
        "Wires",
        "`--wire NAME` chooses how the elements of a message are encoded. [Wires](../explanation/wires.md) says what "
        "they lose and what they cost.",
        "## Without loss",
        table(("wire", "is"), [(code(name), text) for name, text in wires.SUMMARIES.items()]),
        "## Codecs of float32",
        table(("wire", "bits of an element", "bytes of a cell's head", "an element"), rows),
    )


def variants() -> str:
    """All variants of all operations."""
    for module in iter_modules(kernels.__path__, "kernels."):
        if module.ispkg and not module.name.endswith(("commands", "torchops")):
            import_module(module.name)  # registers what it has
    parts = [
        "Every operation of the kernels with its variants. The same variant has the same bits on all of its backends, "
        "unless the reason says otherwise. `python -m miniapps.coupled --list` says which of them run here.",
    ]
    for operation in registry.operations():
        rows: dict[tuple[str, str, str], list[str]] = {}
        for v in registry.variants(operation):
            rows.setdefault((v.name, v.guarantee, v.why), []).append(v.backend)
        parts += [
            f"## {operation}",
            table(
                ("variant", "guarantee", "backends", "why"),
                [(code(name), code(level), ", ".join(map(code, backends)), why)
                 for (name, level, why), backends in rows.items()],
            ),
        ]  # fmt: skip
    return page("Kernels", *parts)
