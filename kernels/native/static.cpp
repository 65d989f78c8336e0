// Programs of static schedules (kernels/inference/schedule.py makes them and has their guarantees).
//
// A program is a list of operations with everything fixed: kernels, places and steps of operands, the order of each
// sum. It is checked once, when it is made, and then runs any number of samples. Threads share tiles of samples, or the
// outputs of a single tile, never a sum.
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "levels.hpp"

namespace {

using i64 = std::int64_t;

#define FPNA_INLINE_LAMBDA __attribute__((always_inline))

constexpr i64 ENOUGH = 1 << 18;  // products per thread that are worth waking it

enum Code { PRODUCTS, COPY, MAP, COMBINE, REDUCE, POOL_MAX, POOL_AVERAGE, GATHER, INDEX_ADD, CODES };
enum Function { RELU, EXP, TANH, SIGMOID, LOG, SQRT, NEGATE, ERF, GELU, GELU_SLOPE, FUNCTIONS };
enum Pair { ADD, SUBTRACT, SUBTRACT_FROM, MULTIPLY, DIVIDE, DIVIDE_INTO, MAXIMUM, PAIRS };
enum Mode { FULL, COLUMN, SCALAR, MODES };  // the second operand has the elements of the first, one per row, or one
enum Reduction { SUM, MEAN, NORM, LARGEST, REDUCTIONS };
const char *const CODE_NAMES[] = {"products", "copy", "map", "combine", "reduce", "pool_max", "pool_average", "gather", "index_add"};
const char *const FUNCTION_NAMES[] = {"relu", "exp", "tanh", "sigmoid", "log", "sqrt", "neg", "erf", "gelu", "gelu_slope"};
const char *const PAIR_NAMES[] = {"add", "sub", "rsub", "mul", "div", "rdiv", "maximum"};
const char *const MODE_NAMES[] = {"full", "column", "scalar"};
const char *const REDUCTION_NAMES[] = {"sum", "mean", "norm", "max"};

// y[m][j] = bias[j] + sum over k, ascending, of w[k][j] * x[m * step + at[k]]
struct Terms {
    const float *x;
    i64 step;
    const i64 *at;
    i64 terms;
    const float *weights;  // (terms, pitch)
    i64 pitch;
    const float *bias;
    float *y;
    i64 y_step;
    bool relu;
};
using Rows = void (*)(const Terms &);

struct Pool {
    i64 rows, columns, channels;    // of the result; channels: a multiple of 8
    i64 high, wide, down, right;    // the window and its steps
    i64 x_row;                      // elements from a row of x to the next
};

// The kernels of one instruction set.
struct Level {
    int lanes, rows_1, rows_2;
    void (*products)(const Terms &, i64 rows, i64 columns);
    void (*map)(i64 function, const float *x, float *y, i64 n);
    void (*combine)(i64 function, const float *a, const float *b, float *y, i64 rows, i64 pitch, i64 mode);
    void (*pool_max)(const Pool &, const float *x, float *y);
    void (*pool_average)(const Pool &, const float *x, float *y);
};

typedef float Eight __attribute__((vector_size(32)));

#define FPNA_PER_LEVEL "static_kernels.hpp"
#include "per_level.hpp"

#if FPNA_LEVELS == 3
const Level *const LEVELS[] = {&base::LEVEL, &v3::LEVEL, &v4::LEVEL};
#else
const Level *const LEVELS[] = {&base::LEVEL};
#endif

// ---- programs -----------------------------------------------------------------------------------------------

enum Space { ARENA, INPUT, OUTPUT, CONSTANTS, SPACES };
const char *const SPACE_NAMES[] = {"arena", "input", "output", "constants"};

struct Operand {
    i64 space, at, step;  // step: elements from the operand of a sample to that of the next
};

constexpr int WORDS = 32, PARAMETERS = WORDS - 11;

struct Operation {
    i64 code, group;  // operations of a group with the sign + are done for all samples of a tile at once, with - sample by sample
    Operand a, b, y;
    i64 p[PARAMETERS];
};
static_assert(sizeof(Operation) == WORDS * sizeof(i64));

struct Memory {
    float *of[SPACES];
};

float *place(const Operand &o, const Memory &m, i64 sample) { return m.of[o.space] + o.at + sample * o.step; }

// y gets n[0] x n[1] x n[2] elements; p: n[3], steps in a[3], steps in y[3], elements of y that are zeroed before,
// whether every NaN becomes the one without sign and payload, the first element of y
void copy(const i64 *p, const float *a, float *y) {
    if (p[9]) std::memset(y, 0, p[9] * sizeof(float));
    y += p[11];
    for (i64 i = 0; i < p[0]; ++i)
        for (i64 j = 0; j < p[1]; ++j) {
            const float *from = a + i * p[3] + j * p[4];
            float *to = y + i * p[6] + j * p[7];
            if (p[10]) {
                for (i64 k = 0; k < p[2]; ++k) {
                    const float v = from[k * p[5]];
                    to[k * p[8]] = v != v ? __builtin_nanf("") : v;
                }
            } else if (p[5] == 1 && p[8] == 1) {
                std::memcpy(to, from, p[2] * sizeof(float));
            } else {
                for (i64 k = 0; k < p[2]; ++k) to[k * p[8]] = from[k * p[5]];
            }
        }
}

// p: reduction, rows, elements of a row, pitch
void reduce(const i64 *p, const float *a, float *y) {
    for (i64 r = 0; r < p[1]; ++r, a += p[3]) {
        float v = p[0] == LARGEST ? a[0] : 0.0f;
        for (i64 k = 0; k < p[2]; ++k) {
            if (p[0] == LARGEST)
                v = a[k] > v || a[k] != a[k] ? a[k] : v;
            else
                v += p[0] == NORM ? a[k] * a[k] : a[k];
        }
        y[r] = p[0] == MEAN ? v / float(p[2]) : p[0] == NORM ? __builtin_sqrtf(v) : v;
    }
}

// The greatest element of a table's part; throws where the part is not inside, or has a negative element.
i64 largest(const std::vector<i64> &table, i64 at, i64 n) {
    if (at < 0 || n < 0 || at + n > i64(table.size())) throw std::invalid_argument("a part of the tables lies outside");
    i64 most = 0;
    for (i64 k = at; k < at + n; ++k) {
        if (table[k] < 0) throw std::invalid_argument("a table has a negative element");
        most = std::max(most, table[k]);
    }
    return most;
}

class Program final : public StaticProgram {
public:
    Program(const array<i64> &operations, const array<float> &constants, const array<i64> &tables, i64 input, i64 output,
            i64 arena, i64 tile)
        : constants_(constants), tables_(tables.data(), tables.data() + tables.size()), arena_(arena), tile_(tile),
          size_{arena, input, output, i64(constants_.size())} {
        if (operations.ndim() != 2 || operations.shape(1) != WORDS)
            throw std::invalid_argument("operations: expected (n, " + std::to_string(WORDS) + ")");
        if (tile < 1 || arena < 0 || input < 0 || output < 0) throw std::invalid_argument("sizes: expected tile >= 1, others >= 0");
        operations_.resize(operations.shape(0));
        if (operations.size()) std::memcpy(operations_.data(), operations.data(), operations.nbytes());
        for (std::size_t i = 0; i < operations_.size(); ++i) try {
                check(operations_[i]);
            } catch (const std::invalid_argument &error) {
                throw std::invalid_argument("operation " + std::to_string(i) + ": " + error.what());
            }
    }

