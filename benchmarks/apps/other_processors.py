"""How often `fpna cpus` is wrong: small programs whose layers are known, against an emulator.

Each program calls functions of known layers, and its results on other processors come from qemu, without any of the
settings that the command uses. An answer is wrong if it calls the program equal on a processor on which qemu shows
another result, calls it different where qemu shows the same, names a layer that the program does not use, or answers
`open` for a program of which settings show everything.

    python -m benchmarks.apps.other_processors --json benchmarks/results/other-processors-2-cores-DATE.json
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.results import add_quiet, machine, save
from kernels.progress import Progress
from miniapps.cpus.answer import OPEN
from miniapps.cpus.experiment import DIFFERS, EQUAL, HERE

QEMU = {"Nehalem": "Nehalem", "Haswell": "Haswell", "EPYC-Rome": "Zen 2"}  # its processors, and ours
LIBM, LIBMVEC, OPENBLAS, MKL, ATEN, ONEDNN, NUMPY = (
    "libm",
    "libmvec",
    "OpenBLAS",
    "MKL",
    "ATen",
    "oneDNN",
    "NumPy",
)
HASH = """
#include <math.h>
#include <stdio.h>
#include <string.h>
int main(void) {
  unsigned long all = 0, bits = 0;
  for (int i = 1; i <= 300000; i++) {
    double x = i * 1.0001e-4;
    TYPE y = EXPRESSION;
    memcpy(&bits, &y, sizeof y);
    all = all * 31 + bits;
  }
  printf("%lx\\n", all);
  return 0;
}
"""
VECTORS = """
#include <math.h>
#include <stdio.h>
#include <string.h>
double x[100000], y[100000];
int main(void) {
  unsigned long all = 0, bits;
  for (int i = 0; i < 100000; i++) x[i] = (i + 1) * 1.0001e-4;
  for (int i = 0; i < 100000; i++) y[i] = EXPRESSION;
  for (int i = 0; i < 100000; i++) { memcpy(&bits, &y[i], 8); all = all * 31 + bits; }
  printf("%lx\\n", all);
  return 0;
}
"""
CLONES = """
#include <stdio.h>
__attribute__((target_clones("default", "avx2", "arch=x86-64-v4"), optimize("O3", "fast-math")))
double sum(const double *x, int n) { double s = 0; for (int i = 0; i < n; i++) s += x[i]; return s; }
int main(void) {
  static double x[10001];
  for (int i = 0; i < 10001; i++) x[i] = 1.0 / (i + 1);
  printf("%.17g\\n", sum(x, 10001));
  return 0;
}
"""
FOURIER = """
#include <fftw3.h>
#include <stdio.h>
int main(void) {
  fftw_complex *x = fftw_malloc(sizeof *x * 1024);
  fftw_plan plan = fftw_plan_dft_1d(1024, x, x, FFTW_FORWARD, FFTW_ESTIMATE);
  for (int i = 0; i < 1024; i++) { x[i][0] = 1.0 / (i + 1); x[i][1] = 0.1 * i; }
  fftw_execute(plan);
  for (int i = 0; i < 1024; i += 64) printf("%.17g %.17g\\n", x[i][0], x[i][1]);
  return 0;
}
"""
FORTRAN_SINES = """
program sines
  real(8) :: x
  integer :: i
  do i = 1, 40000
    x = i * 1.0001d-2
    if (mod(i, 37) == 0) print '(es24.16)', sin(x)
  end do
end program
"""
FORTRAN_PRODUCT = """
program product_of_matrices
  real(8) :: a(100, 100), b(100, 100), c(100, 100)
  integer :: i, j
  do i = 1, 100
    do j = 1, 100
      a(i, j) = 1d0 / (i + j)
      b(i, j) = 1d0 / (i + 2 * j)
    end do
  end do
  c = matmul(a, b)
  print '(es24.16)', c(::7, ::7)
end program
"""
FORTRAN_LAPACK = """
program lapack
  integer, parameter :: n = 120
  real(8) :: a(n, n), b(n)
  integer :: i, j, pivots(n), info
  do i = 1, n
    do j = 1, n
      a(i, j) = 1d0 / (i + j - 1d0)
    end do
    a(i, i) = a(i, i) + 1
    b(i) = i
  end do
  call dgesv(n, 1, a, n, pivots, b, n, info)
  print '(es24.16)', b
