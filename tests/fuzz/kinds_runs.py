"""Kinds that damage run directories: bytes of files, the cache, the directory tree, result.json."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

from tests.fuzz import mutate
from tests.fuzz.base import PAIRS, Base, drawn
from tests.fuzz.forge import craft
from tests.fuzz.sandbox import CACHE, SECRET, Sandbox, fresh


def damaged_bytes(rng: random.Random, base: Base) -> str:
    """The bytes of one file of a complete run are others, or the file is gone, or another run's."""
    trial = drawn(rng, base)
    box = _copied(rng, base, trial.names)

    def harm(run: Path) -> str:
        files = sorted(path for path in run.iterdir() if path.is_file())
        path = rng.choice(files)
        how = rng.random()
        if how < 0.05:
            path.unlink()
            return f"{path.name} is gone"
        if how < 0.1 and len(files) > 2:  # of several ranks: else it would be a whole other run
            other = base.runs / rng.choice([name for name in "abcr" if name != run.name]) / path.name
            if other.is_file():
                shutil.copy(other, path)
                return f"{path.name} of {other.parent.name}"
        before = path.stat()
        done = mutate.damage(rng, path)
        if rng.random() < 0.3:  # a disk that forgets changes no times
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            done += ", times kept"
        return done

    return trial.play(box, harm)


def damaged_cache(rng: random.Random, base: Base) -> str:
    """What an earlier reading left in a run is damaged, or leads elsewhere."""
    trial = drawn(rng, base, rng.choice(("equal", "different", "node")))
    box = fresh(base.case)
    base.copy(box, *trial.names, cached=True)
    outside = base.put_outside(box)
    shutil.copytree(box.outside / "kept", box.outside / CACHE)

    def harm(run: Path) -> str:
        kept = run / CACHE
        if not kept.is_dir():
            return "no cache"
        how = rng.random()
        inside = sorted(kept.rglob("*"))
        if how < 0.1:
            return mutate.replace(rng, kept, rng.choice((outside, box.outside / "kept")))
        if how < 0.3:
            return mutate.replace(rng, rng.choice(inside), rng.choice((outside, box.outside / "secret.txt")))
        if how < 0.65 and (kept / "index.json").is_file():
            content = json.loads((kept / "index.json").read_text())
            key = rng.choice(list(content))
            if rng.random() < 0.3:
                content[key] = rng.choice(
                    ("../../../outside", str(outside), "..", ".", "/", str(run), "a/../..", "")
                )
            else:
                content = mutate.value(rng, content)
            (kept / "index.json").write_text(json.dumps(content))
            return f"index.json: {key}"
        if how < 0.75:
            other = box.runs / rng.choice([name for name in trial.names if name != run.name]) / CACHE
            if other.is_dir():
                shutil.rmtree(kept)
                shutil.copytree(other, kept, symlinks=True)
            return "the cache of another run"
        if how < 0.8:
            (kept / f"part-{rng.randrange(10)}").symlink_to(outside)
            (kept / ("0" * 32)).symlink_to(box.outside / "kept")
            return "links beside"
        return mutate.damage(rng, rng.choice([path for path in inside if path.is_file()]))

    return trial.play(box, harm)


def strange_tree(rng: random.Random, base: Base) -> str:
    """Fifos, links, devices, holes, directories and names that are no text, in a run or beside it."""
    trial = drawn(rng, base)
    box = _copied(rng, base, trial.names)
    outside = base.put_outside(box)

    def harm(run: Path) -> str:
        done = []
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            if rng.random() < 0.5:
                name = rng.choice((*os.listdir(run), "rank-00001.h5", "rank-00007.h5", "node-00000.h5", "result.json",
                                   CACHE, "x.log", "rank-99999.h5"))  # fmt: skip
                target = rng.choice(
                    (outside / "rank-00000.h5", outside, box.outside / "kept" / "secret.json")
                )
                done.append(mutate.replace(rng, run / name, target))
            else:
                done.append(_beside(rng, box, base, outside))
        return "; ".join(done)

    return trial.play(box, harm)


