// The raw log of one rank: records of fixed size in a file that is mapped into memory, so that they stay readable if the
// process is killed. `miniapps/programs/rawlog.py` reads it and must have the same layout.
//
//   Header   one page: magic, version, size of a record, committed records, rank, size, clock readings
//   Record   one call of MPI
//
// Texts (call sites, names of communicators and libraries) go to a second file, a line of JSON each. Running hashes
// (running.hpp) detect a changed byte; `identity` is the hash of the header before the first record, `closing` of the
// header after the last. The file is locked while the program runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "include/sizes.hpp"
#include "running.hpp"

namespace fpna {

constexpr std::uint64_t MAGIC = 0x31474f4c414e5046;  // "FPNALOG1" in little-endian bytes
constexpr int POPULATE_WRITE = 23;  // MADV_POPULATE_WRITE, Linux 5.14
constexpr std::size_t PAGE = 4096, PIECE = std::size_t(1) << 20;  // bytes by which the file grows
constexpr int MOST_COUNTED = 240;

enum Flag : std::uint16_t {
    IN_PLACE = 1, WILDCARD = 2, NONBLOCKING = 4, PERSISTENT = 8, PACKED = 16, FAILED = 32, REPLACED = 64, INTER = 128,
    OTHER_THREAD = 256,  // not the thread that called MPI_Init, if threads may call at the same time
    COMPLETION = 512,    // a request that a call found complete, or a message that a nonblocking probe saw
    SPLIT = 1024,        // of a file, by two calls: begin and end
    SCATTERED = 2048     // in a file, by its view: not in one piece
};

constexpr int PROMISED_BITS = 12;  // of the flags: from here on, the guarantee of the sum of fpna to which a call belongs

struct Header {
    std::uint64_t magic;
    std::uint32_t version, record_bytes;
    std::atomic<std::uint64_t> committed;
    std::int32_t rank, size;
    std::int64_t began, ended;  // CLOCK_MONOTONIC, ns; `ended` 0 until MPI_Finalize
    std::int64_t offset;        // of this clock to that of rank 0, ns
    // Numbers of calls that are counted and not recorded, in the order of functions.counted_names: of this rank, and, on
    // rank 0, of all; each a `checked_count`.
    std::atomic<std::uint64_t> unseen[MOST_COUNTED];
    std::uint64_t unseen_of_all[MOST_COUNTED];
    std::uint64_t device, inode;  // of the log: a file with others is a copy
    std::uint64_t texts;          // the running hash of the texts, as of the last record
    std::uint64_t identity, closing;
};
static_assert(sizeof(Header) <= PAGE);

// A call, or a completion, whose fields completions.hpp states.
struct Record {
    std::uint64_t number;      // of the call on this rank
    std::int64_t begin, end;   // CLOCK_MONOTONIC, ns
    std::uint64_t site;        // number of its place in the program
    std::uint8_t in[16], out[16];
    std::int64_t count, bytes;
    std::int64_t at;           // the first byte in a file, -1: not known; the place in a window
    std::int32_t comm, comm_size, peer, tag;
    std::uint16_t kind, op, type, flags;
    std::uint16_t in_basic, out_basic;  // types of the numbers whose sizes follow (numbers.hpp)
    std::uint32_t check;  // of this record and all before it
    Sizes in_sizes, out_sizes;
};
static_assert(sizeof(Record) == 232, "rawlog.py states this layout");

inline std::int64_t now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return std::int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

// The mapped file. It must never fail the program: on a full disk, recording ends with a message.
class Log {
  public:
    bool open(const std::string &path) {
        file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (file_ < 0 || !grow(PIECE)) return fail("cannot be created");
        if (flock(file_, LOCK_EX | LOCK_NB)) {}  // a file system that has no locks
        header()->magic = MAGIC;
        header()->version = 7;
        header()->record_bytes = sizeof(Record);
        struct stat status {};
        if (!fstat(file_, &status)) {
            header()->device = status.st_dev;
            header()->inode = status.st_ino;
        }
        return true;
    }

    // Writes the header before the first record.
    void begin(int rank, int size, std::int64_t offset) {
        Header *head = header();
        head->rank = rank;
        head->size = size;
        head->offset = offset;
        head->began = now();
        for (int i = 0; i < MOST_COUNTED; ++i) head->unseen[i] = head->unseen_of_all[i] = checked_count(0, i);
        const std::uint64_t said[] = {head->magic, head->version, head->record_bytes, std::uint64_t(head->rank),
                                      std::uint64_t(head->size), std::uint64_t(head->began),
                                      std::uint64_t(head->offset), head->device, head->inode};
        head->identity = hash_.add(said, sizeof said);
    }

    Header *header() { return reinterpret_cast<Header *>(base_); }

    // The next record, to be filled and then committed; null if recording has ended.
    Record *next() {
        if (!base_) return nullptr;
        const std::size_t end = PAGE + (written_ + 1) * sizeof(Record);
        if (end > length_ && !grow(length_ + PIECE * (length_ < 64 * PIECE ? 1 : 64))) {
            fail("cannot grow, as when the disk is full");
            return nullptr;
        }
        if (end > ready_) prepare();
        return reinterpret_cast<Record *>(base_ + PAGE) + written_;
    }

    // `texts`: the running hash of the lines of text, by which a reader notices a missing one, also after a kill.
    void commit(std::uint64_t texts) {
        header()->texts = texts;
        Record *record = at(written_);
        record->check = 0;
        record->check = std::uint32_t(hash_.add(record, sizeof *record));
        header()->committed.store(++written_, std::memory_order_release);
    }

    Record *at(std::uint64_t index) { return base_ ? reinterpret_cast<Record *>(base_ + PAGE) + index : nullptr; }

    std::uint64_t written() const { return written_; }

    void close(std::uint64_t texts) {
        if (!base_) return;
        Header *head = header();
        head->ended = now();
        head->texts = texts;
        std::uint64_t said[3 + MOST_COUNTED] = {written_, std::uint64_t(head->ended), texts};
        std::memcpy(said + 3, head->unseen_of_all, sizeof head->unseen_of_all);
        head->closing = hash_.add(said, sizeof said);
        munmap(base_, length_);
        if (ftruncate(file_, off_t(PAGE + written_ * sizeof(Record)))) {}  // the rest is zeros, which nobody reads
        ::close(file_);
        base_ = nullptr;
    }

  private:
    // Allocates blocks on disk: a write into a hole on a full disk would kill the program (SIGBUS).
    bool grow(std::size_t length) {
        if (posix_fallocate(file_, 0, off_t(length))) return false;
        void *moved = base_ ? mremap(base_, length_, length, MREMAP_MAYMOVE)
                            : mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
        if (moved == MAP_FAILED) return false;
        base_ = static_cast<char *>(moved);
        length_ = length;
        return true;
    }

    // Gets the pages of the next piece at once, which is several times as fast as page by page.
    void prepare() {
        const std::size_t piece = length_ - ready_ < PIECE ? length_ - ready_ : PIECE;
        madvise(base_ + ready_, piece, POPULATE_WRITE);  // an older kernel refuses, and pages come one by one
        ready_ += piece;
    }

    bool fail(const char *what) {
        std::fprintf(stderr, "fpna run: the log of this rank %s; the program continues without it\n", what);
        if (base_) munmap(base_, length_);
        if (file_ >= 0) ::close(file_);
        base_ = nullptr;
        return false;
    }

    int file_ = -1;
    char *base_ = nullptr;
    std::size_t length_ = 0, ready_ = 0;
    std::uint64_t written_ = 0;
    Running hash_;
};

}  // namespace fpna
