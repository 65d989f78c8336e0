// Replays messages from any source in the order of a recorded run: the k-th such receive or probe of this rank gets the
// recorded source. Messages from one source do not overtake each other, so the tag is not needed. If the program makes other
// calls than the recorded run, the replay ends with a message, so that no rank waits for a message that was never sent.
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

// The source of a message that a call received from any source, and the kind and form of the call.
struct Source {
    std::int32_t rank, kind, form;  // form: NONBLOCKING and PERSISTENT
};
inline std::vector<Source> sources;
inline std::size_t next_source = 0;

// Reads the launcher's file: the rank, the number of ranks, then the sources.
inline bool read_sources(const char *path, int rank, int size) {
    std::FILE *file = std::fopen(path, "rb");
    std::int32_t head[2] = {};
    Source source;
    replaying = file && std::fread(head, sizeof head, 1, file) == 1 && head[0] == rank && head[1] == size;
    while (replaying && std::fread(&source, sizeof source, 1, file) == 1) sources.push_back(source);
    if (file) std::fclose(file);
    return replaying;
}

// The time at which this rank began to wait in an MPI call; 0 if it does not wait.
inline std::atomic<std::int64_t> waiting_since{0};

class Waiting {
  public:
    Waiting() { if (replaying) waiting_since = now(); }
    ~Waiting() { if (replaying) waiting_since = 0; }
};

// The time, in ns, after which a waiting rank prints a message.
inline std::int64_t patience() {
    static const char *text = std::getenv("FPNA_PATIENCE");  // seconds
    static const std::int64_t own = (text ? std::atoll(text) : 60) * 1000000000;
    return own;
}

// Prints a message if a rank waits for long: a program that took another path than the recorded run may wait for ever.
inline void watch(int rank) {
    std::thread([=] {
        for (std::int64_t told = 0;;) {
            std::this_thread::sleep_for(std::chrono::seconds(1));
            const std::int64_t since = waiting_since;
            if (!replaying || !since || since == told || now() - since < patience()) continue;
            told = since;
            std::fprintf(stderr, "fpna run: rank %d has waited for %lld s for a message; if the program took another path than "
                         "the recorded run, it will not come: end the run, and record it again\n", rank,
                         (long long)(patience() / 1000000000));
        }
    }).detach();
}

// Ends the replay on this rank, which took another path than the recorded run, or one that cannot be replayed.
inline void leave_record(const char *why) {
    std::fprintf(stderr, "fpna run: the replay ends on this rank at its message %zu of %zu from any source: %s; from here on "
                 "messages come in any order\n", next_source + 1, sources.size(), why);
    replaying = false;
    waiting_since = 0;
}

// Whether the next recorded call has this kind and form; else ends the replay. The caller holds the lock.
inline bool follows(Kind kind, int form) {
    if (next_source == sources.size()) {
        leave_record("the recorded run received no more");
        return false;
    }
    const Source &next = sources[next_source];
    if (next.kind == kind && next.form == form) return true;
    leave_record("the recorded run made another call there");
    return false;
}

// Replaces MPI_ANY_SOURCE by the recorded source.
inline void replay(int &source, const Shape &shape, int form = 0) {
    if (!replaying || source != MPI_ANY_SOURCE) return;
    const std::lock_guard<std::mutex> held(lock);
    if (!replaying || !follows(shape.kind, form)) return;
    if (sources[next_source].rank >= 0) source = sources[next_source].rank;  // -1: no message came
    ++next_source;
}

// A persistent receive from any source starts: its source cannot be replaced after its preparation.
inline void replay_start(const Record &record) {
    if (replaying && record.flags & WILDCARD) leave_record("a persistent receive, which cannot be replayed");
}

// A nonblocking probe finds the message that it found in the recorded run, in the order of the other calls: if the next
// recorded call is another one, it finds nothing. After a long time it gets the true answer, since the program may have taken
// another path.
class Asking {
  public:
    Asking(int &source, Kind kind) {
        if (!replaying || source != MPI_ANY_SOURCE) return;
        const std::lock_guard<std::mutex> held(lock);
        if (!replaying || next_source == sources.size() || !patient()) return;
        if (sources[next_source].kind == kind)
            source = sources[next_source].rank;
        else
            nothing_ = true;
    }

    // Whether the probe must find nothing.
    bool nothing() const { return nothing_; }

  private:
    // Whether the time since the last message is below `patience()`.
    static bool patient() {
        static std::size_t at = SIZE_MAX;
        static std::int64_t since = 0;
        if (at != next_source) at = next_source, since = now();
        return now() - since < patience();
    }

    bool nothing_ = false;
};

// A nonblocking probe has found a message.
inline int probe_succeeded(const Shape &shape, std::uint64_t site, const MPI_Status *status) {
    if (replaying) {
        const std::lock_guard<std::mutex> held(lock);
        if (replaying && follows(shape.kind, 0)) {
            if (sources[next_source].rank == status->MPI_SOURCE)
                ++next_source;
            else
                leave_record("a probe found another message than in the recorded run");
        }
    }
    return observed(shape, site, [] { return MPI_SUCCESS; }, status);
}

}  // namespace fpna
