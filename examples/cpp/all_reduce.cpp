// Two tensors from every rank, combined under their names, one of them in the background.
//
//     c++ -std=c++17 all_reduce.cpp -lcarole -o all_reduce
//     carole run -n 4 -- ./all_reduce

#include "carole.hpp"

#include <iostream>

static int run()
{
    carole::session session;
    const int rank = session.rank();
    const int size = session.size();

    auto largest = session.start_all_reduce(std::vector<int>(1000, rank), CAROLE_MAX, "largest");
    std::vector<double> weights(5, 0.5);
    session.all_reduce(weights, CAROLE_SUM, "weights");
    const std::vector<int> maximum = largest.get();

    for (const double weight : weights) {
        if (weight != 0.5 * size) return 2;
    }
    for (const int value : maximum) {
        if (value != size - 1) return 3;
    }

    // An error is an exception; the session goes on.
    try {
        session.all_reduce(weights, CAROLE_XOR, "not for floats");
        return 4;
    } catch (const carole::error &error) {
        if (error.result != CAROLE_ERROR_INVALID) return 5;
    }

    if (rank == 0) {
        std::cout << "all_reduce: " << size << " ranks, weights " << weights[0] << ", largest rank "
                  << maximum[0] << std::endl;
    }
    session.barrier();
    return 0;
}

int main()
{
    try {
        return run();
    } catch (const std::exception &error) {
        std::cerr << error.what() << std::endl;
        return 1;
    }
}
