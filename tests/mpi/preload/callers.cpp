// Callers found by callers.hpp and by the compiler's own library, in functions of many kinds; prints how many were
// compared, how many differ, and nanoseconds that one search takes (argv[1]: how often).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include <alloca.h>
#include <dlfcn.h>

#include "callers.hpp"

namespace {

std::unordered_map<std::uint64_t, fpna::Rule> rules;
long compared = 0, differing = 0, shorter = 0;
double nanoseconds = 0;
int repeat = 0;

struct Reference {
    std::uint64_t places[64];
    int count = 0;
};

_Unwind_Reason_Code note(_Unwind_Context *context, void *self) {
    auto &own = *static_cast<Reference *>(self);
    own.places[own.count++] = std::uint64_t(_Unwind_GetIP(context));
    return own.count == 64 ? _URC_END_OF_STACK : _URC_NO_REASON;
}

int search(std::uint64_t site, const void *frame, std::uint64_t *places) {
    fpna::Callers callers(site, frame);
    int count = 0;
    for (;;) {
        places[count++] = callers.place();
        const auto [entry, fresh] = rules.try_emplace(callers.place());
        if (fresh) entry->second = fpna::Table::rule(callers.place() - 1);
        if (count == fpna::CALLERS || !callers.next(entry->second)) return count;
    }
}

__attribute__((noinline)) void call() {
    const auto site = std::uint64_t(__builtin_return_address(0));
    const void *frame = __builtin_frame_address(0);
    std::uint64_t places[fpna::CALLERS];
    const int count = search(site, frame, places);
    Reference reference;
    _Unwind_Backtrace(note, &reference);
    int at = 0;
    while (at < reference.count && reference.places[at] != site) ++at;
    for (int i = 0; i < count; ++i, ++compared) differing += at + i >= reference.count || reference.places[at + i] != places[i];
    // The last of the reference may be 0.
    while (reference.count && !reference.places[reference.count - 1]) --reference.count;
    shorter += count < fpna::CALLERS && count < reference.count - at;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < repeat; ++i) search(site, frame, places);
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
    if (repeat) nanoseconds = spent.count() / repeat;
}

std::uint64_t state = 1;
unsigned draw(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return unsigned(state >> 33) % below;
}

void any(int depth);

__attribute__((noinline)) void plain(int depth) { any(depth - 1); asm volatile(""); }
__attribute__((noinline)) void varying(int depth) {
    volatile char *room = static_cast<volatile char *>(alloca(16 + draw(2000)));
    room[0] = 1;
    any(depth - 1);
    room[1] = 2;
}
__attribute__((noinline)) void aligned(int depth) {
    alignas(64) volatile double values[8] = {double(depth)};
    any(depth - 1);
    values[1] = values[0];
}
__attribute__((noinline)) void aligned_and_varying(int depth) {
    alignas(128) volatile double values[16] = {double(depth)};
    volatile char *room = static_cast<volatile char *>(alloca(16 + draw(500)));
    room[0] = 1;
    any(depth - 1);
    values[1] = room[0];
}
__attribute__((noinline)) void large(int depth, long a, long b, long c, long d, long e, long f, long g, long h) {
    volatile double values[3000];
    values[0] = double(a + b + c + d + e + f + g + h);
    any(depth - 1);
    values[1] = values[0];
}
__attribute__((noinline, optimize("no-omit-frame-pointer"))) void framed(int depth) { any(depth - 1); asm volatile(""); }
void throwing(int depth) {
    try {
        if (depth % 3 == 0) throw depth;
        any(depth - 1);
    } catch (int) {
        any(depth - 1);
    }
}
int depth_of_sort;
int compare_and_call(const void *, const void *) {
    if (depth_of_sort) {
        const int depth = std::exchange(depth_of_sort, 0);
        any(depth - 1);
    }
    return 0;
}
void through_libc(int depth) {
    int values[3] = {3, 2, 1};
    depth_of_sort = depth;
    std::qsort(values, 3, sizeof *values, compare_and_call);
}

void any(int depth) {
    if (depth <= 0) { call(); return; }
    switch (draw(9)) {
    case 0: plain(depth); break;
    case 1: varying(depth); break;
    case 2: aligned(depth); break;
    case 3: aligned_and_varying(depth); break;
    case 4: large(depth, 1, 2, 3, 4, 5, 6, 7, 8); break;
    case 5: framed(depth); break;
    case 6: throwing(depth); break;
    case 7: through_libc(depth); break;
    default: std::function<void()>([=] { any(depth - 1); })();
    }
    asm volatile("");
}

}  // namespace

int main(int, char **arguments) {
    for (int i = 0; i < 20000; ++i) any(int(draw(14)));
    std::thread([] { for (int i = 0; i < 2000; ++i) any(int(draw(14))); }).join();
    repeat = std::atoi(arguments[1]);
    if (repeat) any(10);
    std::printf("%ld %ld %ld %.1f\n", compared, differing, shorter, nanoseconds);
}
