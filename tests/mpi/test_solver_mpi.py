"""The solver app keeps its guarantees under real MPI, and says what is wrong when something is."""

import json
import re

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from miniapps.linear.box import Box
from miniapps.solver.manufactured import manufactured
from miniapps.trace import rank_files, read
from tests.launch import run_mpi, run_python
from tests.mpi.sectioned import layouts
from tests.ranks import on_ranks

SMALL = [
    *("--nx=12", "--ny=10", "--nz=9", "--set=grid.bx=4", "--set=grid.by=4", "--set=grid.bz=4"),
    *("--right-side=random", "--no-progress"),
]
METHODS = {
    "cg": ["--method=cg", "--preconditioner=multigrid"],
    "cg-chronopoulos-gear": ["--method=cg-chronopoulos-gear", "--preconditioner=block-jacobi"],
    "cg-pipelined": ["--method=cg-pipelined", "--preconditioner=jacobi"],
    "bicgstab": ["--method=bicgstab", "--problem=convection-diffusion", "--preconditioner=block-jacobi"],
    "gmres-mgs": ["--method=gmres-mgs", "--problem=convection-diffusion", "--restart=10"],
    "gmres-cgs": ["--method=gmres-cgs", "--problem=convection-diffusion"],
    "chebyshev": ["--method=chebyshev", "--problem=poisson7"],
    "jacobi": ["--method=jacobi", "--tolerance=1e-2"],
    "refinement": ["--method=refinement", "--preconditioner=chebyshev"],
}


def solver(n, *options, out, library="mpich", timeout=120, small=SMALL, by=on_ranks):
    """Run the small problem on n ranks; fails the test unless it ends with 0. Returns (fingerprints, result)."""
    run = by(n, ["-m", "miniapps.solver", *small, *options, "--out", str(out)], library, timeout=timeout)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "VERIFICATION: PASS" in run.stdout
    return re.findall(r"FINGERPRINT state=(\w+)", run.stdout), json.loads((out / "result.json").read_text())


def history(out):
    """{name: [(repeat, step, block, value), ...]} as rank 0 recorded them, and all fingerprints of the run."""
    values, prints = {}, set()
    for path in rank_files(out):
        trace = read(path)
        table = trace.tables["values"]
        for name, *row in zip(
            *(table[c].tolist() for c in ("name", "repeat", "step", "block", "value")), strict=True
        ):
            values.setdefault(trace.names[name], []).append(tuple(row))
        table = trace.tables["fingerprints"]
        for name, *row in zip(
            *(table[c].tolist() for c in ("name", "repeat", "step", "block", "hi", "lo")), strict=True
        ):
            prints.add((trace.names[name], *row))
    return values, prints


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """(fingerprint, history) of the small problem on one rank, by options."""
    known = {}

    def of(*options):
        if options not in known:
            out = tmp_path_factory.mktemp("reference") / "run"
            known[options] = solver(1, *options, out=out)[0], history(out)
        return known[options]

    return of


@layouts(3, slow=(2, 8))
@pytest.mark.parametrize("guarantee", ["layout", "exact"])
def test_one_history_for_any_number_of_ranks(tmp_path, reference, library, size, guarantee):
    options = ["--guarantee", guarantee, "--preconditioner=chebyshev"]
    by = run_mpi if (size, guarantee) == (3, "layout") else on_ranks
    prints, _ = solver(size, *options, out=tmp_path / "run", library=library, by=by)
    assert (prints, history(tmp_path / "run")) == reference(*options)


@pytest.mark.parametrize("name", METHODS)
def test_one_history_for_every_method(tmp_path, reference, name):
    options = ["--guarantee=layout", *METHODS[name]]
    prints, _ = solver(3, *options, "--shuffle-blocks=5", out=tmp_path / "run")
    assert (prints, history(tmp_path / "run")) == reference(*options)


@pytest.mark.parametrize("more", [["--threads=2"], ["--check-ranks"], ["--allreduce=block-tree"]])
def test_one_hash_by_other_means(tmp_path, reference, more):
    prints, _ = solver(2, "--guarantee=layout", *more, out=tmp_path / "run")
    alone = reference("--guarantee=layout", *[m for m in more if m.startswith("--allreduce")])
    assert prints == alone[0]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ranks", [16, 64])
def test_one_hash_on_many_ranks(tmp_path, ranks):
    """On deck S, which has 64 blocks."""
    prints = [
        solver(
            n,
            "--guarantee=layout",
            "--preconditioner=multigrid",
            out=tmp_path / str(n),
            timeout=400,
            small=[],
        )[0]
        for n in (1, ranks)
    ]
    assert prints[0] == prints[1]


IN_EXACT = ["--allreduce", "direct", "--accumulate", "exact"]


