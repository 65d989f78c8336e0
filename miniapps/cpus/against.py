"""Compare a program on this machine with what `fpna cpus --json` found on another."""

from __future__ import annotations

from pathlib import Path

import msgspec

from miniapps.cpus.experiment import DIFFERS, EQUAL, HERE, Found
from miniapps.errors import UsageError
from miniapps.untrusted import Refused, read_bytes, records
from miniapps.untrusted.text import printable


class Line(msgspec.Struct):
    """A row of the document: a layer held to a level, what it chose, and whether the result was equal."""

    layer: str
    level: str
    chose: str
    state: str


class Hold(msgspec.Struct):
    """Settings that held the program to one result, as a hash."""

    variables: dict[str, str]
    result: str


class Answer(msgspec.Struct):
    """The keys of the document that a comparison needs."""

    command: str
    program: list[str]
    processor: str
    result: str
    chose: dict[str, str]
    rows: list[Line]
    held: Hold | None = None


def read(path: Path) -> Answer:
    """Reads what `fpna cpus --json` printed. Raises Refused and UsageError."""
    shown = printable(str(path))
    try:
        answer = records.decode(read_bytes(path, records.MOST, links=True), Answer, shown)
    except OSError as error:
        raise UsageError(f"--against {shown}: {error.strerror}; give what fpna cpus --json printed") from None
    if answer.command != "cpus":
        raise Refused(
            f"{printable(str(path))}: is of `fpna {printable(answer.command)}`; give one of fpna cpus --json"
        )
    return answer


def sentence(found: Found, other: Answer) -> str:
    """What the other machine's answer predicted for this processor, and what came."""
    was = "equal" if found.result == other.result else "different"
    named = printable(other.processor)
    predicted = predict(found, other)
    if predicted is None:
        return f"compared with {named}: nothing was predicted, since it did not show what is chosen here; was {was}"
    verb = (
        "as predicted"
        if predicted == was
        else f"but predicted {predicted}: look for another difference of the machines"
    )
    text = f"compared with {named}: {was}, {verb}"
    if was != "equal" and found.held is not None and other.held is not None:
        same = found.held.variables == other.held.variables and found.held.result == other.held.result
        text += f"; with the settings that hold it {'equal' if same else 'different, too'}"
    return text


def predict(found: Found, other: Answer) -> str | None:
    """`equal` or `different` as the other machine's launches say of what the layers chose here; None if one of them
    chose code that no launch there showed."""
    predicted = "equal"
    for layer, here in found.chose.items():
        if here == other.chose.get(layer):
            continue
        rows = [row for row in other.rows if row.layer == layer and row.chose == here]
        if not rows or rows[0].state not in (EQUAL, HERE, DIFFERS):
            return None
        if rows[0].state == DIFFERS:
            predicted = "different"
    return predicted
