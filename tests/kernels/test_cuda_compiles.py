"""The CUDA sources compile for every type of elements, and round every operation separately.

By nvcc to machine code where it is on PATH, and by the compilers that CuPy calls; `test_runtime_compilers.py` has those
for the sources as they stand.
"""

import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kernels import cuda
from kernels.sums.cupy import ELEMENTS
from kernels.vectors.fused import bind
from kernels.vectors.generate import macros
from kernels.wires import codec
from kernels.wires.cuda import macros as of_codec

from .runtime_compilers import BY_NAME, FUSED, contracted, hiprtc, nvrtc

ARCHITECTURES = (pytest.param("80", marks=pytest.mark.slow), "90")
SOURCES = sorted(path.stem for path in cuda.HERE.glob("*.cu"))
# Without the default type, double, for which `test_runtime_compilers.py` compiles them.
TYPED = [
    (n, "ELEMENT", e)
    for n in SOURCES
    if "ELEMENT" in cuda.source(n)
    for e in ELEMENTS.values()
    if e != "double"
]
TYPED += [(n, "NUMBER", "float") for n in SOURCES if "#ifndef NUMBER" in cuda.source(n)]


def quick_for(some, every):
    """`every` as parameters, slow but for `some`."""
    return [each if each in some else pytest.param(each, marks=pytest.mark.slow) for each in every]


def each(test):
    """Decorator: the arguments `name` and `arch`. What nvcc makes of a text NVRTC makes too, which every quick test of
    it has."""
    names = quick_for(("scatter", "spmv", "vectors"), SOURCES)
    return pytest.mark.parametrize("name", names)(pytest.mark.parametrize("arch", ARCHITECTURES)(test))


# A text is the same for all types but for their names.
each_type = pytest.mark.parametrize(
    ("name", "macro", "element"),
    [
        case
        if case[1:] in (("ELEMENT", "bfloat16"), ("NUMBER", "float")) and case[0] != "order_free"
        else pytest.param(*case, marks=pytest.mark.slow)
        for case in TYPED
    ],
)


@cache
def nvcc(name, arch, *options):
    """The machine code and the PTX of NAME.cu: the second is kept on the way to the first."""
    compiler = shutil.which("nvcc")
    if compiler is None:
        pytest.skip("no nvcc on PATH")
    with tempfile.TemporaryDirectory() as kept:
        command = [compiler, "-cubin", "-arch", f"sm_{arch}", "-Werror", "all-warnings", *options]
        command += ["--keep", "--keep-dir", kept, "-o", f"{kept}/cubin", str(cuda.HERE / f"{name}.cu")]
        run = subprocess.run(command, capture_output=True, text=True, timeout=250)
        assert run.returncode == 0, run.stdout + run.stderr
        return Path(kept, "cubin").read_bytes(), Path(kept, f"{name}.ptx").read_bytes()


def kernels(name):
    pattern = r'extern "C" __global__ void (?:__launch_bounds__\(.*?\)\s+)?(\w+)\('
    return re.findall(pattern, cuda.source(name))


def test_there_are_sources():
    assert {name: len(kernels(name)) for name in SOURCES} == {
        "attention": 4,
        "contract": 1,
        "order_free": 8,
        "scatter": 7,
        "spmv": 5,
        "stencil": 6,
        "sums": 9,
        "vectors": 1,
        "wires": 3,
    }


@each
def test_nvcc_builds_machine_code(name, arch):
    binary, _ = nvcc(name, arch, "--fmad=false")
    assert all(kernel.encode() in binary for kernel in kernels(name))


@pytest.mark.parametrize("name", quick_for(("vectors",), ("spmv", "stencil", "sums", "vectors")))
def test_without_the_option_products_and_sums_would_be_contracted(name):
    """So the next test can fail."""
    _, ptx = nvcc(name, "90")
    assert contracted(ptx) - BY_NAME


@each
def test_no_product_is_contracted_with_a_sum(name, arch):
    _, ptx = nvcc(name, arch, "--fmad=false")
    assert contracted(ptx) <= BY_NAME


@pytest.mark.skipif(nvrtc() is None, reason="no NVRTC: pip install nvidia-cuda-nvrtc")
@each_type
def test_nvrtc_compiles_the_text_for_every_type(name, macro, element):
    options = [*cuda.NVRTC_OPTIONS, "--gpu-architecture=compute_90"]
    ptx = nvrtc().compile(cuda.specialised(name, **{macro: element}), f"{name}.cu", options, "PTX")
    assert all(kernel.encode() in ptx for kernel in kernels(name))
    assert contracted(ptx) <= FUSED and b".ftz." not in ptx  # which would make zeros of subnormal numbers


