#!/usr/bin/env bash
# What `make` needs from the machine, checked before anything is downloaded or built.
#
#   tools/require.sh python      print a Python >= 3.11 that can create environments ($PYTHON overrides)
#   tools/require.sh compiler P  check that C++ with OpenMP and the headers of Python P can be compiled
#
# Where something is missing, says what, and how to get it without root where possible; exit code 2.
set -eu

fail() { printf '\nmake: %s\n' "$@" >&2; exit 2; }

find_python() {
    local candidate found=""
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        found="$found $candidate ($("$candidate" -c 'import platform; print(platform.python_version())' 2>&1 | tail -n 1))"
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        "$candidate" -c 'import venv, ensurepip' 2>/dev/null || fail \
"$candidate has no 'venv' module, so no environment can be created.
  Debian, Ubuntu:  apt install python3-venv
  without root:    point PYTHON at another installation, for instance one made by conda or uv:
                   make PYTHON=/path/to/python3.12 ..."
        command -v "$candidate"
        return
    done
    fail "Python 3.11 or newer is needed; found:${found:- none}.
  Debian, Ubuntu:  apt install python3 python3-venv python3-dev
  supercomputers:  module avail python, then module load one that is new enough
  without root:    conda create -p ~/python python=3.12, then make PYTHON=~/python/bin/python ..."
}

check_compiler() {
    local python=$1 work cxx
    cxx=${CXX:-}
    for candidate in c++ g++ clang++; do
        [ -n "$cxx" ] || ! command -v "$candidate" >/dev/null 2>&1 || cxx=$candidate
    done
    [ -n "$cxx" ] && command -v "${cxx%% *}" >/dev/null 2>&1 || fail \
"a C++ compiler is needed (looked for ${cxx:-c++, g++ and clang++} on PATH) to build kernels._native.
  Debian, Ubuntu:  apt install g++
  Fedora, Rocky:   dnf install gcc-c++
  supercomputers:  module load gcc
  without root:    conda install -c conda-forge gxx, then make CXX=/path/to/g++ ..."
    work=$(mktemp -d)
    trap "rm -rf '$work'" EXIT
    printf '#include <Python.h>\n#include <omp.h>\nint main() { return omp_get_max_threads() < 1; }\n' >"$work/try.cpp"
    # shellcheck disable=SC2086  # CXX may carry flags
    $cxx -std=c++17 -fopenmp -I"$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')" \
        -c "$work/try.cpp" -o "$work/try.o" 2>"$work/log" || {
        cat "$work/log" >&2
        if grep -q 'Python\.h' "$work/log"; then
            fail "the C++ headers of $python (Python.h) are missing.
  Debian, Ubuntu:  apt install python3-dev
  Fedora, Rocky:   dnf install python3-devel"
        fi
        fail "'$cxx' cannot compile C++17 with OpenMP (its message is above).
  Choose another compiler: make CXX=g++-13 ...; on macOS: brew install gcc"
    }
    echo "$cxx"
}

case "${1:-}" in
    python) find_python ;;
    compiler) check_compiler "${2:?path of the Python to build for}" ;;
    *) fail "usage: tools/require.sh python | compiler PYTHON" ;;
esac
