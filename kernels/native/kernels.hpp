// The functions of kernels._native, without Python; bindings.cpp exports them. Arrays that are written are checked to
// be writeable; the calling Python module checks types and shapes that are not checked here.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "arrays.hpp"

using OtherFactor = std::optional<Array>;  // second factors of products; none: the sum of the elements

// ---- sums: of the elements of x, or of the products of x and y, both of the type `element` ------------------

double sum_lanes(const Array &x, const OtherFactor &y, const std::string &element, std::size_t width);
double sum_left_to_right(const Array &x, const OtherFactor &y, const std::string &element);
double sum_pairwise(const Array &x, const OtherFactor &y, const std::string &element);
double sum_kahan(const Array &x, const OtherFactor &y, const std::string &element);
double sum_neumaier(const Array &x, const OtherFactor &y, const std::string &element);
double sum_omp_reduction(const Array &x, const OtherFactor &y, const std::string &element, int threads);
double sum_omp_ordered(const Array &x, const OtherFactor &y, const std::string &element, int threads);
double sum_omp_atomic(const Array &x, const OtherFactor &y, const std::string &element, int threads);
double dot2(const Array &x, const OtherFactor &y, const std::string &element);
double binned(const Array &x, const OtherFactor &y, const std::string &element, int threads);
double exact(const Array &x, const OtherFactor &y, const std::string &element, int threads);
double fixed_point(const Array &x, const OtherFactor &y, const std::string &element, int threads);
double sum_aligned(array<double> p);  // overwrites p
double sum_aligned(array<float> p);

using MadeSums = std::variant<Made<double>, Made<float>>;
MadeSums sum_partials(const Array &x, const OtherFactor &y, const std::string &element, std::size_t segment,
                      std::size_t width, int threads);
MadeSums sum_samples(const Array &x, const std::string &element, std::size_t unit, std::size_t resident,
                     array<std::uint64_t> seeds, int threads);
Made<std::int64_t> arrivals(std::size_t units, std::size_t resident, std::uint64_t seed);

// ---- exact sums -----------------------------------------------------------------------------------------------

// Flat words; their shapes are checked in kernels/exact/superaccumulator.py.
void exact_add(array<long long> words, array<double> x);
template <typename Element>
void exact_add_products(array<long long> words, const std::vector<array<Element>> &a, const std::vector<array<Element>> &b,
                        int threads);
// The sums of the upper and of the lower halves of x, and whether they have no error, as 1.0 or 0.0.
Made<double> exact_halves(array<double> x, int level);
void exact_carry(array<long long> words);
void exact_round(array<long long> words, const Array &out);

// sources: vectors of the type of `out`, or of float64. Returns how many elements were added by words.
std::size_t exact_sum(const Sources &sources, const Array &out, bool marks);
// sources: of the type of `out`. Returns how many elements went through integers.
std::size_t exact_mean(const Sources &sources, long long divisor, const Array &out);

// (the least e with |x| < 2^e, the last place of the smallest number but zero, whether something is not finite), of finite
// numbers; without any, e is below the last place.
std::tuple<int, int, bool> limb_range(array<float> x);
// Shapes, and that indices are in range, are checked in kernels/exact/limbs.py.
bool limb_add(array<float> x, array<std::int64_t> index, int unit, int bits, int count, array<std::int64_t> out);
void limb_round(array<std::int64_t> words, int unit, int bits, int count, array<float> out);

// ---- contributions to an all-reduce ---------------------------------------------------------------------------

// Vectors looked up once and combined many times; their memory must live as long.
class Combination {
public:
    Combination(const std::string &operation, const std::string &element, const std::vector<Array> &sources,
                const Array &out);
    void run() const { function_(pointers_.data(), pointers_.size(), target_, n_); }

private:
    void (*function_)(const void *const *sources, std::size_t count, void *out, std::size_t n);
    std::vector<const void *> pointers_;
    void *target_;
    std::size_t n_;
};

// The rows of x (k, ...), each as long as out, combined into out; k >= 1.
void combine_rows(const std::string &operation, const std::string &element, const Array &x, const Array &out);

template <typename Float>
void compensated_sum(const Sources &sources, array<Float> out);
template <typename Float>
void compensated_load(array<Float> x, array<Float> out);

constexpr std::size_t EXACT_PARTS = 4;
double exact_mark();

// Numbers that belong to the sum of an element besides its parts.
struct Beside {
    std::vector<long long> place;
    std::vector<double> value;

    void add(std::size_t i, double v) {
        place.push_back((long long)i);
        value.push_back(v);
    }
};

// Adds contributions x (k, n) to the first `used` rows of `parts` (EXACT_PARTS, n). Returns how many are then used.
int exact_expand(const Array &x, array<double> parts, int used, Beside &beside);
// The same for sums in words of a superaccumulator (n, 70), with the places of sums that need more numbers, or are
// infinite or NaN.
int exact_expand_words(array<long long> words, array<double> parts, Beside &beside);
std::vector<long long> exact_marked(const Array &x);  // the places of marks in a total
void expansion_load(const Array &x, std::size_t width, array<double> words, bool marks);
void expansion_sum(const Sources &sources, std::size_t width, array<double> out);
void expansion_store(array<double> words, std::size_t width, const Array &total);

