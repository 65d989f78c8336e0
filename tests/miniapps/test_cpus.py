"""`fpna cpus` on small programs whose answer is known."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from miniapps.cpus import answer, command, experiment, outcomes
from miniapps.cpus.against import Answer, Hold, Line, sentence
from miniapps.cpus.experiment import Found, Row
from miniapps.system.layers import HWCAPS, LIBM, TUNABLES, beside, level_here, numpy_levels

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or os.uname().machine != "x86_64", reason="no C compiler, or no x86-64"
)
SINES = r"""
#include <math.h>
#include <stdio.h>
int main(void) {
  unsigned long all = 0;
  for (int i = 0; i < 200000; i++) {
    double y = sin(i * 1.1);
    unsigned long bits;
    __builtin_memcpy(&bits, &y, 8);
    all = all * 31 + bits;
  }
  printf("hash %lx\n", all);
  return 0;
}
"""
QUOTIENTS = r"""
#include <stdio.h>
int main(void) {
  double s = 0;
  for (int i = 1; i < 1000; i++) s += 1.0 / i;
  printf("%.17g\n", s);
  return 0;
}
"""
# Says of itself which code it chose, and ignores the setting.
DEAF_LIBRARY = r"""
char *openblas_get_corename(void) { return "Prescott"; }
double ddot(void) { return 0.1; }
"""
PRODUCT = """
import numpy as np

a, b = np.random.default_rng(1).standard_normal((2, 1000))
print(repr(float(a @ b)))
"""
ASKS = "import os, numpy\nold = os.environ.get('OPENBLAS_CORETYPE') == 'Nehalem'\n"
CALLER = r"""
#include <stdio.h>
double ddot(void);
int main(void) { printf("%.17g\n", ddot()); return 0; }
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LD_PRELOAD", raising=False)  # of these tests: it loads libm
    return tmp_path


@pytest.fixture
def asked(here, capsys):
    """Runs the command; returns (exit code, document)."""

    def ask(*words):
        code = command.main(["--json", "--quiet", *words])
        printed = capsys.readouterr()
        return code, json.loads(printed.out) if printed.out else printed.err

    return ask


def compiled(name, source, *more):
    Path(f"{name}.c").write_text(source)
    subprocess.run(["cc", "-O2", "-o", name, f"{name}.c", *more, "-Wl,--as-needed", "-lm"], check=True)
    return f"./{name}"


def script(name, text):
    Path(name).write_text(text)
    return [sys.executable, name]


def printing(path, text):
    """The outcome of a launch that printed `text`."""
    path.write_text(text)
    return outcomes.Outcome(0, 1.0, 1.0, path, path.parent)


def states(document, layer):
    return {row["level"]: row["state"] for row in document["rows"] if row["layer"] == layer}


def can_be_held(found):
    """Whether OpenBLAS chooses other code than Nehalem's here."""
    return states(found, "OpenBLAS")["Nehalem"] != "here"


def has_fma():
    return level_here() >= 3


@pytest.mark.skipif(not has_fma(), reason="this processor has no FMA, so libm has one version for it")
def test_sines_differ_without_fma_through_libm_and_are_held_to_one_result(asked):
    code, found = asked("--", compiled("sines", SINES))
    assert code == 3 and found["verdict"] == "differs"
    assert states(found, LIBM) == {"x86-64-v2": "differs"}
    assert {row["level"]: row["state"] for row in found["rows"] if not row["layer"]}["Nehalem"] == "differs"
    assert found["held"]["holds"] and list(found["held"]["variables"]) == [TUNABLES]
    assert "through libm (x86-64-v2)" in found["sentence"]
    held = subprocess.run(
        ["./sines"], env=os.environ | found["held"]["variables"], capture_output=True, text=True
    )
    plain = subprocess.run(["./sines"], capture_output=True, text=True)
    assert held.stdout != plain.stdout  # by hand


def test_quotients_are_equal_everywhere(asked):
    code, found = asked("--", compiled("quotients", QUOTIENTS))
    assert (code, found["verdict"], found["layers"]) == (0, "equal", [])


@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="no qemu-x86_64 (apt-get install qemu-user)")
@pytest.mark.skipif(not has_fma(), reason="this processor has no FMA")
def test_an_emulated_processor_agrees_with_the_setting(asked):
    code, found = asked("--emulate", "--", compiled("sines", SINES))
    assert code == 3
    assert {row["level"]: row["state"] for row in found["emulated"]} == {
        "Nehalem": "differs", "Haswell": "equal", "EPYC-Rome": "equal"
    }  # fmt: skip
    assert found["held"]["holds"]  # under the emulator, too


