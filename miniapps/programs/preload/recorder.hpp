// Records of calls: opened with their inputs, closed with their outputs.
//
// Calls that the MPI library makes inside another call are not the program's; `inside` marks them, for each thread. No thread
// holds the lock inside the MPI library, where it may wait for a message of another thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <mpi.h>

#include "communicators.hpp"
#include "data.hpp"
#include "disturb.hpp"
#include "log.hpp"
#include "places.hpp"
#include "neighbours.hpp"
#include "shapes.hpp"

namespace fpna {

inline Log recorded;
inline std::atomic<bool> active{false};
inline thread_local bool inside = false;
inline bool point_to_point = false;
inline int world_size = 0;
inline bool threads = false;  // whether threads may call at the same time
inline thread_local bool main_thread = false;  // whether this thread called MPI_Init

// The guarantee of the sum of fpna's library (kernels/library) to which this thread's calls belong: fpna_guarantee, or 0.
inline thread_local int promised = 0;

// Whether this call comes from the program and is recorded.
inline bool on() { return active.load(std::memory_order_relaxed) && !inside; }

inline bool on(MPI_Comm comm) { return comm != MPI_COMM_NULL && on(); }

// Counts a call that is not recorded, by the number of its function in functions.py.
inline void count_unseen(int number) {
    Header *header = recorded.header();
    if (!header || number >= MOST_COUNTED) return;
    std::uint64_t before = header->unseen[number].load(std::memory_order_relaxed);
    while (!header->unseen[number].compare_exchange_weak(before, checked_count(count_in(before) + 1, number))) {
    }
}

// During its lifetime, this thread's calls come from the MPI library or this library.
class Inside {
  public:
    Inside() : before_(inside) {
        inside = true;
        round_to_nearest();
    }
    ~Inside() {
        inside = before_;
        if (!before_) disturb_arithmetic();
    }

