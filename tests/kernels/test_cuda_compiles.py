"""The CUDA sources compile, with both compilers where they are installed, and round every operation by itself."""

import re
import shutil
import subprocess

import pytest

from kernels import cuda

ARCHITECTURES = ("80", "90")
SOURCES = sorted(path.stem for path in cuda.HERE.glob("*.cu"))
each = pytest.mark.parametrize(("name", "arch"), [(n, a) for n in SOURCES for a in ARCHITECTURES])


def nvcc(name, arch, form, out, *options):
    compiler = shutil.which("nvcc")
    if compiler is None:
        pytest.skip("no nvcc on PATH")
    command = [compiler, f"-{form}", "-arch", f"sm_{arch}", "-Werror", "all-warnings", *options]
    run = subprocess.run(
        [*command, "-o", str(out), str(cuda.HERE / f"{name}.cu")], capture_output=True, text=True, timeout=250
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return out.read_bytes()


def kernels(text):
    return re.findall(r'extern "C" __global__ void (?:__launch_bounds__\(.*?\)\s+)?(\w+)\(', text)


def contracted(ptx: bytes):
    return re.findall(rb"(?:fma|mad)\.\w+\.f64", ptx)


def test_there_are_sources():
    assert "stencil" in SOURCES and len(kernels(cuda.source("stencil"))) == 5


@each
def test_nvcc_builds_machine_code(name, arch, tmp_path):
    binary = nvcc(name, arch, "cubin", tmp_path / "kernels.cubin", "--fmad=false")
    assert all(kernel.encode() in binary for kernel in kernels(cuda.source(name)))


def test_without_the_option_products_and_sums_would_be_contracted(tmp_path):
    """So the next test can fail."""
    assert contracted(nvcc("stencil", "90", "ptx", tmp_path / "kernels.ptx"))


@each
def test_no_product_is_contracted_with_a_sum(name, arch, tmp_path):
    assert not contracted(nvcc(name, arch, "ptx", tmp_path / "kernels.ptx", "--fmad=false"))


@each
def test_nvrtc_compiles_the_text_that_cupy_is_given(name, arch):
    cupy = pytest.importorskip("cupy", reason="CuPy, which brings NVRTC, is not installed")
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"CuPy {cupy.__version__} has no NVRTC: {error}")
    program = nvrtc.createProgram(cuda.source(name), f"{name}.cu", [], [])
    try:
        nvrtc.compileProgram(program, [*cuda.NVRTC_OPTIONS, f"--gpu-architecture=compute_{arch}"])
        ptx = nvrtc.getPTX(program)
    finally:
        nvrtc.destroyProgram(program)
    ptx = ptx if isinstance(ptx, bytes) else ptx.encode()
    assert all(kernel.encode() in ptx for kernel in kernels(cuda.source(name)))
    assert not contracted(ptx)
