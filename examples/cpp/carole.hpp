// A thin C++17 skin over carole.h: handles that free themselves, errors that are thrown.
//
// Copy it and make it yours: it covers what the example uses, and shows how the rest would go.

#ifndef CAROLE_HPP
#define CAROLE_HPP

#include <carole.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace carole
{

// A call that failed; `result` says how.
class error : public std::runtime_error
{
  public:
    explicit error(carole_result result) : std::runtime_error(carole_last_error()), result(result)
    {
    }

    const carole_result result;
};

inline void check(carole_result result)
{
    if (result != CAROLE_OK) throw error(result);
}

// The type of a tensor's elements, from C++'s own.
template <typename T> struct dtype;
template <> struct dtype<float> {
    static constexpr carole_dtype value = CAROLE_F32;
};
template <> struct dtype<double> {
    static constexpr carole_dtype value = CAROLE_F64;
};
template <> struct dtype<int> {
    static constexpr carole_dtype value = CAROLE_I32;
};

// A started operation and the tensor it works on. Dropping it gives the operation up.
template <typename T> class pending
{
  public:
    pending(std::vector<T> tensor, carole_request *request)
        : tensor_(std::move(tensor)), request_(request)
    {
    }

    // Waits for the end and gives the tensor back.
    std::vector<T> get()
    {
        check(carole_wait(request_.get()));
        request_.reset();
        return std::move(tensor_);
    }

  private:
    struct free {
        void operator()(carole_request *request) const
        {
            carole_request_free(request);
        }
    };

    // The request goes first: afterwards nobody touches the tensor.
    std::vector<T> tensor_;
    std::unique_ptr<carole_request, free> request_;
};

// This process as a member of its job; leaves it when it goes out of scope.
class session
{
  public:
    session()
    {
        carole_session *handle = nullptr;
        check(carole_init(nullptr, &handle));
        handle_.reset(handle);
    }

    int rank() const
    {
        int rank = 0;
        check(carole_rank(handle_.get(), &rank));
        return rank;
    }

    int size() const
    {
        int size = 0;
        check(carole_size(handle_.get(), &size));
        return size;
    }

    void barrier()
    {
        check(carole_barrier(handle_.get(), nullptr));
    }

    // Combines the tensors of all ranks in place.
    template <typename T>
    void all_reduce(std::vector<T> &tensor, carole_op op, const std::string &name)
    {
        const carole_options options = named(name);
        check(carole_all_reduce(handle_.get(), tensor.data(), tensor.data(), tensor.size(),
                                dtype<T>::value, op, &options));
    }

    // Starts combining the tensors of all ranks.
    template <typename T>
    pending<T> start_all_reduce(std::vector<T> tensor, carole_op op, const std::string &name)
    {
        const carole_options options = named(name);
        carole_request *request = nullptr;
        check(carole_start_all_reduce(handle_.get(), tensor.data(), tensor.data(), tensor.size(),
                                      dtype<T>::value, op, &options, &request));
        // Moving a vector leaves its elements where they are.
        return pending<T>(std::move(tensor), request);
    }

  private:
    static carole_options named(const std::string &name)
    {
        carole_options options = CAROLE_OPTIONS_INIT;
        options.name = name.c_str();
        return options;
    }

    struct finalize {
        void operator()(carole_session *session) const
        {
            carole_finalize(session);
        }
    };

    std::unique_ptr<carole_session, finalize> handle_;
};

} // namespace carole

#endif // CAROLE_HPP
