// Defines the rows about C++: operator new and delete, bad_alloc, and the new-handler.
#pragma once

#include <new>

#include "allocator_api.h"

namespace heapwright::api {

inline volatile std::size_t too_large = std::size_t{PTRDIFF_MAX} + 1;
inline int handled = 0;

// Reports what `call` throws or returns, and how often the new-handler was called.
template <class Call>
void thrown(Answer& answer, Call call) {
  handled = 0;
  try {
    void* const block = call();
    answer.add("%s", block == nullptr ? "NULL" : "a block");
  } catch (const std::bad_alloc&) {
    answer.add("bad_alloc");
  } catch (int number) {
    answer.add("the handler's exception %d", number);
  }
  answer.add(handled == 0 ? "" : ", the handler called %d times", handled);
}

// A new-handler that removes itself at its third call.
inline void patient() {
  if (++handled == 3) {
    std::set_new_handler(nullptr);
  }
}
inline void impatient() {
  ++handled;
  throw 42;
}

template <class Give, class Take>
void pairs(Answer& answer, std::size_t alignment, Give give, Take take) {
  for (std::size_t size = 0; size < (std::size_t{8} << 20U); size += size / 5 + 1) {
    void* const block = give(size);
    if (block == nullptr || !aligned(block, size < 16 && alignment == 16 ? 8 : alignment)) {
      answer.add("wrong block for %zu bytes", size);
      return;
    }
    std::memset(block, 1, size);
    errno = kKept;
    take(block, size);
    if (errno != kKept) {
      answer.add("delete changes errno");
      return;
    }
  }
  answer.add("works");
}

#define THROWN(handler, call)                  \
  [](Answer& a) {                              \
    std::set_new_handler(handler);             \
    thrown(a, []() -> void* { return call; }); \
  }
#define PAIRS(alignment, give, take)                                            \
  [](Answer& a) {                                                               \
    pairs(                                                                      \
        a, alignment, [](std::size_t n) { return n + 1 > 0 ? give : nullptr; }, \
        [](void* p, [[maybe_unused]] std::size_t n) { take; });                 \
  }

constexpr std::align_val_t kSixtyFour{64};
constexpr std::align_val_t kPage{4096};

inline const Row kNewRows[] = {
    {"new, too much", THROWN(nullptr, ::operator new(too_large))},
    {"new[], too much", THROWN(nullptr, ::operator new[](too_large))},
    {"new aligned, too much", THROWN(nullptr, ::operator new(too_large, kSixtyFour))},
    {"new[] aligned, too much", THROWN(nullptr, ::operator new[](too_large, kSixtyFour))},
    {"new nothrow, too much", THROWN(nullptr, ::operator new(too_large, std::nothrow))},
    {"new[] nothrow, too much", THROWN(nullptr, ::operator new[](too_large, std::nothrow))},
    {"new aligned nothrow, too much", THROWN(nullptr, ::operator new(too_large, kSixtyFour, std::nothrow))},
    {"new[] aligned nothrow, too much", THROWN(nullptr, ::operator new[](too_large, kSixtyFour, std::nothrow))},
    {"new with a handler", THROWN(patient, ::operator new(too_large))},
    {"new[] with a handler", THROWN(patient, ::operator new[](too_large))},
    {"new aligned with a handler", THROWN(patient, ::operator new(too_large, kSixtyFour))},
    {"new[] aligned with a handler", THROWN(patient, ::operator new[](too_large, kSixtyFour))},
    {"new nothrow with a handler", THROWN(patient, ::operator new(too_large, std::nothrow))},
    {"new[] nothrow with a handler", THROWN(patient, ::operator new[](too_large, std::nothrow))},
    {"new aligned nothrow with a handler", THROWN(patient, ::operator new(too_large, kSixtyFour, std::nothrow))},
    {"new with a handler that throws", THROWN(impatient, ::operator new(too_large))},
    {"new nothrow with a handler that throws bad_alloc",
     THROWN([] { ++handled; throw std::bad_alloc(); }, ::operator new(too_large, std::nothrow))},
    {"new(0) twice", [](Answer& a) {
       void* const one = ::operator new(0);
       void* const two = ::operator new(0);
       a.add("%s", one != nullptr && two != nullptr && one != two ? "two blocks" : "not two blocks");
     }},
    {"malloc does not call the handler", [](Answer& a) {
       std::set_new_handler(patient);
       thrown(a, [] { return malloc(too_large); });
     }},
    {"new and delete", PAIRS(16, ::operator new(n), ::operator delete(p))},
    {"new and delete sized", PAIRS(16, ::operator new(n), ::operator delete(p, n))},
    {"new nothrow and delete nothrow",
     PAIRS(16, ::operator new(n, std::nothrow), ::operator delete(p, std::nothrow))},
    {"new[] and delete[]", PAIRS(16, ::operator new[](n), ::operator delete[](p))},
    {"new[] and delete[] sized", PAIRS(16, ::operator new[](n), ::operator delete[](p, n))},
    {"new[] nothrow and delete[] nothrow",
     PAIRS(16, ::operator new[](n, std::nothrow), ::operator delete[](p, std::nothrow))},
    {"new aligned and delete aligned",
     PAIRS(64, ::operator new(n, kSixtyFour), ::operator delete(p, kSixtyFour))},
    {"new aligned and delete sized aligned",
     PAIRS(4096, ::operator new(n, kPage), ::operator delete(p, n, kPage))},
    {"new aligned nothrow and delete aligned nothrow",
     PAIRS(4096, ::operator new(n, kPage, std::nothrow), ::operator delete(p, kPage, std::nothrow))},
    {"new[] aligned and delete[] aligned",
     PAIRS(64, ::operator new[](n, kSixtyFour), ::operator delete[](p, kSixtyFour))},
    {"new[] aligned and delete[] sized aligned",
     PAIRS(4096, ::operator new[](n, kPage), ::operator delete[](p, n, kPage))},
    {"new[] aligned nothrow and delete[] aligned nothrow",
     PAIRS(4096, ::operator new[](n, kPage, std::nothrow), ::operator delete[](p, kPage, std::nothrow))},
    {"delete of NULL, all forms", [](Answer& a) {
       errno = kKept;
       ::operator delete(nullptr);
       ::operator delete(nullptr, std::size_t{8});
       ::operator delete(nullptr, std::nothrow);
       ::operator delete(nullptr, kSixtyFour);
       ::operator delete(nullptr, std::size_t{8}, kSixtyFour);
       ::operator delete(nullptr, kSixtyFour, std::nothrow);
       ::operator delete[](nullptr);
       ::operator delete[](nullptr, std::size_t{8});
       ::operator delete[](nullptr, std::nothrow);
       ::operator delete[](nullptr, kSixtyFour);
       ::operator delete[](nullptr, std::size_t{8}, kSixtyFour);
       ::operator delete[](nullptr, kSixtyFour, std::nothrow);
       a.add("errno %s", errno_name());
     }},
};

}  // namespace heapwright::api
