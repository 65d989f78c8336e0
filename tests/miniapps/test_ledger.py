"""`--ledger FILE`: a run proves which predictions were there before it, and touches nothing."""

import json
import os

import pytest

from analysis.__main__ import main
from analysis.predict.scoring.ledger import append
from miniapps.trace import rank_files, read
from miniapps.untrusted.ledger import START, read_ledger
from miniapps.untrusted.prediction import method_hash
from tests.analysis.predict_runs import predicted, write_ledger
from tests.ranks import on_ranks

TINY = ["-m", "tests.miniapps.tiny"]


@pytest.fixture
def ledger(tmp_path):
    return write_ledger(tmp_path / "ledger.jsonl", predicted(1), predicted(2, 2))


def test_every_rank_records_rows_and_last_hash_and_the_file_stays_as_it_is(ledger, tmp_path):
    os.chmod(ledger, 0o444)
    before = ledger.read_bytes(), ledger.stat().st_mtime_ns
    run = on_ranks(2, [*TINY, "--out", tmp_path / "run", "--ledger", ledger])
    assert run.returncode == 0, run.stderr
    known = {"rows": 2, "head": read_ledger(ledger).head}
    assert [read(path).attributes["ledger"] for path in rank_files(tmp_path / "run")] == [known, known]
    assert json.loads((tmp_path / "run" / "result.json").read_text())["ledger"] == known
    assert before == (ledger.read_bytes(), ledger.stat().st_mtime_ns)


def test_a_ledger_changes_neither_problem_nor_bits(ledger, tmp_path):
    outcomes = []
    for name, extra in (("with", ["--ledger", ledger]), ("without", [])):
        assert on_ranks(1, [*TINY, "--out", tmp_path / name, *extra]).returncode == 0
        outcomes.append(json.loads((tmp_path / name / "result.json").read_text()))
    first, second = outcomes
    assert [first[key] for key in ("problem", "method", "fingerprints")] == [
        second[key] for key in ("problem", "method", "fingerprints")
    ]
    assert "ledger" not in second


def changed(path):
    path.write_bytes(path.read_bytes().replace(b'"ranks":2', b'"ranks":3'))


@pytest.mark.parametrize("harm, words", [
    (changed, ["line 2: was changed", "restore the ledger from a copy"]),
    (lambda path: path.unlink(), ["cannot be read", "predict"]),
    (lambda path: (path.unlink(), os.mkfifo(path)), ["a fifo"]),
])  # fmt: skip
def test_a_ledger_that_proves_nothing_is_refused_before_anything_is_made(ledger, tmp_path, harm, words):
    harm(ledger)
    run = on_ranks(2, [*TINY, "--out", tmp_path / "run", "--ledger", ledger])
    assert run.returncode == 2 and run.stdout == ""
    assert run.stderr.startswith(f"tiny: --ledger {ledger}: ") and all(word in run.stderr for word in words)
    assert not (tmp_path / "run").exists()


def test_predicted_run_and_scored(tmp_path, capsys):
    ledger = tmp_path / "ledger.jsonl"
    ledger.touch()
    first = on_ranks(1, [*TINY, "--out", tmp_path / "source", "--ledger", ledger])
    assert first.returncode == 0, first.stderr
    head = read(rank_files(tmp_path / "source")[0]).attributes
    assert head["ledger"] == {"rows": 0, "head": START}
    target = {"app": "tiny", "problem": head["problem"], "method": method_hash(head)}
    append(ledger, predicted(1, 2, [tmp_path / "source"], **target))
    run = on_ranks(2, [*TINY, "--out", tmp_path / "run", "--repeats", "2", "--ledger", ledger])
    assert run.returncode == 0, run.stderr
    assert main(["score", str(ledger), str(tmp_path), "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    (row,) = tables["targets"]
    assert (row["app"], row["ranks"], row["runs"], row["launches"]) == ("tiny", 2, 2, 1)
    assert row["measured_s"] > 0 and row["inverse_s"] > 0 and row["replay_s"] > 0
