"""What the libraries of a program chose: answers of the preloaded `asked.c`, and of NumPy and oneDNN in a process of
their own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from miniapps.errors import UsageError
from miniapps.programs.building import cache, compiled, digest
from miniapps.system.layers import LIBM, LIBMVEC, NUMPY, ONEDNN, VARIABLES, of_file
from miniapps.untrusted import Refused
from miniapps.untrusted.regular import read_bytes

SOURCE = Path(__file__).parent / "asked.c"
FLAGS = ("-O1", "-fPIC", "-shared", "-fvisibility=hidden")
COMPILERS = ("cc", "gcc", "clang")
MOST = 2**24  # bytes of the answers of a process
ASK_S = 120.0
STARTED = ".started"  # the suffix of the note on a process that was started
BASELINE = "baseline"  # the answer of NumPy without dispatched features
# In an interpreter with NumPy or torch; prints JSON.
ASK_NUMPY = """
import json, sys
sys.path.insert(0, sys.argv[1])
try:
    from numpy._core import _multiarray_umath as loops
except ImportError:
    from numpy.core import _multiarray_umath as loops
has = loops.__cpu_features__
print(json.dumps([name for name in loops.__cpu_dispatch__ if has.get(name)]))
"""
ASK_ONEDNN = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
torch.nn.functional.conv2d(torch.ones(4, 16, 8, 8), torch.ones(16, 16, 3, 3))
"""


@dataclass
class Answers:
    """What the processes of a launch answered. `programs`: executables, in the order in which they ended; `loaded`:
    libraries by path; `unanswered`: programs that were started and gave no answer; `chose`: the answer of each layer,
    by library; `variables`: the values at the end of each process that loaded a layer; `pythons`: the executables that
    loaded NumPy or torch, by the library's path."""

    programs: list[str] = field(default_factory=list)
    loaded: set[str] = field(default_factory=set)
    unanswered: list[str] = field(default_factory=list)
    chose: dict[tuple[str, str], str] = field(default_factory=dict)
    variables: dict[str, set[str]] = field(default_factory=dict)
    pythons: dict[str, str] = field(default_factory=dict)

    @property
    def layers(self) -> list[str]:
        """Names of the layers that the processes loaded."""
        found = {layer.name for path in self.loaded for layer in of_file(os.path.basename(path))}
        return sorted(found | {layer for layer, _ in self.chose})

    def of(self, layer: str) -> str:
        """The answers of `layer`, as one text; empty if it gave none."""
        return "; ".join(sorted({text for (name, _), text in self.chose.items() if name == layer}))


def library() -> Path:
    """The library to preload; compiles it unless it is in the cache. Raises UsageError without a C compiler."""
    compiler = os.environ.get("CC") or next((name for name in COMPILERS if shutil.which(name)), None)
    if compiler is None or shutil.which(compiler) is None:
        raise UsageError(
            f"no C compiler {compiler or ', '.join(COMPILERS)} on PATH; it builds the library that asks yours what "
            "they chose: load a module with a compiler, or set CC"
        )
    made = cache() / f"asked-{digest(compiler, FLAGS, [SOURCE])}.so"
    with open(made.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            draft = made.with_suffix(f".{os.getpid()}")
            what = "the library that asks others what they chose"
            compiled([compiler, *FLAGS, "-o", str(draft), str(SOURCE), "-ldl"], what=what)
            draft.rename(made)
    return made


def settings(library: Path, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables by which the processes of a launch answer into `folder`."""
    preload = " ".join(filter(None, (str(library), environment.get("LD_PRELOAD", ""))))
    return {"FPNA_ASKED": str(folder), "FPNA_ASKED_NAMES": ":".join(VARIABLES), "LD_PRELOAD": preload}


def answers(folder: Path) -> Answers:
    """Reads the answers of a launch. A process that a signal ended left none, or no whole ones."""
    found, ended = Answers(), set()
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns):
        with contextlib.suppress(OSError, Refused):
            if path.suffix != STARTED and _of_process(read_bytes(path, MOST).decode(errors="replace"), found):
                ended.add(path.name)
    started = {path for path in folder.glob(f"*{STARTED}") if path.name.removesuffix(STARTED) not in ended}
    found.unanswered = sorted({read_bytes(path, MOST).decode(errors="replace") for path in started})
    return found


def _of_process(text: str, found: Answers) -> bool:
    """Adds the answers of a process to `found`; whether they are whole."""
    lines = [line.split("\t", 2) for line in text.splitlines()]
    rows = [line for line in lines if len(line) == 3]
    if not rows or rows[-1][0] != "end":
        return False
    program = next((path for kind, path, _ in rows if kind == "program"), "")
    if not program:
        return True
    found.programs.append(program)
    here = False
    for kind, path, value in rows:
        name = os.path.basename(path)
        if kind == "loaded":
            found.loaded.add(path)
            here = here or bool(of_file(name))
            if any(layer.name in (NUMPY, ONEDNN) for layer in of_file(name)):
                found.pythons[path] = program
        elif kind.startswith("chose "):
            here = True
            found.chose[kind.removeprefix("chose "), path] = value.strip()
    given = {name: value for kind, name, value in rows if kind == "variable"}
    if here:
        for name in VARIABLES:
            found.variables.setdefault(name, set()).add(given.get(name, ""))
    return True


def ask_interpreters(found: Answers, environment: Mapping[str, str]) -> None:
    """Adds to `found` what NumPy and oneDNN choose with `environment`, by processes of the program's interpreter."""
    for path, program in found.pythons.items():
        for layer, begin in ((NUMPY, "_multiarray_umath"), (ONEDNN, "libtorch_cpu")):
            if os.path.basename(path).startswith(begin) and "python" in os.path.basename(program):
                found.chose[layer, path] = _asked(layer, program, path, environment)


def dispatched(found: Answers) -> list[str]:
    """The features for which NumPy chose loops, in its order."""
    for (layer, _), text in found.chose.items():
        if layer == NUMPY:
            return [] if text == BASELINE else text.split()
    return []


def _asked(layer: str, program: str, path: str, environment: Mapping[str, str]) -> str:
    """The answer of an interpreter; empty if it gives none."""
    packages = next(
        (str(parent.parent) for parent in Path(path).parents if parent.name in ("numpy", "torch")), ""
    )
    env = {name: value for name, value in environment.items() if not name.startswith("FPNA_ASKED")}
    if layer == ONEDNN:
        env |= {"ONEDNN_VERBOSE": "1", "OMP_NUM_THREADS": "1"}
    text = ASK_NUMPY if layer == NUMPY else ASK_ONEDNN
    try:
        done = subprocess.run(
            [program, "-c", text, packages], env=env, capture_output=True, text=True, timeout=ASK_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if layer == NUMPY:
        with contextlib.suppress(ValueError, IndexError):
            return " ".join(json.loads(done.stdout.splitlines()[-1])) or BASELINE
        return ""
    isa = (line.partition("isa:")[2] for line in done.stdout.splitlines() if "isa:" in line)
    return next(isa, "").strip()


def shown(layer: str, answer: str, usual: str) -> str:
    """An answer in short: that of the C library, a list of places of functions, by how many lie elsewhere than in the
    `usual` answer."""
    if layer not in (LIBM, LIBMVEC) or not answer:
        return answer
    functions = answer.split()
    other = len(set(functions) - set(usual.split()))
    return f"other code for {other} of {len(functions)}"
