// Running hashes by which `miniapps/programs/rawlog.py` detects a damaged log: each record and each line of text has a hash
// of itself and of all before it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#define XXH_INLINE_ALL  // the hash of traces, too; its Python package has no header, so it is here with its license
#include "third_party/xxhash.h"

namespace fpna {

class Running {
  public:
    std::uint64_t add(const void *data, std::size_t bytes) { return state_ = XXH3_64bits_withSeed(data, bytes, state_); }
    std::uint64_t state() const { return state_; }

  private:
    std::uint64_t state_ = 0;
};

// A word with a count in the lower 40 bits, and a checksum of count and counter in the upper 24. One store writes both, so
// that a kill leaves no half of them.
constexpr int COUNT_BITS = 40;

inline std::uint64_t checked_count(std::uint64_t count, int counter) {
    const std::uint64_t all = count + (std::uint64_t(counter + 1) << COUNT_BITS);
    return count | (all * 0x9e3779b97f4a7c15u ^ all >> 29) * 0x9e3779b97f4a7c15u >> COUNT_BITS << COUNT_BITS;
}

inline std::uint64_t count_in(std::uint64_t word) { return word & ((std::uint64_t(1) << COUNT_BITS) - 1); }

// The file of texts: lines of JSON, each after 16 hexadecimal digits of its running hash. The writer holds the lock of the
// record. If a line does not fit, for instance on a full disk, the file ends; later calls are at unknown places.
class Texts {
  public:
    bool open(const std::string &path) { return file_ = std::fopen(path.c_str(), "wxe"); }

    explicit operator bool() const { return file_; }

    void line(const std::string &json) {
        if (!file_) return;
        bytes_ += json.size() + 18;
        Running next = hash_;
        next.add(json.data(), json.size());
        const bool whole = bytes_ <= MOST && json.find('\n') == std::string::npos &&
                           std::fprintf(file_, "%016llx %s\n", (unsigned long long)next.state(), json.c_str()) >= 0 &&
                           !std::fflush(file_);
        if (whole)
            hash_ = next;
        else
            close();
    }

    std::uint64_t state() const { return hash_.state(); }

    void close() {
        if (file_) std::fclose(file_);
        file_ = nullptr;
    }

  private:
    static constexpr std::size_t MOST = std::size_t(1) << 25;  // bytes: rawlog.py reads no more
    std::FILE *file_ = nullptr;
    Running hash_;
    std::size_t bytes_ = 0;
};

}  // namespace fpna