// ---- scatter-adds: out[index[i]] += x[i]; the place of the first index that is out of range, or -1 ----------------

// Types and shapes are checked in kernels/scatter/elements.py. `rows` is empty, or x is a table and addition i is row rows[i]
// of it, which must exist. scatter_means divides the exact sums by `counts` (bins,) and rounds once, to the type of x.
std::int64_t scatter_atomic(const Array &x, const std::string &type, const Array &rows, const Array &index, const Array &out,
                            int threads);
std::int64_t scatter_sorted(const Array &x, const std::string &type, const Array &rows, const Array &index, const Array &out,
                            int threads);
std::int64_t scatter_exact(const Array &x, const std::string &type, const Array &rows, const Array &index, const Array &out,
                           int threads);
std::int64_t scatter_means(const Array &x, const std::string &type, const Array &rows, const Array &index,
                           array<std::int64_t> counts, const Array &out, int threads);

// x (n, columns) of float64 or float32, contiguous: each element becomes the exact sum of its column so far, rounded once.
void prefix_exact(const Array &x, int threads);

// ---- sparse matrices ------------------------------------------------------------------------------------------

// The arrays fit each other: kernels/sparse/csr.py and product.py check them. `rows` is empty where row i goes to y[i].
template <typename Number>
void spmv_csr(array<std::int64_t> indptr, array<std::int32_t> indices, array<Number> data, array<std::int32_t> rows,
              array<Number> x, array<Number> y, int threads);
template <typename Number>
void spmv_merge(array<std::int64_t> indptr, array<std::int32_t> indices, array<Number> data, array<std::int32_t> rows,
                array<Number> x, array<Number> y, int threads);
template <typename Number>
void spmv_residual(array<std::int64_t> indptr, array<std::int32_t> indices, array<Number> data, array<std::int32_t> rows,
                   array<Number> x, array<Number> b, array<double> r, int threads);
template <typename Number>
void spmv_atomic(array<std::int32_t> places, array<std::int32_t> indices, array<Number> data, array<Number> x,
                 array<Number> y, int threads);
template <typename Number>
void spmv_units(array<std::int32_t> places, array<std::int32_t> indices, array<Number> data, array<Number> x,
                array<Number> y, array<std::int64_t> units, std::int64_t width);

// If `problem` is none (0), the factors; else the row with the problem.
template <typename Number>
struct Ilu {
    int problem;
    std::int64_t row;
    Made<std::int64_t> lower_indptr, upper_indptr;
    Made<std::int32_t> lower_indices{0}, upper_indices{0};
    Made<Number> lower{0}, upper{0}, pivots{0}, inverse{0};
    Made<double> shifts{0};
};

template <typename Number>
Ilu<Number> ilu_factor(array<std::int64_t> indptr, array<std::int32_t> indices, array<Number> data,
                       array<std::int64_t> starts, bool positive, int threads);
template <typename Number>
void ilu_solve(array<std::int64_t> starts, array<std::int64_t> lower_indptr, array<std::int32_t> lower_indices,
               array<Number> lower, array<std::int64_t> upper_indptr, array<std::int32_t> upper_indices,
               array<Number> upper, array<Number> inverse, array<Number> r, array<Number> z, int threads);

// ---- products of matrices, convolutions, attention (contract.hpp); shapes are checked in kernels/contract -------

std::vector<std::string> contract_levels();
std::int64_t contract_piece();
// c (..., rows, columns) of a (..., rows, depth) and b (..., depth, columns), strided as they like.
void contract_matmul(const Array &a, const Array &b, const Array &c, int threads, int level,
                     const std::vector<std::int64_t> &ends);
// `what` is the array that is written: output, input or weight.
void contract_conv(const std::string &what, const Array &x, const Array &w, const Array &y,
                   std::array<std::int64_t, 3> stride, std::array<std::int64_t, 3> dilation,
                   std::array<std::int64_t, 3> low, std::int64_t groups, int threads, int level,
                   const std::vector<std::int64_t> &ends);
void contract_rowsum(const Array &x, std::int64_t stay, const Array &out, const std::vector<std::int64_t> &ends, bool apart,
                     int threads, int level);
// arrays: q, k, v, out and, for the backward pass, the gradients of out, q, k and v. The pass decides which are
// written.
void contract_attention(const std::vector<Array> &arrays, const std::optional<Array> &mask, const Array &logs, double scale,
                        bool causal, int threads, int level);
// arrays: x, weight, bias, y, mean, scale and, for the backward pass, the gradients of y, x, weight and bias. The pass
// decides which are written; weight, bias and what is not wanted may be missing.
void contract_layer_norm(const std::vector<std::optional<Array>> &arrays, double eps, int threads, int level);
// y from x by rows of so many columns; with the gradient of the result, x is that result and y the gradient of its origin.
void contract_softmax(const Array &x, const std::optional<Array> &slopes, const Array &y, std::int64_t columns, bool log,
                      int threads, int level);