def test_numpy_products_follow_openblas_as_numpy_says(asked):
    text = PRODUCT
    code, found = asked("--", *script("dot.py", text))
    assert set(found["layers"]) == {"libm", "OpenBLAS", "NumPy"}
    by_hand = {}
    for core in ("Haswell", "Nehalem"):
        done = subprocess.run(
            [sys.executable, "dot.py"],
            env=os.environ | {"OPENBLAS_CORETYPE": core},
            capture_output=True,
            text=True,
        )
        by_hand[core] = done.stdout
    plain = subprocess.run([sys.executable, "dot.py"], capture_output=True, text=True).stdout
    seen = states(found, "OpenBLAS")
    for core, printed in by_hand.items():
        assert seen[core] == ("differs" if printed != plain else seen[core])
        assert seen[core] in (("equal", "here") if printed == plain else ("differs",))
    assert code == (
        3 if any(printed != plain for printed in by_hand.values()) or "differs" in seen.values() else 0
    )


@pytest.mark.parametrize(("core", "expected"), [("Nehalem", (0, "equal")), ("Sandybridge", (4, "open"))])
def test_a_program_that_sets_the_variable_itself(asked, core, expected):
    """Held by itself to code of every processor it is equal; held to other code, nothing was shown."""
    text = f"import os\nos.environ['OPENBLAS_CORETYPE'] = '{core}'\n{PRODUCT}"
    code, found = asked("--", *script("own.py", text))
    rows = [row for row in found["rows"] if row["layer"] == "OpenBLAS"]
    assert all(row["state"] in ("not held", "here", "newer") for row in rows)
    assert any(f"the program itself sets OPENBLAS_CORETYPE to {core}" in row["why"] for row in rows)
    assert (code, found["verdict"]) == expected


def test_a_library_that_ignores_the_setting_is_not_called_equal(asked):
    Path("lib").mkdir()
    Path("deaf.c").write_text(DEAF_LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "lib/libopenblas.so", "deaf.c"], check=True)
    program = compiled("caller", CALLER, "-Llib", "-lopenblas", f"-Wl,-rpath,{Path.cwd()}/lib")
    code, found = asked("--", program)
    assert (code, found["verdict"]) == (4, "open")
    assert "nothing held OpenBLAS" in found["sentence"]
    assert "the library chose the same code" in " ".join(row["why"] for row in found["rows"])


def test_a_static_program_gives_no_answer_and_is_not_called_equal(asked):
    code, found = asked("--", compiled("still", QUOTIENTS, "-static"))
    assert (code, found["verdict"]) == (4, "open")
    assert "linked statically" in found["sentence"]


@pytest.mark.parametrize("how", ["./still", "env -i ./moving", "./still; ./moving", "sh -c 'kill -9 $$'"])
def test_a_program_behind_a_shell_that_gives_no_answer_is_not_called_equal(asked, how):
    compiled("still", QUOTIENTS, "-static")
    compiled("moving", QUOTIENTS)
    code, found = asked("--", "sh", "-c", f"{how}; true")
    assert (code, found["verdict"]) == (4, "open") and "did not tell its libraries" in found["sentence"]


def test_a_number_beside_a_time_that_differs_is_compared(asked):
    text = "import time\n" + ASKS + "print('step 5 energy', 1.0 + old, 'took', time.perf_counter_ns(), 'ns')"
    code, found = asked("--", *script("step.py", text))
    assert found["left_out"] == {"output": [1]}
    if can_be_held(found):
        assert (code, states(found, "OpenBLAS")["Nehalem"]) == (4, "unsure")  # it may be a time, and is shown
    text = text.replace("1.0 + old", "1.23456789012345 + old")
    code, found = asked("--", *script("digits.py", text))
    if can_be_held(found):
        assert (code, states(found, "OpenBLAS")["Nehalem"]) == (3, "differs")


def test_versions_that_a_compiler_made_are_not_called_equal(asked):
    source = '__attribute__((target_clones("default","avx2"))) double twice(double x) { return 2 * x; }\n'
    source += '#include <stdio.h>\nint main(void) { printf("%g\\n", twice(0.1)); return 0; }\n'
    code, found = asked("--", compiled("clones", source))
    assert (code, found["unheld"]) == (4, ["the program itself (clones)"])


