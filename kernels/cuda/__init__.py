"""CUDA C++ sources, one per package of kernels, compiled at run time for the device in use.

They are compiled without contraction of a*b + c, keep subnormal numbers, and use nothing that hipRTC lacks.
"""

import hashlib
import os
import re
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)
NVRTC_OPTIONS = ("--fmad=false", "--ftz=false", "-std=c++17")
HIPRTC_OPTIONS = ("-ffp-contract=off", "-std=c++17")


def source(name: str) -> str:
    """The text of NAME.cu with its headers inserted, each once.

    So the run-time compiler looks for no files, and the cache of compiled kernels, whose key is the text, notices a
    changed header.
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
    """The text of NAME.cu with `macros` defined, such as ELEMENT="float": one source serves all types."""
    return "".join(f"#define {macro} {value}\n" for macro, value in macros.items()) + source(name)


@cache
def kernel(name: str, function: str, **macros: str):
    """The kernel FUNCTION of `specialised(NAME)`, compiled for the kind of device of its first call."""
    return _module(name, **macros).get_function(function)


@cache
def _module(name: str, **macros: str):
    import cupy

    return cupy.RawModule(path=str(_compiled(name, specialised(name, **macros))))


def _compiled(name: str, text: str) -> Path:
    """The file with the machine code of `text`, in CuPy's folder of compiled kernels.

    Given the text, `cupy.RawModule` would add an option by which subnormal float32 become zero, as in CuPy's own
    kernels.
    """
    import cupy

    options = HIPRTC_OPTIONS if cupy.cuda.runtime.is_hip else NVRTC_OPTIONS
    what = cupy.cuda.Device().compute_capability, cupy.cuda.nvrtc.getVersion(), options, text
    folder = Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache")
    file = folder / f"fpna-{name}-{hashlib.sha256(repr(what).encode()).hexdigest()[:32]}.cubin"
    if not file.exists():
        code, _ = cupy.cuda.compiler.compile_using_nvrtc(text, options, filename=f"{name}.cu")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as draft:
            draft.write(code.encode() if isinstance(code, str) else code)
        Path(draft.name).replace(file)  # at once: other processes may look for it
    return file