// ---- pooling: of images (n, channels, h, w) over 2 x 2, rounded down -------------------------------------------------

// y: the largest element plus the bias of its channel, or zero if that is less; places: its number, 0 to 3, row by row.
void pool_largest(array<float> x, array<float> biases, array<float> y, array<std::uint8_t> places);
// x: each slope at its place, zeros elsewhere.
void pool_spread(array<float> slopes, array<std::uint8_t> places, array<float> x);

// ---- programs of static schedules -------------------------------------------------------------------------------

class StaticProgram {
public:
    virtual ~StaticProgram() = default;
    // x: (samples, input), y: (samples, output); scratch: (threads, arena)
    virtual void run(array<float> x, array<float> y, array<float> scratch, int threads, int level) const = 0;
};

// The memory of `constants` must live as long as the program.
std::unique_ptr<StaticProgram> static_program(array<std::int64_t> operations, array<float> constants,
                                              array<std::int64_t> tables, std::int64_t input, std::int64_t output,
                                              std::int64_t arena, std::int64_t tile);

struct StaticNames {
    std::vector<std::pair<const char *, std::vector<std::string>>> lists;  // in the order of their numbers
    std::vector<std::tuple<int, int, int>> registers;  // (floats of a vector, rows with one and with two vectors of columns)
    int words;                                         // of an operation
};
StaticNames static_names();
// y: `function` of each element of x[0], one of the functions of programs, times that of x[1] if there is one; all are
// contiguous; every NaN is the one without sign and payload
void element(const std::string &function, const std::vector<array<float>> &x, array<float> y, int level);

// ---- block stencils ---------------------------------------------------------------------------------------------

void copy_runs(array<double> src, array<double> dst, array<std::int64_t> runs);
void cg_update(double alpha, double beta, array<double> u, array<double> w, array<double> p, array<double> s,
               array<double> x, std::int64_t x_pad, array<double> r, std::int64_t r_pad, int threads);
void poisson_residual(array<double> b, array<double> x, std::int64_t x_pad, array<double> r, std::int64_t r_pad,
                      double inverse_h2, int threads);
void smooth_restrict(array<double> r, std::int64_t pad, array<double> z, array<double> coarse, std::int64_t coarse_pad,
                     std::int64_t factor, double inverse_h2, double inverse_theta, array<double> coefficients, int threads);
void prolong_smooth(array<double> r, std::int64_t pad, array<double> z, array<double> e, std::int64_t e_pad,
                    std::int64_t factor, array<double> u, std::int64_t u_pad, array<double> w, array<double> dots,
                    double inverse_h2, double inverse_theta, array<double> coefficients, int threads);
void block_dots(array<double> a, std::int64_t a_pad, array<double> b, std::int64_t b_pad, array<double> out);

// ---- fused vector updates ---------------------------------------------------------------------------------------

using CodedTerm = std::tuple<double, int, int, std::vector<int>>;  // number, scalar or -1, vector, second vector
using CodedStep = std::tuple<int, std::vector<CodedTerm>>;         // target, terms

class Fused {
public:
    virtual ~Fused() = default;
    // partials: (blocks, dots), or none without dots; values: of the scalars.
    virtual void run(const std::optional<array<double>> &partials, const std::vector<double> &values) = 0;
};

// The memory of the vectors must live as long.
template <typename Float>
std::unique_ptr<Fused> fuse(const std::vector<array<Float>> &vectors, const std::vector<CodedStep> &steps,
                            const std::vector<std::pair<int, int>> &dots, const std::vector<std::int64_t> &starts,
                            int threads);

// ---- wires and the rest -------------------------------------------------------------------------------------------

// The cells of x as bytes, and the elements that bytes stand for; see kernels.wires.codecs.
// `n`: bits of a table, or elements of a block; `rotates`: groups of a block before they are encoded.
void encode_cells(const std::string &name, int n, const std::string &scale, bool rotates, array<float> x,
                  array<std::int64_t> starts, array<bool> plain, array<std::uint8_t> out);
void decode_cells(const std::string &name, int n, const std::string &scale, bool rotates, array<std::uint8_t> data,
                  array<std::int64_t> starts, array<bool> plain, array<float> out);
void decode_add_cells(const std::string &name, int n, const std::string &scale, bool rotates, array<std::uint8_t> data,
                      array<std::int64_t> starts, array<bool> plain, array<float> into);

// The most bytes of n packed elements of `width` words, with the bytes that are read beyond them.
std::size_t packed_bytes(std::size_t n, std::size_t width);
std::size_t pack(array<std::int64_t> words, std::size_t width, array<std::uint8_t> out);
void unpack(array<std::uint8_t> packed, std::size_t width, array<std::int64_t> out);

// Six numbers for each of n arrays of `count` elements, of one block among `sample` (include/sizes.hpp).
Made<double> sizes_of(const Array &x, const std::string &type, std::int64_t n, std::int64_t count, std::int64_t sample);
std::uint64_t read_memory(const Array &x, int threads);
