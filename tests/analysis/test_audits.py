"""Audits: sensitivity, documentation against findings, comparison of certificates; on terminal, page and as CSV."""

import json

import pytest

from analysis.__main__ import main
from analysis.headline import headline
from analysis.load.frames import load
from analysis.overview import Overview
from analysis.report.build import build
from analysis.studies.audits.certificates import audits
from analysis.studies.audits.compare import differences
from analysis.studies.audits.tables import known_of
from miniapps.untrusted.certificate import CERTIFICATE, read_certificate
from miniapps.untrusted.regular import Refused
from miniapps.untrusted.result import written
from tests.analysis.audits_runs import case, refused, statement, write_audit
from tests.analysis.synthetic import flip_bit, write_run


@pytest.fixture
def run(tmp_path):
    cases = [
        case("take", "backward", runs=3),
        case("put_", runs=2, throws="put_ does not have a deterministic implementation"),
        case("dot", address=3, threads=1),
        case("dot", "backward", address=1, threads=1),
        refused("svd"),
    ]
    return write_audit(
        tmp_path / "a", cases, [statement("put_", "throws"), statement("dot", devices=("cuda",))]
    )


def test_sensitivity_counts_the_cases_that_each_change_alters(run):
    frame = known_of(audits(load([run]))).sensitivity.set_index(["operation", "direction", "change"])
    assert frame["differ"].to_dict() == {
        ("take", "backward", "runs"): 1, ("take", "backward", "algorithm"): 0, ("put_", "forward", "runs"): 1,
        ("dot", "forward", "runs"): 0, ("dot", "forward", "threads"): 0, ("dot", "forward", "address"): 1,
        ("dot", "forward", "algorithm"): 0, ("dot", "backward", "runs"): 0, ("dot", "backward", "threads"): 0,
        ("dot", "backward", "address"): 0, ("dot", "backward", "algorithm"): 0,
    }  # fmt: skip


def test_what_is_stated_and_what_is_missing_is_told_with_what_the_mode_does(run):
    stated = audits(load([run])).stated
    assert stated[["operation", "verdict", "mode"]].values.tolist() == [
        ["torch.put_", "true", "throws"], ["torch.dot", "not testable here", ""], ["take", "missing", "helps"],
    ]  # fmt: skip


def test_the_terminal_says_the_verdict_and_what_could_not_be_audited(run, capsys):
    assert main(["audits", str(run)]) == 0
    text = capsys.readouterr().out
    assert "4 cases of 3 operations audited; from run to run 2 differ: backward of take, put_." in text
    assert "Backward of take: runs differ, and the documentation does not say so" in text
    assert "RuntimeError: not here" in text


def test_the_libraries_whose_code_for_another_processor_alters_bits_are_named(tmp_path, capsys):
    held = {"ATen avx2": 1, "ATen default": 2, "MKL AVX": 1}
    cases = [
        case("take", "backward", layers=held),
        case("take", layers=dict.fromkeys(held, 1)),
        case("dot", layers=held | {"ATen avx2": 2, "MKL AVX": 2}),
        case("dot", "backward"),
    ]
    run = write_audit(tmp_path / "a", cases)
    known = known_of(audits(load([run])))
    frame = known.processors.set_index(["operation", "direction", "held"])
    assert frame["differ"].to_dict() == {
        ("take", "backward", "ATen avx2"): 0, ("take", "backward", "ATen default"): 1,
        ("take", "backward", "MKL AVX"): 0, ("take", "forward", "ATen avx2"): 0, ("take", "forward", "ATen default"): 0,
        ("take", "forward", "MKL AVX"): 0, ("dot", "forward", "ATen avx2"): 1, ("dot", "forward", "ATen default"): 1,
        ("dot", "forward", "MKL AVX"): 1,
    }  # fmt: skip
    follow = "2 of 3 cases follow the processor, through ATen (2), MKL (1)"
    assert follow in verdict_on(run)
    assert "differ with" not in verdict_on(run)
    assert main(["audits", str(run)]) == 0
    text = capsys.readouterr().out
    assert f"{follow}." in text
    [row] = [line.split() for line in text.splitlines() if line.strip().startswith("ATen default")]
    assert row == ["ATen", "default", "2", "of", "2", "2", "of", "3", "dot,", "take"]


def test_the_report_has_the_heat_map_and_the_tables(run):
    report = build(load([run]))
    assert "Operations: changes that alter bits" in report.html
    assert report.verdict == verdict_on(run)
    [figure] = [figure for figure in report.figures if figure.name == "operations"]
    assert set(figure.data["operation"]) == {"take", "put_", "dot"}


def verdict_on(run):
    """As a report begins."""
    overview = Overview(load([run]))
    return str(headline(overview.groups, overview.frames, overview.findings))


