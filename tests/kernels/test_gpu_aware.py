"""Whether the MPI library accepts GPU memory: by variables, and by a library that answers."""

import ctypes
import os
import shutil
import subprocess

import pytest

from kernels.allreduce.execution.gpu_aware import answer, loaded, reason
from tests.launch import LIBRARIES, run_mpi

CRAY, MPICH, OPENMPI = (
    "MPI VERSION    : CRAY MPICH version 8.1.28",
    "MPICH Version: 5.0.2",
    "Open MPI v5.0.11",
)
QUESTION = "MPIX_Query_cuda_support()"
compiler = os.environ.get("CXX", "g++")


@pytest.mark.parametrize(
    ("version", "variables", "answer", "expected"),
    [
        (CRAY, {"MPICH_GPU_SUPPORT_ENABLED": "1"}, False, "MPICH_GPU_SUPPORT_ENABLED=1"),
        (CRAY, {"MPICH_GPU_SUPPORT_ENABLED": "0"}, True, None),
        (CRAY, {}, True, None),
        (MPICH, {"MPICH_GPU_SUPPORT_ENABLED": "1"}, False, None),  # the variable of another library
        (MPICH, {"MPIR_CVAR_ENABLE_GPU": "1"}, False, None),
        (MPICH, {"MPIR_CVAR_ENABLE_GPU": "1"}, True, QUESTION),
        (MPICH, {"MPIR_CVAR_ENABLE_GPU": "0"}, True, None),
        (OPENMPI, {}, True, QUESTION),
        (OPENMPI, {}, False, None),
        (OPENMPI, {"OMPI_MCA_opal_cuda_support": "true"}, False, None),
        (OPENMPI, {"OMPI_MCA_opal_cuda_support": "False"}, True, None),
        (OPENMPI, {"OMPI_MCA_mpi_cuda_support": "0"}, True, None),
    ],
)
def test_variables_switch_off_and_only_cray_s_switches_on(version, variables, answer, expected):
    assert reason(version, variables, lambda: answer) == expected


@pytest.mark.skipif(shutil.which(compiler) is None, reason="no C++ compiler to build a library with")
def test_the_library_that_is_loaded_is_asked(tmp_path):
    paths = {}
    for name, body in (("mute", ""), ("yes", "return 1;"), ("no", "return 0;"), ("odd", "return -1;")):
        paths[name] = str(tmp_path / f"lib{name}.so")
        text = f'extern "C" int MPIX_Query_cuda_support() {{ {body} }}' if body else "int other;"
        (tmp_path / f"{name}.cpp").write_text(text)
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-o", paths[name], tmp_path / f"{name}.cpp"], check=True
        )
    assert not answer([paths["yes"]]), "a library was loaded to be asked"
    kept = [ctypes.CDLL(path) for path in paths.values()]
    assert answer([paths["mute"], paths["yes"], paths["no"]])
    assert not answer([paths["no"], paths["yes"]])
    assert not any(
        answer(asked) for asked in ([], [paths["mute"]], [paths["odd"]], [str(tmp_path / "absent.so")])
    )
    del kept


def test_libraries_are_found_among_what_is_mapped(tmp_path):
    line = "7f00-7f01 r-xp 00000000 08:01 42                         {}\n"
    mpi = ["/opt/a b/libmpi.so.40.40.5", "/opt/libmpi_cray.so.12", "/opt/libmpich.so.12"]
    others = [
        "/dev/shm/mpich_shm_1",
        "/opt/mpi4py/MPI.mpich.so",
        "/opt/libmpi_gtl_cuda.so.0",
        "/opt/libmpifort.so.12",
    ]
    maps = tmp_path / "maps"
    maps.write_text("".join(map(line.format, [*others, *mpi, *mpi])) + "7f02-7f03 rw-p 00000000 00:00 0\n")
    assert loaded(str(maps)) == sorted(mpi)
    assert loaded(str(tmp_path / "absent")) == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_library_of_this_process_is_found_and_survives_the_question(library):
    code = (
        "from mpi4py import MPI; from kernels.allreduce.execution import gpu_aware\n"
        "print(len(gpu_aware.loaded()), gpu_aware.gpu_aware() in (None, gpu_aware.QUESTION + '()'))"
    )
    run = run_mpi(1, ["-c", code], library=library)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["1", "True"]
