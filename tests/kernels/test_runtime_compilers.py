"""The sources for CuPy compile with NVRTC and with hipRTC, and round every operation separately."""

import re

import pytest

from kernels import cuda

from .runtime_compilers import BY_NAME, contracted, hiprtc, nvrtc

SOURCES = sorted(path.stem for path in cuda.HERE.glob("*.cu"))
KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(.*?\)\s+)?(\w+)\(')
NO_NVRTC = "no NVRTC: pip install nvidia-cuda-nvrtc"
NO_HIPRTC = "no hipRTC: apt-get install libamdhip64-5 libhiprtc-builtins5 (Debian 12), or ROCm"

each = pytest.mark.parametrize("name", SOURCES)


def has_all_kernels(compiled: bytes, name: str) -> bool:
    kernels = KERNEL.findall(cuda.source(name))
    return bool(kernels) and all(kernel.encode() in compiled for kernel in kernels)


@pytest.mark.skipif(nvrtc() is None, reason=NO_NVRTC)
@pytest.mark.parametrize("arch", [pytest.param("80", marks=pytest.mark.slow), "90"])
@each
def test_nvrtc(name, arch):
    options = [*cuda.NVRTC_OPTIONS, f"--gpu-architecture=compute_{arch}"]
    ptx = nvrtc().compile(cuda.source(name), f"{name}.cu", options, "PTX")
    assert has_all_kernels(ptx, name)
    assert contracted(ptx) == BY_NAME & set(KERNEL.findall(cuda.source(name)))


@pytest.mark.skipif(hiprtc() is None, reason=NO_HIPRTC)
@pytest.mark.parametrize("arch", ["gfx90a", pytest.param("gfx906", marks=pytest.mark.slow)])
@each
def test_hiprtc(name, arch):
    options = [*cuda.HIPRTC_OPTIONS, f"--offload-arch={arch}"]
    assert has_all_kernels(hiprtc().compile(cuda.source(name), f"{name}.cu", options), name)


@pytest.mark.parametrize("compiler, reason", [(nvrtc, NO_NVRTC), (hiprtc, NO_HIPRTC)])
def test_a_source_that_does_not_compile_fails(compiler, reason):
    if compiler() is None:
        pytest.skip(reason)
    with pytest.raises(RuntimeError, match="CompileProgram"):
        compiler().compile("__device__ int x = y;", "wrong.cu", ())
