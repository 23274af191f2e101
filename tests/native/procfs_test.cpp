// Tests the readers of /proc on the test process and on children in a known state.
#include "procfs.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "child.h"

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
  EXPECT_FALSE(read_statm(file));  // the descriptor does not follow a reused process id
  EXPECT_FALSE(read_status(child));
  EXPECT_FALSE(read_stat(child));
  EXPECT_LT(open_statm(child), 0);
  close(file);
}

TEST(Procfs, ANameMayHoldAnything) {
  std::array<char, 17> before{};
  prctl(PR_GET_NAME, before.data());
  prctl(PR_SET_NAME, "a) Z 1 (b 7 8");
  const auto stat = read_stat(getpid());
  prctl(PR_SET_NAME, before.data());
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->parent, getppid());
  EXPECT_FALSE(stat->dead);
}

TEST(Procfs, AProcessWithoutItsFirstThread) {
  const Child child([] {
    pthread_t thread{};
    const auto wait = [](void* unused) {
      while (true) {
        pause();
      }
      return unused;
    };
    pthread_create(&thread, nullptr, wait, nullptr);
    syscall(SYS_exit, 0);  // pthread_exit is an exception, and GoogleTest would catch it
  });
  ASSERT_TRUE(child.reaches([&] {
    const auto stat = read_stat(child.pid());
    return stat && stat->dead;
  }));
  const int leader = open_statm(child.pid());
  EXPECT_FALSE(read_statm(leader));
  close(leader);
  const auto threads = threads_of(child.pid());
  ASSERT_EQ(threads.size(), 2U);
  EXPECT_EQ(threads[0], child.pid());
  const int other = open_statm(threads[1]);
  EXPECT_TRUE(read_statm(other));
  close(other);
  EXPECT_EQ(read_status(threads[1])->tgid, child.pid());
  EXPECT_GT(read_status(threads[1])->vm_peak, 0U);
}

TEST(Procfs, AllDescendantsAreFound) {
  const Child child([] {
    if (fork() == 0) {
      fork();
    }
  });
  EXPECT_TRUE(child.reaches([&] { return descendants_of(child.pid()).size() == 2; }));
  for (const pid_t process : descendants_of(child.pid())) {
    kill(process, SIGKILL);
  }
}

TEST(Procfs, PagesAreDividedAmongThoseWhoShareThem) {
  constexpr std::size_t kSize = 64 << 20;
  // Other processes share the pages of libraries, and sanitizers have large ones.
  constexpr std::size_t kOthers = 8 << 20;
  const auto before = read_rollup(getpid());
  ASSERT_TRUE(before) << errno;
  void* const block = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::fill_n(static_cast<char*>(block), kSize, 1);
  const auto alone = read_rollup(getpid());
  EXPECT_GE(alone->pss + kOthers, before->pss + kSize);
  EXPECT_GE(alone->rss, alone->pss);
  {
    const Child child([] {});
    const auto both = read_rollup(getpid());
    EXPECT_GE(both->rss, alone->rss);
    EXPECT_LE(both->pss, alone->pss - kSize / 2 + kOthers);
    EXPECT_GE(read_rollup(child.pid())->pss, kSize / 2);
  }
  EXPECT_GE(read_rollup(getpid())->pss + kOthers, before->pss + kSize);
  munmap(block, kSize);
}

TEST(Procfs, AnEndedProcessHasNoProportionalSize) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(0);
  }
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_TRUE(read_stat(child)->exiting);
  EXPECT_FALSE(read_rollup(child));
  EXPECT_EQ(errno, ESRCH);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(read_rollup(child));
  EXPECT_TRUE(errno == ESRCH || errno == ENOENT) << errno;
  EXPECT_FALSE(read_stat(getpid())->exiting);
}

TEST(Procfs, Ancestors) {
  const Child child([] { fork(); });
  ASSERT_TRUE(child.reaches([&] { return descendants_of(child.pid()).size() == 1; }));
  const pid_t grandchild = descendants_of(child.pid()).front();
  EXPECT_TRUE(descends_from(grandchild, getpid()));
  EXPECT_TRUE(descends_from(grandchild, child.pid()));
  EXPECT_TRUE(descends_from(child.pid(), child.pid()));
  EXPECT_FALSE(descends_from(getpid(), child.pid()));
  EXPECT_FALSE(descends_from(1, getpid()));
  EXPECT_FALSE(descends_from(0, getpid()));
  kill(grandchild, SIGKILL);
  EXPECT_TRUE(child.reaches([&] { return read_stat(grandchild).value_or(Stat{.dead = true}).dead; }));
}

TEST(Procfs, AProcessThatDoesNotExistIsNoError) {
  EXPECT_LT(open_statm(0), 0);
  EXPECT_FALSE(read_statm(-1));
  EXPECT_FALSE(count_maps(0));
  EXPECT_TRUE(threads_of(0).empty());
  EXPECT_TRUE(descendants_of(0).empty());
}

}  // namespace
}  // namespace heapwright::meter
