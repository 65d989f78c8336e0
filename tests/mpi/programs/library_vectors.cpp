// The sums of library_vectors.c by the interface for C++: library_vectors FILE. Compiled with -ffast-math it compares bits.
#include <cstdint>
#include <cstring>
#include <fpna.hpp>
#include <fstream>
#include <iostream>
#include <string>

static int rank_of_world, ranks;

template <typename Real, typename Bits>
Real number_of(std::uint64_t bits) {
    const Bits own = static_cast<Bits>(bits);
    Real number;
    static_assert(sizeof number == sizeof own, "as many bits");
    std::memcpy(&number, &own, sizeof own);
    return number;
}

template <typename Number, typename Real, typename Bits>
void add(std::istream &file, const std::string &name, int guarantee, std::size_t fields, std::size_t n) {
    const std::size_t width = sizeof(Number) / sizeof(Real), numbers = fields * width;
    std::vector<Number> x;
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t f = 0; f < fields; ++f) {
            Real parts[2] = {};
            for (std::size_t k = 0; k < width; ++k) {
                std::uint64_t bits;
                file >> std::hex >> bits;
                parts[k] = number_of<Real, Bits>(bits);
            }
            Number one;
            std::memcpy(static_cast<void *>(&one), parts, sizeof one);
            if (static_cast<int>(i % static_cast<std::size_t>(ranks)) == rank_of_world) x.push_back(one);
        }
    fpna::elements<Number> own{x.data(), x.size() / fields, fields, static_cast<std::ptrdiff_t>(fields), 1};
    const std::vector<Number> totals = fpna::sum(own, MPI_COMM_WORLD, fpna::guarantee(guarantee));
    if (fields == 1) {
        const Number again = fpna::sum(x.data(), x.size(), MPI_COMM_WORLD, fpna::guarantee(guarantee));
        if (std::memcmp(&again, totals.data(), sizeof again)) std::cout << name << ": one field has another sum\n";
    }
    if (rank_of_world) return;
    std::cout << name << std::hex;
    for (std::size_t k = 0; k < numbers; ++k) {
        Bits bits;
        std::memcpy(&bits, reinterpret_cast<const char *>(totals.data()) + k * sizeof bits, sizeof bits);
        std::cout << ' ' << bits;
    }
    std::cout << '\n';
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_of_world);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    std::ifstream file(argv[1]);
    std::string name;
    char letter;
    int guarantee;
    std::size_t fields, n;
    while (file >> std::dec >> name >> letter >> guarantee >> fields >> n) {
        if (letter == 's') add<float, float, std::uint32_t>(file, name, guarantee, fields, n);
        if (letter == 'd') add<double, double, std::uint64_t>(file, name, guarantee, fields, n);
        if (letter == 'c') add<std::complex<float>, float, std::uint32_t>(file, name, guarantee, fields, n);
        if (letter == 'z') add<std::complex<double>, double, std::uint64_t>(file, name, guarantee, fields, n);
    }
    MPI_Finalize();
}
