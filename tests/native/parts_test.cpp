// Tests the kind of memory that each mapping counts as: on synthetic mappings, and on the test
// process itself.
#include "parts.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace heapwright::meter {
namespace {

constexpr std::uint64_t kKib = 1024;
constexpr std::uint64_t kMib = 1024 * kKib;

// Returns a mapping as smaps shows it; another process shares half of its resident memory.
std::string mapping(std::uint64_t start, std::uint64_t end, const char* access, int inode,
                    const std::string& path, std::uint64_t kib) {
  char text[512];
  (void)std::snprintf(
      text, sizeof text,
      "%lx-%lx %s 00000000 fe:00 %d                      %s\n"
      "Size:              100 kB\nRss:        %lu kB\nPss:      %lu kB\nPss_Dirty:      7 kB\n"
      "Anonymous:      7 kB\nVmFlags: rd wr mr\n",
      start, end, access, inode, path.c_str(), kib, kib / 2);
  return text;
}

constexpr std::uint64_t kArenaStart = 0x7f0000000000;  // on a 64 MiB boundary

TEST(Parts, EachMappingCountsForWhatHoldsIt) {
  const std::string text =
      mapping(0x400000, 0x401000, "r--p", 7, "/usr/bin/sort of", 4) +
      mapping(0x401000, 0x402000, "r-xp", 7, "/usr/bin/sort of", 8) +
      mapping(0x403000, 0x404000, "rw-p", 7, "/usr/bin/sort of", 4) +
      mapping(0x404000, 0x408000, "rw-p", 0, "", 16) +  // bss
      mapping(0x500000, 0x600000, "rw-p", 0, "[heap]", 1024) +
      mapping(0x7e0000000000, 0x7e0000001000, "r--s", 9, "/data/base.db", 400) +
      mapping(0x7e0000100000, 0x7e0000101000, "rw-p", 0, "", 2048) +
      mapping(0x7e0000200000, 0x7e0000201000, "rw-s", 11, "/memfd:x (deleted)", 12) +
      mapping(0x7e0000300000, 0x7e0000301000, "rw-p", 12, "/dev/zero", 20) +
      mapping(0x7ffff0000000, 0x7ffff0001000, "r-xp", 3, "/lib/libc.so.6", 100) +
      mapping(0x7ffff0001000, 0x7ffff0002000, "rw-p", 3, "/lib/libc.so.6", 50) +
      mapping(0x7ffff0002000, 0x7ffff0003000, "rw-p", 0, "", 30) +  // may be malloc's: not told from it
      mapping(0x7fffff000000, 0x7fffff100000, "rw-p", 0, "[stack]", 132) +
      mapping(0x7fffff200000, 0x7fffff201000, "r-xp", 0, "[vdso]", 4);
  const Breakdown found = parse_smaps(text, "/usr/bin/sort of");
  EXPECT_EQ(found.rss.program, (4 + 8 + 4 + 16 + 100 + 50 + 4) * kKib);
  EXPECT_EQ(found.rss.files, (400 + 12) * kKib);
  EXPECT_EQ(found.rss.stacks, 132 * kKib);
  EXPECT_EQ(found.rss.heap, 1024 * kKib);
  EXPECT_EQ(found.rss.other, (2048 + 20 + 30) * kKib);
  EXPECT_EQ(found.pss.heap, 512 * kKib);
  EXPECT_EQ(found.rss.sum(), 2 * found.pss.sum());
  EXPECT_EQ(found.program_files, (std::set<std::string>{"/lib/libc.so.6", "/usr/bin/sort of"}));
}

TEST(Parts, AnArenaIsHeapWithItsReservedRestOnly) {
  const std::uint64_t end = kArenaStart + 64 * kMib;
  const auto heap = [](const std::string& text) { return parse_smaps(text, "").rss.heap / kKib; };
  const std::string rest = mapping(kArenaStart + 2 * kMib, end, "---p", 0, "", 0);
  EXPECT_EQ(heap(mapping(kArenaStart, kArenaStart + 2 * kMib, "rw-p", 0, "", 2000) + rest), 2000);
  // An arena that is merged with the mapping below it; one that is full; two arenas.
  EXPECT_EQ(heap(mapping(kArenaStart - kMib, kArenaStart + 2 * kMib, "rw-p", 0, "", 2000) + rest), 2000);
  EXPECT_EQ(heap(mapping(kArenaStart, end, "rw-p", 0, "", 2000)), 2000);
  EXPECT_EQ(heap(mapping(kArenaStart - 64 * kMib, kArenaStart + 2 * kMib, "rw-p", 0, "", 2000) + rest), 2000);
  // A runtime's heap begins on such a boundary too, and reserves more.
  EXPECT_EQ(heap(mapping(kArenaStart, kArenaStart + 2 * kMib, "rw-p", 0, "", 2000) +
                 mapping(kArenaStart + 2 * kMib, kArenaStart + 4096 * kMib, "---p", 0, "", 0)),
            0);
  EXPECT_EQ(heap(mapping(kArenaStart + kMib, kArenaStart + 2 * kMib, "rw-p", 0, "", 2000) + rest), 0);
}

TEST(Parts, TextThatIsNoSmapsHasNone) {
  EXPECT_EQ(parse_smaps("", "").rss.sum(), 0U);
  EXPECT_EQ(parse_smaps("nonsense\nRss: 4 kB\n12-\n12-13 rw\nPss: 9 kB", "").rss.sum(), 0U);
}

TEST(Parts, OurOwnProcess) {
  const auto before = read_breakdown(getpid());
  ASSERT_TRUE(before);
  EXPECT_GT(before->rss.program, 0U);
  EXPECT_GT(before->rss.stacks, 0U);
  constexpr std::size_t kSize = 8 * kMib;
  void* const block = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(block, MAP_FAILED);
  std::memset(block, 1, kSize);
  const auto after = read_breakdown(getpid());
  ASSERT_TRUE(after);
  EXPECT_GE(after->rss.heap + after->rss.other, before->rss.heap + before->rss.other + kSize);
  EXPECT_LT(after->rss.program + after->rss.files, before->rss.program + before->rss.files + kMib);
  munmap(block, kSize);
  EXPECT_FALSE(read_breakdown(-1));
}

}  // namespace
}  // namespace heapwright::meter
