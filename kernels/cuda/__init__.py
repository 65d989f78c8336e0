"""CUDA C++ sources, one per package of kernels, compiled at run time for the device that is there.

They are built without contraction of a*b + c, and use nothing that hipRTC lacks.
"""

import re
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)
NVRTC_OPTIONS = ("--fmad=false", "-std=c++17")
HIPRTC_OPTIONS = ("-ffp-contract=off", "-std=c++17")


def source(name: str) -> str:
    """The text of NAME.cu with its headers put in their places, each once.

    The compiler at run time looks for no files then, and CuPy's cache of compiled kernels, which goes by the
    text, notices a changed header.
    """
    return _complete(HERE / f"{name}.cu", set())


def _complete(path: Path, seen: set[Path]) -> str:
    def header(match: re.Match) -> str:
        included = (path.parent / match[1]).resolve()
        if included in seen:
            return ""
        seen.add(included)
        return _complete(included, seen)

    return INCLUDE.sub(header, path.read_text().replace("#pragma once\n", ""))


def specialised(name: str, **macros: str) -> str:
    """The text of NAME.cu with `macros` defined, as ELEMENT="float": a source that has them is one for each type."""
    return "".join(f"#define {macro} {value}\n" for macro, value in macros.items()) + source(name)


@cache
def kernel(name: str, function: str, **macros: str):
    """The kernel FUNCTION of `specialised(NAME)` as a `cupy.RawKernel`, compiled for the device of its first call."""
    return _module(name, **macros).get_function(function)


@cache
def _module(name: str, **macros: str):
    import cupy

    options = HIPRTC_OPTIONS if cupy.cuda.runtime.is_hip else NVRTC_OPTIONS
    return cupy.RawModule(code=specialised(name, **macros), options=options)
