"""The audit of operations sees each change in an operation that has it, and in no other."""

import json
import random
import subprocess
import sys
import threading
from itertools import count

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from kernels.guarantees import ChoiceError  # noqa: E402
from kernels.torchops import own  # noqa: E402
from kernels.torchops.audit import Plan, audit, first_digest  # noqa: E402
from kernels.torchops.calls import Calls  # noqa: E402
from kernels.torchops.cases import find, operations  # noqa: E402
from kernels.torchops.cases.inputs import LINE, Draw  # noqa: E402
from kernels.torchops.cases.operation import prepared  # noqa: E402
from kernels.torchops.differences import Seen  # noqa: E402
from kernels.torchops.documentation import installed, statements  # noqa: E402
from kernels.torchops.given import copies  # noqa: E402
from kernels.torchops.results import Result  # noqa: E402
from kernels.torchops.verdicts import in_words, verdicts  # noqa: E402
from kernels.torchops.worker import answer  # noqa: E402

QUICK = Plan(runs=3, threads=(1, 2, 3), batches=(1, 3), positions=3, offsets=(0, 4), timed=1)
CHANGES = ("runs", "threads", "batch", "position", "address")
X = np.linspace(0.1, 1.7, 8 * 5, dtype=np.float32).reshape(8, 5)


def altered(call, batch=(0,), direction="forward"):
    """The changes that alter the bits of `call` of X, and the record."""
    record = audit(prepared(call, X, differentiate=(0,), batch=batch), direction, "own", 1, QUICK)
    return {change for change in CHANGES if record.get(change, {"distinct": 1})["distinct"] > 1}, record


# ---- what is audited


def test_there_are_many_operations_and_every_case_has_a_name_of_its_own():
    every = operations()
    names = [case.name for operation in every for case in operation.cases()]
    assert len(every) >= 60 and len(names) >= 400
    assert len(set(names)) == len(names)


def test_inputs_depend_on_case_and_seed_and_on_nothing_else():
    first, same, other = Draw("a", 1), Draw("a", 1), Draw("a", 2)
    assert first.normal(5).tobytes() == same.normal(5).tobytes() != other.normal(5).tobytes()
    assert Draw("b", 1).normal(5).tobytes() != Draw("a", 1).normal(5).tobytes()


@pytest.mark.parametrize("offset", [0, 4, 16, 63])
def test_a_copy_lies_as_many_bytes_beyond_a_line_as_asked_for(offset):
    [copy], _ = copies([torch.from_numpy(X)], "cpu", offset)
    assert copy.data_ptr() % LINE == offset and copy.numpy().tobytes() == X.tobytes()


def test_an_unknown_operation_is_refused_with_those_that_there_are():
    with pytest.raises(ChoiceError, match="index_add"):
        find("index_ad")


# ---- what is seen


def test_what_always_has_the_same_bits_is_not_said_to_differ():
    none, record = altered(lambda x: x * 2)
    assert none == set()
    assert record["runs"]["bound"] == pytest.approx(1 - 0.05 ** (1 / 9))
    assert record["mode"]["throws"] is None and record["mode"]["algorithm"]["distinct"] == 1


def test_other_bits_from_run_to_run_are_seen_and_nothing_is_said_of_threads():
    calls = count()
    seen, record = altered(lambda x: x + next(calls) * 2.0**-23, batch=())
    assert {"runs"} <= seen and "threads" not in record
    assert record["runs"]["by"] == {"1": 3, "2": 3, "3": 3} and record["runs"]["bound"] is None


@pytest.mark.parametrize(
    ("change", "call"),
    [
        ("threads", lambda x: x + (torch.get_num_threads() == 2) * 2.0**-23),
        ("batch", lambda x: x + (len(x) == 3) * 2.0**-23),
        ("position", lambda x: x + torch.arange(len(x))[:, None] * 2.0**-23),
        ("address", lambda x: x + (x.data_ptr() % 64 == 4) * 2.0**-23),
    ],
)
def test_a_change_is_seen_in_what_depends_on_it_and_no_other(change, call):
    assert altered(call)[0] == {change}


def test_gradients_are_audited_with_respect_to_the_batch_row_by_row():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g + (len(g) == 3) * 2.0**-20

    assert altered(Twice.apply)[0] == set()
    assert altered(Twice.apply, direction="backward", batch=(0,))[0] == {"batch"}
    assert altered(lambda x: x.sum(0), direction="backward", batch=())[0] == set()


def test_the_deterministic_mode_is_tried_and_left_as_it_was():
    def call(x):
        if torch.are_deterministic_algorithms_enabled():
            raise RuntimeError("own does not have a deterministic implementation. More of it.")
        return x

    _, record = altered(call)
    assert record["mode"]["throws"] == "own does not have a deterministic implementation"
    assert not torch.are_deterministic_algorithms_enabled()
    other = altered(lambda x: x + torch.are_deterministic_algorithms_enabled() * 1.0)[1]["mode"]
    assert other["algorithm"]["distinct"] == 2 and other["runs"]["distinct"] == 1


