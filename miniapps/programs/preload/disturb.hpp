// Disturbances of the size of rounding: an experiment that shows how far rounding can move a program's results. With a seed:
//
//   arithmetic      the ranks round to nearest, upward or downward, drawn anew at each collective call of all ranks. All
//                   ranks draw the same, so that equal computations stay equal on all ranks. Every operation of the program
//                   then has an error below one unit in the last place.
//   contributions   the numbers that a rank gives to a floating-point sum or product move by at most one unit in the last
//                   place, drawn for each element. Whole numbers stay, since their sums are not rounded.
//
// With a direction, up or down: all arithmetic of the program rounds in it, and contributions stay. The middle of both
// launches has other rounding errors than a launch to nearest, of the same size.
//
// The MPI library and this library round to nearest. A new thread rounds as the thread that started it.
#pragma once

#include <atomic>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

namespace fpna {

inline bool disturbing = false;
inline int direction = -1;             // of all arithmetic; negative: drawn
inline std::uint64_t disturbance = 0;  // the seed
inline std::uint64_t own_disturbance = 0;  // and the rank
inline std::atomic<std::uint64_t> met{0};  // collective calls of all ranks so far
inline thread_local std::uint64_t drawn = 0;

// 64 bits that follow from two numbers (splitmix64, Steele, Lea and Flood 2014).
inline std::uint64_t mixed(std::uint64_t seed, std::uint64_t index) {
    std::uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

// The program computes from here on: sets the direction of this launch, or a drawn one.
inline void disturb_arithmetic() {
    static const int ways[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD};
    if (disturbing) std::fesetround(direction >= 0 ? direction : ways[mixed(disturbance, met) % 3]);
}

// The MPI library or this library works from here on: rounds to nearest.
inline void round_to_nearest() {
    if (disturbing) std::fesetround(FE_TONEAREST);
}

// HDF5 tests the machine's arithmetic at its first use, and crashes if it does not round to nearest. So this uses HDF5
// before, from C and from Python, which has its own copy of the library.
inline void open_hdf5() {
    if (void *place = dlsym(RTLD_DEFAULT, "H5open")) reinterpret_cast<int (*)()>(place)();
    const auto initialized = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
    const auto ensure = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"));
    const auto release = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "PyGILState_Release"));
    const auto run = reinterpret_cast<int (*)(const char *, void *)>(dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags"));
    if (!initialized || !initialized() || !ensure || !release || !run) return;
    const int state = ensure();
    run("try:\n import h5py\nexcept Exception: pass\n", nullptr);
    release(state);
}

// `how`: a seed, up, down, or nothing.
inline void begin_disturbance(const char *how, int rank) {
    if (!*how) return;
    open_hdf5();
    disturbing = true;
    if (!std::strcmp(how, "up")) direction = FE_UPWARD;
    if (!std::strcmp(how, "down")) direction = FE_DOWNWARD;
    disturbance = std::strtoull(how, nullptr, 10);
    own_disturbance = mixed(disturbance, std::uint64_t(rank));
}

// Moves each number by at most one unit in its last place, unless all are whole: then no sum of them is rounded.
template <typename Float>
void disturb(Float *numbers, std::size_t n) {
    bool whole = true;
    for (std::size_t i = 0; i < n && whole; ++i) whole = numbers[i] == std::nearbyint(numbers[i]);
    if (whole) return;
    const std::uint64_t call = mixed(own_disturbance, drawn++);
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint64_t way = mixed(call, i) % 3;
        if (way && numbers[i] != 0 && std::isfinite(numbers[i]))
            numbers[i] = std::nextafter(numbers[i], way == 1 ? Float(INFINITY) : Float(-INFINITY));
    }
}

}  // namespace fpna
