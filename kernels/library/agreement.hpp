// What all ranks of a call pass alike, and how they learn that they do not: a message of one length that is the same for
// all calls. The first calls on a communicator send it, and those that ask for it: a program that passes other fields
// on a rank mostly does so from the start, and after the first calls it costs nothing.
#pragma once
#include <cstdlib>

#include "messages.hpp"

namespace fpna {

enum class Of { SUM, DOT, NORM, MINLOC, MAXLOC, SCATTER_ADD, ACC_ALLREDUCE, ALLREDUCE, REDUCE, REDUCE_SCATTER };

struct Passed {
    Of of;
    char letter;  // s, d, c or z
    int guarantee = FPNA_EXACT;
    const char *what = "";  // `length` numbers
    std::int64_t length = 0;
    const char *beside = "";  // what `value` is
    std::int64_t value = 0;

    // A small number for the call and its type.
    std::int64_t call() const { return std::int64_t(of) * 4 + place_of(letter); }

    static int place_of(char letter) { return letter == 's' ? 0 : letter == 'd' ? 1 : letter == 'c' ? 2 : 3; }
};

template <typename Real>
constexpr char letter_of(int width) {
    return sizeof(Real) == sizeof(float) ? (width == 1 ? 's' : 'c') : (width == 1 ? 'd' : 'z');
}

inline std::string named_call(std::int64_t call) {
    static const char *const calls[] = {"fpna_sum", "fpna_dot", "fpna_norm2", "fpna_minloc", "fpna_maxloc",
                                        "fpna_scatter_add", "fpna_acc_allreduce", "fpna_allreduce", "fpna_reduce",
                                        "fpna_reduce_scatter"};
    static const char *const types[] = {"float", "double", "complex float", "complex double"};
    return std::string(calls[call / 4]) + " of " + types[call % 4];
}

inline std::string named_guarantee(std::int64_t guarantee) {
    static const char *const names[] = {"FPNA_RUN", "FPNA_LAYOUT", "FPNA_EXACT"};
    return names[guarantee - FPNA_RUN];
}

// The sum over ranks of the marks of their calls tells whether these are one (by Cauchy and Schwarz), for up to 2^20 ranks.
constexpr int SQUARES = 32;
inline std::int64_t mark_of(std::int64_t call) { return call | (call * call) << SQUARES; }
inline bool one_call(std::int64_t marks, int ranks) {
    const std::int64_t sum = marks & ((std::int64_t(1) << SQUARES) - 1);
    return (marks >> SQUARES) * ranks == sum * sum;
}

#ifdef FPNA_SERIAL

inline void agree(const Passed &, const std::string &refused, fpna_comm, bool = false) {
    if (!refused.empty()) throw Refused(refused);
}

#else

// Whether this call compares; all ranks count alike.
inline bool compares(fpna_comm comm, bool asked) {
    constexpr std::intptr_t FIRST = 100;
    struct Made {
        int key = 0;
        Made() {
            require(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &key, nullptr),
                    "MPI_Comm_create_keyval");
        }
    };
    static const Made made;
    static const bool always = [] {
        const char *set = std::getenv("FPNA_CHECK");
        return set && *set && std::string(set) != "0";
    }();
    void *kept = nullptr;
    int found = 0;
    require(MPI_Comm_get_attr(comm, made.key, &kept, &found), "MPI_Comm_get_attr");
    const auto calls = found ? reinterpret_cast<std::intptr_t>(kept) : 0;
    if (calls >= FIRST) return asked || always;
    require(MPI_Comm_set_attr(comm, made.key, reinterpret_cast<void *>(calls + 1)), "MPI_Comm_set_attr");
    return true;  // on one rank too: a program makes the same calls of MPI on any number of ranks
}

// Throws if this rank has refused its arguments; on all ranks, where they compare, if one has, or if they differ.
inline void agree(const Passed &own, const std::string &refused, fpna_comm comm, bool asked = false) {
    if (!compares(comm, asked)) {
        if (!refused.empty()) throw Refused(refused);
        return;
    }
    constexpr std::int64_t RANKS = 1 << 22, MOST = std::numeric_limits<std::int64_t>::max() / RANKS - 1;
    const std::int64_t passed[] = {own.call(), own.guarantee, own.length, own.value}, rank = rank_of(comm);
    constexpr int PASSED = sizeof passed / sizeof *passed;
    std::int64_t seen[2 * PASSED + 1] = {};  // the largest and the least, each with its lowest rank
    for (int k = 0; k < PASSED; ++k) {
        const std::int64_t value = std::min(std::max<std::int64_t>(passed[k], 0), MOST) * RANKS;
        seen[2 * k] = value + RANKS - 1 - rank;
        seen[2 * k + 1] = -value - rank;
    }
    seen[2 * PASSED] = !refused.empty();
    join(seen, sizeof seen / sizeof *seen, Join::MAX, comm);
    require_taken(refused, seen[2 * PASSED], comm);
    for (int k = 0; k < PASSED; ++k) {
        const std::int64_t most = seen[2 * k] / RANKS, least = -seen[2 * k + 1] / RANKS;
        if (most == least) continue;
        const auto shown = [&](std::int64_t value, std::int64_t by) {
            const std::string text = k == 0   ? named_call(value)
                                     : k == 1 ? named_guarantee(value)
                                              : std::to_string(value) + " " + (k == 2 ? own.what : own.beside);
            return text + " on rank " + std::to_string(by);
        };
        throw Refused("ranks differ: " + shown(least, -seen[2 * k + 1] % RANKS) + ", " +
                      shown(most, RANKS - 1 - seen[2 * k] % RANKS));
    }
}

#endif

}  // namespace fpna