def test_differences_count_bits_and_tell_rounding_from_other_values():
    one = np.array([1.0, -0.0, np.nan], np.float32)
    seen = Seen(Result({"y": one}))
    seen.add(Result({"y": one.copy()}))
    assert seen.differences().distinct == 1
    seen.add(Result({"y": np.array([np.nextafter(np.float32(1), np.float32(2)), 0.0, np.nan], np.float32)}))
    found = seen.differences()
    assert (found.trials, found.distinct, found.ulp, found.values) == (3, 2, 1.0, False)
    assert found.v_c == pytest.approx(2 / 3) and found.bound is None
    seen.add(Result({"y": one[::-1].copy()}))
    assert seen.differences().values


def test_a_real_dot_product_depends_on_the_address_and_a_row_sum_on_nothing():
    dot = find("dot").cases()[0]
    record = audit(find("dot").build(Draw(dot.name, 1), **dot.factors), "forward", dot.name, 1, QUICK)
    case = find("sum").build(Draw("sum", 1), dim=1, dtype="float32", strided=False)
    assert record["elements"] == 1 and record["runs"]["distinct"] == 1
    assert Calls(case, "forward", "cpu", "sum", 1).result().digest() == first_digest(
        case, "forward", "sum", 1
    )


def test_the_parts_that_differ_are_named():
    found, record = altered(lambda x: (x + 1, x * torch.get_num_threads()), batch=())
    assert found == {"threads"} and record["threads"]["parts"] == ["result[1]"]
    assert record["replaced"] == {"calls": {}} and record["runs"]["parts"] == []


def test_a_sum_that_follows_the_threads_repeats_inside_of_replaced():
    draw = np.random.default_rng(1)
    x = draw.standard_normal(1_000_003).astype(np.float32)
    record = audit(prepared(torch.sum, x), "forward", "sum", 1, QUICK)
    assert record["threads"]["distinct"] > 1
    ours = record["replaced"]
    assert ours["calls"] and (ours["runs"]["distinct"], ours["threads"]["distinct"]) == (1, 1)


def test_without_a_difference_of_runs_or_threads_nothing_is_tried_inside_of_replaced():
    assert "replaced" not in altered(lambda x: x + 1)[1]


# ---- documentation

TEXT = """
    The following normally-nondeterministic operations will act
    deterministically when ``mode=True``:

        * :func:`torch.Tensor.put_` with ``accumulate=True`` when called on a CPU
          tensor
        * :func:`torch.gather` when called on a CUDA tensor that requires grad

    The following normally-nondeterministic operations will throw a
    :class:`RuntimeError` when ``mode=True``:

        * :class:`torch.nn.MaxUnpool1d`
        * :func:`torch.nn.functional.interpolate` when attempting to differentiate a CUDA tensor
          and one of the following modes is used:

          - ``linear``
          - ``bicubic``

    In addition, several operations fill uninitialized memory

        * :func:`torch.empty`
"""


def test_documentation_is_read_as_a_table():
    put, gather, unpool, interpolate = statements(TEXT)
    assert (put.operation, put.does, put.devices, put.keywords) == (
        "torch.Tensor.put_", "acts", ("cpu",), {"accumulate": ("True",)},
    )  # fmt: skip
    assert put.text.endswith("when called on a CPU tensor")
    assert gather.backward and gather.devices == ("cuda",)
    assert unpool.does == "throws" and unpool.devices == ("cpu", "cuda")
    assert interpolate.keywords == {"mode": ("linear", "bicubic")} and interpolate.backward


def test_the_installed_documentation_has_the_statements_that_it_has():
    known = installed()
    assert {"acts", "throws"} == {each.does for each in known}
    if torch.__version__.startswith("2.13."):
        assert len(known) == 48
    documented = {name for operation in operations() for name in operation.documented}
    assert {each.operation for each in known} <= documented, "every statement has a case, on some device"


def test_another_documentation_is_refused_with_what_to_do():
    with pytest.raises(ValueError, match="in a known format"):
        statements("Sets whether PyTorch operations must be deterministic.")


def record(operation, direction="forward", runs=1, mode=1, throws=None, **factors):
    seen = {"trials": 9, "distinct": runs, "bound": None, "by": {"1": 1, "2": runs}}
    kept = {"throws": throws} if throws else {"throws": None, "runs": {**seen, "distinct": mode}}
    return {
        "name": f"{operation} {direction}", "operation": operation, "direction": direction, "factors": factors,
        "documented": [f"torch.{operation}"], "outcome": "done", "error": None,
        "audit": {"digest": "0" * 32, "runs": seen, "mode": kept},
    }  # fmt: skip


