// Convolutions and their gradients as products whose factors lie in images (see contract.hpp).
//
// Images are copied once, with zeros around them, and so that the elements which windows see at neighbouring positions
// are neighbours: nothing is unfolded. Images have three spatial dims here; those of fewer get dims of one element in
// front.
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>

#include "contract.hpp"
#include "kernels.hpp"

namespace contract {
namespace {

using Three = std::array<i64, 3>;

i64 product(const Three &n) { return n[0] * n[1] * n[2]; }

template <typename F>
void for_each(const Three &n, F f) {
    Three i;
    for (i[0] = 0; i[0] < n[0]; ++i[0])
        for (i[1] = 0; i[1] < n[1]; ++i[1])
            for (i[2] = 0; i[2] < n[2]; ++i[2]) f(i);
}

// Samples of channels of points in memory.
template <typename T>
struct Images {
    T *at;
    i64 samples, channels;
    Three size;
    i64 sample, channel;
    Three step;

    i64 offset(const Three &i) const { return i[0] * step[0] + i[1] * step[1] + i[2] * step[2]; }
};

// A copy of images with `low` zeros before and `high` after each dim. Points whose places are equal modulo `stride` are
// together, so that a window's next position is the next point.
template <typename T>
class Copy {
public:
    Copy(const Images<const T> &x, const Three &low, const Three &high, const Three &stride, int threads)
        : low_(low), stride_(stride) {
        for (int d = 0; d < 3; ++d) extent_[d] = (low[d] + x.size[d] + high[d] + stride[d] - 1) / stride[d];
        channel_ = product(extent_) * product(stride);
        if (channel_ * i64(sizeof(T)) % 512 == 0) channel_ += MOST_LANES;  // powers of two share places in caches
        sample_ = channel_ * x.channels;
        const i64 all = x.samples * sample_;
        memory_.reset(new T[all + BEYOND]);
        std::fill_n(memory_.get() + all, BEYOND, T(0));
#pragma omp parallel num_threads(threads) if (threads > 1 && all > (1 << 16))
        {
            const DefaultEnvironment environment;
#pragma omp for
            for (i64 i = 0; i < x.samples * x.channels; ++i)
                copy(x, x.at + i / x.channels * x.sample + i % x.channels * x.channel, memory_.get() + i * channel_);
        }
    }

    // The place of point i of the image, which may lie in the zeros.
    i64 offset(const Three &i) const {
        Three u, phase;
        for (int d = 0; d < 3; ++d) u[d] = (i[d] + low_[d]) / stride_[d], phase[d] = (i[d] + low_[d]) % stride_[d];
        return ((phase[0] * stride_[1] + phase[1]) * stride_[2] + phase[2]) * product(extent_) + moved(u);
    }
    i64 moved(const Three &positions) const { return (positions[0] * extent_[1] + positions[1]) * extent_[2] + positions[2]; }

    const T *at() const { return memory_.get(); }
    i64 sample() const { return sample_; }
    i64 channel() const { return channel_; }
    const Three &extent() const { return extent_; }

    static constexpr i64 BEYOND = 4 * MOST_LANES;  // elements that panels at the end may read

private:
    std::unique_ptr<T[]> memory_;
    Three low_, stride_, extent_;
    i64 channel_, sample_;