end program
"""
NUMBERS = """
import numpy as np
r = np.random.default_rng(1)
a, b = r.random((2, 5000)) - 0.5
A = r.random((120, 120))
"""
NUMBERS_32 = NUMBERS + "a, b, A = a.astype('f'), b.astype('f'), A.astype('f')\n"
PRINT = "np.asarray(y).tofile('y.bin')\n"
TORCH = """
import torch
torch.set_num_threads(1)
x = torch.rand(64, 64, generator=torch.Generator().manual_seed(1))
"""
STORE = "y.numpy().tofile('y.bin')\n"


@dataclass(frozen=True)
class Program:
    """A program: its `name`, its `source`, how it is built (`build`, empty for Python), the `layers` that compute its
    result, and whether settings cannot show its answer (`hidden`)."""

    name: str
    source: str
    build: tuple[str, ...]
    layers: tuple[str, ...] = ()
    hidden: bool = False


def _c(name: str, expression: str, *layers: str, kind: str = "double", more: tuple[str, ...] = ()) -> Program:
    source = HASH.replace("EXPRESSION", expression).replace("TYPE", kind)
    return Program(name, source, ("gcc", "-O2", *more), layers, hidden="-static" in more)


def _vectors(name: str, expression: str) -> Program:
    return Program(
        name, VECTORS.replace("EXPRESSION", expression), ("gcc", "-O3", "-ffast-math"), (LIBM, LIBMVEC)
    )


def _numpy(name: str, line: str, *layers: str, single: bool = False) -> Program:
    return Program(name, f"{NUMBERS_32 if single else NUMBERS}{line}\n{PRINT}", (), layers)


def _torch(name: str, line: str, *layers: str) -> Program:
    return Program(name, f"{TORCH}{line}\n{STORE}", (), layers)


PROGRAMS = (
    _c("quotients", "1 / x"),
    _c("square roots", "sqrt(x)"),
    _c("rounded to integers", "rint(x * 1e3) + floor(x)", LIBM),
    _c("fused", "fma(x, x, -x)", LIBM),
    *(_c(name, f"{name}(x)", LIBM) for name in ("sin", "cos", "tan", "atan", "exp", "log", "sinh", "tanh", "expm1",
                                                "log1p", "exp2", "log2", "cbrt", "erf", "lgamma")),
    _c("pow", "pow(x, 1.7)", LIBM),
    _c("atan2", "atan2(x, 1.7)", LIBM),
    _c("sinf", "sinf(x)", LIBM, kind="float"),
    _c("expf", "expf(x)", LIBM, kind="float"),
    _c("powf", "powf(x, 1.7f)", LIBM, kind="float"),
    _c("sines, linked statically", "sin(x)", LIBM, more=("-static",)),
    _vectors("vector sine", "sin(x[i])"),
    _vectors("vector exponential", "exp(x[i])"),
    _vectors("vector power", "pow(x[i], 1.7)"),
    Program("versions by the compiler", CLONES, ("gcc", "-O2"), hidden=True),
    Program("FFTW", FOURIER, ("gcc", "-O2", "-lfftw3"), hidden=True),
    Program("Fortran, sines", FORTRAN_SINES, ("gfortran", "-O2"), (LIBM,)),
    Program("Fortran, matmul", FORTRAN_PRODUCT, ("gfortran", "-O2"), hidden=True),
    Program("Fortran, LAPACK of OpenBLAS", FORTRAN_LAPACK, ("gfortran", "-O2", "-lopenblas"), (OPENBLAS,)),
    Program("Fortran, LAPACK of Netlib", FORTRAN_LAPACK,
            # The old kind of path, which holds for the library's own libraries too: LAPACK loads libblas.so.3.
            ("gfortran", "-O2", "-L/usr/lib/x86_64-linux-gnu/lapack",
             "-Wl,--disable-new-dtags,-rpath,/usr/lib/x86_64-linux-gnu/lapack:/usr/lib/x86_64-linux-gnu/blas",
             "-llapack")),
    _numpy("NumPy, product of vectors", "y = a @ b", OPENBLAS),
    _numpy("NumPy, product of vectors, float32", "y = a @ b", OPENBLAS, single=True),
    _numpy("NumPy, product of matrices", "y = A @ A", OPENBLAS),
    _numpy("NumPy, linear system", "y = np.linalg.solve(A, a[:120])", OPENBLAS),
    _numpy("NumPy, singular values", "y = np.linalg.svd(A)[1]", OPENBLAS),
    _numpy("NumPy, sum", "y = a.sum()", NUMPY),
    _numpy("NumPy, sum, float32", "y = a.sum()", NUMPY, single=True),
    _numpy("NumPy, exponential", "y = np.exp(a)", NUMPY, LIBM),
    _numpy("NumPy, sine", "y = np.sin(a)", NUMPY, LIBM),
    _numpy("NumPy, tanh, float32", "y = np.tanh(a)", NUMPY, LIBM, single=True),
    _numpy("NumPy, Fourier transform", "y = np.fft.rfft(a)", LIBM),
    _numpy("NumPy, sorted", "y = np.sort(a)"),
    _torch("torch, product", "y = x @ x", MKL, ONEDNN),
    _torch("torch, softmax", "y = torch.softmax(x, 1)", ATEN),
    _torch("torch, convolution", "y = torch.conv2d(x.view(4, 4, 16, 16), x.view(-1)[:288].view(8, 4, 3, 3))",
           ONEDNN, MKL, ATEN),
    _torch("torch, sum of products", "y = (x * x + x).clone()"),
)  # fmt: skip


def command_of(program: Program, folder: Path) -> list[str]:
    """Writes and builds a program in `folder`; returns its command. Raises RuntimeError if it cannot be built."""
    suffix = ".py" if not program.build else ".f90" if program.build[0] == "gfortran" else ".c"
    source = folder / f"program{suffix}"
    source.write_text(program.source)
    if not program.build:
        return [sys.executable, source.name]
    compiler, *options = program.build
    libraries = [option for option in options if option.startswith(("-l", "-L", "-Wl"))]
    flags = [option for option in options if option not in libraries]
    words = [
        compiler,
        *flags,
        "-o",
        str(folder / "program"),
        str(source),
        "-Wl,--as-needed",
        *libraries,
        "-lm",
    ]
    built = subprocess.run(words, capture_output=True, text=True)
    if built.returncode:
        raise RuntimeError(f"{program.name}: {built.stderr}")
    source.unlink()
    return ["./program"]


def result(command: list[str], folder: Path, model: str = "") -> bytes:
    """What the program prints and writes, on this processor or under qemu."""
    program = shutil.which(command[0], path=f"{folder}:{os.environ['PATH']}") or str(folder / command[0])
    emulator = ["qemu-x86_64", "-cpu", model] if model else []
    done = subprocess.run([*emulator, program, *command[1:]], cwd=folder, capture_output=True, check=True)
    file = folder / "y.bin"
    written = file.read_bytes() if file.exists() else b""
    file.unlink(missing_ok=True)
    return done.stdout + written


def judged(program: Program, answer: dict, truth: dict[str, bool]) -> list[str]:
    """The errors of an answer. `truth`: by processor of qemu, whether the result equals that of this processor."""
    errors = []
    ours = {row["level"]: row["state"] for row in answer["rows"] if not row["layer"]}
    for model, kind in QEMU.items():
        state = ours.get(kind)
        if state in (EQUAL, HERE) and not truth[model] and answer["verdict"] != OPEN:
            errors.append(f"equal on {kind}, and qemu shows another result on {model}")
        if state == DIFFERS and truth[model]:
            errors.append(f"differs on {kind}, and qemu shows the same result on {model}")
    named = {row["layer"] for row in answer["rows"] if row["layer"] and row["state"] == DIFFERS}
    if others := named - set(program.layers):
        errors.append(f"names {', '.join(sorted(others))}, which the program does not use")
    if answer["verdict"] == EQUAL and not all(truth.values()):
        errors.append("equal, and qemu shows another result")
    if (answer["verdict"] == OPEN) != program.hidden and not (
        program.hidden and answer["verdict"] == DIFFERS
    ):
        errors.append(
            f"answers {answer['verdict']}, and {'no setting shows' if program.hidden else 'settings show'} it"
        )
    return errors


def row(program: Program, folder: Path) -> dict:
    """One program: the answer, the truth, and the errors."""
    folder.mkdir()
    command = command_of(program, folder)
    usual = result(command, folder)
    truth = {model: result(command, folder, model) == usual for model in QEMU}
    words = [sys.executable, "-P", "-m", "fpna", "cpus", "--quiet", "--json", "--", *command]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if not done.stdout:
        return {
            "program": program.name,
            "errors": [done.stderr.strip()],
            "verdict": "",
            "sentence": "",
            "truth": truth,
        }
    answer = json.loads(done.stdout)
    differing = [[each["layer"], each["level"]] for each in answer["rows"] if each["state"] == DIFFERS]
    return {
        "program": program.name, "layers": list(program.layers), "hidden": program.hidden, "truth": truth,
        "verdict": answer["verdict"], "sentence": answer["sentence"], "differing": differing,
        "held": answer["held"], "launches": answer["launches"], "errors": judged(program, answer, truth),
    }  # fmt: skip


def main(argv=None) -> None:
    """Asks of every program, prints the answers and the number of wrong ones, writes JSON."""
    parser = argparse.ArgumentParser("python -m benchmarks.apps.other_processors", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--json", type=Path, help="write all answers to this file")
    parser.add_argument("--only", default="", help="only programs with this text in their names")
    add_quiet(parser)
    options = parser.parse_args(argv)
    programs = [program for program in PROGRAMS if options.only in program.name]
    progress, rows = Progress("other_processors", quiet=options.quiet), []
    with tempfile.TemporaryDirectory() as scratch:
        for number, program in enumerate(programs):
            progress.show(number / len(programs), program.name)
            rows.append(row(program, Path(scratch) / str(number)))
            progress.clear()
            print(f"{rows[-1]['program']}: {rows[-1]['sentence']}", *(f"WRONG: {each}" for each in rows[-1]["errors"]),
                  sep="\n    ", flush=True)  # fmt: skip
    wrong = sum(bool(each["errors"]) for each in rows)
    print(f"{wrong} of {len(rows)} answers are wrong")
    if options.json:
        counts = {"programs": len(rows), "wrong": wrong}
        save({"title": "other processors", "machine": machine(), **counts, "rows": rows}, options.json)


if __name__ == "__main__":
    main()
