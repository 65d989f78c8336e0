"""The layers of a program that choose code by the processor, and the settings that hold each to an older processor.

A layer is a library with several versions of its functions, of which it chooses one when it is loaded or first called.
Each layer has a variable that holds it to another version. A level is such a version; its name is that of the setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from miniapps.system import environment

LIBM, LIBMVEC, OPENBLAS, BLIS, MKL, ATEN, ONEDNN, NUMPY = (
    "libm", "libmvec", "OpenBLAS", "BLIS", "MKL", "ATen", "oneDNN", "NumPy",
)  # fmt: skip
TUNABLES, NPY = "GLIBC_TUNABLES", "NPY_DISABLE_CPU_FEATURES"
HWCAPS = "glibc.cpu.hwcaps"
# Instructions by which libm and libmvec choose, by their names in GLIBC_TUNABLES.
AVX512, AVX2 = ("AVX512F", "AVX512DQ"), ("AVX2", "FMA", "FMA4")
V3, LEAST = "x86-64-v3", "x86-64-v2"  # levels of libm, and of NumPy's loops


@dataclass(frozen=True)
class Layer:
    """A layer: its `name`, how the file names of its library begin, and its `levels` by the
    variables that hold it to them, newest first. NumPy's variables depend on its version (`numpy_levels`).
    The last level runs on every x86-64 processor since x86-64-v2, of any maker."""

    name: str
    files: tuple[str, ...]
    levels: Mapping[str, Mapping[str, str]]


def _hwcaps(*off: str) -> dict[str, str]:
    return {TUNABLES: f"{HWCAPS}={','.join(f'-{name}' for name in off)}"}


LAYERS = (
    Layer(LIBM, ("libm.so", "libm-"),
          {LEAST: _hwcaps(*AVX512, *AVX2)}),
    Layer(LIBMVEC, ("libmvec",),
          {V3: _hwcaps(*AVX512), LEAST: _hwcaps(*AVX512, *AVX2)}),
    Layer(OPENBLAS, ("libopenblas", "libscipy_openblas"),
          {core: {"OPENBLAS_CORETYPE": core} for core in ("SkylakeX", "Haswell", "Zen", "Sandybridge", "Nehalem")}),
    Layer(BLIS, ("libblis",),
          {core: {"BLIS_ARCH_TYPE": core} for core in ("skx", "haswell", "zen2", "generic")}),
    Layer(MKL, ("libmkl_core", "libmkl_rt"),
          {name: {"MKL_ENABLE_INSTRUCTIONS": name} for name in ("AVX512", "AVX2", "AVX", "SSE4_2")}
          | {"COMPATIBLE": {"MKL_CBWR": "COMPATIBLE"}}),
    Layer(ATEN, ("libtorch_cpu",),
          {name: {"ATEN_CPU_CAPABILITY": name} for name in ("avx512", "avx2", "default")}),
    Layer(ONEDNN, ("libtorch_cpu",),
          {name: {"ONEDNN_MAX_CPU_ISA": name} for name in ("AVX512_CORE", "AVX2", "SSE41")}),
    Layer(NUMPY, ("_multiarray_umath",), {V3: {}, LEAST: {}}),
)  # fmt: skip
# Levels of x86-64 whose instructions the levels of layers use; the others need no more than x86-64-v2.
NEEDS = dict.fromkeys(("SkylakeX", "skx", "AVX512", "avx512", "AVX512_CORE"), 4)
NEEDS |= dict.fromkeys((V3, "Haswell", "haswell", "Zen", "zen2", "AVX2", "avx2"), 3)
VARIABLES = tuple(
    sorted({name for layer in LAYERS for held in layer.levels.values() for name in held} | {NPY})
)


@dataclass(frozen=True)
class ProcessorKind:
    """A kind of processor, of level `needs` of x86-64: the level of each layer on it. A layer without one keeps what it
    has."""

    name: str
    about: str
    needs: int
    levels: Mapping[str, str]


PROCESSORS = (
    ProcessorKind("Skylake-X", "Intel, AVX-512", 4,
              {OPENBLAS: "SkylakeX", BLIS: "skx", MKL: "AVX512", ATEN: "avx512", ONEDNN: "AVX512_CORE"}),
    ProcessorKind("Haswell", "Intel, AVX2", 3,
              {LIBMVEC: V3, OPENBLAS: "Haswell", BLIS: "haswell", MKL: "AVX2", ATEN: "avx2", ONEDNN: "AVX2",
               NUMPY: V3}),
    ProcessorKind("Zen 2", "AMD, AVX2", 3,
              {LIBMVEC: V3, OPENBLAS: "Zen", BLIS: "zen2", ATEN: "avx2", ONEDNN: "AVX2", NUMPY: V3}),
    ProcessorKind("Nehalem", "Intel, x86-64-v2", 2,
              {LIBM: LEAST, LIBMVEC: LEAST, OPENBLAS: "Nehalem", BLIS: "generic", MKL: "SSE4_2", ATEN: "default",
               ONEDNN: "SSE41", NUMPY: LEAST}),
)  # fmt: skip


def level_here() -> int:
    """The level of x86-64 of this processor: 4, 3, or 2 for all others."""
    return {"x86-64-v4": 4, "x86-64-v3": 3}.get(environment.instructions(), 2)


def processor(name: str) -> ProcessorKind:
    """The one of PROCESSORS with this name."""
    return next(each for each in PROCESSORS if each.name == name)


def of_file(name: str) -> list[Layer]:
    """The layers in the library with the file name `name`."""
    return [layer for layer in LAYERS if name.startswith(layer.files)]


def numpy_levels(dispatched: Sequence[str]) -> dict[str, dict[str, str]]:
    """The levels of NumPy's loops: variables that turn off those of the `dispatched` features that a processor of the
    level lacks. The features are those that this NumPy has loops for, besides its baseline, and that this processor
    has."""
    newer = [name for name in dispatched if name.startswith(("AVX512", "X86_V4"))]
    return {
        level: {NPY: " ".join(names)} for level, names in ((V3, newer), (LEAST, list(dispatched))) if names
    }


def together(settings: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """One set of variables for several layers."""
    found: dict[str, str] = {}
    for each in settings:
        found |= each
    return found


def beside(environment: Mapping[str, str], held: Mapping[str, str]) -> dict[str, str]:
    """`environment` with the variables `held`; other tunables of glibc stay as they are set there."""
    found = dict(environment) | dict(held)
    if TUNABLES in held and (own := environment.get(TUNABLES)):
        others = [each for each in own.split(":") if each and not each.startswith(f"{HWCAPS}=")]
        found[TUNABLES] = ":".join([*others, held[TUNABLES]])
    return found
