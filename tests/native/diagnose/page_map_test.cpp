// Tests the map of pages in memory, on the memory of the test process itself.
#include "page_map.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace heapwright::diagnose {
namespace {

using Page = PageMap::Page;

class PageMapTest : public testing::Test {
 protected:
  static constexpr std::size_t kPages = 4;

  void SetUp() override {
    memory = mmap(nullptr, kPages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    if (!map.readable()) {
      GTEST_SKIP() << "the kernel has no pagemap";
    }
    ASSERT_EQ(madvise(memory, kPages * page, MADV_NOHUGEPAGE), 0);
    static_cast<char*>(memory)[page] = 1;
    begin = reinterpret_cast<std::uint64_t>(memory);
  }
  void TearDown() override { munmap(memory, kPages * page); }

  PageMap map{getpid()};
  std::uint64_t page = map.page_bytes();
  void* memory = nullptr;
  std::uint64_t begin = 0;
};

TEST_F(PageMapTest, TellsWhichPagesAreInMemory) {
  EXPECT_EQ(map.pages(begin, begin + kPages * page),
            (std::vector<Page>{Page::kNone, Page::kResident, Page::kNone, Page::kNone}));
  EXPECT_EQ(map.resident_bytes(begin, begin + kPages * page), page);
}

TEST_F(PageMapTest, CountsAPageThatARangeOnlyTouches) {
  EXPECT_EQ(map.resident_bytes(begin + page + 16, begin + page + 32), page);
}

// The end of a range that another process changes while it is read may lie before its beginning.
TEST_F(PageMapTest, HasNoPagesBetweenAnAddressAndALowerOne) {
  EXPECT_TRUE(map.pages(begin + 2 * page, begin).empty());
  EXPECT_EQ(map.resident_bytes(begin + 2 * page, begin), 0U);
}

}  // namespace
}  // namespace heapwright::diagnose
