"""Ledgers of predictions: no damage to the rows that a run saw leaves its proof standing."""

from __future__ import annotations

import functools
import json
import random
import shutil
import sys
from pathlib import Path

from analysis.__main__ import main
from analysis.predict.scoring.ledger import append
from miniapps.untrusted import Refused
from miniapps.untrusted.ledger import line_of
from miniapps.untrusted.text import tell
from tests.analysis.predict_runs import predicted, write_ledger, write_steps
from tests.fuzz import mutate
from tests.fuzz.base import Base
from tests.fuzz.sandbox import Sandbox, Violation, clear, fresh

SEEN = 3  # rows that the run saw; the others are younger
ROWS = 5


def ledger(rng: random.Random, base: Base) -> str:
    """A ledger is damaged or forged, and runs are scored by it, or a row is appended: the rows that the run saw are as
    they were, or it is refused."""
    place = _predicted(base)
    box = fresh(base.case)
    shutil.copytree(place, box.runs / "study")
    path = box.runs / "study" / "ledger.jsonl"
    good = path.read_bytes()
    _harm(rng, box, path)
    if rng.random() < 0.2:
        return _appended(box, path)
    with box.watched():
        words = ["score", str(path), str(box.runs / "study" / "run"), "--csv", str(box.out / "tables")]
        answer = box.say(lambda: main(words))
    if answer.code not in (0, 2, 3):
        raise Violation(f"exit code {answer.code}")
    seen = b"".join(good.splitlines(keepends=True)[:SEEN])
    if answer.code == 0 and not path.read_bytes().startswith(seen):
        raise Violation(f"a changed ledger is believed: {answer.out[:500]}")
    if answer.code and not (answer.out + answer.err).strip():
        raise Violation("refused without a word")
    return "damaged" if answer.code else "same" if path.read_bytes() == good else "else"


def _harm(rng: random.Random, box: Sandbox, path: Path) -> None:
    """Damage the file, change a row so that its own hash fits, or all that follow it too."""
    lines = path.read_bytes().splitlines(keepends=True)
    how = rng.random()
    if how < 0.05:
        other = box.runs / "other"
        other.write_text("nothing\n")
        box.note(mutate.replace(rng, path, other))
    elif how < 0.3:
        box.note(mutate.damage(rng, path))
    elif how < 0.5:
        text = mutate.lines(rng, path.read_text())
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        box.note(text[:300])
    else:
        i = rng.randrange(len(lines))
        row = mutate.value(rng, json.loads(lines[i]))
        try:
            lines[i] = line_of(row["before"], row["time"], row["prediction"])
        except (KeyError, TypeError, ValueError):
            lines[i] = json.dumps(row).encode() + b"\n"
        if how > 0.75:
            for k in range(i + 1, len(lines)):
                after = json.loads(lines[k])
                try:
                    before = json.loads(lines[k - 1])["hash"]
                except (KeyError, TypeError, ValueError):
                    break
                lines[k] = line_of(before, after["time"], after["prediction"])
        box.note(f"line {i + 1}: {lines[i][:200]!r}")
        path.write_bytes(b"".join(lines))


def _appended(box: Sandbox, path: Path) -> str:
    before = _begin(path)

    def command() -> int:
        try:
            append(path, predicted(5, 64))
        except (Refused, OSError) as error:
            tell(error, sys.stderr)
            return 2
        return 0

    with box.watched(lambda changed: changed.name in ("ledger.jsonl", "study", "other", "file")):
        code = box.say(command).code
    after = _begin(path)
    if not after.startswith(before) or (code and after != before):
        raise Violation("an append changed rows that were there")
    return "damaged" if code else "free"


def _begin(path: Path) -> bytes:
    """The bytes of a regular file, of a sparse one some; none of anything else."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(2**20)


@functools.cache
def _predicted(base: Base) -> Path:
    """A ledger, and a run that was started with SEEN of its rows."""
    place = base.runs / "predicted"
    clear(place)
    place.mkdir()
    path = write_ledger(place / "ledger.jsonl", *(predicted(90 + p, p) for p in range(1, SEEN + 1)))
    write_steps(place / "run", [95, 96], ledger=path)
    for p in range(SEEN + 1, ROWS + 1):
        append(path, predicted(90 + p, p))
    return place
