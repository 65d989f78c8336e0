// Calls of MPI that a program makes, observed through the profiling interface: what went in, what came out, when, and
// from where in the program. Loaded into it by `fpna run` (LD_PRELOAD); the program needs no change.
//
// Every wrapper calls the library's PMPI function with the program's own arguments and returns what it returns.
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include <dlfcn.h>

#include <mpi.h>

#include "data.hpp"
#include "log.hpp"

#define SITE reinterpret_cast<std::uint64_t>(__builtin_return_address(0))

namespace fpna {
namespace {

// Numbered as in rawlog.KINDS.
enum Kind : std::uint16_t {
    ALLREDUCE, REDUCE, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, ALLGATHER, ALLGATHERV, BCAST, ALLTOALL, ALLTOALLV, SCAN, EXSCAN,
    GATHER, GATHERV, SCATTER, SCATTERV, BARRIER, SEND, RECV,
};

Log recorded;
std::FILE *texts = nullptr;
std::recursive_mutex lock;  // of programs that call MPI from several threads
bool active = false, point_to_point = false;
std::uint64_t epoch = 0;
std::unordered_set<std::uint64_t> sites;
std::unordered_map<std::uint64_t, int> types, operations;

// A handle as a number, whatever it is in this library.
template <typename Handle>
std::uint64_t number_of(Handle handle) {
    std::uint64_t number = 0;
    std::memcpy(&number, &handle, sizeof handle);
    return number;
}

std::string quoted(const char *text) {
    std::string line = "\"";
    for (; *text; ++text) {
        if (*text == '"' || *text == '\\') line += '\\';
        line += static_cast<unsigned char>(*text) < 32 ? ' ' : *text;
    }
    return line + "\"";
}

// Says once where in which file a return address is. The symbol is known where the program exports it; else the launcher
// asks the file's own tables.
void note_site(std::uint64_t site) {
    if (!texts || !sites.insert(site).second) return;
    Dl_info info{};
    dladdr(reinterpret_cast<void *>(site), &info);
    std::fprintf(texts, "{\"site\": %llu, \"file\": %s, \"offset\": %llu, \"symbol\": %s}\n", (unsigned long long)site,
                 quoted(info.dli_fname ? info.dli_fname : "").c_str(),
                 (unsigned long long)(site - std::uint64_t(info.dli_fbase)),
                 quoted(info.dli_sname ? info.dli_sname : "").c_str());
    std::fflush(texts);
}

struct Communicator {
    int number, size, rank;
};
int communicators = 0, keyval = MPI_KEYVAL_INVALID;

int forget(MPI_Comm, int, void *value, void *) {
    delete static_cast<Communicator *>(value);
    return MPI_SUCCESS;
}

// A communicator has the number of its first use on this rank, kept with it until it is freed.
const Communicator &known(MPI_Comm comm) {
    void *value = nullptr;
    int there = 0;
    PMPI_Comm_get_attr(comm, keyval, &value, &there);
    if (!there) {
        auto *made = new Communicator{communicators++, 0, 0};
        PMPI_Comm_size(comm, &made->size);
        PMPI_Comm_rank(comm, &made->rank);
        PMPI_Comm_set_attr(comm, keyval, made);
        if (texts) {
            std::fprintf(texts, "{\"comm\": %d, \"size\": %d, \"rank\": %d}\n", made->number, made->size, made->rank);
            std::fflush(texts);
        }
        value = made;
    }
    return *static_cast<Communicator *>(value);
}

int name_type(MPI_Datatype type) {
    auto [place, fresh] = types.try_emplace(number_of(type), int(types.size()));
    if (fresh && texts) {
        char name[MPI_MAX_OBJECT_NAME] = "";
        int length = 0;
        PMPI_Type_get_name(type, name, &length);
        std::fprintf(texts, "{\"type\": %d, \"name\": %s}\n", place->second, quoted(name).c_str());
    }
    return place->second;
}

int name_operation(MPI_Op op) {
    static const std::pair<MPI_Op, const char *> named[] = {
        {MPI_SUM, "sum"}, {MPI_PROD, "prod"}, {MPI_MIN, "min"}, {MPI_MAX, "max"}, {MPI_LAND, "land"}, {MPI_LOR, "lor"},
        {MPI_LXOR, "lxor"}, {MPI_BAND, "band"}, {MPI_BOR, "bor"}, {MPI_BXOR, "bxor"}, {MPI_MINLOC, "minloc"},
        {MPI_MAXLOC, "maxloc"}, {MPI_REPLACE, "replace"}, {MPI_NO_OP, "no op"}};
    auto [place, fresh] = operations.try_emplace(number_of(op), int(operations.size()));
    if (fresh && texts) {
        const char *name = "of the program";
        for (auto &[known_op, text] : named)
            if (known_op == op) name = text;
        std::fprintf(texts, "{\"op\": %d, \"name\": %s}\n", place->second, quoted(name).c_str());
    }
    return place->second;
}

// The place `elements` behind the beginning of a buffer.
const void *part(const void *buffer, MPI_Aint elements, MPI_Datatype type) {
    MPI_Aint lower, extent;
    PMPI_Type_get_extent(type, &lower, &extent);
    return static_cast<const char *>(buffer) + elements * extent;
}

// What ranks 0, 1, ... send or get, by counts and displacements.
std::vector<Span> parts(const void *buffer, const int counts[], const int places[], MPI_Datatype type, int size) {
    std::vector<Span> spans;
    for (int r = 0; r < size; ++r) spans.push_back({part(buffer, places[r], type), counts[r], type});
    return spans;
}

// What is under way, by its request.
struct Pending {
    Record record;
    std::vector<Span> out;
    bool receives;  // its source, tag and length are known from the status
};
std::unordered_map<std::uint64_t, Pending> pending;

void commit(const Record &record) {
    if (Record *place = recorded.next()) {
        *place = record;
        recorded.commit();
    }
}

// What a receive got, from its status.
void received(Record &record, const MPI_Status &status, Span span) {
    int count = 0;
    PMPI_Get_count(&status, span.type, &count);
    record.peer = status.MPI_SOURCE;
    record.tag = status.MPI_TAG;
    record.count = count == MPI_UNDEFINED ? span.count : count;
    const Hashed hashed = hash({{span.start, record.count, span.type}});
    std::memcpy(record.out, hashed.digest, 16);
    record.bytes = hashed.bytes;
}

// The request that was `handle` has completed.
void complete(std::uint64_t handle, const MPI_Status &status) {
    const auto place = pending.find(handle);
    if (place == pending.end()) return;
    Pending &done = place->second;
    done.record.end = now();
    if (done.receives) {
        received(done.record, status, done.out[0]);
    } else if (!done.out.empty()) {
        const Hashed hashed = hash(done.out.data(), done.out.size());
        std::memcpy(done.record.out, hashed.digest, 16);
    }
    commit(done.record);
    pending.erase(place);
}

// One call: opened with what goes in, closed with what came out.
class Call {
  public:
    Call(Kind kind, MPI_Comm comm, MPI_Aint count, MPI_Datatype type, std::uint64_t site) : on_(active) {
        if (!on_) return;
        lock.lock();
        active = false;  // what the library calls in turn is not the program's
        const Communicator &c = known(comm);
        note_site(site);
        r_ = Record{};
        r_.number = calls++;
        r_.site = site;
        r_.count = count;
        r_.comm = c.number;
        r_.comm_size = c.size;
        r_.peer = r_.tag = -1;
        r_.kind = kind;
        r_.type = type == MPI_DATATYPE_NULL ? 0xffff : std::uint16_t(name_type(type));
        r_.op = 0xffff;
        r_.epoch = epoch;
        rank_ = c.rank;
        size_ = c.size;
    }