def test_a_program_that_does_not_repeat_comes_first(asked):
    code, found = asked("--", *script("random.py", "import os\nprint(int.from_bytes(os.urandom(6)))"))
    assert code == 4 and found["sentence"].startswith("nothing can be told of processors")
    assert found["launches"] == 2 and found["rows"] == []
    code, found = asked("--leave-out", "drawn", "--",
                        *script("said.py", "import os\nprint('drawn', os.urandom(6))\nprint(1)"))  # fmt: skip
    assert code == 0


def test_times_are_left_out_and_said(asked):
    code, found = asked(
        "--", *script("times.py", "import time\nprint('time:', time.perf_counter_ns(), 's')\nprint(2)")
    )
    assert (code, found["left_out"]) == (0, {"output": [1]})


def test_a_number_beside_a_word_of_time_is_no_difference_for_certain(asked):
    code, found = asked("--", *script("slower.py", ASKS + "print('CPU time:', 1.0 + old, 's')"))
    if can_be_held(found):
        assert (code, states(found, "OpenBLAS")["Nehalem"]) == (4, "unsure")
        assert "only numbers beside a word of time differ" in found["sentence"]


def test_a_layer_that_matters_only_beside_another_is_held_too(asked):
    text = ASKS + "print(1 + old * (1 + ('GLIBC_TUNABLES' in os.environ)))"
    _, found = asked("--", *script("beside.py", text))
    if can_be_held(found) and has_fma():
        assert states(found, LIBM) == {"x86-64-v2": "equal"}
        assert found["held"]["holds"] and {TUNABLES, "OPENBLAS_CORETYPE"} <= set(found["held"]["variables"])


def test_each_launch_has_a_directory_of_its_own(asked, here):
    text = (
        "from pathlib import Path\np = Path('count')\np.write_text(p.read_text() + '1')\nprint(p.read_text())"
    )
    Path("count").write_text("0")
    code, _ = asked("--", *script("count.py", text))
    assert code == 0  # each launch counted from 0
    assert Path("count").read_text() == "0"
    assert not [path for path in here.iterdir() if path.name not in ("count", "count.py")]


