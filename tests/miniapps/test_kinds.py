"""Ranks of two kinds, by the entries of their environments: who differs, in which layers, and what makes them equal."""

from pathlib import Path

import pytest

from miniapps.system import environment, kinds
from miniapps.system.scope import AMONG, mixed

V2 = "sse3 ssse3 sse4_1 sse4_2 popcnt"
V3 = f"{V2} movbe abm bmi1 bmi2 avx f16c fma avx2"
V4 = f"{V3} avx512f avx512dq avx512cd avx512bw avx512vl"


def rank(flags=V4, vendor="GenuineIntel", family="6", **changed):
    own = {
        "processor.vendor": vendor,
        "processor.family": family,
        "processor.flags": flags,
        "python": "3.11.1",
    }
    return own | {"packages.numpy": "2.4.6", "arithmetic.libc": "glibc 2.36"} | changed


def of(*ranks):
    return kinds.grouped(ranks)


def test_this_process_states_its_processor_versions_and_settings(monkeypatch):
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    own = kinds.here()
    assert own["processor.flags"] == environment.processor().flags and own["variables.MKL_CBWR"] == "AVX2"
    assert {"processor.vendor", "python", "packages.numpy", "arithmetic.libc", "arithmetic.numpy"} <= set(own)
    assert kinds.digest(own) == kinds.digest(kinds.here())
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    assert kinds.digest(own) != kinds.digest(kinds.here())


def test_the_processor_has_the_flags_of_proc_cpuinfo():
    """Where no emulator runs; /proc/cpuinfo names one set otherwise."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next(line for line in lines if line.startswith("flags")).split()
    own = environment.processor().flags.split()
    known = {"pni" if flag == "sse3" else flag for flag in own}
    assert known and known <= set(flags) | {"avx10"}  # which a kernel older than the processor does not list
    assert {flag for flag in flags if flag.startswith(("avx", "fma", "amx"))} <= known | {
        "avx512_vp2intersect"
    }


def test_equal_ranks_are_of_one_kind_and_entries_that_decide_no_bit_do_not_count():
    assert of(rank(), rank(), rank()) == ()
    ours, other = rank(**{"variables.OMP_NUM_THREADS": "1"}), rank(**{"variables.OMP_NUM_THREADS": "2"})
    assert kinds.counting(ours, "layout") == kinds.counting(other, "layout") == rank()
    assert kinds.counting(ours, "run") != kinds.counting(other, "run")  # its scope has threads
    assert kinds.counting(ours | {"node": "a"}, "none") == rank()


def test_settings_of_two_ranks_are_named_with_their_ranks_and_one_value_for_all():
    found = of(rank(), rank(), rank(**{"variables.ATEN_CPU_CAPABILITY": "default"}), rank())
    assert [kind.ranks for kind in found] == [(0, 1, 3), (2,)]
    assert kinds.layers(found) == ["ATen"] and kinds.remedies(found) == ["ATEN_CPU_CAPABILITY=default"]
    text = kinds.sentence(found, "no guarantee covers them", ("--processor any",))
    assert text.startswith(
        "ranks of 2 kinds: they may compute other bits from the same data (ATen), and no guarantee"
    )
    assert "Ranks 0-1, 3: ATEN_CPU_CAPABILITY not set; rank 2: ATEN_CPU_CAPABILITY=default." in text
    assert text.endswith("on all ranks: ATEN_CPU_CAPABILITY=default or --processor any") and "\n" not in text
    assert "(ATen). Ranks" in kinds.sentence(found)
    assert found[1].json() == {"ranks": "2", "entries": {"variables.ATEN_CPU_CAPABILITY": "default"}}


@pytest.mark.parametrize("flags, held", [
    (V3, ["ATEN_CPU_CAPABILITY=avx2", "MKL_CBWR=AVX2", "ONEDNN_MAX_CPU_ISA=AVX2"]),
    (V2, ["ATEN_CPU_CAPABILITY=default", "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX512DQ,-AVX2,-FMA,-FMA4",
          "MKL_CBWR=COMPATIBLE", "ONEDNN_MAX_CPU_ISA=SSE41"]),
    (f"{V4} avx512_vnni", ["MKL_CBWR=AVX512", "ONEDNN_MAX_CPU_ISA=AVX512_CORE"]),
])  # fmt: skip
def test_processors_are_held_to_the_sets_that_all_have(monkeypatch, flags, held):
    """Of what all ranks have, the kinds say nothing: it is read of this process, one of the ranks."""
    monkeypatch.setattr(environment, "processor", lambda: environment.Processor("GenuineIntel", "6", V4))
    found = of(*[rank()] * 32, *[rank(flags)] * 32)
    assert sorted(kinds.remedies(found)) == held
    lacking = "Ranks 0-31: x86-64-v4 (without avx512_vnni); ranks 32-63: x86-64-v4."
    assert (lacking in kinds.sentence(found)) == ("vnni" in flags)


def test_sets_that_a_processor_lacks_are_counted():
    text = kinds.sentence(of(rank(), rank(V3)))
    assert (
        "Rank 0: x86-64-v4; rank 1: x86-64-v3 (without avx512bw, avx512cd, avx512dq, avx512f and 1 more)"
        in text
    )


def test_processors_of_two_makers_with_equal_sets_differ_for_mkl_alone():
    found = of(rank(), rank(vendor="AuthenticAMD", family="25"))
    assert kinds.layers(found) == ["MKL"] and kinds.remedies(found) == ["MKL_CBWR=COMPATIBLE"]
    assert "rank 1: vendor AuthenticAMD, family 25" in kinds.sentence(found)


def test_libraries_that_chose_other_kernels_and_other_versions_are_told():
    ours = {"arithmetic.openblas_numpy": "0.3.31 SkylakeX", "arithmetic.numpy": "X86_V3 X86_V4"}
    other = {"arithmetic.openblas_numpy": "0.3.31 Haswell", "arithmetic.numpy": "X86_V3"}
    found = of(rank(**ours), rank(V3, **other))
    assert kinds.layers(found) == ["ATen", "MKL", "NumPy", "oneDNN", "OpenBLAS"]
    assert {"NPY_DISABLE_CPU_FEATURES=X86_V4", "OPENBLAS_CORETYPE=Haswell"} <= set(kinds.remedies(found))
    found = of(rank(), rank(**{"packages.numpy": "2.5.0"}))
    assert kinds.layers(found) == ["version of numpy"] and kinds.remedies(found) == [kinds.INSTALLED]


def test_many_kinds_stay_one_line():
    found = of(*(rank(**{"variables.MKL_CBWR": str(n)}) for n in range(40)))
    text = kinds.sentence(found)
    assert len(found) == 40 and "and 36 more kinds" in text and len(text) < 500
    assert kinds.short(found) == "40 kinds: rank 0; rank 1; rank 2; rank 3; and 36 more"


def test_names_of_processors_alone_make_no_run_mixed():
    run = {"cpu": AMONG.join(("Xeon 8480", "Xeon 8490")), "processor.flags": V4}
    assert mixed(run, "layout") == []
    assert [key for key, _ in mixed(run | {"processor.flags": AMONG.join((V4, V3))}, "layout")] == [
        "processor.flags"
    ]
    assert [key for key, _ in mixed({"cpu": run["cpu"]}, "layout")] == ["cpu"]
