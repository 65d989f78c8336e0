// Messages from any source, in the order of a recorded run: the k-th such receive or probe of this rank takes the source
// that it had there. Messages of one source do not overtake each other, so that a tag need not be known.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <mpi.h>

#include "requests.hpp"

namespace fpna {

inline std::vector<std::int32_t> sources;
inline std::size_t next_source = 0;
inline bool replaying = false;

// Reads what the launcher has written: the rank, the number of ranks, then the sources.
inline bool read_sources(const char *path, int rank, int size) {
    std::FILE *file = std::fopen(path, "rb");
    std::int32_t head[2] = {}, source;
    replaying = file && std::fread(head, sizeof head, 1, file) == 1 && head[0] == rank && head[1] == size;
    while (replaying && std::fread(&source, sizeof source, 1, file) == 1) sources.push_back(source);
    if (file) std::fclose(file);
    return replaying;
}

// Since when this rank waits in a call of MPI, as the clock had it; 0 where it does not.
inline std::atomic<std::int64_t> waiting_since{0};

class Waiting {
  public:
    Waiting() { if (replaying) waiting_since = now(); }
    ~Waiting() { if (replaying) waiting_since = 0; }
};

// Says when a rank waits for long: a program that took another path than the recorded run waits for ever.
inline void watch(int rank) {
    const char *text = std::getenv("FPNA_PATIENCE");  // seconds
    const std::int64_t patience = (text ? std::atoll(text) : 60) * 1000000000;
    std::thread([=] {
        for (std::int64_t told = 0;;) {
            std::this_thread::sleep_for(std::chrono::seconds(1));
            const std::int64_t since = waiting_since;
            if (!since || since == told || now() - since < patience) continue;
            told = since;
            std::fprintf(stderr, "fpna run: rank %d has waited for %lld s for a message; if the program took another path than "
                         "the recorded run, it will not come: end the run, and record it anew\n", rank,
                         (long long)(patience / 1000000000));
        }
    }).detach();
}

// Replaces MPI_ANY_SOURCE by what was recorded. `taken`: the entry is used up.
inline void replay(int &source, bool taken = true) {
    if (!replaying || source != MPI_ANY_SOURCE) return;
    const std::lock_guard<std::mutex> held(lock);
    if (next_source == sources.size()) {
        static bool told = false;
        if (!told)
            std::fprintf(stderr, "fpna run: this rank takes more messages from any source than the %zu that were recorded; "
                         "from here on they come in any order\n", sources.size());
        told = true;
        return;
    }
    if (sources[next_source] >= 0) source = sources[next_source];  // -1: no message came
    if (taken) ++next_source;
}

// A probe that does not wait has seen a message.
inline int probe_succeeded(const Shape &shape, std::uint64_t site, const MPI_Status *status) {
    if (replaying && next_source < sources.size()) ++next_source;
    return observed(shape, site, [] { return MPI_SUCCESS; }, status);
}

}  // namespace fpna
