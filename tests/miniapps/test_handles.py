"""Packages that take the MPI handle of a wrapped communicator are told: installed, loaded, or seen at it."""

import sys
import types
import warnings

import pytest
from mpi4py import MPI

import fpna
from analysis.lint.rules import lint
from analysis.load.frames import load
from analysis.overview import Overview
from miniapps import doctor
from miniapps.programs import handles


@pytest.fixture(autouse=True)
def nobody(monkeypatch):
    """Nobody took a handle in this process yet."""
    monkeypatch.setattr(handles, "taken", {})


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution that is but its metadata."""
    monkeypatch.syspath_prepend(tmp_path)

    def installed(name, version):
        info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    return installed


def taken_by(module, comm, how="comm.py2f()"):
    """What code of `module` gets."""
    code = types.ModuleType(module)
    exec(f"def take(comm): return {how}", code.__dict__)
    return code.take(comm)


def test_the_doctor_names_installed_packages_that_go_past_a_wrapper_and_those_that_do_not(install):
    assert {f.what for f in doctor.handles_taken()} <= {*handles.ADD, *handles.CALL}
    for name, version in (("mpi4jax", "0.8.1"), ("fenics-dolfinx", "0.10.0"), ("mpi4py-fft", "2.0.6")):
        install(name, version)
    found = {f.what: f for f in doctor.handles_taken()}
    assert (
        found["mpi4jax"].fact == "0.8.1: takes the MPI handle of a communicator, so its sums bypass fpna.wrap"
    )
    assert "fpna run --guarantee exact" in found["mpi4jax"].hint and not found["mpi4jax"].remedy
    assert found["dolfinx"].fact.startswith("0.10.0: takes the MPI handle")
    assert found["mpi4py_fft"].fact == "2.0.6: calls mpi4py, so fpna.wrap covers its sums"
    assert "h5py" not in found  # it adds nothing


def test_a_package_without_metadata_is_found_by_its_module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "lammps.py").touch()
    (found,) = [f for f in doctor.handles_taken() if f.what == "lammps"]
    assert found.fact.startswith("no version: takes the MPI handle")


@pytest.mark.parametrize("how", ["comm.py2f()", "comm.handle", "comm.toint()"])
def test_who_takes_the_handle_is_warned_once(how):
    comm = fpna.wrap(MPI.COMM_SELF, "exact")
    with pytest.warns(
        fpna.HandleWarning, match=r"^solver \(\w+\) takes the MPI handle of a wrapped communicator"
    ):
        assert taken_by("solver.native", comm, how) == taken_by("solver", MPI.COMM_SELF, how)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taken_by("solver.other", comm, how)
    assert handles.told() == f"solver ({how.removeprefix('comm.').removesuffix('()')})"


def test_who_adds_nothing_and_what_promises_nothing_is_left_alone():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taken_by("h5py.h5p", fpna.wrap(MPI.COMM_SELF, "exact"))
        taken_by("solver", fpna.wrap(MPI.COMM_SELF, "none"))
    assert handles.told() == ""


def recorded(out, guarantee, taken):
    comm = fpna.wrap(MPI.COMM_SELF, guarantee)
    with fpna.record(out, comm, name="flow") as r:
        if taken:
            taken_by("__main__", comm)
        r.value("energy", 1.0)
    return str(out)


@pytest.mark.filterwarnings("ignore::fpna.HandleWarning")
def test_lint_names_runs_whose_promise_packages_went_past(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "petsc4py", types.ModuleType("petsc4py"))
    found = lint(Overview(load([recorded(tmp_path / "past", "exact", True)])))
    (row,) = found[found["rule"] == "past-the-wrapper"].itertuples()
    assert row.severity == "warning"
    assert row.found.startswith(
        "petsc4py; the program (py2f): sums over the MPI handle of a communicator that was to"
    )
    assert "fpna run --guarantee exact" in row.remedy
    monkeypatch.delitem(sys.modules, "petsc4py")
    handles.taken.clear()
    alone = [recorded(tmp_path / "none", "none", True), recorded(tmp_path / "kept", "layout", False)]
    assert not (lint(Overview(load(alone)))["rule"] == "past-the-wrapper").any()
