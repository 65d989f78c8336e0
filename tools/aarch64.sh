#!/usr/bin/env bash
# An emulated AArch64 processor with all that runs need: build/aarch64/python, for tests (`make aarch64`).
#
#   tools/aarch64.sh PYTHON      PYTHON: this machine's, with the packages of this suite
#
# Python and the C library are Debian's, NumPy, MPICH and torch those of the package index. Nothing is installed: all is
# below build/aarch64, but for the extension, which stands beside this processor's. Exit code 2 says what is missing.
set -eu

fail() { printf '\nmake: %s\n' "$@" >&2; exit 2; }

python=${1:?path of the Python of this machine}
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
home=$PWD/build/aarch64
for program in qemu-aarch64 aarch64-linux-gnu-g++ apt-get dpkg; do
    command -v $program >/dev/null || fail "no $program.
  Debian, Ubuntu:  apt install qemu-user g++-aarch64-linux-gnu"
done
apt-cache show "python$version:arm64" >/dev/null 2>&1 || fail "no python$version:arm64 in the lists of packages.
  Debian, Ubuntu:  dpkg --add-architecture arm64 && apt-get update; and a .venv made with the system's Python version"

# Where from a copy of $home/root is missing: the interpreter, its modules in C and the libraries that these need.
if [ ! -x "$home/root/usr/bin/python$version" ]; then
    echo "fetching Python $version for AArch64 from Debian"
    mkdir -p "$home/debs" "$home/root"
    names="python$version-minimal libpython$version-stdlib libpython$version-minimal libc6 libgcc-s1 libstdc++6 zlib1g
           libssl3 libexpat1 libffi8 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1 libgomp1 libcrypt1"
    (cd "$home/debs" && apt-get -qq download $(printf '%s:arm64 ' $names))
    for package in "$home"/debs/*.deb; do dpkg -x "$package" "$home/root"; done
    rm -r "$home/debs"
fi

# Newer torch for AArch64 needs CUDA on the package index; 2.8 is the last without.
if [ ! -d "$home/site/torch" ]; then
    echo "fetching packages for AArch64 from the package index (150 MB)"
    wanted=$("$python" -c 'from importlib.metadata import version
for name in """numpy mpi4py h5py msgspec xxhash ml_dtypes mpich
    filelock fsspec jinja2 markupsafe networkx sympy mpmath typing_extensions setuptools""".split():
    print(name + "==" + version(name))')
    "$python" -m pip --disable-pip-version-check -q download -d "$home/wheels" --only-binary=:all: --no-deps \
        --implementation cp --python-version "$version" --platform manylinux_2_28_aarch64 \
        --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 \
        $wanted torch==2.8.0
    for wheel in "$home"/wheels/*.whl; do "$python" -m zipfile -e "$wheel" "$home/site"; done
    rm -r "$home/wheels"
fi

echo "building kernels._native for AArch64"
CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ LDSHARED="aarch64-linux-gnu-g++ -shared" LDCXXSHARED="aarch64-linux-gnu-g++ -shared" \
    "$python" setup.py -q build_ext --build-lib "$home/lib" --build-temp "$home/objects"
tag=$(echo "$version" | tr -d .)
cp "$home"/lib/kernels/_native*.so "kernels/_native.cpython-$tag-aarch64-linux-gnu.so"

mpi=$(echo "$home"/site/mpich-*.data/data/lib)
libraries=$home/root/lib/aarch64-linux-gnu:$home/root/usr/lib/aarch64-linux-gnu:$mpi
cat >"$home/python" <<END
#!/bin/sh
exec qemu-aarch64 -L "$home/root" -E LD_LIBRARY_PATH="$libraries" -E PYTHONHOME="$home/root/usr" \\
    -E PYTHONPATH="$PWD:$home/site" -E MPI4PY_LIBMPI="$mpi/libmpi.so.12" -U LD_PRELOAD \\
    "$home/root/usr/bin/python$version" "\$@"
END
chmod +x "$home/python"
"$home/python" -c 'import platform, kernels._native, torch; from mpi4py import MPI; print("build/aarch64/python runs on", platform.machine())'
