// Codecs of 4 bits in blocks of a cell (kernels/wires/reference.py: encode_blocks): the heads of all blocks, then the
// stream. To be included by wires.cpp, in its namespace.
//
// A rotation multiplies 32 neighbours by a Hadamard matrix. Its steps within a vector take both partners of a lane by
// shuffles, and add the second with a sign.

constexpr std::size_t GROUP = 32;  // elements that a rotation mixes

template <int APART>
FPNA_INLINE Floats mixed(Floats x) {
    Ints first, second, signs;
    for (int l = 0; l < int(WIDTH); ++l) {
        first[l] = l & ~APART;
        second[l] = l | APART;
        signs[l] = l & APART ? int(0x80000000u) : 0;
    }
    return __builtin_shuffle(x, first) + Floats(Ints(__builtin_shuffle(x, second)) ^ signs);
}

FPNA_INLINE void rotate(const float *from, float *to) {
    Floats x[GROUP / WIDTH], y[GROUP / WIDTH];
    for (std::size_t v = 0; v < GROUP / WIDTH; ++v)
        x[v] = mixed<4>(mixed<2>(mixed<1>(load<Floats>(from + WIDTH * v))));
    for (std::size_t v = 0; v < GROUP / WIDTH; v += 2) y[v] = x[v] + x[v + 1], y[v + 1] = x[v] - x[v + 1];
    for (std::size_t v = 0; v < GROUP / WIDTH / 2; ++v) {
        store(to + WIDTH * v, y[v] + y[v + 2]);
        store(to + WIDTH * (v + 2), y[v] - y[v + 2]);
    }
}

template <typename As>
FPNA_INLINE void encode_blocks(const float *x, std::size_t m, std::size_t block, bool rotates, u8 *out) {
    using Head = typename As::Head;
    float turned[CELL];
    u8 codes[CELL + SLACK] = {};
    if (rotates) {
        std::size_t i = 0;
        for (; i + GROUP <= m; i += GROUP) rotate(x + i, turned + i);
        std::memcpy(turned + i, x + i, (m - i) * sizeof(float));
        x = turned;
    }
    for (std::size_t first = 0; first < m; first += block, out += sizeof(Head)) {
        const std::size_t count = m - first < block ? m - first : block;
        const int largest = largest_magnitude(x + first, count);
        const Head head = largest < INFINITE ? As::head_of(largest) : As::NAN_HEAD;
        store(out, head);
        if (head == As::NAN_HEAD) continue;
        const float by = As::inverse_of(head);
        put_codes<u8>(count, codes + first,
            [=](std::size_t i) __attribute__((always_inline)) { return As::code(x[first + i] * by); });
    }
    codestream::pack<4>(codes, m, out);
}

template <typename As, typename To>
FPNA_INLINE void decode_blocks(const u8 *data, std::size_t m, std::size_t block, bool rotates, float by, float *out) {
    using Head = typename As::Head;
    u8 codes[CELL + SLACK];
    const std::size_t whole = rotates ? m / GROUP * GROUP : 0;
    codestream::unpack<4>(data + sizeof(Head) * ((m + block - 1) / block), m, codes);
    for (std::size_t first = 0; first < m; first += block, data += sizeof(Head)) {
        const std::size_t last = m - first < block ? m : first + block;
        const float scale = As::scale_of(load<Head>(data)), turned = scale * (1.0f / GROUP);
        std::size_t i = first;
        for (; i < last && i < whole; i += GROUP) {
            float values[GROUP];
            for (std::size_t l = 0; l < GROUP; ++l) values[l] = As::value(codes[i + l]);
            rotate(values, values);
            for (std::size_t l = 0; l < GROUP; ++l) To::to(out + i + l, values[l] * turned * by);
        }
        for (; i < last; ++i) To::to(out + i, As::value(codes[i]) * scale * by);
    }
}