    void copy(const Images<const T> &x, const T *from, T *to) const {
        std::fill_n(to, channel_, T(0));
        const i64 s = stride_[2];
        for (i64 i = 0; i < x.size[0]; ++i)
            for (i64 j = 0; j < x.size[1]; ++j) {
                const T *row = from + i * x.step[0] + j * x.step[1];
                for (i64 k = 0; k < std::min(s, x.size[2]); ++k) {
                    T *next = to + offset({i, j, k});
                    const i64 step = s * x.step[2], n = (x.size[2] - k + s - 1) / s;
                    const T *point = row + k * x.step[2];
                    if (step == 1)
                        std::memcpy(next, point, n * sizeof(T));
                    else
                        for (i64 q = 0; q < n; ++q) next[q] = point[q * step];
                }
            }
    }
};

// A factor whose element k of line i is at[lines[i] + along[k]]. As columns, lines of a panel are neighbours.
template <typename T>
class Moved final : public Operand<T> {
public:
    Moved(const T *at, const std::vector<i64> &lines, const std::vector<i64> &along) : at_(at), lines_(lines), along_(along) {}
    const i64 *rows(Scratch<T> &scratch, i64 first, i64 count, i64 k0, i64, bool) const override {
        for (i64 i = 0; i < count; ++i) scratch.rows[i] = at_ + lines_[first + i];
        return along_.data() + k0;
    }
    const T *panel(const Kernels<T> &, Scratch<T> &, T *, i64, i64 first, i64, i64 k0, i64, bool, const i64 *&at) const override {
        at = along_.data() + k0;
        return at_ + lines_[first];
    }

private:
    const T *at_;
    const std::vector<i64> &lines_, &along_;
};

// Columns that are channels of images, k being their points: element k of column j is at[j * channel + along[k]].
template <typename T>
class Channels final : public Operand<T> {
public:
    Channels(const T *at, i64 channel, const std::vector<i64> &along) : at_(at), channel_(channel), along_(along) {}
    const i64 *rows(Scratch<T> &scratch, i64 first, i64 count, i64 k0, i64, bool) const override {
        for (i64 i = 0; i < count; ++i) scratch.rows[i] = at_ + (first + i) * channel_;
        return along_.data() + k0;
    }
    const T *panel(const Kernels<T> &kernels, Scratch<T> &scratch, T *to, i64 width, i64 first, i64 count, i64 k0, i64 depth, bool,
                   const i64 *&at) const override {
        at = scratch.b_at.of(width);
        const i64 *along = along_.data() + k0;
        for (i64 k = 0, end; k < depth; k = end) {  // neighbours at once
            for (end = k + 1; end < depth && along[end] == along[end - 1] + 1;) ++end;
            kernels.transpose(to + k * width, width, at_ + first * channel_ + along[k], channel_, count, end - k);
        }
        return to;
    }

private:
    const T *at_;
    i64 channel_;
    const std::vector<i64> &along_;
};

template <typename T>
Images<T> group_of(Images<T> x, i64 group, i64 groups) {
    x.channels /= groups;
    x.at += group * x.channels * x.channel;
    return x;
}

// A convolution: how windows move, and the options from Python.
struct Convolution {
    Three window, stride, dilation, low;
    i64 groups;
    int threads, level;
    std::vector<i64> ends;  // of blocks of samples, for the gradient of w

    std::vector<Three> taps() const {
        std::vector<Three> all;
        for (i64 i = 0; i < window[0]; ++i)
            for (i64 j = 0; j < window[1]; ++j)
                for (i64 k = 0; k < window[2]; ++k)
                    all.push_back({i * dilation[0] - low[0], j * dilation[1] - low[1], k * dilation[2] - low[2]});
        return all;
    }
};

// Zeros that windows see before and after images of this size, from any of these positions.
struct Reach {
    Three low, high;
};

Reach reach(const std::vector<Three> &taps, const Three &stride, const Three &positions, const Three &size) {
    Reach zeros{};
    for (const Three &tap : taps)
        for (int d = 0; d < 3; ++d) {
            zeros.low[d] = std::max(zeros.low[d], -tap[d]);
            zeros.high[d] = std::max(zeros.high[d], tap[d] + (positions[d] - 1) * stride[d] - (size[d] - 1));
        }
    return zeros;
}

// Positions as columns of a product: all points of the copied rows from the first position of a sample to its last,
// filled up to whole panels, so that every panel is contiguous. Points that are no positions are computed and dropped.
struct Positions {
    std::vector<i64> lines, columns;  // in the copy, and in the result

