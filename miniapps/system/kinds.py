"""Ranks of two kinds: ranks whose libraries may compute other bits from the same data, told before they compute.

Libraries choose kernels by the processor, their own version and settings variables. No guarantee covers ranks that
differ in these: a block may get other bits on another rank. `of_ranks` compares all ranks by a short hash, and gathers
details only if the hashes differ.
"""

from __future__ import annotations

import hashlib
import platform
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from miniapps.system import environment
from miniapps.system.layers import LAYERS as TABLE
from miniapps.system.layers import LIBM, MKL, processor, together
from miniapps.system.scope import NOT_SET, flatten, scoped

WITHOUT = "layout"  # the scope of runs without a guarantee
FEW = 4  # most kinds, and parts of a kind, that a sentence shows
FLAGS, NUMPY = "processor.flags", "arithmetic.numpy"
MAKER = ("processor.vendor", "processor.family")
NONE = "none"
ALWAYS = ("numpy", "libc", "openblas_numpy")  # libraries of arithmetic that every rank has loaded
INSTALLED = "the same installation on all nodes"
OTHER_NODES = "nodes of one kind"
# The layers by the beginnings of the variables that steer them.
STEERED = {
    "ATen": ("ATEN_",), "BLIS": ("BLIS_",), "cuBLAS": ("CUBLAS_", "CUPY_", "NVIDIA_", "TORCH_ALLOW_"),
    LIBM: ("GLIBC_",), "MKL": ("MKL_",), "NumPy": ("NPY_",), "oneDNN": ("ONEDNN_", "DNNL_"),
    "OpenBLAS": ("OPENBLAS_",), "preloaded libraries": ("LD_PRELOAD",), "OpenMP": ("OMP_",),
}  # fmt: skip
# The instruction sets by which a layer chooses; the others may choose by any of them.
CHOSEN_BY = {
    LIBM: {"avx2", "fma", "fma4"},
    "ATen": {"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"},
}
ANY = ("MKL", "oneDNN")
CHOSE = {
    NUMPY: "NumPy",
    "arithmetic.openblas_numpy": "OpenBLAS",
}  # entries in which a layer says what it chose
VERSIONS = ("python", "packages.", "arithmetic.libc")
# The processor to whose code the layers are held, and the setting of MKL, by the highest level of x86-64 that all ranks
# have. MKL_CBWR also holds ranks that MKL_ENABLE_INSTRUCTIONS leaves alone.
COMMON = {
    "x86-64-v4": ("Skylake-X", "AVX512"),
    "x86-64-v3": ("Haswell", "AVX2"),
    "x86_64": ("Nehalem", "COMPATIBLE"),
}
INTEL = "GenuineIntel"
ANY_MAKER = "COMPATIBLE"  # the one setting of MKL_CBWR for processors of other makers


@dataclass(frozen=True)
class Kind:
    """Equal ranks, ascending, and the entries of their environment in which kinds differ, by dotted key."""

    ranks: tuple[int, ...]
    entries: Mapping[str, str]

    def json(self) -> dict[str, Any]:
        """The kind in traces and in result.json."""
        return {"ranks": environment.ranges(self.ranks), "entries": dict(self.entries)}


def here() -> dict[str, str]:
    """The entries of this process that decide the bits of libraries: processor, versions, settings, threads. Loads
    nothing and starts no process."""
    loaded = environment.base_arithmetic()
    return flatten(
        {
            "processor": environment.processor()._asdict(),
            "python": platform.python_version(),
            "packages": environment.beside_numpy(),
            "arithmetic": {name: loaded[name] for name in ALWAYS if name in loaded},
            "variables": environment.variables(),
        }
    )


def counting(own: Mapping[str, str], guarantee: str) -> dict[str, str]:
    """The entries of `own`, of `here`, that are equal on ranks of one kind, as `guarantee` defines it."""
    return scoped(own, WITHOUT if guarantee == "none" else guarantee)


def digest(own: Mapping[str, str]) -> bytes:
    """8 bytes that are equal for equal entries."""
    return hashlib.blake2b(repr(sorted(own.items())).encode(), digest_size=8).digest()


def of_ranks(comm: Any, own: Mapping[str, str], guarantee: str) -> tuple[Kind, ...]:
    """The kinds of the ranks of `comm`, the kind of rank 0 first; empty if all are equal. `own`: of `here`. Collective:
    one gather of 8 bytes, and another one of all entries if they differ."""
    own = counting(own, guarantee)
    return among(comm.allgather(digest(own)), lambda: comm.allgather(own))


def among(digests: Iterable[bytes], gathered: Callable[[], Sequence[Mapping[str, str]]]) -> tuple[Kind, ...]:
    """The kinds of ranks with these digests; `gathered()` returns the entries of all ranks if digests differ."""
    return grouped(gathered()) if len(set(digests)) > 1 else ()


def grouped(ranks: Sequence[Mapping[str, str]]) -> tuple[Kind, ...]:
    """The kinds of ranks with these entries, by rank; empty if all are equal."""
    keys = sorted({key for own in ranks for key in own})
    differing = [key for key in keys if len({own.get(key) for own in ranks}) > 1]
    members: dict[tuple[str, ...], list[int]] = {}
    for rank, own in enumerate(ranks):
        members.setdefault(tuple(own.get(key, NOT_SET) for key in differing), []).append(rank)
    if len(members) < 2:
        return ()
    return tuple(
        Kind(tuple(own), dict(zip(differing, values, strict=True))) for values, own in members.items()
    )


def recorded(kinds: Sequence[Kind]) -> dict[str, Any]:
    """The entry of the environment that records `kinds`; none if all ranks are equal."""
    return {"kinds": [kind.json() for kind in kinds]} if kinds else {}


