// The begin and the end of a recording, in MPI_Init and MPI_Finalize: opens the log in rank 0's directory, compares clocks.
#pragma once

#include <climits>
#include <cstdlib>
#include <string>
#include <unordered_set>

#include "completions.hpp"
#include "files.hpp"
#include "kinds.hpp"
#include "later.hpp"
#include "recorder.hpp"
#include "sums.hpp"
#include "windows.hpp"
#include "world.hpp"

namespace fpna {

const char *counted_names();  // counted.cpp

// The nanoseconds to add to this rank's clock for rank 0's time, by the fastest of a few round trips.
inline std::int64_t clock_offset(int rank) {
    constexpr int TRIES = 16, TAG = 7;
    std::int64_t offset = 0, fastest = LLONG_MAX, theirs = 0;
    for (int other = 1; other < world_size; ++other)
        for (int i = 0; i < TRIES; ++i) {
            if (rank == 0) {
                PMPI_Recv(nullptr, 0, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                theirs = now();
                PMPI_Send(&theirs, 1, MPI_INT64_T, other, TAG, MPI_COMM_WORLD);
            } else if (rank == other) {
                const std::int64_t sent_at = now();
                PMPI_Send(nullptr, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
                PMPI_Recv(&theirs, 1, MPI_INT64_T, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                const std::int64_t back = now();
                if (back - sent_at < fastest) {
                    fastest = back - sent_at;
                    offset = theirs - (sent_at + (back - sent_at) / 2);
                }
            }
        }
    return offset;
}

// The value of an environment variable on rank 0. Collective.
inline std::string of_rank_0(const char *name) {
    const char *own = std::getenv(name);
    std::string text = own ? own : "";
    int length = int(text.size());
    PMPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD);
    text.resize(std::size_t(length));
    PMPI_Bcast(&text[0], length, MPI_CHAR, 0, MPI_COMM_WORLD);
    return text;
}

// Opens the log of this rank; prints a message and returns false if it fails.
inline bool open_log(const std::string &folder, const std::string &told, int rank, const std::vector<std::string> &kinds) {
    char name[32], library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    std::snprintf(name, sizeof name, "/raw-%05d", rank);
    const std::string path = folder + name;
    if (!recorded.open(path + ".log")) return false;
    tell_launcher(path + ".log");
    texts.open(path + ".txt");
    int length = 0;
    PMPI_Get_library_version(library, &length);
    texts.line(told);
    texts.line("{\"library\": " + quoted(library) + "}");
    texts.line(std::string("{\"counted\": ") + counted_names() + "}");
    for (const std::string &kind : kinds) texts.line(kind);
    recorded.header()->texts = texts.state();
    return true;
}

// Begins the recording, once. Collective: it sends messages, so no rank may return early.
inline void start() {
    static bool begun = false;
    if (!std::getenv("FPNA_OBSERVE") || begun) return;
    begun = true;
    if (std::getenv("FPNA_OBSERVE_REFUSED")) PMPI_Abort(MPI_COMM_WORLD, 2);  // the launcher has printed the reason
    int rank = 0, level = MPI_THREAD_SINGLE;
    PMPI_Query_thread(&level);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &world_size);
    require_ranks(world_size);
    const std::string folder = of_rank_0("FPNA_OBSERVE"), told = of_rank_0("FPNA_OBSERVE_TEXT");
    point_to_point = std::getenv("FPNA_OBSERVE_P2P") != nullptr;
    const std::string sums = of_rank_0("FPNA_SUMS");
    order = sums == "tree" ? Order::TREE : sums == "exact" ? Order::EXACT : Order::LIBRARY;
    begin_disturbance(of_rank_0("FPNA_DISTURB").c_str(), rank);
    own_rank = rank;
    if (const char *path = std::getenv("FPNA_REPLAY"); path && !read_order(path, rank, world_size)) {
        std::fprintf(stderr, "fpna run: rank %d: %s has no recorded messages for this rank of %d\n", rank, path, world_size);
        PMPI_Abort(MPI_COMM_WORLD, 2);
    }
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &keyval, nullptr);
    PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &type_keyval, nullptr);
    PMPI_Comm_dup(MPI_COMM_SELF, &own_comm);
    PMPI_Comm_set_errhandler(own_comm, MPI_ERRORS_RETURN);
    const std::int64_t offset = clock_offset(rank);
    if (open_log(folder, told, rank, compare_kinds(rank, world_size))) recorded.begin(rank, world_size, offset);
    known(MPI_COMM_WORLD);
    main_thread = true;
    threads = level == MPI_THREAD_MULTIPLE;
    // Also without a log: the guarantee and the replay still work.
    active = true;
    disturb_arithmetic();
}

inline bool from_mpi4py(void *code) {
    Dl_info info;
    return dladdr(code, &info) && info.dli_fname && std::strstr(info.dli_fname, "/mpi4py/MPI.");
}

// Counts a sum of Python objects by mpi4py at this place.
inline void count_python_sum(std::uint64_t site) {
    constexpr int NUMBER = 0;  // of functions.PYTHON
    count_unseen(NUMBER);
    static std::unordered_set<std::uint64_t> told;
    const std::lock_guard<std::mutex> held(lock);
    if (!texts || !told.insert(site).second) return;
    texts.line("{\"python_sum\": " + std::to_string(site) + "}");
}

// Adds the counts of all ranks on rank 0, which prints for all.
inline void share_counts() {
    Header *header = recorded.header();
    std::uint64_t own[MOST_COUNTED] = {}, all[MOST_COUNTED] = {};
    for (int i = 0; header && i < MOST_COUNTED; ++i) own[i] = count_in(header->unseen[i]);
    PMPI_Reduce(own, all, MOST_COUNTED, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    for (int i = 0; header && i < MOST_COUNTED; ++i) header->unseen_of_all[i] = checked_count(all[i], i);
}

inline void stop() {
    if (active) end_completions(own_rank);
    if (active.exchange(false)) share_counts();
    round_to_nearest();
    disturbing = false;
    const std::lock_guard<std::mutex> held(lock);
    give_up_pending();
    give_up_splits();
    give_up_fetching();
    recorded.close(texts.state());
    if (own_comm != MPI_COMM_NULL) PMPI_Comm_free(&own_comm);
    texts.close();
}

}  // namespace fpna