@pytest.mark.skipif(hiprtc() is None, reason="no hipRTC; see test_runtime_compilers.py")
@each_type
def test_hiprtc_compiles_the_text_for_every_type(name, macro, element):
    options = [*cuda.HIPRTC_OPTIONS, "--offload-arch=gfx90a"]
    compiled = hiprtc().compile(cuda.specialised(name, **{macro: element}), f"{name}.cu", options)
    assert all(kernel.encode() in compiled for kernel in kernels(name))


@pytest.mark.skipif(nvrtc() is None, reason="no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("name", ["sums", "order_free"])
def test_what_a_block_wrote_is_made_visible_before_and_after_it_draws_its_ticket(name):
    options = [*cuda.NVRTC_OPTIONS, "--gpu-architecture=compute_90"]
    ptx = nvrtc().compile(cuda.source(name), f"{name}.cu", options, "PTX").decode(errors="replace")
    blocks = [block for block in ptx.split("\n$L") if "atom.global.inc.u32" in block]  # without jumps
    assert len(blocks) == ptx.count("atom.global.inc.u32") > 0
    for block in blocks:
        before, after = block.split("atom.global.inc.u32")
        assert all(re.search(r"membar\.gl;|fence\.\w+\.gpu;", part) for part in (before, after))


PROGRAMS = [
    ("p = u + beta*p; s = w + beta*s; x = x + alpha*p; r = r - alpha*s", "r.u w.u r.r"),
    ("x = 0.1*r*u + alpha*p - s; w = -x", ""),
]


def of_program(steps, dots, dtype):
    bound = bind(np, {name: np.zeros(1, dtype) for name in "puswxr"}, steps, dots, None, 1)
    return cuda.specialised("vectors", **macros(bound))


@pytest.mark.skipif(nvrtc() is None, reason="no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("steps, dots", PROGRAMS)
def test_nvrtc_compiles_what_is_made_of_vector_updates_without_contraction(steps, dots, dtype):
    options = [*cuda.NVRTC_OPTIONS, "--gpu-architecture=compute_90"]
    ptx = nvrtc().compile(of_program(steps, dots, dtype), "vectors.cu", options, "PTX")
    assert b".entry update(" in ptx and not contracted(ptx)
    free = [option for option in options if option != "--fmad=false"]
    assert contracted(nvrtc().compile(of_program(steps, dots, dtype), "vectors.cu", free, "PTX"))


@pytest.mark.skipif(hiprtc() is None, reason="no hipRTC; see test_runtime_compilers.py")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("steps, dots", PROGRAMS)
def test_hiprtc_compiles_what_is_made_of_vector_updates(steps, dots, dtype):
    options = [*cuda.HIPRTC_OPTIONS, "--offload-arch=gfx90a"]
    assert b"update" in hiprtc().compile(of_program(steps, dots, dtype), "vectors.cu", options)


each_codec = pytest.mark.parametrize(
    "text",
    ["e4m3:scale=tensor", "table:n=8", "sign:scale=match"]
    + [
        pytest.param(text, marks=pytest.mark.slow)
        for text in (
            "float16",
            "bfloat16",
            "e5m2",
            "fp8",
            "int8",
            "int16:scale=match",
            "table:n=1",
            "table:n=4",
            "e3m0",
            "int4:rotate=on",
        )
    ],
)


@pytest.mark.skipif(nvrtc() is None, reason="no NVRTC: pip install nvidia-cuda-nvrtc")
@each_codec
def test_nvrtc_compiles_codecs_without_contraction(text):
    options = [*cuda.NVRTC_OPTIONS, "--gpu-architecture=compute_90"]
    ptx = nvrtc().compile(cuda.specialised("wires", **of_codec(codec(text))), "wires.cu", options, "PTX")
    assert all(kernel.encode() in ptx for kernel in kernels("wires")) and not contracted(ptx)


@pytest.mark.skipif(hiprtc() is None, reason="no hipRTC; see test_runtime_compilers.py")
@each_codec
def test_hiprtc_compiles_codecs(text):
    options = [*cuda.HIPRTC_OPTIONS, "--offload-arch=gfx90a"]
    compiled = hiprtc().compile(cuda.specialised("wires", **of_codec(codec(text))), "wires.cu", options)
    assert all(kernel.encode() in compiled for kernel in kernels("wires"))
