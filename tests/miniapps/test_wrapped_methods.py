"""Every method of mpi4py's communicators keeps the promise, is refused, is wrapped, or is named as passed."""

import pytest
from mpi4py import MPI
from mpi4py.util import pkl5

from miniapps.programs import methods

KINDS = (MPI.Comm, MPI.Intracomm, MPI.Topocomm, MPI.Cartcomm, MPI.Graphcomm, MPI.Distgraphcomm, MPI.Intercomm,
         pkl5.Comm, pkl5.Intracomm, pkl5.Intercomm)  # fmt: skip

LISTED = [
    *methods.OURS, *methods.REFUSED, *methods.WRAPPED, *methods.ENDING,
    *(name for names in methods.PASSED.values() for name in names),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_no_method_is_forgotten(kind):
    assert {name for name in dir(kind) if not name.startswith("_")} <= set(LISTED)


def test_every_name_has_one_treatment_and_is_a_method():
    assert len(LISTED) == len(set(LISTED))
    later = {"tohandle"}  # of mpi4py after 4.1
    assert {name for name in LISTED if not any(hasattr(kind, name) for kind in KINDS)} <= later


def test_reductions_and_constructors_are_not_passed():
    words = (
        "educe",
        "can",
        "Create",
        "Split",
        "dup",
        "Dup",
        "Spawn",
        "Merge",
        "Accept",
        "Connect",
        "hrink",
        "Clone",
    )
    passed = [
        name for names in methods.PASSED.values() for name in names if any(word in name for word in words)
    ]
    assert passed == ["Create_keyval", "Create_errhandler"]