def test_files_are_compared_number_by_number(asked):
    text = (
        "import os, numpy as np\nx = np.ones(5)\n"
        "x[3] += 2.0**-52 * (os.environ.get('OPENBLAS_CORETYPE') == 'Nehalem')\nnp.save('x.npy', x)"
    )
    code, found = asked("--", *script("saves.py", text))
    row = next(row for row in found["rows"] if (row["layer"], row["level"]) == ("OpenBLAS", "Nehalem"))
    assert row["state"] in ("differs", "here")
    if row["state"] == "differs":
        assert "file x.npy[3]: 1.0 and 1.0000000000000002 (1 unit in the last place)" in row["difference"]
        assert code == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no program after --"),
        (["--", "./missing"], "no program './missing' on PATH"),
        (["--", "failing"], "the program ended with 3"),
        (["--timeout", "1", "--", "sleep", "30"], "has not ended after 1 s"),
        (["--input", "missing", "--", "cat"], "--input missing: no such file"),
        (["--against", "missing", "--", "cat"], "missing"),
        (["--", "reader"], "--input FILE"),
    ],
)
def test_what_cannot_be_launched_is_said_in_a_sentence(here, capsys, words, said):
    commands = {
        "failing": [sys.executable, "-c", "raise SystemExit(3)"],
        "reader": [sys.executable, "-c", "print(input())"],
    }
    if words and words[-1] in commands:
        words = [*words[:-1], *commands[words[-1]]]
    assert command.main(["--quiet", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_set_uid_program_is_refused(here, capsys):
    program = compiled("raised", QUOTIENTS)
    os.chmod(program, 0o4755)
    assert command.main(["--", program]) == 2
    assert "set-uid" in capsys.readouterr().err


def test_input_is_the_same_for_each_launch(asked):
    Path("given").write_text("5\n")
    code, _ = asked("--input", "given", "--", *script("adds.py", "print(int(input()) + 1)"))
    assert code == 0


def test_an_answer_is_compared_with_that_of_another_machine(asked):
    program = compiled("sines", SINES)
    _, found = asked("--", program)
    Path("there.json").write_text(json.dumps(found))
    _, again = asked("--against", "there.json", "--", program)
    assert again["against"].endswith("equal, as predicted")


def test_predictions_follow_what_the_layers_chose():
    rows = [Line("OpenBLAS", "Haswell", "Haswell", "differs")]
    there = Answer("cpus", ["./a"], "P", "r1", {"OpenBLAS": "SkylakeX"}, rows, Hold({}, "h"))
    here = Found(chose={"OpenBLAS": "Haswell"}, result="r2")
    assert sentence(here, there) == "compared with P: different, as predicted"
    here.result = "r1"
    assert "but predicted different" in sentence(here, there)
    here.chose = {"OpenBLAS": "Zen"}
    assert "nothing was predicted" in sentence(here, there)


def test_a_level_above_this_processor_is_said_and_not_launched(asked, monkeypatch):
    monkeypatch.setattr(experiment, "level_here", lambda: 2)
    _, found = asked("--", compiled("sines", SINES))
    newer = {row["level"] for row in found["rows"] if row["state"] == "newer"}
    assert newer == {"Skylake-X", "Haswell", "Zen 2"}


def test_settings_keep_other_tunables():
    held = {TUNABLES: f"{HWCAPS}=-FMA"}
    assert beside({}, held) == held
    assert beside({TUNABLES: "glibc.malloc.check=1:glibc.cpu.hwcaps=-AVX2"}, held) == {
        TUNABLES: "glibc.malloc.check=1:glibc.cpu.hwcaps=-FMA"
    }


def test_levels_of_numpy_follow_its_version():
    assert numpy_levels(["X86_V3", "X86_V4", "AVX512_ICL"]) == {
        "x86-64-v3": {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL"},
        "x86-64-v2": {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL"},
    }
    assert numpy_levels([]) == {}


@pytest.mark.parametrize(
    ("a", "b", "units", "clock"),
    [
        ("x 0.1", "x 0.10000000000000002", 1, False),
        ("x 0.10000000000000001", "x 0.10000000000000002", 1, False),
        ("loss 1.634352207183838", "loss 1.6343523263931274", 1, False),  # both of float32
        ("time 1.5 s", "time 1.6 s", None, True),
        ("1.0000000000000000D+00", "1.0000000000000002D+00", 1, False),
    ],
)
def test_a_difference_of_printed_numbers_has_its_size(tmp_path, a, b, units, clock):
    one, other = (printing(tmp_path / name, text) for name, text in (("a", a), ("b", b)))
    found = outcomes.first_difference(one, other, [], {})
    assert (found.units, found.clock) == (units, clock)


def test_lines_in_another_order_are_no_difference(tmp_path):
    one = printing(tmp_path / "a", "rank 0\nrank 1\n")
    other = printing(tmp_path / "b", "rank 1\nrank 0\n")
    assert outcomes.first_difference(one, other, [], {}) is None
    assert outcomes.digest(one, [], {}) == outcomes.digest(other, [], {})


def test_a_failure_under_a_setting_is_open_and_one_on_an_emulated_processor_a_difference():
    """A setting may ask for code with a bug; an emulated processor shows what a real one would."""
    failed = Row(
        "NumPy", "x86-64-v2", {}, "", experiment.FAILED, outcomes.Difference("exit code", "0", "-11")
    )
    assert answer.verdict(Found(layers=["NumPy"], rows=[failed])) == (
        "open", "open: the program fails with NumPy as of x86-64-v2, exit code: 0 and -11"
    )  # fmt: skip
    assert answer.verdict(Found(emulated=[replace(failed, layer="qemu", level="Nehalem")]))[0] == "differs"


def test_the_next_step_is_not_what_was_just_done():
    differs = Row("MKL", "AVX2", {}, "", experiment.DIFFERS, outcomes.Difference("output", "1", "2"))
    emulated = [replace(differs, layer="qemu", level="Nehalem")]
    equal = [replace(emulated[0], state=experiment.EQUAL)]
    held = experiment.Held({"MKL_CBWR": "COMPATIBLE"}, "hash", None, None)
    broken = replace(held, difference=differs.difference)

    def next_of(**found):
        return answer.lines(Found(**found), ("./app",), False)[-1]

    assert next_of(rows=[differs], held=held).endswith("on every machine")
    assert next_of(rows=[differs], held=broken).endswith("fpna cpus --emulate -- ./app")
    assert "one kind of processor alone" in next_of(rows=[differs], held=broken, emulated=emulated)
    assert next_of(unheld=["FFTW"]).endswith("fpna cpus --emulate -- ./app")
    assert "--against" in next_of(unheld=["FFTW"], emulated=equal)
