// Runs CUDA C++ kernels on the host: each GPU thread is a context with a stack of its own, and the threads of a
// block take turns, in ascending or descending order, from one __syncthreads() to the next. A barrier that only
// some threads reach ends the program; a barrier that is missing shows as results that follow the order.
#pragma once
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <utility>

#define __device__
#define __global__
#define __shared__ static  // one block runs at a time
#define __launch_bounds__(threads)

namespace host {

struct Index {
    unsigned x;
};

constexpr unsigned THREADS = 1024;
constexpr size_t STACK = 1 << 16;

inline Index thread, block, block_size, grid_size;
inline int descending = 0;
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

inline void run_block() {
    for (bool first = true;; first = false) {
        unsigned at_barrier = 0;
        for (unsigned k = 0; k < block_size.x; ++k)
            at_barrier += resume(descending ? block_size.x - 1 - k : k, first);
        if (at_barrier == 0) return;
        if (at_barrier != block_size.x) {
            fprintf(stderr, "block %u: %u of %u threads reached a barrier\n", block.x, at_barrier, block_size.x);
            abort();
        }
    }
}

template <typename... Arguments, size_t... I>
void launch(void (*kernel)(Arguments...), unsigned grid, unsigned threads, void **arguments,
            std::index_sequence<I...>) {
    if (threads > THREADS) abort();
    auto call = [&] { kernel(*static_cast<Arguments *>(arguments[I])...); };
    body = [](void *f) { (*static_cast<decltype(call) *>(f))(); };
    body_arguments = &call;
    grid_size.x = grid;
    block_size.x = threads;
    for (block.x = 0; block.x < grid; ++block.x) run_block();
}

template <typename... Arguments>
void launch(void (*kernel)(Arguments...), unsigned grid, unsigned threads, void **arguments) {
    launch(kernel, grid, threads, arguments, std::index_sequence_for<Arguments...>{});
}

}  // namespace host

#define threadIdx host::thread
#define blockIdx host::block
#define blockDim host::block_size
#define gridDim host::grid_size
#define __syncthreads host::barrier

extern "C" inline __attribute__((used)) void set_descending(int order) { host::descending = order; }

#define HOST_KERNEL(name)                                                                 \
    extern "C" void launch_##name(unsigned grid, unsigned threads, void **arguments) { \
        host::launch(name, grid, threads, arguments);                                     \
    }
