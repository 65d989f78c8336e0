// Runs CUDA C++ kernels on the host: each GPU thread is a context with a stack of its own, and the threads of a
// block take turns, in an order that is set, from one __syncthreads() to the next; the blocks run one after another, in
// an order that is set. A barrier that only some threads reach ends the program; a barrier that is missing shows as
// results that follow the order. Atomic operations are plain ones here: nothing ever runs at the same time.
#pragma once
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <utility>
#include <vector>

#define __device__
#define __global__
#define __shared__ static  // one block runs at a time
#define __launch_bounds__(threads)
#define DYNAMIC_SHARED(type, name) type *name = reinterpret_cast<type *>(host::dynamic_shared)

namespace host {

struct Index {
    unsigned x;
};

constexpr unsigned THREADS = 1024;
constexpr size_t STACK = 1 << 16, SHARED = 48 << 10;

enum Order { ASCENDING, DESCENDING, RANDOM };

inline Index thread, block, block_size, grid_size;
inline int order = ASCENDING;
inline unsigned long long random;  // state of a generator: <random> would take longer to compile than most kernels
inline unsigned turns[THREADS];  // of the threads of a block
alignas(16) inline char dynamic_shared[SHARED];
inline char stacks[THREADS][STACK];
inline ucontext_t starts[THREADS], back;
inline jmp_buf waiting[THREADS], scheduler;
inline void (*body)(void *);
inline void *body_arguments;

inline void start_thread() {
    body(body_arguments);
    _longjmp(scheduler, 2);
}

// _longjmp and not swapcontext, which makes two system calls.
inline __attribute__((noinline)) void barrier() {
    if (!_setjmp(waiting[thread.x])) _longjmp(scheduler, 1);
}

// Runs thread t until its next barrier; false when it has ended.
inline __attribute__((noinline)) bool resume(unsigned t, bool first) {
    thread.x = t;
    const int came = _setjmp(scheduler);
    if (came) return came == 1;
    if (!first) _longjmp(waiting[t], 1);
    getcontext(&starts[t]);
    starts[t].uc_stack.ss_sp = stacks[t];
    starts[t].uc_stack.ss_size = STACK;
    starts[t].uc_link = nullptr;
    makecontext(&starts[t], start_thread, 0);
    setcontext(&starts[t]);
    abort();
}

// Below n, from the upper bits of a linear congruential generator (Knuth's MMIX).
inline unsigned draw(unsigned n) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return (random >> 33) % n;
}

inline void put_in_order(unsigned *numbers, unsigned n) {
    for (unsigned i = 0; i < n; ++i) numbers[i] = order == DESCENDING ? n - 1 - i : i;
    if (order == RANDOM)
        for (unsigned i = n; i > 1; --i) std::swap(numbers[i - 1], numbers[draw(i)]);
}

inline void run_block() {
    put_in_order(turns, block_size.x);
    memset(dynamic_shared, -1, SHARED);  // NaN, as new memory holds
    for (bool first = true;; first = false) {
        unsigned at_barrier = 0;
        for (unsigned k = 0; k < block_size.x; ++k) at_barrier += resume(turns[k], first);
        if (at_barrier == 0) return;
        if (at_barrier != block_size.x) {
            fprintf(stderr, "block %u: %u of %u threads reached a barrier\n", block.x, at_barrier, block_size.x);
            abort();
        }
    }
}

template <typename... Arguments, size_t... I>
void launch(void (*kernel)(Arguments...), unsigned grid, unsigned threads, unsigned shared, void **arguments,
            std::index_sequence<I...>) {
    if (threads > THREADS || shared > SHARED) abort();
    auto call = [&] { kernel(*static_cast<Arguments *>(arguments[I])...); };
    body = [](void *f) { (*static_cast<decltype(call) *>(f))(); };
    body_arguments = &call;
    grid_size.x = grid;
    block_size.x = threads;
    std::vector<unsigned> blocks(grid);
    put_in_order(blocks.data(), grid);
    for (unsigned b : blocks) {
        block.x = b;
        run_block();
    }
}

template <typename... Arguments>
void launch(void (*kernel)(Arguments...), unsigned grid, unsigned threads, unsigned shared, void **arguments) {
    launch(kernel, grid, threads, shared, arguments, std::index_sequence_for<Arguments...>{});
}

// An atomic operation: what was there is returned.
template <typename T, typename Function>
T exchange(T *at, Function &&function) {
    const T before = *at;
    *at = function(before);
    return before;
}

}  // namespace host

#define threadIdx host::thread
#define blockIdx host::block
#define blockDim host::block_size
#define gridDim host::grid_size
#define __syncthreads host::barrier

template <typename T>
T atomicAdd(T *to, T x) {
    return host::exchange(to, [&](T before) { return before + x; });
}

template <typename T>
T atomicMax(T *to, T x) {
    return host::exchange(to, [&](T before) { return before < x ? x : before; });
}

template <typename T>
T atomicMin(T *to, T x) {
    return host::exchange(to, [&](T before) { return x < before ? x : before; });
}

template <typename T>
T atomicOr(T *to, T x) {
    return host::exchange(to, [&](T before) { return before | x; });
}

inline unsigned atomicInc(unsigned *to, unsigned most) {
    return host::exchange(to, [&](unsigned before) { return before >= most ? 0 : before + 1; });
}

template <typename T>
T atomicExch(T *to, T x) {
    return host::exchange(to, [&](T) { return x; });
}

inline void __threadfence() {}

extern "C" inline __attribute__((used)) void set_order(int order, unsigned seed) {
    host::order = order;
    host::random = seed;
}

#define HOST_KERNEL(name)                                                                                  \
    extern "C" void launch_##name(unsigned grid, unsigned threads, unsigned shared, void **arguments) { \
        host::launch(name, grid, threads, shared, arguments);                                              \
    }