    template <typename T, typename U>
    Positions(const Copy<T> &copy, const Images<U> &y, const Three &first, const Three &stride, const Three &positions) {
        if (!product(positions)) return;
        const i64 last = copy.moved({positions[0] - 1, positions[1] - 1, positions[2] - 1});
        const i64 each = (last / (2 * MOST_LANES) + 1) * (2 * MOST_LANES);
        lines.resize(each * y.samples);
        columns.assign(each * y.samples, NOWHERE);
        for (i64 n = 0; n < y.samples; ++n) {
            for (i64 q = 0; q < each; ++q) lines[n * each + q] = n * copy.sample() + q;
            const i64 begin = n * y.sample + y.offset(first);
            for_each(positions, [&](const Three &o) {
                columns[n * each + copy.moved(o)] =
                    begin + o[0] * stride[0] * y.step[0] + o[1] * stride[1] * y.step[1] + o[2] * stride[2] * y.step[2];
            });
        }
    }
};

// The places of a window's elements, by channel and tap, and LOOK places more.
template <typename T>
std::vector<i64> elements(const Copy<T> &copy, i64 channels, const std::vector<Three> &taps) {
    std::vector<i64> all;
    for (i64 c = 0; c < channels; ++c)
        for (const Three &tap : taps) all.push_back(c * copy.channel() + copy.offset(tap));
    all.insert(all.end(), LOOK, 0);
    return all;
}

// y = x * w; w (output channels, channels of a group, window) without gaps.
template <typename T>
void forward(const Convolution &of, const Images<const T> &x, const T *w, const Images<T> &y) {
    const std::vector<Three> taps = of.taps();
    const Reach zeros = reach(taps, of.stride, y.size, x.size);
    const Copy<T> copy(x, zeros.low, zeros.high, of.stride, of.threads);
    const Positions positions(copy, y, {}, {1, 1, 1}, y.size);
    const i64 rows = y.channels / of.groups, channels = x.channels / of.groups;
    const std::vector<i64> window = elements(copy, channels, taps);
    const i64 depth = channels * i64(taps.size());
    std::deque<Moved<T>> images;
    std::deque<Lines<T>> weights;
    std::vector<Product<T>> products;
    for (i64 g = 0; g < of.groups; ++g) {
        images.emplace_back(copy.at() + g * channels * copy.channel(), positions.lines, window);
        weights.emplace_back(w + g * rows * depth, depth, 1);
        products.push_back({rows, i64(positions.lines.size()), depth, &weights.back(), &images.back(),
                            {y.at + g * rows * y.channel, y.channel, 0, positions.columns.data()}});
    }
    multiply(products, of.threads, of.level);
}

// The gradient of x. The points of x that the same taps reach form a phase: f, f + stride, ... in every dim. Each phase
// is a convolution of y with these taps, in steps of one.
template <typename T>
struct Phase {
    Three first, positions;
    std::vector<Three> reach;    // the points of y, seen from the position, for each tap that has one
    std::vector<i64> numbers;    // of these taps
    std::vector<i64> window;
    std::deque<std::vector<T>> weights;
};

template <typename T>
void input(const Convolution &of, const Images<const T> &y, const T *w, const Images<T> &x) {
    const i64 rows = x.channels / of.groups, channels = y.channels / of.groups, taps_in_all = product(of.window);
    const std::vector<Three> taps = of.taps();
    std::deque<Phase<T>> phases;
    Reach zeros{};
    for_each(of.stride, [&](const Three &f) {
        Phase<T> phase{f, {}, {}, {}, {}, {}};
        for (int d = 0; d < 3; ++d) phase.positions[d] = std::max<i64>(0, (x.size[d] - f[d] + of.stride[d] - 1) / of.stride[d]);
        for (i64 t = 0; t < taps_in_all; ++t) {
            Three at;
            bool whole = true;
            for (int d = 0; d < 3; ++d) {
                const i64 distance = f[d] - taps[t][d];
                whole = whole && distance % of.stride[d] == 0;
                at[d] = distance / of.stride[d];
            }
            if (whole) phase.reach.push_back(at), phase.numbers.push_back(t);
        }
        if (!product(phase.positions)) return;
        const Reach more = reach(phase.reach, {1, 1, 1}, phase.positions, y.size);
        for (int d = 0; d < 3; ++d) {
            zeros.low[d] = std::max(zeros.low[d], more.low[d]);
            zeros.high[d] = std::max({zeros.high[d], more.high[d], phase.positions[d] - y.size[d]});
        }
        phases.push_back(std::move(phase));
    });
    const Copy<T> copy(y, zeros.low, zeros.high, {1, 1, 1}, of.threads);
    std::deque<Positions> positions;
    std::deque<Moved<T>> images;
    std::deque<Lines<T>> lines;
    std::vector<Product<T>> products;
    for (Phase<T> &phase : phases) {
        positions.emplace_back(copy, x, phase.first, of.stride, phase.positions);
        phase.window = elements(copy, channels, phase.reach);
        const i64 depth = channels * i64(phase.reach.size());
        for (i64 g = 0; g < of.groups; ++g) {
            phase.weights.emplace_back();
            phase.weights.back().reserve(rows * depth);
            for (i64 i = 0; i < rows; ++i)
                for (i64 c = 0; c < channels; ++c)
                    for (const i64 t : phase.numbers)
                        phase.weights.back().push_back(w[((g * channels + c) * rows + i) * taps_in_all + t]);
            images.emplace_back(copy.at() + g * channels * copy.channel(), positions.back().lines, phase.window);
            lines.emplace_back(phase.weights.back().data(), depth, 1);
            products.push_back({rows, i64(positions.back().lines.size()), depth, &lines.back(), &images.back(),
                                {x.at + g * rows * x.channel, x.channel, 0, positions.back().columns.data()}});
        }
    }
    multiply(products, of.threads, of.level);
}

// The gradient of w: sums over the positions of all samples, or of each block of samples. Rows are elements of the window, columns channels of y.
template <typename T>
void weight(const Convolution &of, const Images<const T> &x, const Images<const T> &y, T *w) {
    const std::vector<Three> taps = of.taps();
    const Reach zeros = reach(taps, of.stride, y.size, x.size);
    const Copy<T> copy(x, zeros.low, zeros.high, of.stride, of.threads);
    const i64 columns = y.channels / of.groups, channels = x.channels / of.groups;
    const std::vector<i64> window = elements(copy, channels, taps);
    std::vector<i64> seen, points;  // from positions, in the copy and in y
    for (i64 n = 0; n < y.samples; ++n)
        for_each(y.size, [&](const Three &o) {
            seen.push_back(n * copy.sample() + copy.moved(o));
            points.push_back(n * y.sample + y.offset(o));
        });
    std::deque<Moved<T>> images;
    std::deque<Channels<T>> outputs;
    std::vector<Product<T>> products;
    const i64 rows = channels * i64(taps.size()), depth = i64(seen.size());
    std::vector<i64> ends;
    for (const i64 end : of.ends) ends.push_back(end * product(y.size));
    std::vector<T> transposed(of.groups * rows * columns);  // so that pieces are added to neighbours
    for (i64 g = 0; g < of.groups; ++g) {
        images.emplace_back(copy.at() + g * channels * copy.channel(), window, seen);
        outputs.emplace_back(y.at + g * columns * y.channel, y.channel, points);
        products.push_back({rows, columns, depth, &images.back(), &outputs.back(),
                            {transposed.data() + g * rows * columns, columns, 1, nullptr}, ends});
    }
    multiply(products, of.threads, of.level);
    for (i64 o = 0; o < of.groups * columns; ++o)
        for (i64 i = 0; i < rows; ++i) w[o * rows + i] = transposed[(o / columns * rows + i) * columns + o % columns];
}

// An array (samples, channels, three spatial dims) of any strides.
template <typename T>
Images<T> images_of(const Array &x, T *at) {
    const auto step = [&x](int dim) { return i64(x.strides(dim)) / i64(sizeof(T)); };
    return {at, x.shape(0), x.shape(1), {x.shape(2), x.shape(3), x.shape(4)}, step(0), step(1), {step(2), step(3), step(4)}};
}

template <typename T>
void run(const std::string &what, const Convolution &of, const Array &x, const Array &w, const Array &y) {
    const bool of_x = what == "input", of_w = what == "weight";
    const auto data = [](const Array &array, bool written) {
        return static_cast<T *>(written ? array.mutable_data() : const_cast<void *>(array.data()));
    };
    const Images<T> xs = images_of(x, data(x, of_x)), ys = images_of(y, data(y, !of_x && !of_w));
    const auto read = [](const Images<T> &i) {
        return Images<const T>{i.at, i.samples, i.channels, i.size, i.sample, i.channel, i.step};
    };
    T *ws = data(w, of_w);
    if (of_x)
        input<T>(of, read(ys), ws, xs);
    else if (of_w)
        weight<T>(of, read(xs), read(ys), ws);
    else
        forward<T>(of, read(xs), ws, ys);
}

}  // namespace
}  // namespace contract

void contract_conv(const std::string &what, const Array &x, const Array &w, const Array &y, std::array<std::int64_t, 3> stride,
                   std::array<std::int64_t, 3> dilation, std::array<std::int64_t, 3> low, std::int64_t groups, int threads,
                   int level, const std::vector<std::int64_t> &ends) {
    const contract::Convolution of{{w.shape(2), w.shape(3), w.shape(4)}, stride, dilation, low, groups,
                                   threads > 0 ? threads : omp_get_max_threads(), contract::checked_level(level), ends};
    const auto run = x.itemsize() == sizeof(double) ? contract::run<double> : contract::run<float>;
    run(what, of, x, w, y);
}
