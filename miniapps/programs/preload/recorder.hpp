// What is recorded of the calls: opened with what goes in, closed with what came out.
//
// A call that the library makes inside another is not the program's: `inside` says so, for each thread. The lock is never
// held while the library runs, since a thread may wait there for what another one sends.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include <mpi.h>

#include "data.hpp"
#include "disturb.hpp"
#include "log.hpp"
#include "places.hpp"
#include "shapes.hpp"

namespace fpna {

inline Log recorded;
inline std::atomic<bool> active{false};
inline thread_local bool inside = false;
inline bool point_to_point = false;
inline int world_size = 0;
inline std::uint64_t calls = 0, epoch = 0;
inline int keyval = MPI_KEYVAL_INVALID;

inline bool on() { return active.load(std::memory_order_relaxed) && !inside; }

// While it lives, this thread's calls are the library's or ours.
struct Inside {
    Inside() {
        inside = true;
        round_to_nearest();
    }
    ~Inside() {
        inside = false;
        disturb_arithmetic();
    }
};

// A handle as a number, whatever it is in this library.
template <typename Handle>
std::uint64_t number_of(Handle handle) {
    std::uint64_t number = 0;
    std::memcpy(&number, &handle, sizeof handle);
    return number;
}

// A communicator has the number of its first use on this rank, kept with it until it is freed.
struct Communicator {
    int number, size, rank;
};

inline int forget(MPI_Comm, int, void *value, void *) {
    delete static_cast<Communicator *>(value);
    return MPI_SUCCESS;
}

inline const Communicator &known(MPI_Comm comm) {
    static int communicators = 0;
    void *value = nullptr;
    int there = 0;
    PMPI_Comm_get_attr(comm, keyval, &value, &there);
    if (!there) {
        auto *fresh = new Communicator{communicators++, 0, 0};
        PMPI_Comm_size(comm, &fresh->size);
        PMPI_Comm_rank(comm, &fresh->rank);
        PMPI_Comm_set_attr(comm, keyval, fresh);
        value = fresh;
    }
    return *static_cast<Communicator *>(value);
}

inline int name_type(MPI_Datatype type) {
    static std::unordered_map<std::uint64_t, int> types;
    const auto [place, fresh] = types.try_emplace(number_of(type), int(types.size()));
    if (fresh && texts) {
        char name[MPI_MAX_OBJECT_NAME] = "";
        int length = 0;
        PMPI_Type_get_name(type, name, &length);
        std::fprintf(texts, "{\"type\": %d, \"name\": %s}\n", place->second, quoted(name).c_str());
        std::fflush(texts);
    }
    return place->second;
}

inline int name_operation(MPI_Op op) {
    static std::unordered_map<std::uint64_t, int> operations;
    static const std::pair<MPI_Op, const char *> named[] = {
        {MPI_SUM, "sum"}, {MPI_PROD, "prod"}, {MPI_MIN, "min"}, {MPI_MAX, "max"}, {MPI_LAND, "land"}, {MPI_LOR, "lor"},
        {MPI_LXOR, "lxor"}, {MPI_BAND, "band"}, {MPI_BOR, "bor"}, {MPI_BXOR, "bxor"}, {MPI_MINLOC, "minloc"},
        {MPI_MAXLOC, "maxloc"}, {MPI_REPLACE, "replace"}, {MPI_NO_OP, "no op"}};
    const auto [place, fresh] = operations.try_emplace(number_of(op), int(operations.size()));
    if (fresh && texts) {
        const char *name = "of the program";
        for (const auto &[known_op, text] : named)
            if (known_op == op) name = text;
        std::fprintf(texts, "{\"op\": %d, \"name\": %s}\n", place->second, quoted(name).c_str());
        std::fflush(texts);
    }
    return place->second;
}

inline void commit(const Record &record) {
    if (Record *place = recorded.next()) {
        *place = record;
        recorded.commit();
    }
}

// What goes in, or what came out.
inline void put(Record &record, bool in, const Spans &spans, bool counted) {
    if (spans.empty()) return;
    const Hashed hashed = hash(spans.data(), spans.size());
    std::memcpy(in ? record.in : record.out, hashed.digest, 16);
    (in ? record.in_basic : record.out_basic) = std::uint16_t(hashed.basic);
    (in ? record.in_sizes : record.out_sizes) = hashed.sizes;
    if (counted) record.bytes = hashed.bytes;
    if (hashed.packed) record.flags |= PACKED;
}

// The record of a call of this shape, with what goes in. Whoever calls holds the lock.
inline Record open(const Shape &shape, std::uint64_t site) {
    const Communicator &comm = known(shape.comm);
    Record record{};
    record.number = calls++;
    record.site = site;
    record.count = shape.count;
    record.comm = comm.number;
    record.comm_size = comm.size;
    record.peer = shape.peer;
    record.tag = shape.tag;
    record.kind = shape.kind;
    record.type = shape.type == MPI_DATATYPE_NULL ? 0xffff : std::uint16_t(name_type(shape.type));
    record.op = shape.op == MPI_OP_NULL ? 0xffff : std::uint16_t(name_operation(shape.op));
    record.flags = std::uint16_t((shape.in_place ? IN_PLACE : 0) | (shape.wildcard ? WILDCARD : 0) |
                                 (shape.replaced ? REPLACED : 0));
    record.epoch = epoch;
    if (comm.size == world_size && shape.kind < SEND) ++epoch;
    put(record, true, shape.in, true);
    if (shape.in.empty()) {
        MPI_Aint size;
        for (const Span &span : shape.out) record.bytes += (dense(span.type, size), size * span.count);
    }
    return record;
}

// The same, for a call that begins now.
inline Record begun(const Shape &shape, std::uint64_t site) {
    const std::lock_guard<std::mutex> held(lock);
    Record record = open(shape, site);
    record.begin = now();
    return record;
}

// What a receive got, from its status. Whoever calls holds the lock.
inline void take(Record &record, const MPI_Status &status, const Spans &out) {
    int cancelled = 0, count = 0;
    record.peer = status.MPI_SOURCE;
    record.tag = status.MPI_TAG;
    PMPI_Test_cancelled(&status, &cancelled);
    if (cancelled) record.peer = -1;
    if (out.empty() || cancelled) return;
    PMPI_Get_count(&status, out[0].type, &count);
    record.count = count == MPI_UNDEFINED ? out[0].count : count;
    put(record, false, {{out[0].start, record.count, out[0].type}}, true);
}

// Runs one call and records it. `status()` says what a receive or a probe got; null for other calls.
template <typename Run, typename Status>
int observed_with(const Shape &shape, std::uint64_t site, Run run, Status status) {
    const Inside from_here;
    Record record = begun(shape, site);
    const int code = run();
    record.end = now();
    const std::lock_guard<std::mutex> held(lock);
    if (code != MPI_SUCCESS)
        record.flags |= FAILED;
    else if (const MPI_Status *got = status())
        take(record, *got, shape.out);
    else
        put(record, false, shape.out, shape.in.empty());
    commit(record);
    return code;
}

template <typename Run>
int observed(const Shape &shape, std::uint64_t site, Run run, const MPI_Status *status = nullptr) {
    return observed_with(shape, site, run, [=] { return status; });
}

// What is under way, by its request, and what waits to be started again.
struct Pending {
    Record record;
    Shape shape;
};
struct Persistent {
    Shape shape;
    std::uint64_t site;
};
inline std::unordered_map<std::uint64_t, Pending> pending;
inline std::unordered_map<std::uint64_t, Persistent> persistent;
inline std::atomic<std::size_t> under_way{0};  // of `pending`

inline void keep(std::uint64_t request, const Record &record, const Shape &shape) {
    pending[request] = {record, shape};
    under_way = pending.size();
}

// Begins one call, which goes on until `request()` completes.
template <typename Run, typename Request>
int started(const Shape &shape, std::uint64_t site, Run run, Request request) {
    const Inside from_here;
    Record record = begun(shape, site);
    record.flags |= NONBLOCKING;
    const int code = run();
    if (code == MPI_SUCCESS) {
        const std::lock_guard<std::mutex> held(lock);
        keep(number_of(request()), record, shape);
    }
    return code;
}

// Prepares a call that MPI_Start begins, as often as the program likes.
template <typename Run>
int prepared(const Shape &shape, std::uint64_t site, Run run, const MPI_Request *request) {
    const Inside from_here;
    const int code = run();
    if (code == MPI_SUCCESS) {
        const std::lock_guard<std::mutex> held(lock);
        persistent[number_of(*request)] = {shape, site};
    }
    return code;
}

// Persistent requests that are about to start. Their data is read here: afterwards it is the library's.
inline void restart(const MPI_Request *requests, int count) {
    const std::lock_guard<std::mutex> held(lock);
    for (int i = 0; i < count; ++i) {
        const auto place = persistent.find(number_of(requests[i]));
        if (place == persistent.end()) continue;
        Record record = open(place->second.shape, place->second.site);
        record.flags |= NONBLOCKING | PERSISTENT;
        record.begin = now();
        keep(place->first, record, place->second.shape);
    }
}

// The request that was `handle` has completed. Whoever calls holds the lock.
inline void complete(std::uint64_t handle, const MPI_Status &status) {
    const auto place = pending.find(handle);
    if (place == pending.end()) return;
    auto &[record, shape] = place->second;
    record.end = now();
    if (shape.kind == RECV)
        take(record, status, shape.out);
    else
        put(record, false, shape.out, shape.in.empty());
    commit(record);
    pending.erase(place);
    under_way = pending.size();
}

// At the end: what never completed, so that its place in the order is known.
inline void give_up_pending() {
    for (auto &[handle, unfinished] : pending) {
        unfinished.record.peer = -1;
        commit(unfinished.record);
    }
    pending.clear();
}

inline void drop(MPI_Request request) {
    const std::lock_guard<std::mutex> held(lock);
    pending.erase(number_of(request));
    persistent.erase(number_of(request));
    under_way = pending.size();
}

// A wait or test: which requests there were before it, since what completes becomes MPI_REQUEST_NULL.
class Completion {
  public:
    Completion(const MPI_Request *requests, int count) : on_(fpna::on() && under_way) {
        if (!on_) return;
        inside = true;
        for (int i = 0; i < count; ++i) handles_.push_back(number_of(requests[i]));
        own_.resize(std::size_t(count) + 1);  // never empty: the library may refuse a null pointer
    }
    ~Completion() {
        if (on_) inside = false;
    }