def test_orderings_differ_from_one_another(tmp_path):
    """Else the orderings would not matter here, and every other test of this file would prove nothing."""
    prints = {
        solver(4, *options, out=tmp_path / options[-1])[0][0]
        for options in (["--allreduce", "linear"], ["--allreduce", "recursive-doubling"], IN_EXACT)
    }
    assert len(prints) == 3


def test_drawn_orders_part_from_exact_sums_and_each_other(tmp_path):
    solver(2, "--problem=anisotropic", "--set=problem.eps_z=1e-5", "--drift=3", out=tmp_path / "run")
    values, _ = history(tmp_path / "run")
    samples = {}
    for _, step, block, value in values["difference"]:
        samples.setdefault(block, []).append((step, value))
    assert set(samples) == {0, 1, 2}
    assert all(series[0] == (0, 0.0) for series in samples.values())  # all begin with x = 0
    assert all(series[-1][1] > 0.0 for series in samples.values())
    assert len({tuple(series) for series in samples.values()}) == 3
    assert [block for _, _, block, _ in values["drift_iterations"]] == [0, 1, 2]


def test_emulated_atomics_differ_between_repeats_and_are_found_again(tmp_path):
    options = ["--spmv=coo-emulated", "--repeats=3"]
    first, _ = solver(2, *options, out=tmp_path / "a")
    again, _ = solver(2, *options, out=tmp_path / "b")
    assert len(set(first)) == 3 and first == again


def test_a_recorded_order_of_arrival_is_repeated(tmp_path):
    first, _ = solver(3, "--allreduce=arrival", out=tmp_path / "a")
    again, _ = solver(3, "--replay", str(tmp_path / "a"), out=tmp_path / "b")
    assert first == again


def test_the_solution_is_written_in_the_order_of_the_box(tmp_path):
    solver(3, "--right-side=manufactured", "--save-solution", out=tmp_path / "run")
    with h5py.File(tmp_path / "run" / "solution-repeat-0.h5") as file:
        x = file["x"][...]
    assert x.shape == (9, 10, 12)
    box = Box(9, 10, 12, (9, 10, 12))  # of one block, whose points lie as in the file
    solution, _ = manufactured("poisson27", box)
    exact = solution(*box.coordinates([0])).reshape(x.shape)
    assert np.linalg.norm(x - exact) < 0.05 * np.linalg.norm(exact)
    assert np.linalg.norm(x - exact[::-1]) > 0.2 * np.linalg.norm(exact)