    bool on() const { return on_; }
    int rank() const { return rank_; }
    int size() const { return size_; }
    void op(MPI_Op op) { if (on_) r_.op = std::uint16_t(name_operation(op)); }
    void count(MPI_Aint count) { r_.count = count; }
    void got(const MPI_Status &status, Span span) { received(r_, status, span); }
    void peer(int peer, int tag = -1) { r_.peer = peer; r_.tag = tag; }
    void flag(Flag flag) { r_.flags |= flag; }

    void in(const Span *spans, std::size_t n) { put_in(hash(spans, n)); }
    void in(std::initializer_list<Span> spans) { put_in(hash(spans)); }
    void begin() { if (on_) r_.begin = now(); }
    void end() { if (on_) r_.end = now(); }
    void out(const Span *spans, std::size_t n) { put_out(hash(spans, n)); }
    void out(std::initializer_list<Span> spans) { put_out(hash(spans)); }

    // The call goes on until `request` completes; then `spans` hold what came out.
    void keep(MPI_Request request, std::vector<Span> spans, bool receives = false) {
        if (!on_) return;
        r_.flags |= NONBLOCKING;
        pending[number_of(request)] = {r_, std::move(spans), receives};
        kept_ = true;
    }

    ~Call() {
        if (!on_) return;
        if (!kept_) commit(r_);
        if (r_.comm_size == world_size && r_.kind < SEND) ++epoch;
        active = true;
        lock.unlock();
    }