def sentence(kinds: Sequence[Kind], promised: str = "", instead: Iterable[str] = ()) -> str:
    """One line on `kinds`: the layers, the ranks, and settings that make the ranks equal, or what to do `instead`.
    `promised`: what a guarantee means for them."""
    shown = [f"{_ranks(kind)}: {described(kind, kinds)}" for kind in kinds[:FEW]]
    shown += [f"and {len(kinds) - FEW} more kinds"] if len(kinds) > FEW else []
    differ = [
        f"may compute other bits from the same data ({', '.join(layers(kinds))})",
        *filter(None, [promised]),
    ]
    remedy = " or ".join([" ".join(remedies(kinds)), *instead])
    return (
        f"ranks of {len(kinds)} kinds: they {', and '.join(differ)}. {_sentence('; '.join(shown))}. "
        f"To make them equal, on all ranks: {remedy}"
    )


def short(kinds: Sequence[Kind]) -> str:
    """`2 kinds: ranks 0-1; ranks 2-3`."""
    more = [f"and {len(kinds) - FEW} more"] if len(kinds) > FEW else []
    return f"{len(kinds)} kinds: {'; '.join([*map(_ranks, kinds[:FEW]), *more])}"


def layers(kinds: Sequence[Kind]) -> list[str]:
    """The names of the layers that may compute other bits on ranks of other kinds."""
    keys = list(kinds[0].entries)
    steered = [key.removeprefix("variables.") for key in keys if key.startswith("variables.")]
    found = {layer for layer, begins in STEERED.items() if any(name.startswith(begins) for name in steered)}
    found |= {CHOSE[key] for key in keys if key in CHOSE}
    if FLAGS in keys:
        changed = _flags(kinds, set.union) - _flags(kinds, set.intersection)
        found |= {layer for layer, by in CHOSEN_BY.items() if changed & by} | {*ANY}
    if any(key in keys for key in MAKER):
        found.add("MKL")
    versions = [_name(key) for key in keys if key.startswith(VERSIONS)]
    return [*sorted(found, key=str.lower), *(f"version of {name}" for name in versions)]


def remedies(kinds: Sequence[Kind]) -> list[str]:
    """Settings `NAME=value` for all ranks that make them equal, and in words what no setting does."""
    entries = kinds[0].entries
    settings: dict[str, str] = {}
    for key in entries:
        if key.startswith("variables."):
            chosen = [kind.entries[key] for kind in kinds if kind.entries[key] != NOT_SET]
            settings[key.removeprefix("variables.")] = chosen[0]
    if any(key in entries for key in (FLAGS, *MAKER)):
        settings |= _held(kinds)
    if NUMPY in entries and "NPY_DISABLE_CPU_FEATURES" not in settings:
        found = [kind.entries[NUMPY].split() for kind in kinds]
        extra = [name for name in max(found, key=len) if not all(name in own for own in found)]
        settings |= {"NPY_DISABLE_CPU_FEATURES": " ".join(extra)} if extra else {}
    words = [f"{name}={shlex.quote(value)}" for name, value in settings.items()]
    if any(key.startswith(VERSIONS) for key in entries):
        words.append(INSTALLED)
    return words or [OTHER_NODES]


def _held(kinds: Sequence[Kind]) -> dict[str, str]:
    """The settings that hold the layers of `kinds` to the instruction sets that all ranks have."""
    common = kinds[0].entries.get(FLAGS, environment.processor().flags).split()
    common = [flag for flag in common if all(flag in kind.entries.get(FLAGS, flag).split() for kind in kinds)]
    makers = {kind.entries.get(MAKER[0], environment.processor().vendor) for kind in kinds}
    name, branch = COMMON.get(environment.level_of(common), COMMON["x86_64"])
    levels = processor(name).levels
    own = {layer.name: layer.levels.get(levels.get(layer.name, ""), {}) for layer in TABLE}
    own[MKL] = {"MKL_CBWR": branch if makers == {INTEL} else ANY_MAKER}
    return together(own[layer] for layer in layers(kinds) if layer in own)


def described(kind: Kind, kinds: Sequence[Kind]) -> str:
    """The entries of one of `kinds` in words: `x86-64-v3 (without avx512f, avx512dq), OPENBLAS_CORETYPE not set`."""
    parts = []
    parts += [f"{_name(key)} {kind.entries[key]}" for key in MAKER if key in kind.entries]
    if FLAGS in kind.entries:
        own = kind.entries[FLAGS].split()
        lacking = sorted(_flags(kinds, set.union) - set(own))
        without = f" (without {_few(lacking)})" if lacking else ""
        parts.append(environment.level_of(own) + without)
    for key, value in kind.entries.items():
        if key.startswith("variables."):
            parts.append(f"{_name(key)} {NOT_SET}" if value == NOT_SET else f"{_name(key)}={value}")
        elif key not in (FLAGS, *MAKER):
            parts.append(f"{_name(key)} {value or NONE}")
    return _few(parts, 2 * FEW)


def _flags(kinds: Sequence[Kind], how: Any) -> set[str]:
    flags: set[str] = how(*(set(kind.entries.get(FLAGS, "").split()) for kind in kinds))
    return flags


def _name(key: str) -> str:
    last = key.partition(".")[2] or key
    return {"numpy": "NumPy's loops", "libc": "C library", "openblas_numpy": "OpenBLAS"}.get(last, last) \
        if key.startswith("arithmetic.") else last  # fmt: skip


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _ranks(kind: Kind) -> str:
    pieces = environment.ranges(kind.ranks).split(",")
    return f"rank{'s' * (len(kind.ranks) > 1)} {_few(pieces, 2 * FEW)}"


def _few(words: Sequence[str], most: int = FEW) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more