# ---- matrices from files


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Small matrices, good and bad."""
    folder = tmp_path_factory.mktemp("matrices")
    n = 60
    a = scipy.sparse.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(n, n)).tocsr()
    scipy.io.mmwrite(folder / "good.mtx", a, symmetry="symmetric")
    scipy.sparse.save_npz(folder / "good.npz", a)
    scipy.io.mmwrite(folder / "rectangle.mtx", a[:50])
    scipy.io.mmwrite(folder / "indefinite.mtx", a - 2.5 * scipy.sparse.eye_array(n))
    bad = a.tolil()
    bad[3, 2] = 5.0
    scipy.io.mmwrite(folder / "asymmetric.mtx", bad.tocsr(), symmetry="general")
    bad = a.tolil()
    bad[7, 7] = np.nan
    scipy.io.mmwrite(folder / "nan.mtx", bad.tocsr(), symmetry="general")
    bad = a.tolil()
    bad[9] = 0.0
    scipy.io.mmwrite(folder / "empty-row.mtx", bad.tocsr(), symmetry="general")
    text = (folder / "good.mtx").read_text().splitlines(keepends=True)
    (folder / "short.mtx").write_text("".join(text[:-10]))
    singular = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)).tolil()
    singular[0, 0] = singular[n - 1, n - 1] = 1.0
    scipy.io.mmwrite(folder / "singular.mtx", singular.tocsr(), symmetry="symmetric")
    np.save(folder / "b.npy", np.arange(float(n)))
    return folder


FILE = ["--set=grid.rows_per_block=8", "--no-progress"]


@pytest.mark.parametrize("name", ["good.mtx", "good.npz"])
@pytest.mark.parametrize("reading", ["parallel", "root"])
def test_files_give_one_hash_however_they_are_read(tmp_path, files, name, reading):
    options = [f"--matrix={files / name}", f"--set=solve.reading={reading}", "--guarantee=layout"]
    prints = {solver(n, *options, out=tmp_path / str(n), small=FILE)[0][0] for n in (1, 3)}
    assert len(prints) == 1


def test_a_right_side_from_a_file(tmp_path, files):
    options = [f"--matrix={files / 'good.mtx'}", "--right-side=file", f"--right-side-file={files / 'b.npy'}"]
    solver(2, *options, "--save-solution", out=tmp_path / "run", small=FILE)
    with h5py.File(tmp_path / "run" / "solution-repeat-0.h5") as file:
        x = file["x"][...]
    a = scipy.io.mmread(files / "good.mtx")
    assert np.linalg.norm(a @ x - np.arange(60.0)) < 1e-7 * np.linalg.norm(np.arange(60.0))


BAD = {
    "rectangle.mtx": (2, "50 x 60"),
    "asymmetric.mtx": (2, r"not symmetric"),
    "nan.mtx": (2, "(?i)nan"),
    "empty-row.mtx": (2, "row 10 has no entry"),
    "short.mtx": (2, "cut short|ends"),
    "absent.mtx": (2, "absent.mtx"),
    "indefinite.mtx": (3, "negative curvature|converged"),
    "singular.mtx": (3, "CHECK FAIL converged"),
}


# What only the rank that reads a row finds ends the job.
FOUND_BY_ONE = {"asymmetric.mtx", "nan.mtx", "empty-row.mtx", "short.mtx"}


@pytest.mark.parametrize("name", BAD)
def test_matrices_that_cannot_be_solved_are_named(tmp_path, files, name):
    code, message = BAD[name]
    options = [f"--matrix={files / name}", "--right-side=unit", "--max-iterations=200"]
    by = run_mpi if name in FOUND_BY_ONE else on_ranks
    run = by(3, ["-m", "miniapps.solver", *FILE, *options, "--out", str(tmp_path / "run")])
    assert run.returncode == code, run.stdout + run.stderr
    assert re.search(message, run.stdout + run.stderr)
    assert "Traceback" not in run.stderr
    if code == 3:
        assert all(read(path).attributes["complete"] for path in rank_files(tmp_path / "run"))


MISTAKES = {
    "--method=cg --problem=convection-diffusion": "symmetric",
    "--preconditioner=multigrid --problem=convection-diffusion --method=bicgstab": "symmetric",
    "--matrix=x.mtx": "x.mtx",
    "--method=conjugate": "cg",
    "--spmv=merge --guarantee=layout": "csr",
    "--points-per-rank=10": "--points-per-rank 10",
    "--method=refinement --dtype=float32": "float32",
    "--set=problem.eps_z=0 --problem=anisotropic": "eps_z",
    "--tolerance=-1": "from 0 to 1",
}


@pytest.mark.parametrize("options", MISTAKES)
def test_mistakes_end_with_code_2_and_create_nothing(tmp_path, options):
    out = tmp_path / "run"
    run = on_ranks(1, ["-m", "miniapps.solver", *SMALL, *options.split(), "--out", str(out)])
    assert run.returncode == 2, run.stdout + run.stderr
    assert MISTAKES[options] in run.stderr and "Traceback" not in run.stderr
    assert not out.exists()


def test_more_ranks_than_blocks_are_refused(tmp_path):
    options = ["--nx=8", "--ny=8", "--nz=8", "--no-progress", "--out", str(tmp_path / "run")]
    run = on_ranks(3, ["-m", "miniapps.solver", *options])
    assert run.returncode == 2 and "3 ranks for 1 block" in run.stderr


def test_a_tolerance_that_cannot_be_met_is_told(tmp_path):
    for options, message in (
        (
            ["--tolerance=1e-18"],
            "CHECK FAIL attained with twice the digits: cg reports a relative residual of",
        ),
        (["--max-iterations=3"], "CHECK FAIL converged: cg ended with limit after 3 iterations"),
    ):
        out = tmp_path / options[0]
        run = on_ranks(2, ["-m", "miniapps.solver", *SMALL, *options, "--out", str(out)])
        assert run.returncode == 3 and message in run.stdout, run.stdout + run.stderr


def test_a_nan_ends_the_iteration_and_the_trace_is_complete(tmp_path):
    run = on_ranks(
        2, ["-m", "miniapps.solver", *SMALL, "--fault=nan@step=4,block=3", "--out", str(tmp_path / "run")]
    )
    assert run.returncode == 3 and "not finite" in run.stdout
    values, _ = history(tmp_path / "run")
    assert [step for _, step, _, _ in values["residual"]][:5] == [0, 1, 2, 3, 4]


def test_a_flipped_bit_is_found_at_its_step_and_block(tmp_path):
    options = ["--guarantee=layout", "--nx=12"]
    solver(2, *options, out=tmp_path / "sound")
    fault = ["--fault=bitflip@step=6,block=7", "--out", str(tmp_path / "flipped")]
    assert on_ranks(2, ["-m", "miniapps.solver", *SMALL, *options, *fault]).returncode in (0, 3)
    report = run_python(["-m", "analysis", "divergence", str(tmp_path / "sound"), str(tmp_path / "flipped")])
    assert report.returncode == 3
    assert re.search(r"step 6\b", report.stdout) and re.search(r"block 7\b", report.stdout), report.stdout
