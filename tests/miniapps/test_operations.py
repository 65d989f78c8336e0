"""The audit as an application: children that crash or hang, the certificate, and what the analysis makes of it."""

import json

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch")

from mpi4py import MPI

from fpna.command import main as command
from kernels.torchops.verdicts import in_words
from miniapps.operations import APP
from miniapps.operations.cases import chosen
from miniapps.operations.children import Child
from miniapps.operations.config import Audit
from miniapps.runner.main import main
from miniapps.trace import read
from miniapps.trace.records import is_state
from miniapps.untrusted.certificate import SCHEMA, read_certificate
from miniapps.untrusted.regular import Refused
from miniapps.untrusted.result import written

HARMFUL = """
import os, time, numpy as np
def inputs(seed): return np.ones(3, "float32"),
def crashes(x): os.kill(os.getpid(), 11)
def ends(x): print("so long"); os._exit(7)
def hangs(x): time.sleep(1000)
def works(x): print("printed"); return x.sum()
def crawls(x): time.sleep(0.3); return x.sum()
"""


def test_a_child_that_crashes_or_hangs_is_told_of_and_the_next_case_is_audited(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    (tmp_path / "harmful.py").write_text(HARMFUL)

    def asked(name):
        return {
            "what": "digest",
            "file": f"harmful.py:{name}",
            "direction": "forward",
            "seed": 1,
            "device": "cpu",
        }

    with Child() as child:
        assert child.ask(asked("works"), 100.0)["outcome"] == "done"
        hung = child.ask(asked("hangs"), 0.3)
        assert hung["outcome"] == "hung" and "--seconds-per-case" in hung["error"]
        crashed = child.ask(asked("crashes"), 100.0)
        assert crashed["outcome"] == "crashed" and "SIGSEGV" in crashed["error"]
        ended = child.ask(asked("ends"), 100.0)
        assert ended["outcome"] == "crashed" and "exit code 7: so long" in ended["error"]
        assert child.ask(asked("works"), 100.0)["outcome"] == "done"
        slow = child.ask(asked("crawls") | {"what": "audit", "runs": 9}, 3.0)
        assert slow["outcome"] == "slow" and "it had made" in slow["error"]


def test_at_most_so_many_cases_of_each_operation_and_direction_are_spread_over_its_factors():
    every = chosen(Audit(operations=("index_put",)))
    some = chosen(Audit(operations=("index_put", "index_put"), cases=2))
    assert len(some) == 4 and len(every) == 48
    assert {case.request["case"]["factors"]["accumulate"] for case in some} == {False, True}
    assert {case.name for case in some} <= {case.name for case in every}


MINE = """
import numpy as np
batch = (0,)
def inputs(seed): return np.ones((8, 3), "float32"), np.ones((8, 3), "float32")
def adds(x, y): return x + y
"""


def test_sentences_are_results_on_standard_output_whatever_the_log_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    argv = ["operations", "mine.py:adds", "--runs", "2", "--processes", "0", "--quiet", "--out", "run"]
    assert command(argv) == 0
    told = capsys.readouterr()
    assert "mine.py:adds forward: no difference from run to run: 8 trials" in told.out and not told.err
    sentences = json.loads((tmp_path / "run" / "result.json").read_text())["sentences"]
    assert sentences and all(sentence in told.out.splitlines() for sentence in sentences)
    [hint] = [line for line in sentences if "forward: not tried: with the size of the batch" in line]
    assert "batch = (0, 1)?" in hint
    cases = read_certificate(tmp_path / "run" / "certificate.json").cases
    assert [line for case in cases for line in in_words(msgspec.to_builtins(case))] == sentences


def test_the_axis_cpu_names_the_layer_that_changes_a_function(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "import os, torch\n"
        "def inputs(seed): return torch.ones(5),\n"
        "def asks(x): return x + (1 if os.environ.get('ATEN_CPU_CAPABILITY') == 'default' else 0)\n"
        "def adds(x): return x + 1\n"
    )
    levels = [
        ("ATen", "default", {"ATEN_CPU_CAPABILITY": "default"}),
        ("MKL", "COMPATIBLE", {"MKL_CBWR": "COMPATIBLE"}),
    ]
    monkeypatch.setattr("miniapps.operations.run.effective", lambda command: levels)
    found = {}
    for name in ("asks", "adds"):
        argv = ["--function", f"{tmp_path}/mine.py:{name}", "--axes", "cpu", "--runs", "2", "--processes", "1",
                "--no-progress", "--out", str(tmp_path / name)]  # fmt: skip
        assert main(APP, argv, MPI.COMM_SELF) == 0
        found[name] = read_certificate(tmp_path / name / "certificate.json").cases[0]
    assert found["asks"].audit.cpu.by == {"ATen default": 2, "MKL COMPATIBLE": 1}
    assert (found["adds"].audit.cpu.distinct, found["adds"].audit.cpu.trials) == (1, 3)
    [sentence] = [line for line in in_words(msgspec.to_builtins(found["asks"])) if "by the processor" in line]
    assert sentence.endswith("2 results of 3 trials; with ATen default")


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    """The run of a small audit."""
    run = tmp_path_factory.mktemp("audit") / "run"
    argv = [
        "--operation",
        "dot",
        "--operation",
        "put_",
        "--cases",
        "1",
        "--runs",
        "2",
        "--processes",
        "1",
        "--no-progress",
        "--out",
        str(run),
    ]
    assert main(APP, argv, MPI.COMM_SELF) == 0
    return run


def test_certificate_and_trace_say_the_same(audit):
    certificate = read_certificate(audit / "certificate.json")
    names = [case.name for case in certificate.cases]
    assert names == [
        "dot[count=64 dtype=float32] forward", "dot[count=64 dtype=float32] backward",
        "put_[shape=50000 ratio=0.1 accumulate=False] forward", "put_[shape=50000 ratio=0.1 accumulate=False] backward",
    ]  # fmt: skip
    assert all(case.audit.process.distinct == 1 for case in certificate.cases)
    assert "does not have a deterministic implementation" in certificate.cases[2].audit.mode.throws
    trace = read(audit / "rank-00000.h5")
    rows = trace.tables["fingerprints"]
    audited = [is_state(trace.names[name]) for name in rows["name"]]  # the others are the run's chain
    pairs = zip(rows["hi"][audited], rows["lo"][audited], strict=True)
    digests = [f"{int(hi):016x}{int(lo):016x}" for hi, lo in pairs]
    assert digests == [case.audit.digest for case in certificate.cases]
    values = trace.tables["values"]
    address = np.array([trace.names[n] == "distinct:address" for n in values["name"]])
    assert values["value"][address].tolist() == [case.audit.address.distinct for case in certificate.cases]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text.replace('"seed": 1', '"seed": 2'), "another hash"),
        (lambda text: text[: len(text) // 2], "not JSON"),
        (lambda text: "[1]", "not written by this suite"),
        (lambda text: written({"schema": 99}), "schema 99"),
        (lambda text: written({"schema": SCHEMA, "cases": 3}), "not what this program writes"),
    ],
)
def test_a_damaged_certificate_is_named_and_not_believed(audit, tmp_path, damage, reason):
    path = tmp_path / "certificate.json"
    path.write_text(damage((audit / "certificate.json").read_text()))
    with pytest.raises(Refused, match=reason):
        read_certificate(path)


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["--operation", "nothing"], "index_add"),
        (["--operation", "dot", "--function", "mine.py:f"], "both given"),
        (["--function", "mine.py"], "FILE.py:FUNCTION"),
        (["--guarantee", "layout"], "choose none or run"),
        (["--runs", "1"], "from 2"),
    ],
)
def test_what_cannot_be_audited_is_refused_before_anything_is_created(tmp_path, capsys, argv, reason):
    assert main(APP, [*argv, "--out", str(tmp_path / "run")], MPI.COMM_SELF) == 2
    assert reason in capsys.readouterr().err and not (tmp_path / "run").exists()
