// /proc as read of ourselves and of children whose state we know.
#include "procfs.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace heapwright::meter {
namespace {

TEST(Procfs, MappedMemoryShowsAndResidentWhenTouched) {
  constexpr std::size_t kSize = 64 << 20;
  const int file = open_statm(getpid());
  ASSERT_GE(file, 0);
  const auto before = read_statm(file);
  ASSERT_TRUE(before);
  void* const block = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(block, MAP_FAILED);
  const auto mapped = read_statm(file);
  EXPECT_EQ(mapped->vm - before->vm, kSize);
  EXPECT_EQ(mapped->data - before->data, kSize);
  EXPECT_LT(mapped->rss, before->rss + kSize / 4);
  std::fill_n(static_cast<char*>(block), kSize, 1);
  EXPECT_GE(read_statm(file)->rss, before->rss + kSize * 9 / 10);
  munmap(block, kSize);
  EXPECT_EQ(read_statm(file)->vm, before->vm);
  EXPECT_GE(read_status(getpid())->vm_peak, before->vm + kSize);
  close(file);
}

TEST(Procfs, StatusOfOurselves) {
  const auto status = read_status(getpid());
  ASSERT_TRUE(status);
  EXPECT_EQ(status->tgid, getpid());
  EXPECT_EQ(status->threads, 1);
  EXPECT_GT(status->stack, 0U);
  EXPECT_GE(status->vm_peak, status->rss_peak);
  EXPECT_GT(count_maps(getpid()).value_or(0), 10U);
}

TEST(Procfs, AChildIsSeenAndItsDeathToo) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    pause();
    _exit(0);
  }
  const auto stat = read_stat(child);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->parent, getpid());
  EXPECT_FALSE(stat->dead);
  EXPECT_TRUE(stat->not_executed);
  const auto children = descendants_of(getpid());
  EXPECT_NE(std::find(children.begin(), children.end(), child), children.end());
  const int file = open_statm(child);
  ASSERT_GE(file, 0);
  EXPECT_TRUE(read_statm(file));
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  const auto zombie = read_stat(child);
  ASSERT_TRUE(zombie);
  EXPECT_TRUE(zombie->dead);
  EXPECT_FALSE(read_statm(file));
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(read_statm(file));  // whoever has the number now, this descriptor is not theirs
  EXPECT_FALSE(read_status(child));
  EXPECT_FALSE(read_stat(child));
  EXPECT_LT(open_statm(child), 0);
  close(file);
}

}  // namespace
}  // namespace heapwright::meter