    static std::uint64_t calls;
    static int world_size;

  private:
    void put_in(const Hashed &hashed) {
        std::memcpy(r_.in, hashed.digest, 16);
        r_.bytes = hashed.bytes;
        if (hashed.packed) flag(PACKED);
    }
    void put_out(const Hashed &hashed) {
        std::memcpy(r_.out, hashed.digest, 16);
        if (hashed.packed) flag(PACKED);
    }

    bool on_, kept_ = false;
    int rank_ = 0, size_ = 0;
    Record r_;
};
std::uint64_t Call::calls = 0;
int Call::world_size = 0;

// A wait or test: which requests there were before it, since what completes becomes MPI_REQUEST_NULL.
class Completion {
  public:
    Completion(const MPI_Request *requests, int count) : on_(active && !pending.empty()) {
        if (!on_) return;
        lock.lock();
        active = false;
        for (int i = 0; i < count; ++i) handles_.push_back(number_of(requests[i]));
        own_.resize(std::size_t(count));
    }
    ~Completion() {
        if (!on_) return;
        active = true;
        lock.unlock();
    }

    // Where the library is to write statuses: where the program wants them, or here.
    MPI_Status *status(MPI_Status *given) { return on_ && given == MPI_STATUS_IGNORE ? own_.data() : given; }
    MPI_Status *statuses(MPI_Status *given) { return on_ && given == MPI_STATUSES_IGNORE ? own_.data() : given; }

    void one(int index, const MPI_Status *given) {
        if (on_) complete(handles_[std::size_t(index)], given == MPI_STATUS_IGNORE ? own_[0] : *given);
    }
    void all(const MPI_Status *given) {
        const bool ignored = given == MPI_STATUS_IGNORE || given == MPI_STATUSES_IGNORE;
        for (std::size_t i = 0; i < handles_.size(); ++i) complete(handles_[i], ignored ? own_[i] : given[i]);
    }
    void some(int count, const int *indices, const MPI_Status *given) {
        for (int i = 0; on_ && count != MPI_UNDEFINED && i < count; ++i)
            complete(handles_[std::size_t(indices[i])],
                     given == MPI_STATUSES_IGNORE ? own_[std::size_t(i)] : given[i]);
    }

  private:
    bool on_;
    std::vector<std::uint64_t> handles_;
    std::vector<MPI_Status> own_;
};

void start() {
    const char *folder = std::getenv("FPNA_OBSERVE");
    if (!folder) return;
    int rank = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &Call::world_size);
    point_to_point = std::getenv("FPNA_OBSERVE_P2P") != nullptr;
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &keyval, nullptr);
    char name[32];
    std::snprintf(name, sizeof name, "/raw-%05d", rank);
    const std::string path = std::string(folder) + name;
    if (!recorded.open(path + ".log")) return;
    texts = std::fopen((path + ".txt").c_str(), "wx");
    recorded.header()->rank = rank;
    recorded.header()->size = Call::world_size;
    recorded.header()->began = now();
    known(MPI_COMM_WORLD);
    active = true;
}

