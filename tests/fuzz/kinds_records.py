"""What runs leave beside their traces, and commands that read traces for another purpose than to compare them: raw logs
of programs that were killed, heads, replays, predictions."""

from __future__ import annotations

import functools
import json
import random
import shutil
import sys
from pathlib import Path

import numpy as np

from analysis.__main__ import main as analysis
from miniapps.errors import UsageError
from miniapps.programs import observing, rawlog
from miniapps.programs.sources import recorded_sources, require_same_program
from miniapps.runner import replay as replays
from miniapps.runner.failure import USAGE
from miniapps.trace import TraceError, read
from miniapps.untrusted import Refused
from miniapps.untrusted.text import tell
from miniapps.verify.claim import NotVerifiable, claim, require_begun
from tests.analysis.synthetic import write_run
from tests.fuzz import mutate
from tests.fuzz.base import Base
from tests.fuzz.forge import NUMBERS, craft, craft_any
from tests.fuzz.kinds_inputs import FLOW, _run
from tests.fuzz.kinds_predict import _calibrated, _predict
from tests.fuzz.sandbox import SECRET, Sandbox, Violation, clear, fresh
from tests.miniapps.raw_logs import mixed, text_lines, write_raw

RANKS = 2
TEXTS = [
    {"command": ["./app", "4"], "guarantee": "none", "replay": "", "run_id": "app-1", "started": "2026"},
    {"library": "MPICH Version: 9"}, {"counted": ["MPI_Put", "MPI_Get"]},
    {"site": 77, "functions": [["/nowhere/app", 66], ["/nowhere/app", 80]], "lines": [["x.py", "f", 3]]},
    {"op": 0, "name": "sum"}, {"type": 0, "name": "MPI_DOUBLE"}, {"comm": 0, "name": "", "born": 0},
    {"file": "/nowhere/app", "bytes": 3, "modified": 4}, {"python_sum": 77}, {"opened": 1, "name": "out.dat"},
]  # fmt: skip


def raw(rng: random.Random, base: Base) -> str:
    """A raw log is damaged or forged, or something is in the way of its trace: no log is lost, and no other trace is
    made of a damaged one."""
    place = _logged(base)
    box = fresh(base.case)
    out = box.runs / "run"
    shutil.copytree(place / "logs", out)
    outside = base.put_outside(box)
    known = {path.name: path.read_bytes() for path in out.iterdir()}
    path = rng.choice(sorted(out.iterdir()))
    how, forged = rng.random(), False
    if how < 0.45:
        box.note(mutate.damage(rng, path))
    elif how < 0.55:
        box.note(
            mutate.replace(rng, path, rng.choice((outside / "rank-00000.h5", box.outside / "secret.txt")))
        )
    elif how < 0.65:
        box.note(
            mutate.replace(
                rng, out / f"rank-{rng.randrange(RANKS):05d}{rng.choice(('.h5', '.draft'))}", outside
            )
        )
    elif how < 0.7:
        path.rename(
            out / rng.choice(("raw-00007.log", "raw-00001.txt", "raw-1.log", "raw-00000.log", "raw-x.log"))
        )
        box.note(f"{path.name} has another name")
    else:
        forged = True
        box.note(_forged(rng, out, box))
    left = {each.name: each.read_bytes() for each in out.iterdir() if each.is_file() and not each.is_symlink()
            and each.stat().st_size < 2**25}  # fmt: skip
    with box.watched(lambda path: path.parent == out or path == out):
        answer = box.say(lambda: observing.main(["--recover", str(out)]))
    if answer.code not in (0, 1, 2) or (answer.code and not answer.err.strip()):
        raise Violation(f"exit code {answer.code}: {answer.err[-500:]}")
    for name, content in left.items():
        if name.startswith("raw-") and name.endswith(".log") and not (out / name).exists():
            _require_saved(out, name, known, content, place, forged)
    return "damaged" if answer.code else "free" if forged else "same"


def _require_saved(out: Path, name: str, known: dict, content: bytes, place: Path, forged: bool) -> None:
    """Raise Violation unless the trace of a log that is gone is there, the one of the undamaged log."""
    trace = out / f"rank-{name[4:-4]}.h5"
    if not trace.is_file():
        raise Violation(f"{name} is gone, and its trace is not there")
    if not forged and _rows(trace) != _rows(place / "traces" / trace.name):
        raise Violation(f"{name} is gone, and its trace is another")
    if (
        not forged
        and len(content) >= rawlog.PAGE
        and known.get(name, b"")[: rawlog.PAGE] != content[: rawlog.PAGE]
    ):
        raise Violation(f"{name} was damaged, and a trace was made of it")


