// Makes bugs that a hardened build detects, of one kind, at all sizes of interest:
// allocator_hardened KIND. Run it with on_error=report. It prints the number of bugs and of sizes,
// which the test compares with the number of reports.
//
//   none        blocks of every size used to their last byte, grown, cleared; there must be no report
//   overflow    one byte written right behind the requested bytes
//   underflow   one byte written before a block that has a neighbour before it
//   late        one byte written after the free, at every offset (of long blocks: at some)
//   double      freed twice: at once, and with other frees between
//   race        freed by two threads at the same time, blocks of whole superblocks
//   inside      freed at an address inside the block
//   mismatch    every pair of malloc, new and new[] with another's free; delete of another size
//   order       in how many classes the first eight blocks have ascending addresses: their order should be random
//   grown       the byte behind a block above 1 MiB that realloc has made of one of 1 MiB, that the kernel shall
//               write: it must refuse
//   reuse       how often of 20,800 times malloc reuses the most recently freed block first
#include <malloc.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kLargestClass = 32 * 1024;
constexpr unsigned char kOther = 0x55;
std::size_t bugs = 0;

char* hidden(void* address) {  // hides the address from the compiler, which would recognise the bug
  asm volatile("" : "+r"(address) : : "memory");
  return static_cast<char*>(address);
}
char* take(std::size_t size) { return hidden(std::malloc(size)); }

// Every size up to 2 KiB, sizes around the end of each class (a multiple of 16) and of each page,
// and long ones.
std::vector<std::size_t> sizes() {
  std::vector<std::size_t> all;
  for (std::size_t size = 1; size <= 2048; ++size) {
    all.push_back(size);
  }
  for (std::size_t size = 2048; size <= kLargestClass + 512; size += 64) {
    for (std::size_t more = 0; more <= 17; ++more) {
      all.push_back(size + more);
    }
  }
  for (const std::size_t size : {64U << 10U, 100000U, 128U << 10U, 999999U, 1U << 20U, 1500000U, 4U << 20U}) {
    for (std::size_t less = 0; less <= 17; ++less) {
      all.push_back(size - less);
    }
  }
  return all;
}

void none() {
  for (const std::size_t size : sizes()) {
    char* block = take(size);
    std::memset(block, kOther, size);
    if (malloc_usable_size(block) != size) {
      std::printf("usable size of %zu\n", size);
    }
    block = hidden(std::realloc(block, size + size / 3 + 1));
    std::memset(block + size, kOther, size / 3 + 1);
    block = hidden(std::realloc(block, size / 2 + 1));
    for (std::size_t i = 0; i < size / 2; ++i) {
      if (static_cast<unsigned char>(block[i]) != kOther) {
        std::printf("realloc of %zu lost something\n", size);
        break;
      }
    }
    std::free(block);
    block = hidden(std::calloc(1, size));
    for (std::size_t i = 0; i < size; ++i) {
      if (block[i] != 0) {
        std::printf("calloc of %zu is not zero\n", size);
        break;
      }
    }
    std::free(block);
    delete reinterpret_cast<long*>(hidden(new long));
    delete[] reinterpret_cast<long*>(hidden(new long[size % 100 + 1]));
    ::operator delete(hidden(::operator new(size)), size);
    ::operator delete[](hidden(::operator new[](size, std::align_val_t{64})), size, std::align_val_t{64});
    ::operator delete(hidden(::operator new(size, std::nothrow)));
  }
}

void overflow() {
  for (const std::size_t size : sizes()) {
    if (size > (1U << 20U) && size % 4096 == 0) {
      continue;  // a guard page follows directly: the write would end the process
    }
    char* const block = take(size);
    block[size] ^= kOther;
    std::free(block);
    ++bugs;
  }
}

// Allocates and frees all blocks of a size, so that the allocator checks each of them.
void churn(std::size_t size, std::size_t count) {
  std::vector<char*> all(count);
  for (char*& block : all) {
    block = take(size);
  }
  for (char* const block : all) {
    std::free(block);
  }
}

void underflow() {
  for (std::size_t size = 1; size <= 4000; size += size < 600 ? 1 : 37) {
    std::vector<char*> all(200);
    for (char*& block : all) {
      block = take(size);
    }
    const std::size_t slot = (size + 8 + 15) / 16 * 16;
    char* found = nullptr;  // a block whose preceding neighbour is one of them
    for (char* const block : all) {
      for (char* const other : all) {
        const bool together =
            reinterpret_cast<std::size_t>(block) >> 16U == reinterpret_cast<std::size_t>(other) >> 16U;
        if (together && block > other && static_cast<std::size_t>(block - other) <= slot + slot / 8) {
          found = block;
        }
      }
    }
    if (found != nullptr) {
      found[-1] ^= kOther;
      ++bugs;
    }
    for (char* const block : all) {
      std::free(block);
    }
  }
}

