"""Reading untrusted files: which files are opened, which values are accepted, and the errors for others."""

import math
import os
import socket
import tracemalloc
import zlib

import h5py
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from miniapps.layout import fields
from miniapps.untrusted import Refused, contents, open_regular, read_bytes, read_text, records
from miniapps.untrusted.regular import require_no_links
from miniapps.untrusted.result import read_result, written
from miniapps.untrusted.sealed import HEADER, header, read_sealed, seal, sealed, write_sealed
from miniapps.untrusted.text import printable


@pytest.fixture
def odd(tmp_path):
    """Things that are no regular file, by what they are called."""
    (tmp_path / "target").write_text("content")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    (tmp_path / "zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "socket"))
    return tmp_path


@pytest.mark.parametrize("name, words", [
    ("link", "symbolic link"), ("loop", "symbolic link"), ("fifo", "fifo"), ("directory", "directory"),
    ("zero", "symbolic link"), ("socket", "socket"),
])  # fmt: skip
def test_only_regular_files_are_opened(odd, name, words):
    with pytest.raises(Refused, match=f"{name}: is a {words}"):
        read_bytes(odd / name)


def test_links_are_followed_where_the_user_typed_them_and_then_too_only_to_regular_files(odd):
    assert read_text(odd / "link", links=True) == "content"
    with pytest.raises(Refused, match="zero: is a device"):
        read_bytes(odd / "zero", links=True)
    (odd / "to-fifo").symlink_to("fifo")
    with pytest.raises(Refused, match="to-fifo: is a fifo"):
        read_bytes(odd / "to-fifo", links=True)


def test_a_file_is_read_as_far_as_it_may_be_large(tmp_path):
    (tmp_path / "a").write_bytes(bytes(100))
    assert len(read_bytes(tmp_path / "a", most=100)) == 100
    with pytest.raises(Refused, match="100 bytes, and at most 99"):
        read_bytes(tmp_path / "a", most=99)
    os.truncate(tmp_path / "a", 40 * 10**9)
    with pytest.raises(Refused, match="40,000,000,000 bytes"), open_regular(tmp_path / "a"):
        pass
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none")


def test_text_that_is_none_is_named_with_the_byte(tmp_path):
    (tmp_path / "a").write_bytes(b"good \xff")
    with pytest.raises(Refused, match=r"a: is not UTF-8 text \(byte 5\)"):
        read_text(tmp_path / "a")


@given(st.text())
def test_what_is_printed_has_nothing_that_a_terminal_obeys_or_hides(text):
    shown = printable(text)
    assert not set(shown) & set(map(chr, [*range(32), *range(127, 160), 0x202E, 0x2028, 0xFEFF]))
    shown.encode()  # no halves of surrogate pairs
    assert printable(shown) == shown


def test_names_that_are_not_utf_8_and_controls_are_written_as_python_writes_them():
    assert printable("a\x1b[31m\udcff\u202eé\n") == "a\\x1b[31m\\xff\\u202eé\\x0a"
    assert printable("a\nb", keep="\n") == "a\nb"


class Example(msgspec.Struct):
    name: str
    count: int = 0


@pytest.mark.parametrize("text, words", [
    (b"{", "truncated"), (b"[]", "array"), (b'{"name": 3}', "name"), (b'{"name": "a", "count": 1.5}', "count"),
    (b"[" * 10**5, "deep"), (b'{"name": "a", "count": ' + b"9" * 5000 + b"}", "out"), (b"\xff\xfe", "malformed"),
    (b'{"name": "a", "count": true}', "count"), (b"", "truncated"),
])  # fmt: skip
def test_json_that_is_not_of_the_schema_is_one_sentence(text, words):
    with pytest.raises(Refused, match=f"x.json: .*{words}") as error:
        records.decode(text, Example, "x.json")
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


@pytest.mark.parametrize("text, words", [
    ("a = " + "[" * 5000 + "]" * 5000, "deep"), ("a = " + "9" * 5000, "digits"),
    (".".join("a" * 5000) + " = 1", "parts"), ("a = 1\n" * 10**6, "characters"),
])  # fmt: skip
def test_toml_beyond_the_limits_is_refused_before_it_is_parsed(text, words):
    with pytest.raises(ValueError, match=words):
        records.parse_toml(text)


def test_toml_within_the_limits_is_read():
    assert records.parse_toml("a = [1, [2]]\n[b.c]\nd = 1e300\n") == {"a": [1, [2]], "b": {"c": {"d": 1e300}}}


def test_a_result_is_read_back_and_no_byte_of_it_may_change(tmp_path):
    content = {"status": "done", "exit_code": 0, "fom": {"x": float("nan")}, "traces": {"rank-00000.h5": "ab"},
               "checks": [{"name": "a", "passed": True}]}  # fmt: skip
    path = tmp_path / "result.json"
    path.write_text(written(content))
    assert read_result(tmp_path).traces == {"rank-00000.h5": "ab"}
    whole = path.read_bytes()
    noticed = 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            outcome = read_result(tmp_path)
        except Refused as error:
            assert "result.json" in str(error)
            noticed += 1
        else:  # white space, which says nothing
            assert whole[place : place + 1].isspace() and outcome.status == "done"
    assert noticed > 0.7 * len(whole)


def fill(file):
    file.attrs["step"] = 3
    file["x"] = np.arange(1000.0)


def test_no_byte_of_a_sealed_file_may_change(tmp_path):
    path = tmp_path / "a.h5"
    digest = write_sealed(path, fill)
    image = path.read_bytes()
    assert sealed(image, "a") == digest
    with contents.opened(image, "a") as root:
        assert contents.names(root, "a") == ["x"] and contents.attributes(root, "a") == {"step": 3}
        assert contents.array(root, "x", "a", contents.Room(image), "<f8", 1)[-1] == 999.0
    with h5py.File(path) as file:  # any reader of HDF5 opens it
        assert file["x"][3] == 3.0
    for place in [*range(HEADER + 100), *range(HEADER + 100, len(image), 97), len(image) - 1]:
        changed = image[:place] + bytes([image[place] ^ 1]) + image[place + 1 :]
        with pytest.raises(Refused, match="a: damaged"):
            sealed(changed, "a")
    for changed in (image[:-1], image + b"\0", image[:HEADER], image[:100], b"", image[HEADER:]):
        with pytest.raises(Refused, match="a: "):
            sealed(changed, "a")


def test_a_file_that_was_never_finished_has_no_seal(tmp_path):
    path = tmp_path / "a.h5"
    write_sealed(path, fill)
    with open(path, "r+b") as file:
        file.write(header())
    assert sealed(path.read_bytes(), "a") == ""
    with open(path, "r+b") as file:
        digest = seal(file)
    assert sealed(path.read_bytes(), "a") == digest


def test_a_draft_is_never_written_through_a_link_nor_left_behind(tmp_path):
    other = tmp_path / "other"
    other.write_text("precious")
    (tmp_path / "a.h5.partial").symlink_to(other)
    write_sealed(tmp_path / "a.h5", fill)
    assert other.read_text() == "precious"

    def fail(file):
        raise OSError(28, "No space left on device")

    before = (tmp_path / "a.h5").read_bytes()
    with pytest.raises(OSError):
        write_sealed(tmp_path / "a.h5", fail)
    assert (tmp_path / "a.h5").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5", "other"]


def bombed(path, n=2**24):
    """A sealed file of few bytes, one chunk of which unpacks to `n` zeros and states 1,000 numbers."""

    def fill_bomb(file):
        file.create_dataset("x", shape=(1000,), chunks=(1000,), dtype="<f8", compression="gzip")
        file["x"].id.write_direct_chunk((0,), zlib.compress(bytes(n), 9))

    write_sealed(path, fill_bomb)
    return path.read_bytes()


def claimed(file):
    for i in range(100):  # each of which would do alone
        file.create_dataset(f"x{i}", data=np.zeros(10**5), chunks=(10**5,), compression="gzip")


def unallocated(file):
    file.create_dataset("x", shape=(1000,), dtype="<f8")


def read_all(image):
    with contents.opened(image, "a") as root:
        room = contents.Room(image)
        return [contents.array(root, name, "a", room) for name in contents.names(root, "a")]


@pytest.mark.parametrize(
    ("what", "words"),
    [(claimed, "at most"), (unallocated, "no byte of it"), (None, "unpacks to more or less")],
    ids=["many claims", "no byte", "a chunk of zeros"],
)
def test_memory_is_bounded_by_what_a_file_holds_and_not_by_what_it_states(what, words, tmp_path):
    if what is None:
        image = bombed(tmp_path / "a.h5")
    else:
        write_sealed(tmp_path / "a.h5", what)
        image = (tmp_path / "a.h5").read_bytes()
    tracemalloc.start()  # NumPy tells it what arrays take, but for those of zeros that nothing wrote
    try:
        with pytest.raises(Refused, match=words):
            read_all(image)
        assert tracemalloc.get_traced_memory()[1] < contents.FREE + 110 * len(image)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(7,), (3000,), (5000, 3), (40, 50, 60), (2, 1100)])
