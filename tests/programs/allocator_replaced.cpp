// Tests a malloc under a program that replaces only operator new(size_t) and operator
// delete(void*).
//
// The standard says that the other forms call these. A form that does not would free a pointer that
// malloc never returned. Prints a line for each pair of forms: how many blocks were live then.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

static int live = 0;

void* operator new(std::size_t bytes) {
  void* const block = bytes > PTRDIFF_MAX / 2 ? nullptr : std::malloc(bytes + 16);
  if (block == nullptr) {
    throw std::bad_alloc();
  }
  ++live;
  return static_cast<char*>(block) + 16;
}

void operator delete(void* address) noexcept {
  if (address != nullptr) {
    --live;
    std::free(static_cast<char*>(address) - 16);
  }
}

namespace {

struct Item {
  ~Item() { values[0] = 0; }
  volatile int values[10];
};

// Prints after each step, so that nothing is allocated between.
void report(const char* what) { std::printf("%s: %d\n", what, live); }

}  // namespace

int main() {
  const volatile std::size_t huge = PTRDIFF_MAX;
  Item* const one = new Item;
  report("new");
  delete one;  // sized
  report("delete");
  Item* const items = new Item[3];
  report("new[]");
  delete[] items;  // sized
  report("delete[]");
  Item* const perhaps = new (std::nothrow) Item;
  report("new nothrow");
  ::operator delete(perhaps, std::nothrow);
  report("delete nothrow");
  char* const bytes = new (std::nothrow) char[100];
  report("new[] nothrow");
  ::operator delete[](bytes, std::nothrow);
  report("delete[] nothrow");
  std::printf("too much: %s\n", ::operator new(huge, std::nothrow) == nullptr ? "nullptr" : "a block");
  std::printf("too much[]: %s\n", ::operator new[](huge, std::nothrow) == nullptr ? "nullptr" : "a block");
  return 0;
}