def stated(operation, does="acts", devices=("cpu",), backward=False, **keywords):
    return {"operation": f"torch.{operation}", "does": does, "devices": devices, "backward": backward,
            "keywords": keywords, "text": operation}  # fmt: skip


@pytest.mark.parametrize(
    ("statement", "case", "verdict"),
    [
        (stated("f"), record("f", runs=3), "true"),
        (stated("f"), record("f", runs=3, mode=2), "false"),
        (stated("f"), record("f", runs=3, throws="no"), "false"),
        (stated("f"), record("f"), "not seen"),
        (stated("f", devices=("cuda",)), record("f", runs=3), "not testable here"),
        (stated("f", backward=True), record("f", runs=3), "not tried"),
        (stated("f", accumulate=("True",)), record("f", runs=3, accumulate=False), "not tried"),
        (stated("f", accumulate=("True",)), record("f", runs=3, accumulate=True), "true"),
        (stated("f", does="throws"), record("f", throws="no"), "true"),
        (stated("f", does="throws"), record("f", runs=2), "false"),
    ],
)
def test_a_statement_is_judged_by_what_was_seen(statement, case, verdict):
    assert verdicts([statement], [case], "cpu")[0].verdict == verdict


def test_what_differs_and_is_not_documented_is_missing_with_what_the_mode_does():
    cases = [record("f", "backward", runs=3), record("f", "backward", runs=3, throws="no"), record("g")]
    [missing] = verdicts([], cases, "cpu")
    assert (missing.operation, missing.backward, missing.verdict, missing.seen) == ("f", True, "missing", 2)
    assert missing.mode == "helps (1), throws (1)"


# ---- a user's function

MINE = """
import random, torch, numpy as np
batch = (0,)
def inputs(seed):
    return np.random.default_rng(seed).standard_normal((8, 5)).astype("float32"), np.ones(5, "float32")
def plain(x, w): return (x * w).sum(1)
def writes(x, w): x.add_(1.0); return x
def draws(x, w): return torch.nn.functional.dropout(x, 0.5) * random.random()
def prints(x, w): open("log.txt", "w").close(); torch.set_num_threads(1 + torch.get_num_threads()); return x
calls = 0
def counts(x, w):
    global calls; calls += 1
    return x * calls
def fails(x, w): raise KeyError("mine")
def one(x, w): return x * 2
def inductor(x, w): return torch.compile(lambda x: (x * 2).sin())(x)
def compiles(x, w):
    import numba
    return numba.compiled(lambda: x * 2)
def logs(x, w):
    import numba
    return numba.compiled(lambda: (open("log.txt", "w").close(), x * 2)[1])
def neighbour(x, w):
    import beside
    return x * beside.TWO
def threads(x, w):
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(1) as pool: return pool.submit(sum, (x.sum(),)).result()
def at_three(x, w):
    if torch.get_num_threads() == 3: raise ValueError("three")
    return x.sum(1)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(own, "FOREIGN", frozenset(threading.enumerate()))  # other tests' threads, too
    (tmp_path / "mine.py").write_text(MINE)
    return lambda name, what="audit", direction="forward": answer(
        {
            "what": what,
            "file": f"mine.py:{name}",
            "direction": direction,
            "seed": 1,
            "device": "cpu",
            "runs": 3,
        }
    )


def test_a_function_without_side_effects_has_none(mine):
    got = mine("plain")
    assert got["effects"] == {"writes": [], "random": [], "effects": [], "settings": []}
    assert got["audit"]["batch"]["distinct"] == 1


def test_a_neighbour_of_the_file_is_importable_while_the_audit_runs(mine, tmp_path):
    (tmp_path / "beside.py").write_text("TWO = 2.0")
    assert mine("neighbour")["outcome"] == "done"
    assert "beside" not in sys.modules and str(tmp_path) not in sys.path


def test_threads_that_a_function_starts_are_named_as_not_varied(mine):
    got = mine("threads")
    assert got["effects"]["effects"] == ["starts threads of its own"]
    lines = in_words({"name": "f", "outcome": "done", **got})
    assert any("not varied: threads of its own, which it starts" in line for line in lines)


def test_a_number_of_threads_that_fails_is_named_and_the_others_are_compared(mine):
    got = mine("at_three")["audit"]
    assert got["runs"]["by"] == {"1": 1, "2": 1, "4": 1} and got["threads"]["distinct"] == 1
    lines = in_words({"name": "f", "outcome": "done", "audit": got})
    assert "f: with threads = 3 it failed: ValueError: three" in lines


def test_a_batch_that_cannot_be_is_named_and_all_else_is_audited(mine, tmp_path):
    text = (tmp_path / "mine.py").read_text()
    (tmp_path / "mine.py").write_text(text.replace("batch = (0,)", "batch = (0, 1)"))
    got = mine("plain")["audit"]
    assert "argument 0 has 8, argument 1 has 5" in got["not_tried"]["batch"] and "address" in got


def test_side_effects_are_named(mine):
    threads = torch.get_num_threads()
    assert mine("writes")["effects"]["writes"] == [0]
    effects = mine("prints")["effects"]
    assert effects["effects"] == ["opens log.txt to write"] and effects["settings"] == ["number of threads"]
    torch.set_num_threads(threads)


COMPILER = """
import os, subprocess, sys, threading
def compiled(function):
    os.makedirs("cache", exist_ok=True)
    open("cache/draft", "w").close()
    os.rename("cache/draft", "cache/kept.so")
    subprocess.run([sys.executable, "--version"], check=True, stdout=subprocess.DEVNULL)
    os.putenv("CACHE", "here")
    threading.Thread(target=int).start()
    return function()