def _beside(rng: random.Random, box: Sandbox, base: Base, outside: Path) -> str:
    """Something beside the runs that is no run of ours, or leads outside."""
    what = rng.choice(("link", "bytes", "loop", "deep", "fifo", "many", "hidden", "unreadable", "empty"))
    name = os.fsdecode(
        rng.choice((b"x", b"z\xff\xfe", b"\x1b[31m", b"\n", b"[red]", b"=cmd", b"\xe2\x80\xae"))
    )
    path = box.runs / f"{name}{rng.randrange(10**6)}"
    if what == "link":
        path.symlink_to(outside)
    elif what == "loop":
        path.symlink_to(box.runs)
    elif what == "deep":
        (path / "/".join("d" * 60)).mkdir(parents=True)
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "many":
        for i in range(300):
            (path / str(i)).mkdir(parents=True)
    elif what == "hidden":
        shutil.copytree(outside, box.runs / f".{rng.randrange(10**6)}")
        shutil.rmtree(box.runs / path.name, ignore_errors=True)
    elif what == "unreadable":
        path.mkdir(mode=0)
    elif what == "empty":
        path.mkdir()
        (path / "rank-00000.h5").touch()
    else:
        shutil.copytree(base.runs / "r", path / "rank-00000.h5")
    return f"{what} {name!r} beside"


def damaged_result(rng: random.Random, base: Base) -> str:
    """result.json, or the certificate of an audit, is another: its values, its bytes, or what it is."""
    trial = drawn(rng, base, rng.choice([name for name in PAIRS if name != "killed"]))
    box = _copied(rng, base, trial.names)
    box.outside.joinpath("result.json").write_text(json.dumps({"status": "failed", "error": SECRET}))

    def harm(run: Path) -> str:
        documents = [run / name for name in ("result.json", "certificate.json")]
        path = rng.choice([document for document in documents if document.is_file()] or documents[:1])
        if not path.is_file():
            path.write_text("{}")
        how = rng.random()
        if how < 0.1:
            return mutate.replace(rng, path, box.outside / "result.json")
        if how < 0.3:
            return mutate.damage(rng, path)
        content = mutate.value(rng, json.loads(path.read_text()))
        if how > 0.6 and isinstance(content, dict):
            content = _resealed(content)
        text = json.dumps(content)
        if rng.random() < 0.1:
            text = rng.choice(
                ("[" * 10**5, text + text, text.replace(":", ": " * 1000), text[:-1] + ',"a":1,"a":2}')
            )
        path.write_text(text)
        return f"{path.name}: {text[:200]}"

    return trial.play(box, harm)


def _resealed(content: dict) -> dict:
    """`content` with a hash that fits, where the format has one."""
    try:
        from miniapps.untrusted.result import written

        return json.loads(written(content))
    except (ImportError, ValueError, TypeError, OverflowError):
        return content


def _copied(rng: random.Random, base: Base, names: tuple[str, ...]) -> Sandbox:
    box = fresh(base.case)
    base.copy(box, *names, cached=rng.random() < 0.3)
    return box


def crafted(rng: random.Random, base: Base) -> str:
    """A trace was made to do harm. One whose hashes and seal fit is another run, and may be judged as it pleases; all
    others are damaged."""
    trial = drawn(rng, base)
    box = _copied(rng, base, trial.names)
    outside = base.put_outside(box)
    notes: list[str] = []

    def harm(run: Path) -> str:
        path = rng.choice(sorted(run.glob("*.h5")))
        notes.append(craft(rng, path, outside))
        if ", forged: " in notes[0] and rng.random() < 0.8:  # or result.json tells that the trace is another
            (run / "result.json").unlink(missing_ok=True)
        return notes[0]

    return trial.play(box, harm, lambda: ", loose: " in notes[0])