  private:
    bool before_;
};

inline int type_keyval = MPI_KEYVAL_INVALID;
constexpr std::uint16_t NONE = 0xffff;  // in place of the number of a type or an operation

// The number of a type. Types with the same name share it, since a program may make new types in every step. Types of the
// program keep it as an attribute, since another type may get their handle later.
inline int name_type(MPI_Datatype type) {
    static std::unordered_map<std::uint64_t, int> types;
    static std::unordered_map<std::string, int> numbers;
    void *value = nullptr;
    int there = 0;
    const bool kept = lasting(type);
    if (kept) {
        if (const auto place = types.find(number_of(type)); place != types.end()) return place->second;
    } else {
        PMPI_Type_get_attr(type, type_keyval, &value, &there);
        if (there) return int(reinterpret_cast<std::intptr_t>(value));
    }
    char name[MPI_MAX_OBJECT_NAME] = "";
    int length = 0;
    PMPI_Type_get_name(type, name, &length);
    const auto [place, fresh] = numbers.try_emplace(name, int(std::min(numbers.size(), std::size_t(NONE))));
    const int number = place->second;
    if (kept)
        types[number_of(type)] = number;
    else
        PMPI_Type_set_attr(type, type_keyval, reinterpret_cast<void *>(std::intptr_t(number)));
    if (fresh && number < NONE)
        texts.line("{\"type\": " + std::to_string(number) + ", \"name\": " + quoted(name) + "}");
    return number;
}

// The functions of the program's operations, as places, by handle. A handle may be used again for another operation.
inline std::unordered_map<std::uint64_t, std::uint64_t> functions_of_operations;

// The program has made an operation of this function.
inline void introduce_operation(MPI_Op op, const void *function) {
    const std::uint64_t place = every_place().of_function(reinterpret_cast<std::uint64_t>(function));
    const std::lock_guard<std::mutex> held(lock);
    functions_of_operations[number_of(op)] = place;
}

// The number of an operation; the program's operations share one if they have the same function.
inline int name_operation(MPI_Op op) {
    static const std::pair<MPI_Op, const char *> named[] = {
        {MPI_SUM, "sum"}, {MPI_PROD, "prod"}, {MPI_MIN, "min"}, {MPI_MAX, "max"}, {MPI_LAND, "land"}, {MPI_LOR, "lor"},
        {MPI_LXOR, "lxor"}, {MPI_BAND, "band"}, {MPI_BOR, "bor"}, {MPI_BXOR, "bxor"}, {MPI_MINLOC, "minloc"},
        {MPI_MAXLOC, "maxloc"}, {MPI_REPLACE, "replace"}, {MPI_NO_OP, "no op"}};
    static bool told[std::size(named)] = {};
    static std::map<std::pair<std::uint64_t, int>, int> of_program;
    int number = 0;
    while (number < int(std::size(named)) && named[number].first != op) ++number;
    if (number < int(std::size(named))) {
        if (!std::exchange(told[number], true) && texts)
            texts.line("{\"op\": " + std::to_string(number) + ", \"name\": " + quoted(named[number].second) + "}");
        return number;
    }
    int commutes = 0;
    PMPI_Op_commutative(op, &commutes);
    const auto known = functions_of_operations.find(number_of(op));
    const std::uint64_t function = known == functions_of_operations.end() ? 0 : known->second;
    const auto [place, fresh] =
        of_program.try_emplace({function, commutes}, std::min(int(std::size(named) + of_program.size()), int(NONE)));
    if (fresh && place->second < NONE && texts)
        texts.line("{\"op\": " + std::to_string(place->second) + ", \"name\": \"user operation\", \"function\": " +
                   std::to_string(function) + ", \"commutes\": " + (commutes ? "true" : "false") + "}");
    return place->second;
}

// The number of the neighbours of a shape; writes new ones into the texts.
inline int name_neighbours(const Shape &shape) {
    static std::map<std::string, int> numbers;
    const auto list = [](const std::vector<int> &ranks) {
        std::string text;
        for (int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
        return "[" + text + "]";
    };
    const std::string said = "\"from\": " + list(in_the_world(shape.neighbours.from, shape.comm)) +
                             ", \"to\": " + list(in_the_world(shape.neighbours.to, shape.comm));
    const auto [place, fresh] = numbers.try_emplace(said, int(numbers.size()));
    if (fresh) texts.line("{\"neighbours\": " + std::to_string(place->second) + ", " + said + "}");
    return place->second;
}

inline bool among_neighbours(Kind kind) { return kind >= NEIGHBOR_ALLGATHER && kind <= NEIGHBOR_ALLTOALLW; }

inline void commit(const Record &record) {
    if (Record *place = recorded.next()) {
        *place = record;
        recorded.commit(texts.state());
    }
}

// Adds hash and sizes of the input or output of a call to its record.
inline void put(Record &record, bool in, const Spans &spans, bool counted) {
    if (spans.empty()) return;
    const Hashed hashed = hash(spans.data(), spans.size());
    std::memcpy(in ? record.in : record.out, hashed.digest, 16);
    (in ? record.in_basic : record.out_basic) = std::uint16_t(hashed.basic);
    (in ? record.in_sizes : record.out_sizes) = hashed.sizes;
    if (counted) record.bytes = hashed.bytes;
    if (hashed.packed) record.flags |= PACKED;
}

// The record of a call on this communicator before it begins. The caller holds the lock.
inline Record described(const Shape &shape, std::uint64_t site, const Communicator &comm) {
    Record record{};
    record.site = site;
    record.count = shape.count;
    record.at = shape.at;
    record.comm = comm.number;
    record.comm_size = comm.size;
    record.peer = among_neighbours(shape.kind) ? name_neighbours(shape) : shape.peer;
    record.tag = shape.tag;
    record.kind = shape.kind;
    record.type = shape.type == MPI_DATATYPE_NULL ? NONE : std::uint16_t(name_type(shape.type));
    record.op = shape.op == MPI_OP_NULL ? NONE : std::uint16_t(name_operation(shape.op));
    record.flags = std::uint16_t((shape.in_place ? IN_PLACE : 0) | (shape.wildcard ? WILDCARD : 0) |
                                 (shape.replaced ? REPLACED : 0) | (comm.inter ? INTER : 0) |
                                 promised << PROMISED_BITS |
                                 (shape.scattered ? SCATTERED : 0));
    if (shape.in.empty()) {
        MPI_Aint size;
        for (const Span &span : shape.out)
            if (readable(span)) record.bytes += (dense(span.type, size), size * span.count);
    }
    return record;
}

// Begins the record of a described call, with its input. The caller holds the lock.
inline void open(Record &record, const Spans &in) {
    record.number = calls++;
    if (threads && !main_thread) record.flags |= OTHER_THREAD;
    put(record, true, in, true);
}

// The record of a call of this shape that begins now.
inline Record begun(const Shape &shape, std::uint64_t site, const Communicator &comm) {
    const std::lock_guard<std::mutex> held(lock);
    Record record = described(shape, site, comm);
    if (is_collective(shape.kind) && comm.size == world_size && !comm.inter) ++met;
    open(record, shape.in);
    record.begin = now();
    return record;
}

// The part of a receive buffer that a message filled, in elements, or in bytes if it ends inside an element.
inline Span taken(const MPI_Status &status, const Span &out) {
    if (!readable(out)) return {nullptr, 0, out.type};
    int count = 0, bytes = 0;
    MPI_Aint size;
#if MPI_VERSION >= 4
    MPI_Count whole = 0;
    PMPI_Get_count_c(&status, out.type, &whole);
    if (whole != MPI_UNDEFINED) return {out.start, MPI_Aint(whole), out.type};
#endif
    PMPI_Get_count(&status, out.type, &count);
    if (count != MPI_UNDEFINED) return {out.start, count, out.type};
    PMPI_Get_count(&status, MPI_BYTE, &bytes);
    if (bytes == MPI_UNDEFINED) return out;  // more than an int can count, and the library has no large counts
    if (dense(out.type, size)) return {out.start, bytes, MPI_BYTE};
    return {out.start, size > 0 ? bytes / size : 0, out.type};
}

// Adds sender, tag and data of a message to the record of a receive or a probe, by its status. The caller holds the lock.
inline void take(Record &record, const MPI_Status &status, const Spans &out) {
    int cancelled = 0;
    record.peer = status.MPI_SOURCE;
    record.tag = status.MPI_TAG;
    PMPI_Test_cancelled(&status, &cancelled);
    if (cancelled) record.peer = -1;
    if (out.empty() || cancelled) return;
    const Span got = taken(status, out[0]);
    record.count = got.count;
    put(record, false, {got}, true);
}

// Adds the data that a call read from a file, by its status: at the end of the file less than it asked for.
inline void take_read(Record &record, const MPI_Status &status, const Spans &out) {
    const Span got = taken(status, out[0]);
    record.count = got.count;
    record.bytes = 0;
    put(record, false, {got}, true);
}

constexpr std::uint8_t NOTHING[16] = {};  // the hash of no data

// The call has ended: adds its output and commits the record. The caller holds the lock.
inline void finish(Record &record, const MPI_Status *status, const Spans &out, bool failed,
                  std::int64_t end) {
    record.end = end;
    if (failed)
        record.flags |= FAILED;
    else if (status && receives(Kind(record.kind)))
        take(record, *status, out);
    else if (status && reads(Kind(record.kind)))
        take_read(record, *status, out);
    else
        put(record, false, out, std::memcmp(record.in, NOTHING, 16) == 0);
    commit(record);
}

// Runs one call and records it. `status()`: the status of a receive or a probe; null for other calls.
template <typename Run, typename Status>
int observed_with(const Shape &shape, std::uint64_t site, const Communicator &comm, Run run, Status status) {
    const Inside from_here;
    Record record = begun(shape, site, comm);
    const int code = run();
    const std::int64_t end = now();
    const MPI_Status *got = code == MPI_SUCCESS ? status() : nullptr;
    const std::lock_guard<std::mutex> held(lock);
    finish(record, got, shape.out, code != MPI_SUCCESS, end);
    return code;
}

template <typename Run>
int observed(const Shape &shape, std::uint64_t site, Run run, const MPI_Status *status = nullptr) {
    return observed_with(shape, site, known(shape.comm), run, [=] { return status; });
}

}  // namespace fpna