void stop() {
    active = false;
    recorded.close();
    if (texts) std::fclose(texts);
    texts = nullptr;
}

}  // namespace
}  // namespace fpna

using namespace fpna;

extern "C" {

int MPI_Init(int *argc, char ***argv) {
    const int code = PMPI_Init(argc, argv);
    if (code == MPI_SUCCESS) start();
    return code;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    const int code = PMPI_Init_thread(argc, argv, required, provided);
    if (code == MPI_SUCCESS) start();
    return code;
}

int MPI_Finalize(void) {
    stop();
    return PMPI_Finalize();
}

int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Call call(ALLREDUCE, comm, count, type, SITE);
    if (call.on()) {
        call.op(op);
        if (send == MPI_IN_PLACE) call.flag(IN_PLACE);
        call.in({{send == MPI_IN_PLACE ? recv : send, count, type}});
    }
    call.begin();
    const int code = PMPI_Allreduce(send, recv, count, type, op, comm);
    call.end();
    if (call.on()) call.out({{recv, count, type}});
    return code;
}

int MPI_Reduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
    Call call(REDUCE, comm, count, type, SITE);
    if (call.on()) {
        call.op(op);
        call.peer(root);
        if (send == MPI_IN_PLACE) call.flag(IN_PLACE);
        call.in({{send == MPI_IN_PLACE ? recv : send, count, type}});
    }
    call.begin();
    const int code = PMPI_Reduce(send, recv, count, type, op, root, comm);
    call.end();
    if (call.on() && call.rank() == root) call.out({{recv, count, type}});
    return code;
}

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    Call call(BCAST, comm, count, type, SITE);
    if (call.on()) {
        call.peer(root);
        if (call.rank() == root) call.in({{data, count, type}});
    }
    call.begin();
    const int code = PMPI_Bcast(data, count, type, root, comm);
    call.end();
    if (call.on()) call.out({{data, count, type}});
    return code;
}

int MPI_Barrier(MPI_Comm comm) {
    Call call(BARRIER, comm, 0, MPI_DATATYPE_NULL, SITE);
    call.begin();
    const int code = PMPI_Barrier(comm);
    call.end();
    return code;
}

int MPI_Reduce_scatter(const void *send, void *recv, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Call call(REDUCE_SCATTER, comm, 0, type, SITE);
    if (call.on()) {
        MPI_Aint all = 0;
        for (int r = 0; r < call.size(); ++r) all += counts[r];
        call.op(op);
        call.count(all);
        if (send == MPI_IN_PLACE) call.flag(IN_PLACE);
        call.in({{send == MPI_IN_PLACE ? recv : send, all, type}});
    }
    call.begin();
    const int code = PMPI_Reduce_scatter(send, recv, counts, type, op, comm);
    call.end();
    if (call.on()) call.out({{recv, counts[call.rank()], type}});
    return code;
}

int MPI_Reduce_scatter_block(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Call call(REDUCE_SCATTER_BLOCK, comm, count, type, SITE);
    if (call.on()) {
        call.op(op);
        if (send == MPI_IN_PLACE) call.flag(IN_PLACE);
        call.in({{send == MPI_IN_PLACE ? recv : send, MPI_Aint(count) * call.size(), type}});
    }
    call.begin();
    const int code = PMPI_Reduce_scatter_block(send, recv, count, type, op, comm);
    call.end();
    if (call.on()) call.out({{recv, count, type}});
    return code;
}

int MPI_Scan(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Call call(SCAN, comm, count, type, SITE);
    if (call.on()) {
        call.op(op);
        if (send == MPI_IN_PLACE) call.flag(IN_PLACE);
        call.in({{send == MPI_IN_PLACE ? recv : send, count, type}});
    }
    call.begin();
    const int code = PMPI_Scan(send, recv, count, type, op, comm);
    call.end();
    if (call.on()) call.out({{recv, count, type}});
    return code;
}

