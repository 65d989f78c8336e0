"""The catalogue of orderings: the names of all in `kernels.allreduce.schedules`, and one by its name."""

from __future__ import annotations

from dataclasses import replace

from kernels.allreduce import schedules  # noqa: F401 - whose modules register the orderings
from kernels.allreduce.ordering import Ordering
from kernels.allreduce.ordering import orderings as orderings
from kernels.guarantees import ChoiceError, known
from kernels.ranges import cut

LONGEST = 1000  # characters of a name with its parameters
INSTEAD = {  # hints for names mistaken for orderings
    "exact": "it is an accumulation, of any ordering with a schedule: write 'direct in exact', or for an application "
    "--allreduce direct --accumulate exact"
}


def names() -> list[str]:
    """Names of all orderings, weakest guarantee first."""
    return [o.name for o in orderings()]


def get(name: str) -> Ordering:
    """Returns the ordering `name`, with parameters after a colon: `k-nomial:k=4`.

    Raises ChoiceError for an unknown name or parameter, with a list of the known ones, and for an invalid value.
    """
    if len(name) > LONGEST:
        raise ChoiceError(
            f"all-reduce ordering {cut(repr(name))}: choose a name of at most {LONGEST} characters"
        )
    base, colon, text = name.partition(":")
    if base in INSTEAD:
        raise ChoiceError(f"all-reduce ordering {base!r}: {INSTEAD[base]}")
    entry = {o.name: o for o in orderings()}[known("all-reduce ordering", base, names())]
    if not colon:
        return entry
    given = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        parameters = entry.parameters
        if not parameters:
            raise ChoiceError(f"all-reduce ordering {name!r}: {base} takes no parameters; write {base}")
        if not equals or key not in parameters:
            listed = ", ".join(f"{k}={v}" for k, v in parameters.items())
            raise ChoiceError(
                f"all-reduce ordering {name!r}: {part!r} is no parameter of {base}; it has {listed}"
            )
        try:
            given[key] = entry.read(key, value)
        except ChoiceError as error:
            raise ChoiceError(f"all-reduce ordering {name!r}: {key}: {error}") from None
    return replace(entry, name=name, given=given)
