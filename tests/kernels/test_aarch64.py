"""The bits of kernels on AArch64, emulated, are those of this machine: products, sums of rows, attention, exponentials.

The sources are compiled with the flags of the extension by a cross compiler, and QEMU runs what comes of it.
"""

import ast
import re
import shutil
import struct
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pybind11
import pytest

from kernels.contract import attention, attention_backward, matmul, rowsum
from kernels.contract.native import PIECE
from kernels.contract.reference_attention import exponential
from kernels.stencil.reference import lanes_sum
from tests.launch import ROOT

from .contract import TYPES, numbers
from .test_contract_attention import drawn_mask, heads

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
lacking = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(lacking),
        reason=f"{' and '.join(lacking)} not installed: apt-get install g++-aarch64-linux-gnu qemu-user",
    ),
]
INCLUDES = [f"-I{pybind11.get_include()}", f"-I{sysconfig.get_paths()['include']}"]
PROGRAM = ROOT / "tests" / "kernels" / "without_python.cpp"
SOURCES = ["contract", "contract_tiles", "contract_attention_rows"]  # the program includes contract_attention
PRODUCT, LINES, ROWS, ATTENTION, EXPONENTIAL, LANES = range(6)  # as there

each_type = pytest.mark.parametrize("dtype", TYPES)


def flags():
    """The flags that setup.py compiles the extension with."""
    return ast.literal_eval(re.search(r"^FLAGS = (\[.*?\])$", (ROOT / "setup.py").read_text(), re.M)[1])


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program for AArch64."""
    headers = subprocess.run(
        [COMPILER, *INCLUDES, "-fsyntax-only", "-x", "c++", "-"],
        input="#include <Python.h>\n",
        capture_output=True,
        text=True,
    )
    if headers.returncode:
        pytest.skip(f"Python's headers are for this processor alone: {headers.stderr.splitlines()[0]}")
    built = tmp_path_factory.mktemp("aarch64") / "program"
    sources = [PROGRAM, *(ROOT / "kernels" / "native" / f"{name}.cpp" for name in SOURCES)]
    # What calls Python is in sections that nothing refers to.
    apart = ["-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", "-static"]
    command = [COMPILER, "-std=c++17", "-fvisibility=hidden", *flags(), *apart, *INCLUDES]
    done = subprocess.run([*command, "-o", built, *sources], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return built


def computed(program: Path, operation: int, dtype, sizes, *operands) -> bytes:
    """What the emulated processor makes of operands."""
    head = struct.pack("8q", operation, np.dtype(dtype).itemsize, *sizes, *[0] * (6 - len(sizes)))
    given = head + b"".join(np.ascontiguousarray(x).tobytes() for x in operands)
    done = subprocess.run([EMULATOR, program], input=given, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_program_is_for_aarch64_and_has_fused_multiply_adds_of_vectors(program):
    listed = subprocess.run(["aarch64-linux-gnu-objdump", "-d", program], capture_output=True, text=True)
    assert "file format elf64-littleaarch64" in listed.stdout
    assert all(re.search(rf"\bfmla\tv\d+\.{lanes}", listed.stdout) for lanes in ("4s", "2d"))


@pytest.mark.parametrize("transposed", [0, 1])
@each_type
def test_products_have_the_bits_of_this_machine(program, dtype, transposed):
    rng = np.random.default_rng(0)
    sizes = [
        (1, 1, 1),
        (3, 0, 5),
        (12, PIECE, 8),
        (13, PIECE + 1, 33),
        (29, 2 * PIECE + 9, 70),
        (40, 17, 300),
    ]
    for rows, depth, columns in sizes:
        a, b = numbers(rng, dtype, rows, depth), numbers(rng, dtype, depth, columns)
        if depth > PIECE:
            a[1, 5], a[2, 3], b[7, 4] = np.nan, np.inf, 1e-310 if dtype == np.float64 else 1e-42
        found = computed(
            program, PRODUCT, dtype, (rows, depth, columns, transposed), a, b.T if transposed else b
        )
        assert found == matmul(a, b).tobytes(), (rows, depth, columns)


@each_type
def test_sums_of_rows_have_the_bits_of_this_machine(program, dtype):
    rng = np.random.default_rng(1)
    for rows, columns in [(1, 1), (5, 7), (9, PIECE), (PIECE, 33)]:
        x = numbers(rng, dtype, rows, columns, decades=6)
        assert computed(program, LINES, dtype, (rows, columns), x) == rowsum(x, 1).tobytes()
        assert computed(program, ROWS, dtype, (rows, columns), x) == rowsum(x, 0).tobytes()


@pytest.mark.parametrize("causal", [0, 1])
@each_type
def test_attention_and_its_gradients_have_the_bits_of_this_machine(program, dtype, causal):
    rng = np.random.default_rng(2)
    sizes = [(1, 1, 1, 1), (8, 40, 20, 19), (70, 70, 32, 32), (PIECE + 3, 9, 5, 6), (3, PIECE + 40, 4, 3)]
    for queries, keys, depth, width in sizes:
        _, q, k, v = operands = heads(rng, dtype, 1, 1, queries, keys, depth, width, decades=1)
        for mask in (None, drawn_mask(rng, dtype, queries, keys)):
            how = dict(causal=bool(causal), mask=mask)
            done = attention(q, k, v, **how)
            expected = [*done, *attention_backward(*operands, *done, **how)]
            given = [np.float64(1 / np.sqrt(depth)), *operands, *([] if mask is None else [mask])]
            shape = (queries, keys, depth, width, causal, mask is not None)
            found = computed(program, ATTENTION, dtype, shape, *given)
            assert found == b"".join(x.tobytes() for x in expected), shape


@each_type
def test_exponentials_have_the_bits_of_the_definition(program, dtype):
    rng = np.random.default_rng(3)
    high = np.log(np.finfo(dtype).max)
    x = np.concatenate([rng.uniform(-1.1 * high, 1.1 * high, 50_000), [0, -0.0, np.inf, -np.inf, 1e-30]])
    x = x.astype(dtype)
    assert computed(program, EXPONENTIAL, dtype, (len(x),), x) == exponential(x).tobytes()


@each_type
def test_dot_products_in_lanes_have_the_bits_of_the_definition(program, dtype):
    rng = np.random.default_rng(4)
    for n in (0, 1, 63, 64, 65, 5000):
        x, y = numbers(rng, dtype, n), numbers(rng, dtype, n)
        expected = lanes_sum(x.astype(np.float64) * y.astype(np.float64))
        assert computed(program, LANES, dtype, (n,), x, y) == np.float64(expected).tobytes(), n
