// Reductions of one vector of each rank (fpna.h): blocking, nonblocking and persistent.
#include <limits>
#include <memory>
#include <vector>

#include "agreement.hpp"
#include "errors.hpp"
#include "reductions.hpp"

namespace fpna {
namespace {

// What a call reduces: `length` numbers of MPI's type `basic`, `each` for an element.
struct Vector {
    MPI_Datatype basic = MPI_DATATYPE_NULL;
    int each = 1, length = 0;

    char letter() const { return basic == MPI_DOUBLE ? (each == 1 ? 'd' : 'z') : each == 1 ? 's' : 'c'; }
};

Vector vector_of(int guarantee, MPI_Aint count, MPI_Datatype type) {
    static const struct {
        MPI_Datatype type, basic;
        int each;
    } types[] = {{MPI_FLOAT, MPI_FLOAT, 1},
                 {MPI_DOUBLE, MPI_DOUBLE, 1},
                 {MPI_C_FLOAT_COMPLEX, MPI_FLOAT, 2},
                 {MPI_C_DOUBLE_COMPLEX, MPI_DOUBLE, 2}};
    if (guarantee == FPNA_LAYOUT)
        throw Refused("under FPNA_LAYOUT the contribution of a rank, added up there, depends on the number of ranks: pass "
                      "the rows themselves to fpna_sum_d, with `fields` for the length of a row");
    if (guarantee != FPNA_RUN && guarantee != FPNA_EXACT)
        throw Refused("guarantee " + std::to_string(guarantee) + " is not FPNA_RUN or FPNA_EXACT");
    for (const auto &known : types) {
        if (known.type != type) continue;
        if (count < 0 || count * known.each > MOST)
            throw Refused(std::to_string(count) + " elements: one call adds from 0 to " + std::to_string(MOST / known.each));
        return {known.basic, known.each, int(count) * known.each};
    }
    throw Refused("the type is not MPI_FLOAT, MPI_DOUBLE, MPI_C_FLOAT_COMPLEX or MPI_C_DOUBLE_COMPLEX");
}

Addition addition_of(int guarantee) { return guarantee == FPNA_EXACT ? Addition::EXACT : Addition::TREE; }

template <typename Float>
void reduce(Reducing kind, int guarantee, const void *send, void *recv, const Vector &v, MPI_Comm comm, int root,
            std::vector<int> shares) {
    Reduction<Float> reduction(kind, addition_of(guarantee), static_cast<const Float *>(send), static_cast<Float *>(recv),
                               v.length, v.basic, comm, root, std::move(shares));
    const Promised promised(guarantee);
    require(reduction.run(), "a collective call of MPI");
}

Of of(Reducing kind) {
    return kind == Reducing::ALLREDUCE ? Of::ALLREDUCE : kind == Reducing::REDUCE ? Of::REDUCE : Of::REDUCE_SCATTER;
}

// A number of 31 bits for counts, by FNV-1a.
std::int64_t hash_of(const std::vector<int> &counts) {
    std::uint32_t hash = 2166136261u;
    for (int count : counts) hash = (hash ^ std::uint32_t(count)) * 16777619u;
    return hash >> 1;
}

// Agrees with all ranks on a call that reduces `v`, or throws.
void agree_on(Reducing kind, int guarantee, const void *send, const void *recv, MPI_Aint count, const Vector &v,
              std::string wrong, MPI_Comm comm, int root, const std::vector<int> &counts) {
    const bool gets = kind != Reducing::REDUCE || rank_of(comm) == root;
    if (wrong.empty() && v.length && (!send || (gets && !recv))) wrong = std::string(send ? "recv" : "send") + " is NULL";
    if (root < 0 || root >= size_of(comm)) wrong = "root is " + std::to_string(root) + ", and the ranks are from 0 to " +
                                                   std::to_string(size_of(comm) - 1);
    for (int each : counts)
        if (each < 0) wrong = "a count is " + std::to_string(each);
    const bool scatters = kind == Reducing::REDUCE_SCATTER;
    if (scatters && counts.empty()) wrong = "counts is NULL";
    agree({of(kind), v.letter(), guarantee, "elements", count, scatters ? "is the hash of the counts" : "is the root",
           scatters ? hash_of(counts) : root},
          wrong, comm);
}

// `counts`: elements of each rank, of a reduce-scatter.
int carry_out(const char *who, Reducing kind, int guarantee, const void *send, void *recv, MPI_Aint count,
              MPI_Datatype type, MPI_Comm comm, int root = 0, const std::vector<int> &counts = {}) {
    return outcome(who, [&] {
        require_communicator(comm);
        Vector v;
        std::string wrong;
        try {
            v = vector_of(guarantee, count, type);
        } catch (const Refused &refused) {
            wrong = refused.what();
        }
        const void *from = send == MPI_IN_PLACE ? recv : send;
        agree_on(kind, guarantee, from, recv, count, v, wrong, comm, root, counts);
        std::vector<int> shares;
        for (int each : counts) shares.push_back(each * v.each);
        if (v.basic == MPI_DOUBLE)
            reduce<double>(kind, guarantee, from, recv, v, comm, root, std::move(shares));
        else
            reduce<float>(kind, guarantee, from, recv, v, comm, root, std::move(shares));
    });
}

}  // namespace
}  // namespace fpna

// A reduction that gathers all contributions, then adds them. One message is all there is, so that requests of one
// communicator may end in any order.
struct fpna_request_s {
    fpna::Addition addition;
    fpna::Vector vector;
    const void *send;
    void *recv;
    MPI_Comm comm;
    bool persistent;
    int ranks = 0;
    MPI_Request gathering = MPI_REQUEST_NULL;
    bool under_way = false;
    std::vector<double> room;  // for numbers of either type

