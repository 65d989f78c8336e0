"""Name the places of calls in a program: `dot (cg.c:57) from solve (cg.c:80)`.

A place is a function that calls MPI, and its caller. After a function that is named like an MPI call, such as
`comm_allreduce`, or that has no name, the place has one more caller, up to DEEPEST. Functions of an MPI interface are
left out. Names depend only on the program's files, so the same call has the same name in every run.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import kernels
import miniapps
from miniapps.programs.elf import functions_at
from miniapps.untrusted.text import printable

ADDRESSES_S = 60  # for addr2line
NAMED, DEEPEST = 2, 4  # functions in a place, and at most if some are wrappers
LONGEST = 100  # letters of a shown name
GENERATED = "code made at run time"
# Libraries and functions between a program and MPI.
INTERFACE_FILES = re.compile(r"lib(mpi|pmpi|fmpi|boost_mpi)|.*/mpi4py/MPI\.")
INTERFACE_FUNCTIONS = re.compile(r"(P?MPI|boost::mpi|mpl)::|P?MPI_|p?mpi_\w+_f08_?$")
INTERFACE_LINES = re.compile(r".*/mpi4py/(util/|futures/|run\.py|__main__\.py)")
OURS = tuple(f"{Path(package.__file__ or '').parent}{os.sep}" for package in (kernels, miniapps))
WRAPPER = re.compile(
    r"(?i)reduce|b(road)?cast|barrier|gather|scatter|all_?to_?all|send|recv|(?<![a-z])mpi|mpi(?![a-z])"
)
# The outermost functions of a program: their callers are no part of it.
OUTERMOST_FILES = re.compile(
    r"(libc[.-]|ld-linux|libpthread|libgomp|libi?omp|libffi|_ctypes|libpython|python)"
)
OUTERMOST_FUNCTIONS = ("main", "MAIN__", "<module>")
OUTERMOST_LINES = re.compile(r"<frozen |.*/(runpy|threading)\.py$|.*/concurrent/futures/")
MARKS = re.compile(
    r"( const| volatile| &+| noexcept| \[[^\]]*\])+$"
)  # after the parameters of a C++ function
CLONE = re.compile(r"(\.(cold|part|constprop|isra|lto_priv|localalias|\d+))+$")
MODULE = re.compile(r"__(\w+)_MOD_(\w+)$")  # of a function in a module of Fortran


@dataclass(frozen=True)
class Place:
    """The callers of a call, innermost first: `functions` as (file, return address in the file), `lines` of Python as
    (file, function, line)."""

    functions: tuple[tuple[str, int], ...] = ()
    lines: tuple[tuple[str, str, int], ...] = ()


@dataclass
class Places:
    """Places by number, and the state of their files when the program ran: (bytes, time of the last change in ns)."""

    by_number: dict[int, Place] = field(default_factory=dict)
    files: dict[str, tuple[int, int]] = field(default_factory=dict)

    def words(self) -> dict[int, str]:
        """The name of each place."""
        known = self._functions()
        return {number: printable(_words(place, known)) for number, place in self.by_number.items()}

    def _functions(self) -> dict[tuple[str, int], list[_Function]]:
        """The functions at each address, innermost first; several if some are inlined."""
        addresses: dict[str, list[int]] = defaultdict(list)
        for file, address in dict.fromkeys(at for place in self.by_number.values() for at in place.functions):
            addresses[file].append(address)
        known = {}
        for file, own in addresses.items():
            before = [address - 1 for address in own]  # a return address follows its call
            unchanged = file in self.files and self.files[file] == _state(file)
            lines = lines_of(file, before) if unchanged and not is_interface(file) else [[]] * len(own)
            symbols = functions_at(file, before) if unchanged else [("", 0)] * len(own)
            names = _demangled([name for name, _ in symbols])
            for address, inlined, name, (_, begin) in zip(own, lines, names, symbols, strict=True):
                words = f"{name}+{address - begin:#x}" if name else f"{_cut(Path(file).name)}+{address:#x}"
                known[file, address] = inlined or [_Function(name, words if file else GENERATED, file)]
        return known


@dataclass(frozen=True)
class _Function:
    name: str  # empty if unknown
    words: str
    file: str  # of the program or library, or of the line of Python
    python: bool = False

    @property
    def interface(self) -> bool:
        if self.python:
            return bool(INTERFACE_LINES.match(self.file)) or self.file.startswith(OURS)
        return is_interface(self.file) or bool(INTERFACE_FUNCTIONS.match(self.name))

    @property
    def outside(self) -> bool:
        """Whether it belongs to the code that starts programs."""
        if self.python:
            return bool(OUTERMOST_LINES.match(self.file))
        return self.name == "_start" or bool(OUTERMOST_FILES.match(Path(self.file).name))


def is_interface(file: str) -> bool:
    """Whether a file is a library between a program and MPI."""
    return bool(INTERFACE_FILES.match(file) or INTERFACE_FILES.match(Path(file).name))


def _words(place: Place, known: dict[tuple[str, int], list[_Function]]) -> str:
    program = [function for at in place.functions for function in known[at]]
    python = [_python(*line) for line in place.lines]
    own = [function for function in program if not function.interface]
    lines = [line for line in python if not line.interface and not line.outside] or python[:1]
    named = [*_up_to_the_caller(own)]
    named = [*named, *lines[:1]] if named else [*_up_to_the_caller(lines)]
    return " from ".join(function.words for function in named or program[:1]) or GENERATED


def _up_to_the_caller(functions: list[_Function]) -> Iterator[_Function]:
    """The first NAMED functions of the program that are not wrappers, and the wrappers before them."""
    wanted = NAMED + (bool(functions) and not functions[0].name)
    for count, function in enumerate(functions):
        if function.outside or not wanted or count == DEEPEST:
            return
        yield function
        wanted -= not WRAPPER.search(function.name)
        if function.name in OUTERMOST_FUNCTIONS:
            return


def _python(file: str, function: str, line: int) -> _Function:
    path = Path(file)
    name = f"{path.parent.name}/{path.name}" if path.name in ("__init__.py", "__main__.py") else path.name
    name = _cut(name)
    words = f"{name}:{line}" if function == "<module>" else f"{_cut(function)} ({name}:{line})"
    return _Function(function, words, file, True)


def _state(file: str) -> tuple[int, int] | None:
    """(bytes, time of the last change) of a regular file; None for any other."""
    try:
        state = os.stat(file)
    except (OSError, ValueError):
        return None
    regular = os.path.isabs(file) and stat.S_ISREG(state.st_mode)
    return (state.st_size, state.st_mtime_ns) if regular else None


def lines_of(file: str, addresses: list[int]) -> list[list[_Function]]:
    """The functions at each address by debug information, `function (file.c:12)`; empty without it."""
    none: list[list[_Function]] = [[] for _ in addresses]
    try:
        done = subprocess.run(
            ["addr2line", "-a", "-i", "-f", "-C", "-e", file], input="\n".join(map(hex, addresses)),
            capture_output=True, text=True, errors="replace", timeout=ADDRESSES_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return none
    found: list[list[_Function]] = []
    lines = iter(done.stdout.splitlines())
    for line in lines:
        if re.fullmatch("0x[0-9a-f]+", line):
            found.append([])
        elif found and (own := _line(file, line, next(lines, ""))):
            found[-1].append(own)
    return none if done.returncode or len(found) != len(addresses) else list(map(_inlined, found))


def _inlined(functions: list[_Function]) -> list[_Function]:
    """Drops names that addr2line takes from the wrong function.

    For an inlined static function of C++, addr2line gives the name of the function around it; only the line is right.
    """
    return [
        replace(function, name="(inlined)", words=function.words.rpartition("(")[2][:-1])
        if functions[-1].name == function.name
        else function
        for function in functions[:-1]
    ] + functions[-1:]


def _line(file: str, function: str, place: str) -> _Function | None:
    """A function from the output of addr2line; None without a line, since the name may then be another function's."""
    source, _, line = place.partition(" (")[0].rpartition(":")
    if function.startswith("?") or "?" in (source[:1], line[:1]) or line in ("", "0"):
        return None
    name = tidied(function)
    return _Function(name, f"{name} ({Path(source).name}:{line})", file)


