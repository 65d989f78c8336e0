// Charged particles on a ring of 64 cells. Each rank has some of the particles; all ranks have all cells.
//
//     mpicxx -O2 -ffp-contract=off -fopenmp deposit.cpp -o deposit $(fpna config --cflags --libs)
//     mpirun -n 4 ./deposit plain     threads and MPI_Allreduce add the charge of a cell
//     mpirun -n 4 ./deposit fpna      fpna::scatter_add adds it without error, by threads and over ranks
//
// A particle is drawn from its number, and moves by the field at its place: nothing but the sums knows who owns it.
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fpna.hpp>
#include <string>
#include <vector>

constexpr int CELLS = 64, PARTICLES = 20000, STEPS = 10;
using Cells = std::vector<double>;

struct Particle {
    double place, speed, charge;  // place: in cells
};

// A number in [0, 1) that depends on `counter` alone (splitmix64).
double drawn(std::uint64_t counter) {
    std::uint64_t z = (counter + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return double((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

// Calls add(cell, charge) for the two cells that share the charge of a particle.
template <typename Add>
void share(const Particle &p, Add &&add) {
    const int cell = int(p.place);
    const double right = p.place - cell;
    add(cell % CELLS, p.charge * (1 - right));
    add((cell + 1) % CELLS, p.charge * right);
}

Cells plain_charge(const std::vector<Particle> &particles) {
    Cells own(CELLS), total(CELLS);
#pragma omp parallel
    {
        Cells mine(CELLS);
#pragma omp for
        for (std::size_t i = 0; i < particles.size(); ++i)
            share(particles[i], [&](int cell, double charge) { mine[cell] += charge; });
#pragma omp critical
        for (int c = 0; c < CELLS; ++c) own[c] += mine[c];
    }
    MPI_Allreduce(own.data(), total.data(), CELLS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return total;
}

Cells exact_charge(const std::vector<Particle> &particles) {
    std::vector<std::int64_t> cells;
    std::vector<double> charges;
    for (const Particle &p : particles)
        share(p, [&](int cell, double charge) {
            cells.push_back(cell);
            charges.push_back(charge);
        });
    return fpna::scatter_add(cells.data(), charges.data(), cells.size(), CELLS, MPI_COMM_WORLD);
}

// The field pulls particles towards less charge.
void move(std::vector<Particle> &particles, const Cells &charge) {
#pragma omp parallel for
    for (std::size_t i = 0; i < particles.size(); ++i) {
        Particle &p = particles[i];
        const int cell = int(p.place);
        p.speed += 1e-3 * (charge[cell] - charge[(cell + 1) % CELLS]);
        p.place += p.speed < -1 ? -1 : p.speed > 1 ? 1 : p.speed;
        if (p.place < 0) p.place += CELLS;
        if (p.place >= CELLS) p.place -= CELLS;
    }
}

// FNV-1a over the bits of a number.
std::uint64_t hashed(std::uint64_t hash, double value) {
    unsigned char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    for (unsigned char byte : bytes) hash = (hash ^ byte) * 1099511628211u;
    return hash;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const std::string sums = argc == 2 ? argv[1] : "";
    if (sums != "plain" && sums != "fpna") {
        if (rank == 0) std::fprintf(stderr, "usage: deposit plain|fpna\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    std::vector<Particle> particles;
    for (int k = rank; k < PARTICLES; k += size)  // by turns
        particles.push_back({CELLS * drawn(3 * k), drawn(3 * k + 1) - 0.5, drawn(3 * k + 2)});
    std::uint64_t hash = 14695981039346656037u;
    Cells charge;
    for (int step = 0; step < STEPS; ++step) {
        charge = sums == "plain" ? plain_charge(particles) : exact_charge(particles);
        for (double cell : charge) hash = hashed(hash, cell);
        move(particles, charge);
    }
    if (rank == 0) std::printf("charge of the first cell %.17g, hash %016llx\n", charge[0], (unsigned long long)hash);
    MPI_Finalize();
}
