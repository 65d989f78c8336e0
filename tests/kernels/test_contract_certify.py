"""Certificates: differences are counted, no difference gives a bound, and the command reports both."""

import json

import pytest
import torch

from kernels import bits
from kernels.commands import contract as command
from kernels.contract.cases import Case, along, cases
from kernels.contract.certify import OFFSETS, THREADS, TYPES, Deck, certify, placed

FEW = Deck(6, 40)


def draw(sizes, dtype):
    return (sizes.tensor(dtype, sizes.some(), sizes.some()),)


def planted(function, variant="own"):
    """A case that cuts the rows of a matrix."""
    return Case(
        "planted", variant, lambda operands, threads: function(*operands), draw, {"rows": along(0, 0)}
    )


def by_changed(certificates):
    return {(c.dtype, c.threads, c.changed): c for c in certificates}


def test_what_depends_on_the_place_in_the_whole_is_found():
    last = planted(
        lambda x: torch.cat([x[:-1] * 2, torch.nextafter(x[-1:] * 2, torch.tensor(9e9, dtype=x.dtype))])
    )
    (found,) = certify([last], FEW)
    for dtype in TYPES:
        for threads in THREADS:
            cut = by_changed(found)[dtype, threads, "rows"]
            assert cut.trials == 6 and 0 < cut.differ <= 6 and cut.ulp == 1
            assert cut.entry()["bound"] is None
            assert by_changed(found)[dtype, threads, "address"].differ == 0


def test_what_depends_on_the_address_is_found():
    (found,) = certify([planted(lambda x: x + (x.data_ptr() % 64 != 0))], FEW)
    assert all(c.differ for c in found if c.changed == "address")
    assert not any(c.differ for c in found if c.changed == "threads")


def test_what_does_not_change_has_a_bound():
    (found,) = certify([planted(torch.neg)], FEW)
    assert {c.changed for c in found} == {"rows", "address", "threads"}
    assert all(c.differ == 0 and c.entry()["bound"] == bits.bound(6) for c in found)


@pytest.mark.parametrize("offset", OFFSETS)
def test_operands_are_placed_where_they_are_meant_to_be(offset):
    x = torch.arange(12.0).reshape(3, 4)
    for y in (x, x.T, x.T[1:]):
        copy = placed(y, offset)
        assert torch.equal(copy, y) and copy.data_ptr() % 64 == offset % 64
        assert (copy.stride(0) > copy.stride(1)) == (y.stride(0) > y.stride(1))


def test_every_operation_of_ours_keeps_its_bits():
    ours = [c for c in cases() if c.variant == "own"]
    assert {"matmul", "bmm", "conv2d", "conv2d, gradient of x", "conv2d, gradient of w"} <= {
        c.operation for c in ours
    }
    for found in certify(ours, Deck(2, 48), seed=1):
        assert not any(c.differ for c in found), found[0].operation


# ---- the command


def run(capsys, *argv):
    code = command.main(["certify", *argv])
    return code, *capsys.readouterr()


def test_the_table_has_a_line_for_each_operation_or_change(capsys, monkeypatch):
    monkeypatch.setattr(command, "cases", lambda: [planted(torch.neg), planted(lambda x: x + x[0], "torch")])
    monkeypatch.setattr(command, "DECKS", {"S": FEW})
    code, out, _ = run(capsys)
    lines = out.splitlines()
    assert code == 0 and len(lines) == 4
    assert lines[1].split()[:5] == ["planted", "own", "0", "/", "12"] and lines[1].endswith("22 %   nothing")
    assert lines[2].endswith("rows") and lines[3].startswith(
        "Certificates with a difference: own: 0 of 10; torch: "
    )
    assert len(run(capsys, "--verbose")[1].splitlines()) == 2 + 2 * 3
    assert run(capsys, "--quiet")[1] == lines[3] + "\n"


def test_a_broken_promise_of_ours_is_exit_code_3(capsys, monkeypatch):
    monkeypatch.setattr(command, "cases", lambda: [planted(lambda x: x + x[0])])
    monkeypatch.setattr(command, "DECKS", {"S": FEW})
    code, out, _ = run(capsys, "--json")
    rows = json.loads(out)["tables"]["certificates"]
    assert code == 3 and any(row["differ"] and row["bound"] is None for row in rows)


@pytest.mark.parametrize(
    "argv, message",
    [
        (["--what", "matmull"], "unknown operation 'matmull': choose one of matmul, "),
        (["--deck", "L"], "argument --deck: invalid choice: 'L'"),
        (["--variant", "mkl"], "argument --variant: invalid choice: 'mkl'"),
        (["--seed", "-1"], "argument --seed"),
    ],
)
def test_wrong_options_end_with_a_sentence(capsys, argv, message):
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "") and err.startswith(f"python -m kernels.contract: {message}")