def _demangled(symbols: list[str]) -> list[str]:
    """The demangled names of C++ symbols."""
    try:
        done = subprocess.run(
            ["c++filt"], input="\n".join(symbols), capture_output=True, text=True, timeout=ADDRESSES_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return symbols
    lines = done.stdout.split("\n")
    return [tidied(line) for line in lines] if len(lines) == len(symbols) else symbols


def tidied(function: str) -> str:
    """The name of a function without type, parameters and suffixes of the compiler."""
    name = MARKS.sub("", CLONE.sub("", function))
    if module := MODULE.match(name):
        return f"{module[1]}.{module[2]}"
    if name.endswith(")"):
        depth, begin = 0, len(name)
        for begin in range(len(name) - 1, -1, -1):  # to the parenthesis that opens the last one
            depth += {")": 1, "(": -1}.get(name[begin], 0)
            if not depth:
                break
        name = name[:begin] if begin and not name[:begin].endswith("operator") else name
    depth, begin = 0, 0
    for i, letter in enumerate(name):  # after the last blank outside parentheses
        depth += {"(": 1, "<": 1, "{": 1, ")": -1, ">": -1, "}": -1}.get(letter, 0)
        begin = i + 1 if letter == " " and not depth else begin
    return _cut(name if "operator" in name else name[begin:])


def _cut(name: str) -> str:
    """A name cut to about LONGEST letters; a hash at its end distinguishes names with the same beginning."""
    if len(name) <= LONGEST:
        return name
    return f"{name[:LONGEST]}...{hashlib.blake2b(name.encode(errors='replace'), digest_size=4).hexdigest()}"