    // x: (samples, input), y: (samples, output); scratch: (threads, arena)
    void run(array<float> x, array<float> y, array<float> scratch, int threads, int level) const override {
        const i64 samples = x.ndim() ? x.shape(0) : -1;
        if (samples < 0 || x.size() != samples * size_[INPUT]) throw std::invalid_argument("x: expected (samples, input)");
        if (y.ndim() < 1 || y.shape(0) != samples || y.size() != samples * size_[OUTPUT])
            throw std::invalid_argument("y: expected (samples, output)");
        if (threads < 1 || scratch.size() < threads * arena_) throw std::invalid_argument("scratch: expected (threads, arena)");
        if (level >= levels_here() || level < -1) throw std::invalid_argument("level: this processor has none such");
        const Level &kernels = *LEVELS[level < 0 ? levels_here() - 1 : level];
        float *xd = const_cast<float *>(x.data()), *yd = y.mutable_data(), *arena = scratch.mutable_data();
        float *constants = const_cast<float *>(constants_.data());
        const i64 tile = std::max<i64>(1, std::min(tile_, (samples + threads - 1) / threads));
        const i64 tiles = (samples + tile - 1) / tile;
        const int team = int(std::min<i64>(threads, tiles));
#pragma omp parallel num_threads(team) if (team > 1)
        {
            const DefaultEnvironment environment;
#pragma omp for schedule(dynamic, 1)
            for (i64 t = 0; t < tiles; ++t) {
                const i64 first = t * tile;
                const Memory memory{{arena + omp_get_thread_num() * arena_, xd + first * size_[INPUT],
                                     yd + first * size_[OUTPUT], constants}};
                run_tile(kernels, memory, std::min(tile, samples - first), tiles == 1 ? threads : 1);
            }
        }
    }

private:
    array<float> constants_;
    std::vector<i64> tables_;
    i64 arena_, tile_;
    i64 size_[SPACES];
    std::vector<Operation> operations_;