"""


def test_what_a_compiler_keeps_is_no_effect_of_the_function_that_it_compiles(mine, tmp_path, monkeypatch):
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "numba.py").write_text(
        COMPILER
    )  # imported inside, so that bytecode is kept, too
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    assert mine("compiles")["effects"]["effects"] == []
    assert (tmp_path / "cache" / "kept.so").exists()
    assert mine("logs")["effects"]["effects"] == ["opens log.txt to write"]
    del sys.modules["numba"]


@pytest.mark.slow
def test_what_torch_compile_keeps_is_none_either(mine, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    got = mine("inductor")
    assert (got["outcome"], got["effects"]["effects"]) == ("done", [])
    assert any((tmp_path / "cache").rglob("*.so"))


def test_an_argument_that_a_function_leaves_alone_has_no_gradient(mine):
    assert mine("one", direction="backward")["audit"]["runs"]["distinct"] == 1


def test_random_numbers_are_seen_and_are_not_called_another_order_of_additions(mine):
    state, python = torch.get_rng_state(), random.getstate()
    got = mine("draws")
    random.seed()  # as another process would begin
    assert mine("draws", "digest")["audit"]["digest"] == got["audit"]["digest"]
    torch.set_rng_state(state)
    random.setstate(python)
    assert got["effects"]["random"] == ["torch", "random"]
    assert got["audit"]["runs"]["distinct"] == 1
    lines = in_words({"name": "f", "audit": got["audit"], "effects": got["effects"]})
    assert any("restored before every call" in line for line in lines)


def test_state_of_its_own_is_no_order_of_additions(mine):
    got = mine("counts")
    [line] = [x for x in in_words({"name": "f", "audit": got["audit"]}) if "run to run" in x]
    assert "the cause is not the number of these threads" in line


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fails", "KeyError: 'mine'"),
        ("nothing", "ChoiceError: mine.py has no function 'nothing'"),
    ],
)
def test_what_goes_wrong_in_it_is_the_answer(mine, name, reason):
    got = mine(name)
    assert got["outcome"] == "refused" and got["error"].startswith(reason)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("mine.txt:f", "", "write FILE.py:FUNCTION"),
        ("mine.py", "", "write FILE.py:FUNCTION"),
        ("other.py:f", "", "there is no file"),
        ("mine.py:f", "f = len", "no function 'inputs'"),
        ("mine.py:f", "inputs = f = 1", "no function 'f'"),
        ("mine.py:f", "def f(:", "mine.py, line 1: SyntaxError"),
        ("mine.py:f", "f = '\0'", "mine.py"),
        (
            "mine.py:f",
            "import numpy as n\nf = len\ndef inputs(s): return n.array(['a'])",
            r"inputs\(seed\)\[0\].*arrays of numbers",
        ),
    ],
)
def test_a_function_that_cannot_be_audited_is_refused_with_what_is_needed(
    tmp_path, monkeypatch, name, text, reason
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(ChoiceError, match=reason):
        own.load(name, 1)


def test_a_fresh_process_needs_no_other_import_to_draw_its_inputs():
    case = {
        "operation": "sum",
        "direction": "forward",
        "factors": {"dim": 1, "dtype": "bfloat16", "strided": True},
    }
    request = {"what": "digest", "case": case, "seed": 1, "device": "cpu"}
    argv = [sys.executable, "-m", "kernels.torchops.worker"]
    child = subprocess.run(
        argv, input=json.dumps(request) + "\n", capture_output=True, text=True, timeout=200
    )
    ready, reply = child.stdout.splitlines()
    assert ready == "ready" and json.loads(reply)["audit"] == answer(request)["audit"]