int MPI_Exscan(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Call call(EXSCAN, comm, count, type, SITE);
    if (call.on()) {
        call.op(op);
        if (send == MPI_IN_PLACE) call.flag(IN_PLACE);
        call.in({{send == MPI_IN_PLACE ? recv : send, count, type}});
    }
    call.begin();
    const int code = PMPI_Exscan(send, recv, count, type, op, comm);
    call.end();
    if (call.on() && call.rank() > 0) call.out({{recv, count, type}});  // on rank 0 it is undefined
    return code;
}

int MPI_Allgather(const void *send, int count, MPI_Datatype type, void *recv, int each, MPI_Datatype to, MPI_Comm comm) {
    Call call(ALLGATHER, comm, each, to, SITE);
    if (call.on()) {
        if (send == MPI_IN_PLACE) {
            call.flag(IN_PLACE);
            call.in({{part(recv, MPI_Aint(each) * call.rank(), to), each, to}});
        } else {
            call.in({{send, count, type}});
        }
    }
    call.begin();
    const int code = PMPI_Allgather(send, count, type, recv, each, to, comm);
    call.end();
    if (call.on()) call.out({{recv, MPI_Aint(each) * call.size(), to}});
    return code;
}

int MPI_Allgatherv(const void *send, int count, MPI_Datatype type, void *recv, const int counts[], const int places[],
                   MPI_Datatype to, MPI_Comm comm) {
    Call call(ALLGATHERV, comm, count, to, SITE);
    if (call.on()) {
        if (send == MPI_IN_PLACE) {
            call.flag(IN_PLACE);
            call.in({{part(recv, places[call.rank()], to), counts[call.rank()], to}});
        } else {
            call.in({{send, count, type}});
        }
    }
    call.begin();
    const int code = PMPI_Allgatherv(send, count, type, recv, counts, places, to, comm);
    call.end();
    if (call.on()) {
        const auto got = parts(recv, counts, places, to, call.size());
        call.out(got.data(), got.size());
    }
    return code;
}

int MPI_Alltoall(const void *send, int count, MPI_Datatype type, void *recv, int each, MPI_Datatype to, MPI_Comm comm) {
    Call call(ALLTOALL, comm, each, to, SITE);
    if (call.on()) {
        const bool in_place = send == MPI_IN_PLACE;
        if (in_place) call.flag(IN_PLACE);
        call.in({{in_place ? recv : send, MPI_Aint(in_place ? each : count) * call.size(), in_place ? to : type}});
    }
    call.begin();
    const int code = PMPI_Alltoall(send, count, type, recv, each, to, comm);
    call.end();
    if (call.on()) call.out({{recv, MPI_Aint(each) * call.size(), to}});
    return code;
}

int MPI_Alltoallv(const void *send, const int counts[], const int places[], MPI_Datatype type, void *recv,
                  const int recv_counts[], const int recv_places[], MPI_Datatype to, MPI_Comm comm) {
    Call call(ALLTOALLV, comm, 0, to, SITE);
    if (call.on()) {
        const bool in_place = send == MPI_IN_PLACE;
        if (in_place) call.flag(IN_PLACE);
        const auto given = in_place ? parts(recv, recv_counts, recv_places, to, call.size())
                                    : parts(send, counts, places, type, call.size());
        call.in(given.data(), given.size());
    }
    call.begin();
    const int code = PMPI_Alltoallv(send, counts, places, type, recv, recv_counts, recv_places, to, comm);
    call.end();
    if (call.on()) {
        const auto got = parts(recv, recv_counts, recv_places, to, call.size());
        call.out(got.data(), got.size());
    }
    return code;
}

