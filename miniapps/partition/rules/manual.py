"""Regions that the user partitions (`miniapps.partition.manual`): letters of their spec are dims that may be cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from kernels.guarantees import ChoiceError
from miniapps.partition.graphs.graph import Node, Tensor
from miniapps.partition.graphs.simplify import operation
from miniapps.partition.rules.factors import CONTRACTING, Rule, labelled

MANUAL = "manual"  # the kernel
NAMES = (MANUAL, "manual_backward")
ALONG = "along"  # before the letters of messages, in a spec
WHY = "a dot in the spec of a manual region"


@dataclass(frozen=True)
class Spec:
    """The letters of the dims of operands and results; "." for a dim that is whole. `along`: letters of messages."""

    operands: tuple[str, ...]
    results: tuple[str, ...]
    along: str = ""


@cache
def parsed(text: str) -> Spec:
    """The spec `n., .. -> n.`, or `n., .. -> n. along n`. Raises ChoiceError."""
    shapes, _, along = text.partition(f" {ALONG} ")
    read, arrow, made = shapes.partition("->")
    sides = tuple(tuple(part.strip() for part in side.split(",")) for side in (read, made))
    letters = [letter for side in sides for part in side for letter in part]
    known = {letter for part in sides[0] for letter in part}
    if not arrow or not all(letter == "." or letter.isalpha() for letter in letters):
        raise ChoiceError(f"spec {text!r}: write a letter or a dot for each dim, as in 'n., .. -> n.'")
    if any(letter != "." and part.count(letter) > 1 for side in sides for part in side for letter in part):
        raise ChoiceError(f"spec {text!r}: a tensor has a letter once; use another letter or a dot")
    if missing := {letter for part in sides[1] for letter in part} - known - {"."}:
        raise ChoiceError(f"spec {text!r}: {', '.join(sorted(missing))} is in a result and in no operand")
    if missing := set(along) - known | set(along) & {"."}:
        raise ChoiceError(
            f"spec {shapes!r}, along {along!r}: {', '.join(sorted(missing))} is no letter of an operand; write "
            "letters of dims that may be cut"
        )
    operands, results = sides
    return Spec(operands, results, along)


def read_by(target: str, args: Sequence[object]) -> tuple[str, ...]:
    """The letters of the tensors that a region reads; in the backward pass the gradients of its results first."""
    spec = parsed(str(args[1]))
    return (*spec.results, *spec.operands) if operation(target) == NAMES[1] else spec.operands


def region(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """Dims of one letter have one cut; of a gradient without a letter there is a partial result for each block."""
    spec = parsed(str(node.args[1]))
    read = read_by(node.target, node.args)
    made = spec.operands if len(read) > len(spec.operands) else spec.results
    whole: list[object] = []

    def labels(letters: str, k: int) -> list[object]:
        own: list[object] = [(k, d) if letter == "." else letter for d, letter in enumerate(letters)]
        whole.extend(label for label in own if isinstance(label, tuple))
        return [(label,) for label in own]

    operands = [labels(letters, k) for k, letters in enumerate(read)]
    results = [labels(made[int(t.name.rpartition(".")[2])], -1 - k) for k, t in enumerate(node.results)]
    return labelled(
        node, tensors, operands, results, MANUAL, whole=whole, priority=CONTRACTING, reason=WHY, fill=0.0
    )  # fmt: skip


RULES = dict.fromkeys(NAMES, region)