    void run_tile(const Level &kernels, const Memory &memory, i64 samples, int team) const {
        for (std::size_t i = 0, end; i < operations_.size(); i = end) {
            for (end = i + 1; end < operations_.size() && operations_[end].group == operations_[i].group;) ++end;
            if (operations_[i].group > 0) {
                for (std::size_t k = i; k < end; ++k) run_operation(kernels, memory, operations_[k], 0, samples, team);
            } else {
                for (i64 s = 0; s < samples; ++s)
                    for (std::size_t k = i; k < end; ++k) run_operation(kernels, memory, operations_[k], s, s + 1, team);
            }
        }
    }

    void run_operation(const Level &kernels, const Memory &memory, const Operation &o, i64 begin, i64 end,
                       int team) const {
        const i64 *p = o.p;
        if (o.code == PRODUCTS && p[11]) {  // samples are rows
            products(kernels, o, place(o.a, memory, begin), place(o.y, memory, begin), memory, end - begin, team);
            return;
        }
        for (i64 s = begin; s < end; ++s) {
            const float *a = place(o.a, memory, s), *b = place(o.b, memory, s);
            float *y = place(o.y, memory, s);
            switch (o.code) {
                case PRODUCTS: products(kernels, o, a, y, memory, p[2], team); break;
                case COPY: copy(p, a, y); break;
                case MAP: kernels.map(p[0], a, y, p[1]); break;
                case COMBINE: kernels.combine(p[0], a, b, y, p[1], p[2], p[3]); break;
                case REDUCE: reduce(p, a, y); break;
                case POOL_MAX: kernels.pool_max(pool_of(p), a, y); break;
                case POOL_AVERAGE: kernels.pool_average(pool_of(p), a, y); break;
                case GATHER:
                    for (i64 i = 0; i < p[0]; ++i)
                        std::memcpy(y + i * p[4], a + tables_[p[2] + i] * p[3], p[1] * sizeof(float));
                    break;
                case INDEX_ADD:  // by ascending place in the index
                    for (i64 i = 0; i < p[0]; ++i) {
                        float *to = y + tables_[p[2] + i] * p[4];
                        const float *from = a + i * p[3];
                        for (i64 k = 0; k < p[1]; ++k) to[k] += from[k];
                    }
            }
        }
    }

    // p: runs, elements of x from run to run, rows of a run, from row to row, terms, their table, columns, weights, bias,
    // relu, elements of y from row to row, whether samples are rows. `team` threads share the runs, or the rows of one.
    void products(const Level &kernels, const Operation &o, const float *x, float *y, const Memory &memory, i64 rows,
                  int team) const {
        const i64 *p = o.p, whole = p[0] > 1 ? p[0] : rows;
        const i64 parts = std::min({i64(team), whole, p[0] * rows * p[4] * p[6] / ENOUGH});
        if (parts <= 1) return part_of_products(kernels, o, x, y, memory, rows, 0, whole);
#pragma omp parallel num_threads(int(parts))
        {
            const DefaultEnvironment environment;
#pragma omp for schedule(static, 1)
            for (i64 k = 0; k < parts; ++k) {
                part_of_products(kernels, o, x, y, memory, rows, whole * k / parts, whole * (k + 1) / parts);
            }
        }
    }