int MPI_Iallreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request) {
    Call call(ALLREDUCE, comm, count, type, SITE);
    if (call.on()) {
        call.op(op);
        if (send == MPI_IN_PLACE) call.flag(IN_PLACE);
        call.in({{send == MPI_IN_PLACE ? recv : send, count, type}});
    }
    call.begin();
    const int code = PMPI_Iallreduce(send, recv, count, type, op, comm, request);
    call.keep(*request, {{recv, count, type}});
    return code;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    Completion completion(request, 1);
    const int code = PMPI_Wait(request, completion.status(status));
    completion.all(status);
    return code;
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    Completion completion(request, 1);
    const int code = PMPI_Test(request, flag, completion.status(status));
    if (*flag) completion.all(status);
    return code;
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
    Completion completion(requests, count);
    const int code = PMPI_Waitall(count, requests, completion.statuses(statuses));
    completion.all(statuses);
    return code;
}

int MPI_Testall(int count, MPI_Request requests[], int *flag, MPI_Status statuses[]) {
    Completion completion(requests, count);
    const int code = PMPI_Testall(count, requests, flag, completion.statuses(statuses));
    if (*flag) completion.all(statuses);
    return code;
}

int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status) {
    Completion completion(requests, count);
    const int code = PMPI_Waitany(count, requests, index, completion.status(status));
    if (*index != MPI_UNDEFINED) completion.one(*index, status);
    return code;
}

int MPI_Testany(int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status) {
    Completion completion(requests, count);
    const int code = PMPI_Testany(count, requests, index, flag, completion.status(status));
    if (*flag && *index != MPI_UNDEFINED) completion.one(*index, status);
    return code;
}

int MPI_Waitsome(int count, MPI_Request requests[], int *done, int indices[], MPI_Status statuses[]) {
    Completion completion(requests, count);
    const int code = PMPI_Waitsome(count, requests, done, indices, completion.statuses(statuses));
    completion.some(*done, indices, statuses);
    return code;
}

int MPI_Testsome(int count, MPI_Request requests[], int *done, int indices[], MPI_Status statuses[]) {
    Completion completion(requests, count);
    const int code = PMPI_Testsome(count, requests, done, indices, completion.statuses(statuses));
    completion.some(*done, indices, statuses);
    return code;
}

int MPI_Request_free(MPI_Request *request) {
    if (active) {
        std::lock_guard<std::recursive_mutex> held(lock);
        pending.erase(number_of(*request));
    }
    return PMPI_Request_free(request);
}

int MPI_Recv(void *data, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status) {
    if (!active || !(point_to_point || source == MPI_ANY_SOURCE))
        return PMPI_Recv(data, count, type, source, tag, comm, status);
    Call call(RECV, comm, count, type, SITE);
    if (source == MPI_ANY_SOURCE) call.flag(WILDCARD);
    MPI_Status own;
    if (status == MPI_STATUS_IGNORE) status = &own;
    call.begin();
    const int code = PMPI_Recv(data, count, type, source, tag, comm, status);
    call.end();
    if (call.on() && code == MPI_SUCCESS) call.got(*status, {data, count, type});
    return code;
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request) {
    if (!active || !(point_to_point || source == MPI_ANY_SOURCE))
        return PMPI_Irecv(data, count, type, source, tag, comm, request);
    Call call(RECV, comm, count, type, SITE);
    if (source == MPI_ANY_SOURCE) call.flag(WILDCARD);
    call.begin();
    const int code = PMPI_Irecv(data, count, type, source, tag, comm, request);
    call.keep(*request, {{data, count, type}}, true);
    return code;
}

int MPI_Send(const void *data, int count, MPI_Datatype type, int target, int tag, MPI_Comm comm) {
    if (!active || !point_to_point) return PMPI_Send(data, count, type, target, tag, comm);
    Call call(SEND, comm, count, type, SITE);
    call.peer(target, tag);
    call.in({{data, count, type}});
    call.begin();
    const int code = PMPI_Send(data, count, type, target, tag, comm);
    call.end();
    return code;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int target, int tag, MPI_Comm comm, MPI_Request *request) {
    if (!active || !point_to_point) return PMPI_Isend(data, count, type, target, tag, comm, request);
    Call call(SEND, comm, count, type, SITE);
    call.peer(target, tag);
    call.in({{data, count, type}});
    call.begin();
    const int code = PMPI_Isend(data, count, type, target, tag, comm, request);
    call.keep(*request, {});
    return code;
}

}  // extern "C"