def _rows(path: Path) -> list[bytes]:
    trace = read(path)
    return [repr(trace.names).encode()] + [
        column.tobytes() for table in trace.tables.values() for column in table.values()
    ]


def _forged(rng: random.Random, out: Path, box: Sandbox) -> str:
    """A log whose hashes fit, of what no program did."""
    rank, records, texts = rng.randrange(RANKS), mixed(rng.choice((0, 1, 30))), [*TEXTS]
    done = []
    for _ in range(rng.choice((1, 1, 2))):
        if rng.random() < 0.5 and len(records):
            name = rng.choice(records.dtype.names)
            row = rng.randrange(len(records))
            size = records.dtype[name].itemsize
            records[name][row] = np.frombuffer(rng.choice((b"\xff", b"\0", b"\x7f", b"\x80")) * size,
                                               records.dtype[name])[0]  # fmt: skip
            done.append(name)
        else:
            k = rng.randrange(len(texts))
            if rng.random() < 0.3 or isinstance(texts[k], bytes):
                secret = str(box.outside / "secret.txt")
                texts[k] = rng.choice((
                    b"[" * 10**5, b"{}", b"null", b'{"site": 1e999}', b'"\xff\xfe"',
                    b"{" + b'"a":1,' * 10**5 + b'"a":1}',
                    json.dumps({"site": 77, "functions": [[secret, 66]], "lines": []}).encode(),
                    b'{"file": "%s", "bytes": %d, "modified": %d}' % (secret.encode(), 18, 5),
                    json.dumps({"command": [SECRET[:4] + "\x1b[31m"] * 3, "guarantee": "exact"}).encode(),
                ))  # fmt: skip
            else:
                texts[k] = json.dumps(mutate.value(rng, json.loads(json.dumps(texts[k])))).encode()
            done.append(ascii(texts[k][:100]))

    def change(head) -> None:
        if rng.random() < 0.3:
            name = rng.choice(("began", "offset", "size", "device", "inode"))
            head[name] = rng.choice(
                [n for n in NUMBERS if np.can_cast(np.min_scalar_type(n), head.dtype[name])] or [1]
            )
            done.append(f"{name} = {head[name]}")

    size = rng.choice((RANKS, RANKS, RANKS, 2**24))
    ended = rng.choice((9, 9, 0))
    path = out / f"raw-{rank:05d}.log"
    write_raw(path, records, ended, texts=texts, rank=rank, size=size, change=change, here=rng.random() < 0.7)
    return f"forged {path.name}: {'; '.join(map(str, done))}"


@functools.cache
def _logged(base: Base) -> Path:
    """The logs of a program on two ranks that was killed, and the traces of them."""
    place = base.runs / "logged"
    clear(place)
    for name in ("logs", "traces"):
        (place / name).mkdir(parents=True)
    records = mixed()
    for rank in range(RANKS):
        write_raw(place / "logs" / f"raw-{rank:05d}.log", records, ended=0, texts=TEXTS, rank=rank, size=RANKS,
                  unseen=[3, 4] + [0] * (rawlog.MOST_COUNTED - 2))  # fmt: skip
    for path in (place / "logs").iterdir():
        shutil.copy(path, place / "traces")
    box = fresh(base.case)
    if box.say(lambda: observing.recover(place / "traces")).code:
        raise RuntimeError("the logs cannot be recovered")
    assert text_lines(TEXTS)[0]
    return place


