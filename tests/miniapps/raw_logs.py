"""Raw logs of `fpna run`, as the preloaded library writes them, with matching hashes."""

import json

import numpy as np
import xxhash

from miniapps.programs import rawlog

MARKS = np.random.default_rng(5)


def rows(n=20):
    """Records of `n` sums over all ranks."""
    made = np.zeros(n, rawlog.RECORD)
    made["begin"] = np.arange(n) * 10 + 5
    made["end"] = made["begin"] + 3
    made["number"], made["comm_size"], made["site"] = np.arange(n), 1, 77
    made["in"] = np.frombuffer(MARKS.bytes(16 * n), "V16")
    made["out"] = made["in"]
    return made


def mixed(n=30):
    """Records of `n` calls: sums, and from the sixth on calls on files and windows in all forms."""
    made = rows(n)
    files = made[5:]
    files["kind"] = rawlog.FIRST_WRITE + np.arange(len(files)) % (len(rawlog.KINDS) - rawlog.FIRST_WRITE)
    files["flags"] = np.resize(
        [0, rawlog.NONBLOCKING, rawlog.SPLIT, rawlog.SCATTERED, rawlog.FAILED], len(files)
    )
    files["peer"], files["at"], files["bytes"] = 1, 64 * np.arange(len(files)) - 64, 64
    return made


def text_lines(texts):
    """(bytes of the lines, their last running hash)."""
    hashed, lines = 0, []
    for text in texts:
        line = text if isinstance(text, bytes) else json.dumps(text).encode()
        hashed = xxhash.xxh3_64_intdigest(line, hashed)
        lines.append(b"%016x %s\n" % (hashed, line))
    return b"".join(lines), hashed


def write_raw(
    path, records, ended=9, committed=None, texts=(), rank=0, size=1, unseen=None, change=None, here=True
):
    """Write the log `path` and its texts; `change(head)` may change the header before it is hashed. `here`: as if the
    log was written where it lies."""
    lines, last = text_lines(texts)
    path.with_suffix(".txt").write_bytes(lines + b'0123456789abcdef {"site": 4, "fi')
    path.write_bytes(b"")
    head = np.zeros(1, rawlog.HEADER)
    count = len(records) if committed is None else committed
    status = path.stat()
    for name, value in {
        "magic": rawlog.MAGIC, "version": rawlog.VERSION, "record_bytes": rawlog.RECORD.itemsize, "rank": rank,
        "size": size, "committed": count, "ended": ended, "texts": last,
        "device": status.st_dev, "inode": status.st_ino + (not here),
    }.items():  # fmt: skip
        head[name] = value
    counts = np.zeros(rawlog.MOST_COUNTED, "<u8") if unseen is None else np.asarray(unseen, "<u8")
    head["unseen"] = head["unseen_of_all"] = rawlog.checked_counts(counts)
    if change:
        change(head)
    head["identity"] = hashed = xxhash.xxh3_64_intdigest(rawlog.identity(head[0]))
    records = records.copy()
    for i in range(len(records)):
        records["check"][i] = 0
        hashed = xxhash.xxh3_64_intdigest(records[i].tobytes(), hashed)
        records["check"][i] = hashed & 0xFFFFFFFF
        if i + 1 == count:
            last = hashed
    if ended:
        head["closing"] = xxhash.xxh3_64_intdigest(
            rawlog.closing(head[0]), last if count else int(head["identity"][0])
        )
    page = head.tobytes().ljust(rawlog.PAGE, b"\0")
    path.write_bytes(page + records.tobytes() + bytes(1000))
    return path
