// Tests how the recorder measures which part of a large block is touched.
#include "recorder/touched.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>

namespace heapwright::recorder {
namespace {

const auto kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

// Memory that malloc hands out again and again.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : begin_(static_cast<char*>(
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
        bytes_(bytes) {
    madvise(begin_, bytes, MADV_NOHUGEPAGE);
  }
  ~Memory() { munmap(begin_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* begin() const { return begin_; }
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(begin_); }

 private:
  char* begin_;
  std::size_t bytes_;
};

// Begins and ends a block at `offset` in the memory. The program writes a byte in so many of its
// pages. Returns how many pages count as touched.
std::size_t touched_pages(const Memory& memory, std::size_t size, std::size_t pages, std::size_t offset = 0) {
  const Touching touching = begin_touching(memory.begin() + offset, size);
  for (std::size_t i = 0; i < pages; ++i) {
    memory.begin()[offset + i * kPage] = 1;
  }
  return (end_touching(memory.address() + offset, size, touching) + kPage - 1) / kPage;
}

TEST(Touched, NewMemoryIsMeasuredEachTime) {
  constexpr std::size_t kSize = 1'000'000;
  for (std::size_t pages = 1; pages < 200; ++pages) {
    EXPECT_EQ(touched_pages(Memory(kSize), kSize, pages), pages);
  }
}

TEST(Touched, ThePagesOfAnEarlierBlockDoNotCount) {
  constexpr std::size_t kSize = 128 * 1024;
  const std::size_t all = kSize / kPage;
  const Memory memory(kSize);
  EXPECT_EQ(touched_pages(memory, kSize, all), all);
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(touched_pages(memory, kSize, 5), 5U) << "the first blocks of a size give pages back";
  }
  for (int i = 0; i < 2000; ++i) {
    std::memset(memory.begin(), 1, kSize);
    EXPECT_LE(touched_pages(memory, kSize, 5), i < 1000 ? all / 2 : 7U);
  }
}

// Where sizes vary in use, single estimates err, but not their sum.
TEST(Touched, TheSumOverManyBlocksIsRight) {
  constexpr std::size_t kSize = 400'000;
  const std::size_t all = kSize / kPage;
  const Memory memory(kSize);
  std::memset(memory.begin(), 1, kSize);
  std::mt19937 random(1);
  std::size_t truth = 0;
  std::size_t found = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::size_t pages = random() % all;
    truth += pages;
    found += touched_pages(memory, kSize, pages);
    std::memset(memory.begin(), 1, kSize);  // by a block of another size
  }
  EXPECT_NEAR(static_cast<double>(found) / static_cast<double>(truth), 1, 0.1);
}

TEST(Touched, BlocksOfOtherSizesDoNotMatter) {
  constexpr std::size_t kSize = 300'000;
  const Memory memory(kSize);
  for (int i = 0; i < 100; ++i) {
    touched_pages(memory, kSize, 2);
  }
  const std::size_t all = 70'000 / kPage;
  std::memset(memory.begin(), 1, kSize);
  for (int i = 0; i < 100; ++i) {
    EXPECT_GE(touched_pages(memory, 70'000, all), all);
  }
}

TEST(Touched, OfABlockThatMayHaveHadContentAllResidentPagesCount) {
  constexpr std::size_t kSize = 80 * 4096;
  const Memory memory(kSize);
  for (int i = 0; i < 100; ++i) {
    touched_pages(memory, kSize, 2);
  }
  std::memset(memory.begin(), 0, kSize);
  EXPECT_EQ(end_touching(memory.address(), kSize, Touching::kUnknown), kSize);
}

TEST(Touched, WhereTheProgramFillsItsBlocksFewGiveUpTheirContent) {
  constexpr std::size_t kSize = 500'000;
  const Memory memory(kSize);
  int given_back = 0;
  for (int i = 0; i < 1000; ++i) {
    std::memset(memory.begin(), 7, kSize);
    const Touching touching = begin_touching(memory.begin(), kSize);
    given_back += memory.begin()[kSize / 2] == 0 ? 1 : 0;
    std::memset(memory.begin(), 7, kSize);
    EXPECT_EQ(end_touching(memory.address(), kSize, touching), kSize);
  }
  EXPECT_GT(given_back, 8);
  EXPECT_LE(given_back, 12);
}

TEST(Touched, NothingBesideTheBlockIsChanged) {
  constexpr std::size_t kBefore = 5000;
  constexpr std::size_t kSize = 90'000;
  const Memory memory(kBefore + 2 * kSize);
  std::memset(memory.begin(), 7, kBefore + 2 * kSize);
  touched_pages(memory, kSize, 0, kBefore);
  for (std::size_t i = 0; i < kBefore + 2 * kSize; ++i) {
    if (i < kBefore || i >= kBefore + kSize) {
      ASSERT_EQ(memory.begin()[i], 7) << i;
    }
  }
}

TEST(Touched, UnreadablePagesAreNoFault) {
  const std::size_t kSize = 256 * kPage;
  const Memory memory(kSize);
  std::memset(memory.begin(), 1, kSize);
  mprotect(memory.begin() + kSize / 2, kPage, PROT_NONE);
  (void)touched_pages(memory, kSize, 1);
  mprotect(memory.begin(), kSize, PROT_NONE);
  EXPECT_LE(end_touching(memory.address(), kSize, Touching::kUnknown), kSize);
}

TEST(Touched, ResidentPartCountsPages) {
  constexpr std::size_t kPages = 3000;
  const Memory memory(kPages * kPage);
  EXPECT_EQ(resident_part(memory.address(), kPages * kPage), 0U);
  for (std::size_t i = 0; i < kPages; i += 3) {
    memory.begin()[i * kPage] = 1;
  }
  EXPECT_EQ(resident_part(memory.address(), kPages * kPage), kPages / 3 * kPage);
  EXPECT_EQ(resident_part(memory.address() + 16, 100), 100U);
}

}  // namespace
}  // namespace heapwright::recorder