    bool on() const { return on_; }

    // Where the library is to write statuses: where the program wants them, or here.
    MPI_Status *status(MPI_Status *given) { return on_ && given == MPI_STATUS_IGNORE ? own_.data() : given; }
    MPI_Status *statuses(MPI_Status *given) { return on_ && given == MPI_STATUSES_IGNORE ? own_.data() : given; }

    void one(int index, const MPI_Status *given) {
        if (!on_) return;
        const std::lock_guard<std::mutex> held(lock);
        complete(handles_[std::size_t(index)], given == MPI_STATUS_IGNORE ? own_[0] : *given);
    }
    void all(const MPI_Status *given) {
        if (!on_) return;
        const bool ignored = given == MPI_STATUS_IGNORE || given == MPI_STATUSES_IGNORE;
        const std::lock_guard<std::mutex> held(lock);
        for (std::size_t i = 0; i < handles_.size(); ++i) complete(handles_[i], ignored ? own_[i] : given[i]);
    }
    void some(int count, const int *indices, const MPI_Status *given) {
        if (!on_ || count == MPI_UNDEFINED) return;
        const std::lock_guard<std::mutex> held(lock);
        for (int i = 0; i < count; ++i)
            complete(handles_[std::size_t(indices[i])], given == MPI_STATUSES_IGNORE ? own_[std::size_t(i)] : given[i]);
    }

  private:
    bool on_;
    std::vector<std::uint64_t> handles_;
    std::vector<MPI_Status> own_;
};

}  // namespace fpna
