// One-sided calls: the data of the origin, its target and place there, and what the calls fetch. At the end of an exposure
// that this rank takes part in (a fence, a wait), the memory of its window.
//
// No call tells a target who accesses its window, so accesses of other ranks have no order here.
#pragma once

#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <mpi.h>

#include "requests.hpp"
#include "sums.hpp"

namespace fpna {

constexpr MPI_Aint WINDOW_BYTES = MPI_Aint(1) << 26;  // of a window that is hashed

struct Window {
    Communicator as;                // its name among the windows of a communicator, and its ranks
    MPI_Comm own = MPI_COMM_NULL;   // of these ranks, for this library; none if the window was made elsewhere
};
inline std::mutex windows;  // guards `made_windows`
inline std::unordered_map<std::uint64_t, Window> made_windows;

// Makes a window by `run`, which returns its code; `window()`: the window.
template <typename Run, typename Made>
int making_window(MPI_Comm comm, Run run, Made window) {
    if (!on(comm)) return run();
    const Inside from_here;
    Making making(comm, "window");
    const int code = run();
    if (code != MPI_SUCCESS) return making.is(MPI_COMM_NULL), code;
    Window fresh{making.object(comm)};
    if (PMPI_Comm_split(comm, 0, fresh.as.rank, &fresh.own) != MPI_SUCCESS) fresh.own = MPI_COMM_NULL;
    const std::lock_guard<std::mutex> alone(windows);
    made_windows.insert_or_assign(number_of(window()), std::move(fresh));
    return code;
}

// A window as the recorder knows it.
inline Window known_window(MPI_Win window) {
    {
        const std::lock_guard<std::mutex> alone(windows);
        if (const auto place = made_windows.find(number_of(window)); place != made_windows.end()) return place->second;
    }
    static const int unknown = number_of_name("other window");
    return {{unknown, 0, 0, false, "other window"}};
}

// Calls that fetch data: they have them when the program has synchronised, by window; `lock` guards them.
struct Fetching {
    int target;
    Record record;
    Spans out;
};
inline std::unordered_map<std::uint64_t, std::vector<Fetching>> fetching;

constexpr int ALL_TARGETS = -1;

// The calls on a window that fetch from `target` have their data.
inline void fetched(MPI_Win window, int target = ALL_TARGETS) {
    const std::lock_guard<std::mutex> held(lock);
    const auto place = fetching.find(number_of(window));
    if (place == fetching.end()) return;
    std::vector<Fetching> left;
    for (Fetching &call : place->second) {
        if (target != ALL_TARGETS && call.target != target) {
            left.push_back(std::move(call));
            continue;
        }
        finish(call.record, nullptr, call.out, false, now());
        release(call.out);
    }
    if (left.empty())
        fetching.erase(place);
    else
        place->second = std::move(left);
}

// At the end: commits calls whose data never came.
inline void give_up_fetching() {
    for (const auto &[window, calls] : fetching)
        for (const Fetching &call : calls) commit(call.record);
    fetching.clear();
}

// A one-sided call of this kind; `in`: data of this rank, `out`: where it gets data.
class Access {
  public:
    Access(Kind kind, MPI_Win window, int target, MPI_Aint place, MPI_Aint count, MPI_Datatype type, Spans in, Spans out,
           MPI_Op op = MPI_OP_NULL)
        : window_(window), of_(known_window(window)),
          shape_{kind, MPI_COMM_NULL, count, type, op == MPI_NO_OP ? Spans{} : std::move(in), std::move(out), op} {
        shape_.peer = target;
        shape_.at = place;
    }

    template <typename Run>
    int blocking(std::uint64_t site, Run run) const {
        const Inside from_here;
        count_sum();
        Record record = begun(shape_, site, of_.as);
        const int code = run();
        const std::lock_guard<std::mutex> held(lock);
        if (code != MPI_SUCCESS || shape_.out.empty()) return finish(record, nullptr, {}, code != MPI_SUCCESS, now()), code;
        Fetching fresh{shape_.peer, record, shape_.out};
        hold(fresh.out);
        fetching[number_of(window_)].push_back(std::move(fresh));
        return code;
    }

    template <typename Run, typename Request>
    int nonblocking(std::uint64_t site, Run run, Request request) const {
        count_sum();
        return started_on(shape_, site, of_.as, run, request);
    }

  private:
    // Counts a call whose additions round in the order of their arrival: the end of the run names their number.
    void count_sum() const {
        constexpr int NUMBER = 1;  // of functions.ACCUMULATES
        if (order == Order::LIBRARY || of_.as.size == 1 || (shape_.op != MPI_SUM && shape_.op != MPI_PROD)) return;
        const Basic basic = basic_of(shape_.type);
        if (basic >= Basic::FLOAT64 && basic <= Basic::CLONGDOUBLE) count_unseen(NUMBER);
    }

    MPI_Win window_;
    Window of_;
    Shape shape_;
};

// The memory of this rank in a window; empty if it is too large, or attached by pieces.
inline Spans memory_of(MPI_Win window) {
    void *base = nullptr;
    MPI_Aint *bytes = nullptr;
    int there = 0, sized = 0;
    PMPI_Win_get_attr(window, MPI_WIN_BASE, &base, &there);
    PMPI_Win_get_attr(window, MPI_WIN_SIZE, &bytes, &sized);
    if (!there || !sized || !base || *bytes <= 0 || *bytes > WINDOW_BYTES) return {};
    return {{base, *bytes, MPI_BYTE}};
}

// Runs a call that ends an exposure of this rank's window, and records its memory. After a fence others may access it at
// once, so all wait here until all have read theirs.
template <typename Run>
int ending_exposure(Kind kind, MPI_Win window, std::uint64_t site, Run run) {
    const Inside from_here;
    const Window of = known_window(window);
    Record record = begun({kind, MPI_COMM_NULL, 0, MPI_DATATYPE_NULL, {}, {}}, site, of.as);
    const int code = run();
    const std::int64_t end = now();
    if (kind == WIN_FENCE) fetched(window);
    {
        const std::lock_guard<std::mutex> held(lock);
        const bool read = code == MPI_SUCCESS && (kind != WIN_FENCE || of.own != MPI_COMM_NULL);
        finish(record, nullptr, read ? memory_of(window) : Spans{}, code != MPI_SUCCESS, end);
    }
    if (kind == WIN_FENCE && of.own != MPI_COMM_NULL) PMPI_Barrier(of.own);
    return code;
}

// Runs a call after which accesses of this rank to `target` are complete.
template <typename Run>
int synchronising(MPI_Win window, int target, Run run) {
    if (!on()) return run();
    const Inside from_here;
    const int code = run();
    if (code == MPI_SUCCESS) fetched(window, target);
    return code;
}

// Frees a window by `run`, which changes the handle.
template <typename Run>
int freeing_window(MPI_Win window, Run run) {
    if (!on()) return run();
    const Inside from_here;
    const int code = run();
    if (code != MPI_SUCCESS) return code;
    fetched(window);
    std::optional<Window> gone;
    {
        const std::lock_guard<std::mutex> alone(windows);
        if (const auto place = made_windows.find(number_of(window)); place != made_windows.end()) {
            gone = std::move(place->second);
            made_windows.erase(place);
        }
    }
    if (!gone) return code;
    if (gone->own != MPI_COMM_NULL) PMPI_Comm_free(&gone->own);
    const std::lock_guard<std::mutex> alone(communicators);
    free_place(gone->as);
    return code;
}

}  // namespace fpna