@pytest.mark.parametrize("dtype", ["<f8", "<i4", "u1"])
@pytest.mark.parametrize(
    "how", [{}, {"shuffle": True}, {"compression": "gzip"}, {"shuffle": True, "compression": 1}]
)
def test_packed_arrays_are_read_as_hdf5_reads_them(how, dtype, shape, tmp_path):
    given = (np.random.default_rng(7).standard_normal(shape) * 100).astype(dtype)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=given, chunks=True, **how)
        plain = bytes(given.itemsize * math.prod(file["x"].chunks))
        file["x"].id.write_direct_chunk((0,) * given.ndim, plain, filter_mask=3)  # no filter has touched it
        expected = file["x"][...]
        begin = file["x"][: shape[0] // 2]
    image = (tmp_path / "a.h5").read_bytes()
    assert [each.tobytes() for each in read_all(image)] == [expected.tobytes()]
    with contents.opened(image, "a") as root:
        half = contents.array(root, "x", "a", contents.Room(image), rows=shape[0] // 2)
    assert half.tobytes() == begin.tobytes()


def test_zeros_packed_by_this_program_are_read_back(tmp_path):
    """A hundredfold is more than its chunks deflate: however dull a state is, its checkpoint can be read."""
    fields.save(tmp_path, "a.h5", {}, {"x": np.zeros((2000, 3000)), "y": np.zeros(10**6, "<f4")}, packed=True)
    image = (tmp_path / "a.h5").read_bytes()
    assert sum(each.nbytes for each in read_all(image)) == 52 * 10**6 > 40 * len(image)


@pytest.mark.parametrize("text", [b"[" + b"[]," * 2**21 + b"[]]", b"[" + b'{"":0},' * 2**20 + b"0]"])
def test_json_of_tiny_values_is_not_unfolded(text):
    with pytest.raises(Refused, match="values in"):
        records.loads(text, "a")


def test_a_file_of_holes_is_not_read(tmp_path):
    path = tmp_path / "a.h5"
    write_sealed(path, fill)
    os.truncate(path, 10**9)
    for read in (read_bytes, read_sealed):
        with pytest.raises(Refused, match="holes"):
            read(path)


def test_folders_of_a_run_that_are_links_are_told(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "out")
    with pytest.raises(Refused, match="checkpoints: is a symbolic link"):
        require_no_links(tmp_path / "run", "checkpoints/a.h5")
    require_no_links(tmp_path / "run", "checkpoints")
