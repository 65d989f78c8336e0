// Pending calls: nonblocking and persistent calls by request, until a wait or a test reports their end.
//
// The program may free its objects meanwhile, so this code duplicates types and keeps only the numbers of communicators.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <mpi.h>

#include "postings.hpp"

namespace fpna {

inline std::atomic<bool> replaying{false};  // receives from any source follow a recorded order
inline void replay_start(const Record &record);  // receives.hpp

// A receive from any source whose source a replay has chosen.
struct Chosen {
    MPI_Request request;
    MPI_Comm comm;
    int tag;
};
using Add = std::function<void()>;  // what is left to do for a sum of this library when its data have come; may be empty
struct Pending {
    Record record;
    Spans out;
    Add add = {};
    std::optional<Chosen> chosen = {};
};
struct Persistent {
    Record record;
    Spans in, out;
    Add add = {};
};
inline std::unordered_map<std::uint64_t, Pending> pending;
inline std::unordered_map<std::uint64_t, Persistent> persistent;
inline std::atomic<std::size_t> under_way{0};  // size of `pending`

// The call with this request has ended. The caller holds the lock.
inline void complete(std::uint64_t handle, const MPI_Status &status, bool failed = false) {
    const auto place = pending.find(handle);
    if (place == pending.end()) return;
    auto &[record, out, add, chosen] = place->second;
    if (add && !failed) add();
    finish(record, &status, out, failed, now());
    if (!(record.flags & PERSISTENT)) release(out);
    pending.erase(place);
    under_way = pending.size();
}

// A call has begun. MPI libraries give all calls that end at once the same request: if two calls have one request, both have
// ended. The caller holds the lock.
inline void keep(MPI_Request request, Record record, Spans out, Add add) {
    static std::unordered_set<std::uint64_t> shared;
    const std::uint64_t handle = number_of(request);
    const bool there = pending.count(handle) != 0;
    if (there || shared.count(handle)) {
        int ended = 0;
        MPI_Status status;
        PMPI_Request_get_status(request, &ended, &status);
        if (there) complete(handle, status, !ended);  // else it ended in an unobserved call
        if (ended) {
            shared.insert(handle);
            if (add) add();
            finish(record, &status, out, false, now());
            return;
        }
    }
    if (!(record.flags & PERSISTENT)) hold(out);
    pending[handle] = {record, std::move(out), std::move(add)};
    under_way = pending.size();
}

// Begins a nonblocking call, which is pending until `request()` completes.
template <typename Run, typename Request>
int started_on(const Shape &shape, std::uint64_t site, const Communicator &comm, Run run, Request request, Add add = {}) {
    const Inside from_here;
    Record record = begun(shape, site, comm);
    record.flags |= NONBLOCKING;
    const int code = run();
    const MPI_Request handle = code == MPI_SUCCESS ? request() : MPI_REQUEST_NULL;
    postings.post(handle);
    const std::lock_guard<std::mutex> held(lock);
    if (handle != MPI_REQUEST_NULL)
        keep(handle, record, shape.out, std::move(add));
    else
        finish(record, nullptr, shape.out, code != MPI_SUCCESS, now());
    return code;
}

template <typename Run, typename Request>
int started(const Shape &shape, std::uint64_t site, Run run, Request request, Add add = {}) {
    return started_on(shape, site, known(shape.comm), run, request, std::move(add));
}

// Prepares a persistent call, which MPI_Start begins any number of times.
template <typename Run, typename Request>
int prepared(const Shape &shape, std::uint64_t site, Run run, Request request, Add add = {}) {
    const Inside from_here;
    const int code = run();
    if (code != MPI_SUCCESS) return code;
    const std::uint64_t handle = number_of(request());
    const Communicator &comm = known(shape.comm);
    const std::lock_guard<std::mutex> held(lock);
    Persistent fresh{described(shape, site, comm), shape.in, shape.out, std::move(add)};
    fresh.record.flags |= NONBLOCKING | PERSISTENT;
    hold(fresh.in);
    hold(fresh.out);
    persistent[handle] = std::move(fresh);
    return code;
}

// Persistent requests that are about to start. Reads their data now: afterwards it belongs to the MPI library.
template <typename Request>
void restart(int count, Request request) {
    const std::lock_guard<std::mutex> held(lock);
    for (int i = 0; i < count; ++i) {
        postings.post(request(i));
        const auto place = persistent.find(number_of(request(i)));
        if (place == persistent.end()) continue;
        Record record = place->second.record;
        replay_start(record);
        open(record, place->second.in);
        record.begin = now();
        if (pending.count(place->first)) complete(place->first, MPI_Status{}, true);  // its end was not observed
        pending[place->first] = {record, place->second.out, place->second.add};
    }
    under_way = pending.size();
}

// The program learns that a request has ended, and keeps it: its result must be there.
inline void add_now(MPI_Request request) {
    const std::lock_guard<std::mutex> held(lock);
    const auto place = pending.find(number_of(request));
    if (place != pending.end() && place->second.add) std::exchange(place->second.add, {})();
}

// A replay has chosen the source of the receive from any source with this request.
inline void choose(MPI_Request request, MPI_Comm comm, int tag) {
    const std::lock_guard<std::mutex> held(lock);
    if (const auto place = pending.find(number_of(request)); place != pending.end()) place->second.chosen = {request, comm, tag};
}

// Whether a replay has chosen the source of a pending receive.
inline bool is_chosen(std::uint64_t handle) {
    const std::lock_guard<std::mutex> held(lock);
    const auto place = pending.find(handle);
    return place != pending.end() && place->second.chosen;
}

// The program frees a request. The call continues, but the result of a receive stays unknown.
inline void drop(MPI_Request request) {
    postings.end(number_of(request));
    const std::lock_guard<std::mutex> held(lock);
    const std::uint64_t handle = number_of(request);
    if (const auto place = pending.find(handle); place != pending.end()) {
        auto &[record, out, add, chosen] = place->second;
        record.peer = receives(Kind(record.kind)) ? -1 : record.peer;
        commit(record);
        if (!(record.flags & PERSISTENT)) release(out);
        pending.erase(place);
        under_way = pending.size();
    }
    if (const auto place = persistent.find(handle); place != persistent.end()) {
        release(place->second.in);
        release(place->second.out);
        persistent.erase(place);
    }
}

// At the end: commits calls that never completed, so that their place in the order is known.
inline void give_up_pending() {
    for (auto &[handle, unfinished] : pending) {
        if (receives(Kind(unfinished.record.kind))) unfinished.record.peer = -1;
        commit(unfinished.record);
    }
    pending.clear();
}

// Messages that a probe has matched, until they are received: their communicator, and whether from any source.
struct Matched {
    Communicator comm;
    bool wildcard;
};
inline std::unordered_map<std::uint64_t, Matched> messages;

inline void match(MPI_Message message, MPI_Comm comm, bool wildcard) {
    const Communicator own = known(comm);
    const std::lock_guard<std::mutex> held(lock);
    messages[number_of(message)] = {own, wildcard};
}

// The communicator of a matched message that is about to be received; none if the message is not recorded.
inline std::optional<Communicator> unmatch(MPI_Message message) {
    std::optional<Communicator> found;
    if (!on()) return found;
    {
        const std::lock_guard<std::mutex> held(lock);
        if (const auto place = messages.find(number_of(message)); place != messages.end()) {
            if (point_to_point || place->second.wildcard) found = place->second.comm;
            messages.erase(place);
            return found;
        }
    }
    if (point_to_point) found = known(MPI_COMM_WORLD);  // for MPI_PROC_NULL, which has no communicator
    return found;
}

}  // namespace fpna
