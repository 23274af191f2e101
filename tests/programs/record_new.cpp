// Calls each kind of C++'s operator new and delete once, with sizes as in record_cases.c. With an
// argument, one call fails in between.
#include <cstdio>
#include <new>

namespace {
volatile std::size_t base = 40000;
}

int main(int count, char** /*words*/) {
  ::operator delete(::operator new(base + 1));
  ::operator delete[](::operator new[](base + 2), base + 2);
  ::operator delete(::operator new(base + 3, std::nothrow), std::nothrow);
  ::operator delete(::operator new(base + 64, std::align_val_t{64}), std::align_val_t{64});
  try {
    if (count > 1) {
      ::operator delete(::operator new(std::size_t{1} << 60));
    }
  } catch (const std::bad_alloc&) {
    std::puts("bad_alloc");
  }
  ::operator delete(::operator new(base + 5), base + 5);
  return 0;
}