def heads(rng: random.Random, base: Base) -> str:
    """A run with heads and checkpoints is damaged or forged: its chain is as it was, is not believed, or is wrong where
    that was forged; and what `verify` asks of it ends in a sentence."""
    place, good = _chained(base)
    box = fresh(base.case)
    run = box.runs / "run"
    shutil.copytree(place, run)
    outside = base.put_outside(box)
    files = sorted(path for path in run.rglob("*") if path.is_file())
    path, forged = rng.choice(files), False
    how = rng.random()
    if how < 0.35:
        box.note(mutate.damage(rng, path))
    elif how < 0.5:
        target = rng.choice((path, run / "checkpoints", path))
        box.note(mutate.replace(rng, target, rng.choice((outside, outside / "rank-00000.h5"))))
    else:
        forged = True
        path = rng.choice([each for each in files if each.suffix == ".h5"])
        box.note((craft if path.parent == run else craft_any)(rng, path, outside))
        if rng.random() < 0.7:
            (run / "result.json").unlink(missing_ok=True)
    with box.watched():
        answer = box.say(lambda: analysis(["chain", str(run)]))
        box.say(lambda: _claimed(run))
    if answer.code not in (0, 2, 3) or (answer.code == 2 and not answer.err.strip()):
        raise Violation(f"exit code {answer.code}: {answer.err[-500:]}")
    if not forged and answer.code == 0 and answer.out.partition("\n")[0] != good.partition("\n")[0]:
        raise Violation(f"other heads of a damaged run: {answer.out[:500]}")
    if not forged and answer.code == 3:
        raise Violation(f"damage is an accusation: {answer.out[:500]}")
    return "damaged" if answer.code else "free" if forged else "same"


def _claimed(run: Path) -> int:
    try:
        require_begun(claim(run))
    except (NotVerifiable, UsageError, TraceError, Refused, OSError) as error:  # as `verify` does
        tell(f"verify: {error}", sys.stderr)
        return 2
    return 0


@functools.cache
def _chained(base: Base) -> tuple[Path, str]:
    """A run of two checkpoints, and what `chain` says of it."""
    place = base.runs / "chained"
    clear(place)
    box = fresh(base.case)
    options = [
        *FLOW,
        "--closure",
        "none",
        "--guarantee",
        "layout",
        "--checkpoint-every",
        "1",
        "--out",
        str(place),
    ]
    for command in (lambda: _run("coupled", options), lambda: analysis(["chain", str(place)])):
        answer = box.say(command)
        if answer.code:
            raise RuntimeError(answer.err)
    return place, answer.out


def replay(rng: random.Random, base: Base) -> str:
    """A run that is to be replayed is damaged or forged: it is refused, or has an order to offer."""
    logged = _logged(base) / "traces"
    box = fresh(base.case)
    write_run(box.runs / "a", size=2, steps=3, blocks=2, run_id="a", orders=lambda repeat, step: [np.arange(2)],
              choices=lambda repeat, step: ("ring", "direct")[step % 2])  # fmt: skip
    shutil.copytree(logged, box.runs / "b")
    outside = base.put_outside(box)
    run = box.runs / rng.choice("ab")
    path = rng.choice(sorted(run.glob("rank-*.h5")))
    how = rng.random()
    box.note(
        mutate.damage(rng, path) if how < 0.2 else mutate.replace(rng, path, outside) if how < 0.25
        else craft(rng, path, outside)
    )  # fmt: skip

    def asked() -> int:
        code = 0
        of_an_application = (lambda: replays.read(str(run)),)
        of_a_program = (
            lambda: recorded_sources(run, rng.randrange(2)), lambda: require_same_program(run, ["./app", "4"], [], 2)
        )  # fmt: skip
        for question in of_an_application if run.name == "a" else of_a_program:
            try:
                question()
            except (*USAGE, TraceError) as error:
                tell(str(error), sys.stderr)
                code = 2
        return code

    with box.watched():
        return "damaged" if box.say(asked).code else "free"


def program(rng: random.Random, base: Base) -> str:
    """A run of which predictions are made is damaged or forged: the prediction is that of the good one, or none."""
    place, good = _calibrated(base)
    box = fresh(base.case)
    shutil.copytree(place, box.runs / "study")
    outside = base.put_outside(box)
    path = rng.choice(sorted((box.runs / "study" / "run").glob("rank-*.h5")))
    forged = rng.random() < 0.8
    box.note(craft(rng, path, outside) if forged else mutate.damage(rng, path))
    if rng.random() < 0.8:
        (box.runs / "study" / "run" / "result.json").unlink(missing_ok=True)
    answer = _predict(box)
    if answer.code not in (0, 2) or (answer.code and not answer.err.strip()):
        raise Violation(f"exit code {answer.code}: {answer.err[-500:]}")
    if answer.code == 0 and answer.out != good and not forged:
        raise Violation(f"another prediction of a damaged run: {answer.out[:500]}")
    return "damaged" if answer.code else "same" if answer.out == good else "free"
