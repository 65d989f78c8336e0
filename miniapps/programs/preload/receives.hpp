// Replays messages from any source in the order of a recorded run: the k-th such receive or blocking probe of this rank gets
// the recorded source. Messages from one source do not overtake each other, so the tag is not needed.
//
// If the program makes other calls than the recorded run, or if a recorded message does not come in time, the replay ends on
// this rank with a message: `leave_record`. From then on the rank is not held up, and receives that already wait for a recorded
// source take messages from any source again: `give_back`.
#pragma once

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <sched.h>

#include <mpi.h>

#include "requests.hpp"

namespace fpna {

// The source of a message that a call received from any source, and the kind and form of the call.
struct Source {
    std::int32_t rank, kind, form;  // form: NONBLOCKING and PERSISTENT
};
inline std::vector<Source> sources;
inline std::size_t next_source = 0;  // of a replay
inline std::atomic<std::int64_t> from_any{0};  // receives and blocking probes from any source so far
inline int own_rank = 0;
inline std::atomic<bool> leaving{false};  // the replay has ended, and receives still wait for recorded sources
inline std::unordered_map<std::uint64_t, MPI_Request> moved;  // requests that the program has, and those in their place
inline std::atomic<bool> some_moved{false};

// The time, in ns, for which a replay waits for a recorded message or request.
inline std::int64_t patience() {
    static const char *text = std::getenv("FPNA_PATIENCE");  // seconds
    static const std::int64_t own = std::int64_t((text ? std::atof(text) : 60) * 1e9);
    return own;
}

// Repeats `there()` until it is true; false if this takes too long, or if the replay has ended on this rank.
template <typename There>
bool comes(There there) {
    constexpr int SPINS = 1000, PAUSE_US = 20;
    const std::int64_t since = now();
    for (int tries = 0; !there(); ++tries) {
        if (!replaying || now() - since > patience()) return false;
        if (tries < SPINS)
            sched_yield();
        else
            usleep(PAUSE_US);
    }
    return true;
}

inline std::string too_late() {
    char text[200];
    std::snprintf(text, sizeof text, "it did not come in %g s (--patience), since a rank took another path, or is slower than that",
                  double(patience()) / 1e9);
    return text;
}

// Ends the replay on this rank. `where`: the call; `why`: the recorded call, and what came.
inline void leave_record(const std::string &where, const std::string &why) {
    if (!replaying.exchange(false)) return;
    leaving = true;
    std::fprintf(stderr, "fpna run: rank %d: the replay ends at %s: %s; from here on this rank runs free\n", own_rank,
                 where.c_str(), why.c_str());
}

inline std::string message_number() {
    return "message " + std::to_string(next_source + 1) + " of " + std::to_string(sources.size()) + " from any source";
}

// The next recorded source, for a call of this kind and form; -1 if no message came, or if the replay has ended.
inline int recorded_source(Kind kind, int form) {
    const std::lock_guard<std::mutex> held(lock);
    if (!replaying) return -1;
    if (next_source == sources.size()) {
        leave_record(message_number(), "here " + name_of(kind, form) + ", in the recorded run no other message");
        return -1;
    }
    const Source &next = sources[next_source];
    if (next.kind != kind || next.form != form) {
        leave_record(message_number(), "here " + name_of(kind, form) + ", in the recorded run " +
                                           name_of(Kind(next.kind), next.form) + " from rank " + std::to_string(next.rank));
        return -1;
    }
    ++next_source;
    return next.rank;
}

// Gives receives that wait for a recorded source back to any source, in the order in which they were posted, after the replay
// has ended. The program still has the old requests, which are cancelled but not freed, so that no other gets their handles.
inline void give_back() {
    if (!leaving.exchange(false)) return;
    const Inside from_here;
    const std::lock_guard<std::mutex> held(lock);
    std::vector<Pending *> chosen;
    for (auto &[handle, each] : pending)
        if (each.chosen) chosen.push_back(&each);
    std::sort(chosen.begin(), chosen.end(), [](auto *a, auto *b) { return a->record.number < b->record.number; });
    for (Pending *each : chosen) {
        MPI_Request old = each->chosen->request, fresh = MPI_REQUEST_NULL;
        MPI_Status status;
        int ended = 0, cancelled = 0;
        PMPI_Request_get_status(old, &ended, &status);
        if (ended) continue;
        PMPI_Cancel(&old);
        while (!ended) PMPI_Request_get_status(old, &ended, &status);
        PMPI_Test_cancelled(&status, &cancelled);
        if (!cancelled) continue;
        const Span &span = each->out[0];
#if MPI_VERSION >= 4
        PMPI_Irecv_c(const_cast<void *>(span.start), span.count, span.type, MPI_ANY_SOURCE, each->chosen->tag, each->chosen->comm, &fresh);
#else
        PMPI_Irecv(const_cast<void *>(span.start), int(span.count), span.type, MPI_ANY_SOURCE, each->chosen->tag, each->chosen->comm, &fresh);
#endif
        moved[number_of(old)] = fresh;
        some_moved = true;
        Pending own = std::move(*each);
        own.chosen.reset();
        pending.erase(number_of(old));
        pending[number_of(fresh)] = std::move(own);
        postings.move(number_of(old), number_of(fresh));
    }
}

// The request to use in place of one that was given back to any source. `takes`: the program takes it, and the old one is freed.
inline MPI_Request current(MPI_Request request, bool takes = true) {
    if (!some_moved) return request;
    const std::lock_guard<std::mutex> held(lock);
    const auto place = moved.find(number_of(request));
    if (place == moved.end()) return request;
    const MPI_Request fresh = place->second;
    if (!takes) return fresh;
    moved.erase(place);
    PMPI_Wait(&request, MPI_STATUS_IGNORE);  // it is cancelled
    return fresh;
}

// Replaces MPI_ANY_SOURCE by the recorded source. A blocking call then waits here until its message is there, so that it does
// not wait longer than `patience()`. `sends`: the call also sends, and waits only after it has begun to.
inline void replay(int &source, const Shape &shape, int form = 0) {
    if (source != MPI_ANY_SOURCE) return;
    ++from_any;
    if (!replaying) return;
    const int recorded = recorded_source(shape.kind, form);
    if (recorded >= 0 && form) source = recorded;
    if (recorded >= 0 && !form) {
        int there = 0;
        const Inside from_here;
        if (comes([&] { return PMPI_Iprobe(recorded, shape.tag, shape.comm, &there, MPI_STATUS_IGNORE) || there; }))
            source = recorded;
        else
            leave_record("message " + std::to_string(next_source) + " of " + std::to_string(sources.size()) + " from any source",
                         name_of(shape.kind, form) + " waited for rank " + std::to_string(recorded) + ": " + too_late());
    }
    give_back();
}

// A persistent receive from any source starts: its source cannot be replaced after its preparation.
inline void replay_start(const Record &record) {
    if (replaying && record.flags & WILDCARD)
        leave_record(message_number(), "a persistent receive, which cannot be replayed");
}

// Whether a replay makes a send and a receive in one call as two calls; else counts the receive.
inline bool exchanges(const Span &send, const Shape &shape) {
    const bool apart = replaying && shape.wildcard && send.count <= INT_MAX && shape.out[0].count <= INT_MAX;
    if (!apart && shape.wildcard) ++from_any;
    return apart;
}

// A send and a receive in one call, during a replay: the send begins before this waits for the recorded message.
inline int exchange(const Span &send, int target, int send_tag, int source, const Shape &shape, MPI_Status *status) {
    const Span &recv = shape.out[0];
    MPI_Request request = MPI_REQUEST_NULL;
    std::vector<char> packed;
    int code, position = 0, length = 0;
    if (send.start == recv.start && target != MPI_PROC_NULL) {  // MPI_Sendrecv_replace
        PMPI_Pack_size(int(send.count), send.type, shape.comm, &length);
        packed.resize(std::size_t(length) + 1);
        PMPI_Pack(send.start, int(send.count), send.type, packed.data(), length, &position, shape.comm);
        code = PMPI_Isend(packed.data(), position, MPI_PACKED, target, send_tag, shape.comm, &request);
    } else {
        code = PMPI_Isend(send.start, int(send.count), send.type, target, send_tag, shape.comm, &request);
    }
    if (code != MPI_SUCCESS) return code;
    replay(source, shape);
    code = PMPI_Recv(const_cast<void *>(recv.start), int(recv.count), recv.type, source, shape.tag, shape.comm, status);
    const int sent = PMPI_Wait(&request, MPI_STATUS_IGNORE);
    return code == MPI_SUCCESS ? sent : code;
}

}  // namespace fpna