void late() {
  for (const std::size_t size : {1U, 16U, 100U, 1000U, 5000U, 20000U, 32000U}) {
    for (std::size_t at = 0; at < size; at += size <= 1000 ? 1 : 97) {
      char* const block = take(size);
      std::free(block);
      block[at] ^= kOther;
      ++bugs;
      for (int round = 0; round < 2; ++round) {  // out of the quarantine, and in use again
        churn(size, size <= 1000 ? 1500 : 300);
      }
    }
  }
  for (const std::size_t size : {33000U, 100000U, 1000000U}) {  // whole superblocks
    for (std::size_t at = 0; at < size; at += size / 60) {
      char* const block = take(size);
      std::free(block);
      block[at] ^= kOther;
      ++bugs;
      churn(size, 100);  // out of the quarantine
    }
  }
}

void twice() {
  for (const std::size_t size : sizes()) {
    char* const block = take(size);
    std::free(block);
    if (size % 2 == 0) {
      churn(size, 3);
    }
    if (size <= kLargestClass - 8 || size % 2 != 0) {  // a longer one's address may have a new owner
      std::free(block);
      ++bugs;
    }
  }
}

void race() {
  for (int i = 0; i < 300; ++i) {
    char* const block = take(900000);
    std::atomic<int> ready{0};
    const auto frees = [&] {
      ++ready;
      while (ready < 2) {
      }
      std::free(block);
    };
    std::thread other(frees);
    frees();
    other.join();
    ++bugs;
  }
}

void inside() {
  for (const std::size_t size : sizes()) {
    if (size > 32) {
      char* const block = take(size);
      std::free(block + 16);
      std::free(block + size / 2);
      bugs += 2;
      std::free(block);
    }
  }
}

void mismatch() {
  for (const std::size_t size : sizes()) {
    std::free(hidden(::operator new(size)));
    std::free(hidden(::operator new[](size)));
    ::operator delete(take(size));
    ::operator delete(hidden(::operator new[](size)));
    ::operator delete[](take(size));
    ::operator delete[](hidden(::operator new(size)));
    ::operator delete(hidden(::operator new(size)), size + 1);
    ::operator delete[](hidden(::operator new[](size + 1)), size);
    bugs += 8;
  }
}

void order() {
  for (std::size_t size = 24; size <= 4096; size += size / 4) {
    char* blocks[8];
    bool ascend = true;
    for (int i = 0; i < 8; ++i) {
      blocks[i] = take(size);
      ascend = ascend && (i == 0 || blocks[i] > blocks[i - 1]);
    }
    bugs += ascend ? 1 : 0;
    for (char* const block : blocks) {
      std::free(block);
    }
  }
}

void grown() {
  for (std::size_t size = (1U << 20U) + 65536; size < (4U << 20U); size += 65536) {
    char* const block = hidden(static_cast<char*>(std::realloc(take(1U << 20U), size)));
    bugs += getrandom(block + size, 1, 0) == 1 ? 0 : 1;  // the kernel writes there, if it can
    std::free(block);
  }
}

void reuse() {
  const auto again = [](std::size_t size) {
    char* const block = take(size);
    std::free(block);
    char* const next = take(size);
    bugs += block == next ? 1 : 0;
    std::free(next);
  };
  for (std::size_t i = 0; i < 20000; ++i) {
    again(i % 500);
  }
  for (const std::size_t size : {5000U, 20000U, 32000U, 40000U, 100000U, 900000U, 1U << 20U, 3000000U}) {
    for (int i = 0; i < 100; ++i) {
      again(size);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const struct {
    const char* name;
    void (*run)();
  } kinds[] = {{"none", none},    {"overflow", overflow}, {"underflow", underflow}, {"late", late},
               {"double", twice}, {"race", race},         {"inside", inside},       {"mismatch", mismatch},
               {"order", order},  {"grown", grown},       {"reuse", reuse}};
  for (const auto& kind : kinds) {
    if (argc == 2 && std::strcmp(argv[1], kind.name) == 0) {
      kind.run();
      std::printf("%zu\n", bugs);
      return 0;
    }
  }
  return 2;
}
