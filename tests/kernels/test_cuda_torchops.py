"""The audit of operations on a device, against the published study and torch's documentation."""

import pytest

pytestmark = pytest.mark.cuda
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("torch sees no CUDA device", allow_module_level=True)

from kernels.torchops.audit import Plan, audit  # noqa: E402
from kernels.torchops.cases import find, operations  # noqa: E402
from kernels.torchops.cases.inputs import Draw  # noqa: E402
from kernels.torchops.documentation import installed  # noqa: E402
from kernels.torchops.verdicts import FALSE, verdicts  # noqa: E402

PLAN = Plan(runs=20, timed=1)


def audited(operation, direction, **factors):
    """The record of the first case of an operation that has these factors."""
    case = next(
        case for case in find(operation).cases()
        if case.direction == direction and factors.items() <= case.factors.items()
    )  # fmt: skip
    prepared = find(operation).build(Draw(case.name, 1), **case.factors)
    return {
        "name": case.name, "operation": operation, "direction": direction, "factors": case.factors,
        "documented": list(find(operation).documented), "outcome": "done", "error": None,
        "audit": audit(prepared, direction, case.name, 1, PLAN, device="cuda"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "direction"),
    [
        ("index_add", "forward"),
        ("scatter_add", "forward"),
        ("index_select", "backward"),
        ("gather", "backward"),
    ],
)
def test_atomic_additions_differ_from_run_to_run_and_the_mode_repairs_them(operation, direction):
    record = audited(operation, direction, dtype="float32")["audit"]
    assert record["runs"]["distinct"] > 1
    assert record["mode"]["throws"] is None and record["mode"]["runs"]["distinct"] == 1
    assert "threads" not in record and "address" not in record


def test_no_statement_of_the_documentation_about_this_device_is_wrong():
    records, refused = [], {}
    for operation in operations():
        for direction in operation.directions:
            try:
                records.append(audited(operation.name, direction))
            except RuntimeError as error:  # not every case can run on a device
                if "not implemented" not in str(error) and "CUDA" not in str(error):
                    refused[operation.name, direction] = str(error)
    judged = verdicts([statement.as_dict() for statement in installed()], records, "cuda")
    assert [verdict.text for verdict in judged if verdict.verdict == FALSE] == []
    assert refused == {}