    // Runs begin ... end of several, or these rows of a single one.
    void part_of_products(const Level &kernels, const Operation &o, const float *x, float *y, const Memory &memory,
                          i64 rows, i64 begin, i64 end) const {
        const i64 *p = o.p, step = p[11] ? o.a.step : p[3], y_step = p[11] ? o.y.step : p[10];
        const float *weights = memory.of[CONSTANTS] + p[7], *bias = memory.of[CONSTANTS] + p[8];
        if (p[0] == 1) {
            x += begin * step;
            y += begin * y_step;
            rows = end - begin;
            begin = 0;
            end = 1;
        }
        for (i64 left = p[6], columns; left > 0; left -= columns) {
            columns = left >= 32 ? 32 : left >= 16 ? 16 : 8;
            for (i64 run = begin; run < end; ++run)
                kernels.products({x + run * p[1], step, tables_.data() + p[5], p[4], weights, columns, bias,
                                  y + run * rows * y_step, y_step, p[9] != 0},
                                 rows, columns);
            weights += p[4] * columns;
            bias += columns;
            y += columns;
        }
    }

    static Pool pool_of(const i64 *p) { return {p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]}; }

    using Wide = __int128;  // so that no product of three parameters overflows

    // Throws unless `elements` elements from the operand on are inside, for every sample of a tile.
    void require(const char *name, const Operand &o, Wide elements) const {
        const std::string where = std::string(name) + ": ";
        if (o.space < 0 || o.space >= SPACES) throw std::invalid_argument(where + "no such space");
        const bool outside = o.space == INPUT || o.space == OUTPUT;
        if (o.step < 0 || (outside && o.step != size_[o.space]) || (o.space == CONSTANTS && o.step))
            throw std::invalid_argument(where + "wrong step from sample to sample");
        const Wide last = outside ? 0 : Wide(tile_ - 1) * o.step;
        if (o.at < 0 || o.at + last + elements > size_[o.space])
            throw std::invalid_argument(where + "from " + std::to_string(o.at) + " on it reaches beyond the " +
                                        std::to_string(size_[o.space]) + " elements of " + SPACE_NAMES[o.space]);
    }

    static void require(bool holds, const char *what) {
        if (!holds) throw std::invalid_argument(what);
    }

    void check(const Operation &o) const {
        require(o.code >= 0 && o.code < CODES && o.group != 0, "no such code or group");
        require(o.y.space == ARENA || o.y.space == OUTPUT, "the result must lie in the arena or the output");
        Wide p[PARAMETERS];
        for (int k = 0; k < PARAMETERS; ++k) {
            require(o.p[k] >= 0 && o.p[k] < (i64(1) << 31), "a parameter is negative or huge");
            p[k] = o.p[k];
        }
        require("b", o.b, 0);
        switch (o.code) {
            case PRODUCTS:
                require(p[0] > 0 && p[2] > 0 && p[6] > 0 && p[6] % 8 == 0, "expected runs, rows and columns in eights");
                require(p[10] >= p[6], "expected rows of the result that do not overlap");
                require(!p[11] || (p[0] == 1 && p[2] == 1), "samples are rows only where a sample has one");
                require("a", o.a, (p[0] - 1) * p[1] + (p[2] - 1) * p[3] + largest(tables_, o.p[5], o.p[4]) + 1);
                require("y", o.y, (p[0] * p[2] - 1) * p[10] + p[6]);
                require("weights", {CONSTANTS, o.p[7], 0}, p[4] * p[6]);
                require("bias", {CONSTANTS, o.p[8], 0}, p[6]);
                break;
            case COPY: {
                require(p[0] > 0 && p[1] > 0 && p[2] > 0, "expected elements");
                require(p[0] * p[1] * p[2] <= size_[o.y.space], "more elements than the result has");
                Wide a = 1, y = 1 + p[11];
                for (int k = 0; k < 3; ++k) a += (p[k] - 1) * p[3 + k], y += (p[k] - 1) * p[6 + k];
                require("a", o.a, a);
                require("y", o.y, std::max(y, p[9]));
                break;
            }
            case MAP:
                require(p[0] < FUNCTIONS && p[1] % 16 == 0, "expected a function and elements in sixteens");
                require("a", o.a, p[1]);
                require("y", o.y, p[1]);
                break;
            case COMBINE:
                require(p[0] < PAIRS && p[2] > 0 && p[2] % 8 == 0 && p[3] < MODES,
                        "expected a function, a pitch in eights and a mode");
                require("a", o.a, p[1] * p[2]);
                require("b", o.b, p[3] == FULL ? p[1] * p[2] : p[3] == COLUMN ? p[1] : 1);
                require("y", o.y, p[1] * p[2]);
                break;
            case REDUCE:
                require(p[0] < REDUCTIONS && p[1] > 0 && p[2] > 0, "expected a reduction of rows that have elements");
                require("a", o.a, (p[1] - 1) * p[3] + p[2]);
                require("y", o.y, p[1]);
                break;
            case POOL_MAX:
            case POOL_AVERAGE:
                require(p[0] > 0 && p[1] > 0 && p[3] > 0 && p[4] > 0 && p[2] > 0 && p[2] % 8 == 0,
                        "expected a window and channels in eights");
                require(p[7] >= p[4] * p[2], "expected a window within a row");
                require("a", o.a, ((p[0] - 1) * p[5] + p[3] - 1) * p[7] + ((p[1] - 1) * p[6] + p[4]) * p[2]);
                require("y", o.y, p[0] * p[1] * p[2]);
                break;
            default: {
                const Wide last = p[0] > 0 ? p[0] - 1 : 0, farthest = largest(tables_, o.p[2], o.p[0]);
                require("a", o.a, (o.code == GATHER ? farthest : last) * p[3] + p[1]);
                require("y", o.y, (o.code == INDEX_ADD ? farthest : last) * p[4] + p[1]);
            }
        }
    }
};

