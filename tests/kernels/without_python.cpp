// Kernels of kernels/native as a program that needs no Python, so that another processor can be emulated: see
// test_aarch64.py, which writes cases to its standard input and compares what it writes with the bits of this machine.
//
// A case is 8 numbers of 64 bits, an operation, the bytes of an element and sizes, and then the operands.
#include "../../kernels/native/contract_attention.cpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "../../kernels/native/lanes.hpp"

namespace {

using namespace contract;

enum Operation : i64 { PRODUCT, LINES, ROWS, ATTENTION, EXPONENTIAL, LANES };

template <typename T>
std::vector<T> read(i64 n, i64 more = 0) {
    std::vector<T> x(n + more);
    if (i64(std::fread(x.data(), sizeof(T), n, stdin)) != n) std::exit(2);
    return x;
}

template <typename T>
void write(const std::vector<T> &x, i64 n) {
    if (i64(std::fwrite(x.data(), sizeof(T), n, stdout)) != n) std::exit(2);
}

// a (rows, depth) times b (depth, columns), which lies transposed in memory or does not.
template <typename T>
void product(i64 rows, i64 depth, i64 columns, bool transposed) {
    const std::vector<T> a = read<T>(rows * depth), b = read<T>(depth * columns);
    std::vector<T> c(rows * columns);
    const Lines<T> left(a.data(), depth, 1);
    const Lines<T> right(b.data(), transposed ? depth : 1, transposed ? 1 : columns);
    multiply<T>({{rows, columns, depth, &left, &right, {c.data(), columns, 1, nullptr}}}, 1, 0);
    write(c, rows * columns);
}

// The sums of lines of terms, each in a lane.
template <typename T>
void lines(i64 count, i64 terms) {
    const std::vector<T> x = read<T>(count * terms);
    const Kernels<T> &kernels = kernels_of<T>(0);
    std::vector<T> sums(count);
    for (i64 first = 0; first < count; first += kernels.lanes) {
        const T *from[MOST_LANES] = {};
        const i64 many = std::min(kernels.lanes, count - first);
        for (i64 i = 0; i < many; ++i) from[i] = x.data() + (first + i) * terms;
        kernels.add_lines(sums.data() + first, many, from, terms);
    }
    write(sums, count);
}

// The sum of rows.
template <typename T>
void rows(i64 count, i64 columns) {
    const std::vector<T> x = read<T>(count * columns);
    std::vector<T> sums(columns);
    kernels_of<T>(0).add_rows(sums.data(), columns, x.data(), columns, count);
    write(sums, columns);
}

// Both passes of a head: result, logsumexp, the gradients of q, k and v.
template <typename T>
void attention(i64 queries, i64 keys, i64 depth, i64 width, bool causal, bool has_mask) {
    const double scale = read<double>(1)[0];
    const std::vector<T> gradient = read<T>(queries * width), q = read<T>(queries * depth), k = read<T>(keys * depth),
                         v = read<T>(keys * width), mask = read<T>(has_mask ? queries * keys : 0);
    std::vector<T> out(queries * width), logs(queries), gq(q.size()), gk(k.size()), gv(v.size());
    const Sizes<T> of{queries, keys, depth, width, causal, T(scale), row_kernels_of<T>(0), kernels_of<T>(0)};
    const Head<T> head{{q.data(), depth, 1}, {k.data(), depth, 1}, {v.data(), width, 1},
                       {has_mask ? mask.data() : nullptr, keys, 1}, {out.data(), width, 1}, logs.data(),
                       {gradient.data(), width, 1}, {gq.data(), depth, 1}, {gk.data(), depth, 1}, {gv.data(), width, 1}};
    forward(of, head);
    backward(of, head);
    for (const std::vector<T> *x : {&out, &logs, &gq, &gk, &gv}) write(*x, i64(x->size()));
}

// e^x as attention has it.
template <typename T>
void exponentials(i64 n) {
    std::vector<T> x = read<T>(n, 2 * SUMS), g(n + 2 * SUMS);
    const T nothing[1] = {};
    row_kernels_of<T>(0).weights({x.data(), n + SUMS, 1, n, -1, T(1)}, g.data(), nothing, nothing);
    write(x, n);
}

// The dot product in 64 lanes of float64.
template <typename T>
void lanes(i64 n) {
    const std::vector<T> x = read<T>(n), y = read<T>(n);
    Lanes sum;
    sum.add_products(x.data(), y.data(), std::size_t(n));
    write(std::vector<double>{sum.total()}, 1);
}

template <typename T>
void run(const i64 *s) {
    switch (s[0]) {
        case PRODUCT: return product<T>(s[2], s[3], s[4], s[5]);
        case LINES: return lines<T>(s[2], s[3]);
        case ROWS: return rows<T>(s[2], s[3]);
        case ATTENTION: return attention<T>(s[2], s[3], s[4], s[5], s[6], s[7]);
        case EXPONENTIAL: return exponentials<T>(s[2]);
        case LANES: return lanes<T>(s[2]);
        default: std::exit(2);
    }
}

}  // namespace

int main() {
    i64 sizes[8];
    while (std::fread(sizes, sizeof sizes, 1, stdin) == 1) sizes[1] == 4 ? run<float>(sizes) : run<double>(sizes);
}