    void start() {
        using namespace fpna;
        if (under_way) throw Refused("the request is under way: wait for it first");
        const auto bytes = std::size_t(vector.length) * (vector.basic == MPI_DOUBLE ? sizeof(double) : sizeof(float));
        room.resize((bytes * std::size_t(ranks) + sizeof(double) - 1) / sizeof(double));
        const Promised promised(addition == Addition::EXACT ? FPNA_EXACT : FPNA_RUN);
        require(MPI_Iallgather(send, vector.length, vector.basic, room.data(), vector.length, vector.basic, comm, &gathering),
                "MPI_Iallgather");
        under_way = true;
    }

    void add() {
        if (vector.basic == MPI_DOUBLE)
            add_as<double>();
        else
            add_as<float>();
        under_way = false;
    }

  private:
    template <typename Float>
    void add_as() {
        fpna::add_rows_of_ranks(addition, reinterpret_cast<Float *>(room.data()), std::size_t(ranks),
                                std::size_t(vector.length), static_cast<Float *>(recv));
    }
};

namespace fpna {
namespace {

int prepared(const char *who, int guarantee, const void *send, void *recv, int count, MPI_Datatype type, MPI_Comm comm,
             bool persistent, fpna_request *request) {
    return outcome(who, [&] {
        if (!request) throw Refused("request is NULL");
        *request = nullptr;
        require_communicator(comm);
        const Vector v = vector_of(guarantee, count, type);
        auto made = std::make_unique<fpna_request_s>();
        made->addition = addition_of(guarantee);
        made->vector = v;
        made->send = send == MPI_IN_PLACE ? recv : send;
        made->recv = recv;
        made->comm = comm;
        made->persistent = persistent;
        require(MPI_Comm_size(comm, &made->ranks), "MPI_Comm_size");
        if (!persistent) made->start();
        *request = made.release();
    });
}

// Adds if the message has come, after waiting for it where `wait`.
int completed(const char *who, fpna_request *request, bool wait, int *done) {
    return outcome(who, [&] {
        if (done) *done = 1;
        if (!request || !*request) return;  // as of MPI_REQUEST_NULL
        fpna_request_s &of = **request;
        if (of.under_way) {
            int here = 1;
            if (wait)
                require(MPI_Wait(&of.gathering, MPI_STATUS_IGNORE), "MPI_Wait");
            else
                require(MPI_Test(&of.gathering, &here, MPI_STATUS_IGNORE), "MPI_Test");
            if (done) *done = here;
            if (!here) return;
            of.add();
        }
        if (of.persistent) return;
        delete *request;
        *request = nullptr;
    });
}

}  // namespace
}  // namespace fpna

extern "C" {

int fpna_allreduce(int guarantee, const void *send, void *recv, int count, MPI_Datatype type, MPI_Comm comm) {
    return fpna::carry_out("fpna_allreduce", fpna::Reducing::ALLREDUCE, guarantee, send, recv, count, type, comm);
}

int fpna_reduce(int guarantee, const void *send, void *recv, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    return fpna::carry_out("fpna_reduce", fpna::Reducing::REDUCE, guarantee, send, recv, count, type, comm, root);
}

int fpna_reduce_scatter(int guarantee, const void *send, void *recv, const int counts[], MPI_Datatype type, MPI_Comm comm) {
    std::vector<int> each;
    const int code = fpna::outcome("fpna_reduce_scatter", [&] {
        fpna::require_communicator(comm);
        if (counts) each.assign(counts, counts + fpna::size_of(comm));
    });
    if (code != FPNA_OK) return code;
    MPI_Aint all = 0;
    for (int count : each) all += count;
    return fpna::carry_out("fpna_reduce_scatter", fpna::Reducing::REDUCE_SCATTER, guarantee, send, recv, all, type, comm, 0,
                           each);
}

int fpna_reduce_scatter_block(int guarantee, const void *send, void *recv, int count, MPI_Datatype type, MPI_Comm comm) {
    int ranks = 0;
    const int code = fpna::outcome("fpna_reduce_scatter_block", [&] {
        fpna::require_communicator(comm);
        ranks = fpna::size_of(comm);
    });
    if (code != FPNA_OK) return code;
    return fpna::carry_out("fpna_reduce_scatter_block", fpna::Reducing::REDUCE_SCATTER, guarantee, send, recv,
                           MPI_Aint(count) * ranks, type, comm, 0, std::vector<int>(std::size_t(ranks), count));
}

int fpna_iallreduce(int guarantee, const void *send, void *recv, int count, MPI_Datatype type, MPI_Comm comm,
                    fpna_request *request) {
    return fpna::prepared("fpna_iallreduce", guarantee, send, recv, count, type, comm, false, request);
}

int fpna_allreduce_init(int guarantee, const void *send, void *recv, int count, MPI_Datatype type, MPI_Comm comm,
                        fpna_request *request) {
    return fpna::prepared("fpna_allreduce_init", guarantee, send, recv, count, type, comm, true, request);
}

int fpna_start(fpna_request request) {
    return fpna::outcome("fpna_start", [&] {
        if (!request || !request->persistent) throw fpna::Refused("the request is not one of fpna_allreduce_init");
        request->start();
    });
}

int fpna_test(fpna_request *request, int *done) { return fpna::completed("fpna_test", request, false, done); }
int fpna_wait(fpna_request *request) { return fpna::completed("fpna_wait", request, true, nullptr); }

int fpna_request_free(fpna_request *request) {
    const int code = fpna::completed("fpna_request_free", request, true, nullptr);
    if (request && *request) {
        delete *request;
        *request = nullptr;
    }
    return code;
}
}
