"""C++ kernels that are not built: code that needs them says so, other code works."""

import sys

import pytest

import kernels
from kernels.missing import not_installed
from tests.launch import run_python


def test_the_message_says_where_they_are_not_and_what_to_do(monkeypatch):
    monkeypatch.delattr(kernels, "_native", raising=False)
    monkeypatch.setitem(sys.modules, "kernels._native", None)
    with pytest.raises(ModuleNotFoundError, match=r"not built in .*kernels\. Build them: ") as error:
        from kernels import _native  # noqa: F401
    assert not_installed(error.value) == str(error.value)


def test_other_names_are_no_module_of_theirs():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kernels.nothing


def test_the_doctor_and_the_analysis_begin_without_them():
    code = "import sys; sys.modules['kernels._native'] = None; import analysis.__main__, miniapps.__main__"
    run = run_python(["-c", f"{code}; from miniapps.doctor import native; print(native().remedy)"])
    assert run.returncode == 0 and "build_ext" in run.stdout, run.stderr
