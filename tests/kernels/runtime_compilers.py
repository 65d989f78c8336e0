"""NVRTC and hipRTC, which CuPy calls at run time and which need no device to compile for one; what PTX shows."""

import ctypes
import ctypes.util
import functools
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

# Fused operations that are asked for by name: in chains, and in TwoProduct, the error of a product of float64.
FUSED = {
    "contract_multiply",
    "attention_forward",
    "attention_dots",
    "attention_backward_q",
    "attention_backward_kv",
}
BY_NAME = {"dot_binned", "dot_fixed_point", "dot_exact"} | FUSED


@dataclass(frozen=True)
class Compiler:
    """The two have one interface under two prefixes."""

    prefix: str
    library: ctypes.CDLL

    def compile(self, text: str, name: str, options, code: str = "Code") -> bytes:
        """What `text` compiles to; RuntimeError with the compiler's log if it does not.

        `code`: "Code" (hipRTC: an object for the device) or "PTX" (NVRTC).
        """
        program = ctypes.c_void_p()
        self._do("CreateProgram", ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
        try:
            encoded = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
            try:
                self._do("CompileProgram", program, len(options), encoded)
            except RuntimeError as error:
                raise RuntimeError(f"{error}:\n{self._read('ProgramLog', program).decode()}") from None
            return self._read(code, program)
        finally:
            self._do("DestroyProgram", ctypes.byref(program))

    def _read(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._do(f"Get{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._do(f"Get{what}", program, buffer)
        return buffer.raw

    def _do(self, function: str, *arguments) -> None:
        status = getattr(self.library, self.prefix + function)(*arguments)
        if status:
            raise RuntimeError(f"{self.prefix}{function} returned {status}")


@functools.cache
def nvrtc() -> Compiler | None:
    """NVRTC of the wheel nvidia-cuda-nvrtc, or of the system; None if there is none."""
    spec = find_spec("nvidia")
    wheels = [
        p for root in (spec.submodule_search_locations if spec else ()) for p in Path(root).glob("cu*/lib")
    ]
    paths = [str(p) for folder in wheels for p in sorted(folder.glob("libnvrtc.so*"))]
    return _load("nvrtc", [*paths, ctypes.util.find_library("nvrtc")])


@functools.cache
def hiprtc() -> Compiler | None:
    """hipRTC, which ROCm keeps in a library of its own since 5.3, before in that of the runtime; None if absent."""
    return _load("hiprtc", [ctypes.util.find_library(name) for name in ("hiprtc", "amdhip64")])


def _load(prefix: str, paths) -> Compiler | None:
    for path in filter(None, paths):
        library = ctypes.CDLL(path)
        if hasattr(library, f"{prefix}CreateProgram"):
            return Compiler(prefix, library)
    return None


def contracted(ptx: bytes) -> set[str]:
    """The kernels that round a product and a sum together."""
    parts = re.split(r"\.entry (\w+)\(", ptx.decode(errors="replace"))
    return {
        name
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
        if re.search(r"(?:fma|mad)\.\w+\.f(?:32|64)", text)
    }
