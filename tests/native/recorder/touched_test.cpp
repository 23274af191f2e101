// Tests how the recorder measures which part of a large block is touched.
#include "recorder/touched.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

namespace heapwright::recorder {
namespace {

const auto kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

// Memory that a block which was freed has used and filled.
class UsedMemory {
 public:
  explicit UsedMemory(std::size_t pages, int content = 7) : memory_(pages * kPage) {
    std::memset(memory_.data(), content, memory_.size());
  }
  char* begin() { return memory_.data(); }
  std::size_t size() const { return memory_.size(); }
  // The touched share of a block of all the memory, in percent.
  std::size_t touched_percent() {
    return touched_part(reinterpret_cast<std::uintptr_t>(begin()), size()) * 100 / size();
  }

 private:
  std::vector<char> memory_;
};

TEST(Touched, TheUsedPartOfReusedMemoryCounts) {
  for (const std::size_t pages : {16, 33, 1000, 5000}) {
    for (const std::size_t percent : {0, 25, 50, 75, 100}) {
      UsedMemory block(pages);
      mark_resident_pages(block.begin(), block.size());
      std::memset(block.begin(), 1, block.size() * percent / 100);
      EXPECT_NEAR(static_cast<double>(block.touched_percent()), static_cast<double>(percent),
                  4 + 150.0 / static_cast<double>(pages))
          << pages << " pages";
    }
  }
}

TEST(Touched, ABlockThatIsMarkedAgainIsUntouchedAgain) {
  UsedMemory block(100);
  mark_resident_pages(block.begin(), block.size());
  std::memset(block.begin(), 1, block.size());
  EXPECT_EQ(block.touched_percent(), 100U);
  mark_resident_pages(block.begin(), block.size());
  EXPECT_EQ(block.touched_percent(), 0U);
  mark_resident_pages(block.begin(), block.size());
  EXPECT_EQ(block.touched_percent(), 0U);
}

TEST(Touched, BlocksOfASizeThatIsFilledAreMarkedNowAndThen) {
  UsedMemory block(50);
  const auto mark_and_fill = [&block](std::size_t share) {
    mark_resident_pages(block.begin(), block.size());
    std::memset(block.begin(), 1, block.size() / share);
    return block.touched_percent();
  };
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(mark_and_fill(1), 100U);
  }
  int until_seen = 0;
  while (mark_and_fill(2) == 100) {
    ASSERT_LT(++until_seen, 20);
  }
  EXPECT_GT(until_seen, 0);
  for (int i = 0; i < 100; ++i) {
    EXPECT_LT(mark_and_fill(2), 60U);
  }
}

// A program may wrongly rely on new memory being zeroed. It must run as without the recorder.
TEST(Touched, ZerosStayZeros) {
  UsedMemory block(100, 0);
  mark_resident_pages(block.begin(), block.size());
  EXPECT_EQ(std::vector<char>(block.begin(), block.begin() + block.size()), std::vector<char>(block.size()));
  EXPECT_EQ(block.touched_percent(), 100U);
}

TEST(Touched, NothingBesideTheBlockIsChanged) {
  UsedMemory memory(100);
  constexpr std::size_t kBefore = 5000;
  constexpr std::size_t kBlock = 70'000;
  mark_resident_pages(memory.begin() + kBefore, kBlock);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if (i < kBefore || i >= kBefore + kBlock) {
      ASSERT_EQ(memory.begin()[i], 7) << i;
    }
  }
}

TEST(Touched, MarksMakeNoPageResident) {
  void* const memory = mmap(nullptr, 100 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  madvise(memory, 100 * kPage, MADV_NOHUGEPAGE);
  mark_resident_pages(memory, 100 * kPage);
  EXPECT_EQ(resident_part(reinterpret_cast<std::uintptr_t>(memory), 100 * kPage), 0U);
  munmap(memory, 100 * kPage);
}

TEST(Touched, WithoutMarksResidentPagesCount) {
  constexpr std::size_t kPages = 3000;
  void* const memory =
      mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  madvise(memory, kPages * kPage, MADV_NOHUGEPAGE);
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  EXPECT_EQ(resident_part(address, kPages * kPage), 0U);
  for (std::size_t i = 0; i < kPages; i += 3) {
    static_cast<char*>(memory)[i * kPage] = 1;
  }
  EXPECT_EQ(resident_part(address, kPages * kPage), kPages / 3 * kPage);
  EXPECT_EQ(touched_part(address, kPages * kPage), kPages / 3 * kPage);
  EXPECT_EQ(resident_part(address + 16, 100), 100U);
  munmap(memory, kPages * kPage);
}

}  // namespace
}  // namespace heapwright::recorder
