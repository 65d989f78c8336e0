// Seconds of sums over ranks by this suite's library and its peers, in turn (benchmarks/library/__main__.py).
//
//     sums NUMBERS FIELDS BINADES ROUNDS LOCAL
//
// Prints a line for each round and sum: name, seconds on the slowest rank. LOCAL 1: without the message between ranks.
// The fields lie one after the other. With REPROBLAS its sum is among them.
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fpna.h"

#ifdef REPROBLAS
extern "C" {
#include "binned.h"
#include "binnedBLAS.h"
}
#endif

namespace {

int n, fields;
bool local;
std::vector<double> x, totals;
MPI_Comm comm;

// Eight chains of additions, as a compiler makes them of a loop that it may reorder: bound by memory out of the cache.
double plain(const double *v) {
    double lane[64] = {};
    int i = 0;
    for (; i + 64 <= n; i += 64)
        for (int l = 0; l < 64; ++l) lane[l] += v[i + l];
    double sum = 0;
    for (; i < n; ++i) sum += v[i];
    for (double each : lane) sum += each;
    return sum;
}

void by_plain() {
    for (int f = 0; f < fields; ++f) totals[f] = plain(&x[size_t(f) * n]);
    if (!local) MPI_Allreduce(MPI_IN_PLACE, totals.data(), fields, MPI_DOUBLE, MPI_SUM, comm);
}

void by_library(int guarantee) {
    fpna_options options = {};
    options.threads = 1;
    if (fpna_sum_d(guarantee, local ? MPI_COMM_SELF : comm, size_t(n), size_t(fields), x.data(), 1, n, totals.data(),
                   &options)) {
        std::fprintf(stderr, "%s\n", fpna_error());
        MPI_Abort(comm, 1);
    }
}

// Integers of 46 bits in six words, as Hallberg and Adcroft (Parallel Computing 40, 2014) describe their sums: each number
// is divided by the values of the words from the highest to the lowest, and the words of all are added as integers.
void by_integer_vectors() {
    constexpr int WORDS = 6, BITS = 46;
    double value[WORDS], inverse[WORDS];
    for (int k = 0; k < WORDS; ++k) {
        value[k] = std::ldexp(1.0, BITS * (2 - k));
        inverse[k] = 1 / value[k];
    }
    std::vector<std::int64_t> words(size_t(fields) * WORDS);
    for (int f = 0; f < fields; ++f) {
        std::int64_t sum[WORDS] = {};
        const double *v = &x[size_t(f) * n];
        for (int i = 0; i < n; ++i) {
            double rest = std::fabs(v[i]);
            const std::int64_t sign = v[i] < 0 ? -1 : 1;
            for (int k = 0; k < WORDS; ++k) {
                const auto whole = std::int64_t(rest * inverse[k]);
                rest -= double(whole) * value[k];
                sum[k] += sign * whole;
            }
        }
        std::copy(sum, sum + WORDS, &words[size_t(f) * WORDS]);
    }
    if (!local) MPI_Allreduce(MPI_IN_PLACE, words.data(), int(words.size()), MPI_INT64_T, MPI_SUM, comm);
    for (int f = 0; f < fields; ++f) {
        totals[f] = 0;
        for (int k = WORDS - 1; k >= 0; --k) totals[f] += double(words[size_t(f) * WORDS + k]) * value[k];
    }
}

#ifdef REPROBLAS
void add_binned(void *from, void *to, int *length, MPI_Datatype *) {
    const int words = binned_dbsize(3) / int(sizeof(double));
    for (int k = 0; k < *length; ++k)
        binned_dbdbadd(3, static_cast<double *>(from) + k * words, static_cast<double *>(to) + k * words);
}

void by_reproblas() {
    static const int words = int(binned_dbsize(3) / sizeof(double));
    static MPI_Datatype type = [] {
        MPI_Datatype made;
        MPI_Type_contiguous(words, MPI_DOUBLE, &made);
        MPI_Type_commit(&made);
        return made;
    }();
    static MPI_Op op = [] {
        MPI_Op made;
        MPI_Op_create(add_binned, 1, &made);
        return made;
    }();
    std::vector<double> sums(size_t(fields) * size_t(words));
    for (int f = 0; f < fields; ++f) {
        binned_dbsetzero(3, &sums[size_t(f) * words]);
        binnedBLAS_dbdsum(3, n, &x[size_t(f) * n], 1, &sums[size_t(f) * words]);
    }
    if (!local) MPI_Allreduce(MPI_IN_PLACE, sums.data(), fields, type, op, comm);
    for (int f = 0; f < fields; ++f) totals[f] = binned_ddbconv(3, &sums[size_t(f) * words]);
}
#endif

}  // namespace

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc != 6) {
        std::fprintf(stderr, "usage: sums NUMBERS FIELDS BINADES ROUNDS LOCAL\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    comm = MPI_COMM_WORLD;
    n = std::atoi(argv[1]);
    fields = std::atoi(argv[2]);
    local = std::atoi(argv[5]);
    const int binades = std::atoi(argv[3]), rounds = std::atoi(argv[4]);
    int rank, ranks;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    x.resize(size_t(n) * size_t(fields));
    totals.resize(size_t(fields));
    std::mt19937_64 random(unsigned(rank) + 1);
    std::uniform_real_distribution<double> mantissa(0.5, 1), chance(0, 1);
    for (double &v : x)
        v = std::ldexp(mantissa(random) * (chance(random) < 0.5 ? -1 : 1), int(chance(random) * binades) - binades / 2);

    std::vector<std::pair<std::string, std::function<void()>>> sums = {
        {"plain", by_plain},
        {"run", [] { by_library(FPNA_RUN); }},
        {"layout", [] { by_library(FPNA_LAYOUT); }},
        {"exact", [] { by_library(FPNA_EXACT); }},
        {"integer vectors", by_integer_vectors},
    };
#ifdef REPROBLAS
    sums.push_back({"ReproBLAS", by_reproblas});
#endif
    if (!local)  // in the first 100 calls ranks compare what they pass, in one more message
        for (int k = 0; k < 100; ++k) by_library(FPNA_EXACT);
    // As many calls at a time as take some 20 ms.
    std::vector<int> calls;
    for (auto &[name, sum] : sums) {
        sum();
        MPI_Barrier(comm);
        const double begin = MPI_Wtime();
        sum();
        double once = MPI_Wtime() - begin;
        MPI_Allreduce(MPI_IN_PLACE, &once, 1, MPI_DOUBLE, MPI_MAX, comm);
        calls.push_back(std::max(1, int(0.02 / once)));
    }
    for (int round = 0; round < rounds; ++round)
        for (size_t s = 0; s < sums.size(); ++s) {
            MPI_Barrier(comm);
            const double begin = MPI_Wtime();
            for (int k = 0; k < calls[s]; ++k) sums[s].second();
            double each = (MPI_Wtime() - begin) / calls[s];
            MPI_Allreduce(MPI_IN_PLACE, &each, 1, MPI_DOUBLE, MPI_MAX, comm);
            if (!rank) std::printf("%s\t%.9g\n", sums[s].first.c_str(), each);
        }
    MPI_Finalize();
}