def test_the_verdict_of_a_report_on_an_audit_says_what_differs_and_what_the_documentation_lacks(run):
    assert verdict_on(run) == (
        "DIFFERS: 3 operations audited: 2 of 4 cases differ from run to run, 1 more with threads, batch, position, "
        "address or process, 1 could not be audited; statements of torch's documentation: 1 missing, 1 true."
    )


def test_the_verdict_of_an_audit_in_which_nothing_differs_says_so(tmp_path):
    out = write_audit(tmp_path / "a", [case("dot", threads=1)])
    assert (
        build(load([out])).verdict
        == "IDENTICAL: 1 operation audited: none of 1 case differs from run to run."
    )


def test_the_verdict_of_an_audit_stands_beside_that_of_other_runs(run, tmp_path):
    """The worst of both is the badge; both are in the sentence."""
    audited = "3 operations audited: 2 of 4 cases differ from run to run"
    for name in ("b", "c"):
        write_run(tmp_path / name, size=2, guarantee="layout")
    verdict = verdict_on(tmp_path)
    assert verdict.startswith(f"DIFFERS: {audited}")
    assert "2 runs on 2 ranks gave the same result, to the last bit" in verdict
    write_run(
        tmp_path / "d", size=2, guarantee="layout", change=lambda repeat, step, field: flip_bit(field, 3)
    )
    verdict = verdict_on(tmp_path)
    assert verdict.startswith("BROKEN PROMISE") and audited in verdict


def test_an_audit_of_nothing_has_nothing_to_say(tmp_path):
    assert verdict_on(write_audit(tmp_path / "a", [refused("svd")])).startswith("NOTHING TO COMPARE")


def test_runs_without_a_certificate_are_named(tmp_path, capsys):
    write_run(tmp_path / "other", size=1)
    assert main(["audits", str(tmp_path)]) == 2
    assert "recorded a certificate" in capsys.readouterr().err


def test_a_damaged_certificate_is_named_and_the_others_are_used(run, tmp_path, capsys):
    other = write_audit(tmp_path / "b", [case("dot")])
    path = other / "certificate.json"
    path.write_text(path.read_text().replace('"seed": 1', '"seed": 2'))
    assert main(["audits", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert "another hash" in printed.err and "4 cases of 3 operations" in printed.out


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (lambda verdicts: verdicts[:-1], "it has 2 verdicts, but its statements and cases give 3"),
        (lambda verdicts: [verdicts[0] | {"verdict": "false"}, *verdicts[1:]], "verdict 0 .* has another 'verdict'"),
        (lambda verdicts: [*verdicts[:2], verdicts[2] | {"mode": "does not help"}], "verdict 2 .* another 'mode'"),
        (lambda verdicts: verdicts[::-1], "verdict 0 "),
        (lambda verdicts: [None, *verdicts[1:]], "not what this program writes"),
    ],
)  # fmt: skip
def test_verdicts_that_contradict_their_cases_are_refused_even_under_a_right_seal(run, changed, reason):
    path = run / CERTIFICATE
    content = json.loads(path.read_text())
    del content["digest"]
    path.write_text(written(content | {"verdicts": changed(content["verdicts"])}))
    with pytest.raises(Refused, match=reason):
        read_certificate(path)


def test_a_case_that_throws_although_it_is_said_to_act_makes_the_statement_false(tmp_path):
    out = write_audit(tmp_path / "a", [case("put_", throws="not deterministic")], [statement("put_")])
    assert audits(load([out])).stated["verdict"].tolist() == ["false"]


def test_certificates_differ_in_what_differs(run, tmp_path):
    first = read_certificate(run / "certificate.json")
    assert list(differences(first, first)) == []
    cases = [
        case("take", "backward", runs=3, digest="1" * 32),
        case("put_", throws="put_ does not have a deterministic implementation"),
        case("dot", address=1, threads=1),
        refused("dot") | {"name": "dot backward", "direction": "backward"},
        case("new"),
    ]
    machine = {"cpu": "a", "cores": 2, "accelerator": "one"}
    path = write_audit(
        tmp_path / "b", cases, [statement("put_", "throws")], torch="2.14.0", device="cuda", machine=machine
    )
    assert list(differences(first, read_certificate(path / "certificate.json"))) == [
        ("torch", "2.13.0", "2.14.0"),
        ("accelerator", "", "one"),
        ("device", "cpu", "cuda"),
        ("statement", "torch.dot", "gone"),
        ("take backward: bits by one thread", "00000000", "11111111"),
        ("put_ forward: from run to run", "2 of 9", "1 of 9"),
        ("dot forward: with the address of the inputs", "3 of 9", "1 of 9"),
        ("dot backward: outcome", "done", "refused"),
        ("case svd forward", "audited", "not there"),
        ("case new forward", "not there", "audited"),
    ]