template <std::size_t N>
std::vector<std::string> names(const char *const (&of)[N], std::size_t n = N) {
    return {of, of + n};
}

}  // namespace

std::unique_ptr<StaticProgram> static_program(array<i64> operations, array<float> constants, array<i64> tables, i64 input,
                                              i64 output, i64 arena, i64 tile) {
    return std::make_unique<Program>(operations, constants, tables, input, output, arena, tile);
}

void element(const std::string &function, const std::vector<array<float>> &x, array<float> y, int level) {
    constexpr i64 TILE = 2048;  // elements that stay in the first cache
    const auto *const named = std::find(std::begin(FUNCTION_NAMES), std::end(FUNCTION_NAMES), function);
    if (named == std::end(FUNCTION_NAMES)) throw std::invalid_argument("no function of an element is called " + function);
    for (const auto &each : x)
        if (each.size() != y.size()) throw std::invalid_argument("x and y: expected as many elements");
    if (level >= levels_here() || level < -1) throw std::invalid_argument("level: this processor has none such");
    const Level &kernels = *LEVELS[level < 0 ? levels_here() - 1 : level];
    const i64 number = named - std::begin(FUNCTION_NAMES);
    for (i64 first = 0; first < y.size(); first += TILE) {
        const float *from = x[0].data() + first;
        float *to = y.mutable_data() + first;
        const i64 n = std::min<i64>(TILE, y.size() - first), whole = n - n % kernels.lanes;
        kernels.map(number, from, to, whole);
        if (whole < n) {
            float last[16] = {}, of_last[16];  // the widest vector
            std::memcpy(last, from + whole, (n - whole) * sizeof(float));
            kernels.map(number, last, of_last, kernels.lanes);
            std::memcpy(to + whole, of_last, (n - whole) * sizeof(float));
        }
        if (x.size() > 1)
            for (i64 i = 0; i < n; ++i) to[i] *= x[1].data()[first + i];
        for (i64 i = 0; i < n; ++i) to[i] = to[i] != to[i] ? __builtin_nanf("") : to[i];  // of several, the processor would choose
    }
}

StaticNames static_names() {
    StaticNames known{{{"codes", names(CODE_NAMES)},
                       {"spaces", names(SPACE_NAMES)},
                       {"functions", names(FUNCTION_NAMES)},
                       {"pairs", names(PAIR_NAMES)},
                       {"modes", names(MODE_NAMES)},
                       {"reductions", names(REDUCTION_NAMES)},
                       {"levels", names(LEVEL_NAMES, levels_here())}},
                      {},
                      WORDS};
    for (int k = 0; k < levels_here(); ++k) known.registers.push_back({LEVELS[k]->lanes, LEVELS[k]->rows_1, LEVELS[k]->rows_2});
    return known;
}
