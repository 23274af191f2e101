// Tests memory cgroups on synthetic files and folders, and on processes of the test.
#include "cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "child.h"
#include "in_folder.h"

namespace heapwright::meter {
namespace {

constexpr auto kSecond =
    "24 30 0:22 / /proc rw - proc proc rw\n"
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr auto kHybrid =
    "31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    "32 30 0:28 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
    "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

std::string folder_of(const std::string& cgroup, const std::string& mountinfo) {
  const auto group = memory_group(cgroup, mountinfo);
  return group ? std::to_string(group->version) + " " + group->folder : "";
}

TEST(MemoryGroup, OfVersionTwo) {
  EXPECT_EQ(folder_of("0::/user.slice/run-1.scope\n", kSecond), "2 /sys/fs/cgroup/user.slice/run-1.scope");
  EXPECT_EQ(folder_of("0::/\n", kSecond), "2 /sys/fs/cgroup");
}

TEST(MemoryGroup, OfVersionOneWhereThatHasTheController) {
  const auto* const text = "9:name=systemd:/a\n4:memory:/b/c:d\n1:cpu,cpuacct:/e\n0::/f\n";
  EXPECT_EQ(folder_of(text, kHybrid), "1 /sys/fs/cgroup/memory/b/c:d");
  EXPECT_EQ(folder_of("0::/f\n4:memory:/b\n", kHybrid), "1 /sys/fs/cgroup/memory/b");
  EXPECT_EQ(folder_of("7:hugetlb,memory:/b\n", "1 2 0:1 / /m rw - cgroup cgroup rw,hugetlb,memory\n"),
            "1 /m/b");
  EXPECT_EQ(folder_of("7:memoryless:/b\n", kHybrid), "");
}

TEST(MemoryGroup, InAContainerTheMountShowsAPartOfTheTree) {
  const std::string mounts = "40 30 0:28 /docker/1f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
  EXPECT_EQ(folder_of("4:memory:/docker/1f\n", mounts), "1 /sys/fs/cgroup/memory");
  EXPECT_EQ(folder_of("4:memory:/docker/1f/job\n", mounts), "1 /sys/fs/cgroup/memory/job");
  EXPECT_EQ(folder_of("4:memory:/docker/1ff\n", mounts), "");
  EXPECT_EQ(folder_of("4:memory:/other\n", mounts), "");
}

TEST(MemoryGroup, OutsideOurNamespaceIsNoneOfOurs) {
  EXPECT_EQ(folder_of("0::/../elsewhere\n", kSecond), "");
}

TEST(MemoryGroup, APathMayHaveBlanks) {
  EXPECT_EQ(folder_of("0::/a b\n", "1 2 0:1 / /my\\040cgroups rw - cgroup2 none rw\n"), "2 /my cgroups/a b");
}

TEST(MemoryGroup, WithoutAMountThereIsNone) {
  EXPECT_EQ(folder_of("0::/a\n", ""), "");
  EXPECT_EQ(folder_of("0::/a\n", "1 2 0:1 / /proc rw - proc proc rw\nno line of this kind\n"), "");
  EXPECT_EQ(folder_of("", kSecond), "");
  EXPECT_EQ(folder_of("nonsense\n:\n", kSecond), "");
}

class GroupFolder : public InFolder {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(InFolder::SetUp());
    members({child.pid()});
  }

  void write(const std::string& name, std::uint64_t number) const {
    std::ofstream(folder / name) << number << '\n';
  }
  void members(const std::vector<pid_t>& processes, const std::string& below = "") const {
    std::filesystem::create_directories(folder / below);
    std::ofstream file(folder / below / "cgroup.procs");
    for (const pid_t process : processes) {
      file << process << '\n';
    }
  }
  [[nodiscard]] MemoryGroup group(int version = 2) const {
    return {.folder = folder.string(), .version = version};
  }
  Child child{[] {}};
  TreeGroup tree{getpid()};
};

TEST_F(GroupFolder, ThePeakOfTheRun) {
  write("memory.peak", 5000);
  write("memory.current", 4000);
  tree.look_at(group(), {child.pid()});
  write("memory.peak", 9000);
  write("memory.current", 100);
  tree.read();
  EXPECT_EQ(tree.peak(), 9000U);
}

TEST_F(GroupFolder, APeakFromBeforeTheRunDoesNotCount) {
  write("memory.peak", 90000);
  write("memory.current", 4000);
  tree.look_at(group(), {child.pid()});
  write("memory.current", 6000);
  tree.look_at(group(), {child.pid()});
  write("memory.current", 5000);
  tree.read();
  EXPECT_EQ(tree.peak(), 6000U);
}

TEST_F(GroupFolder, BeforeLinux519ThereIsNoPeak) {
  write("memory.current", 4000);
  tree.look_at(group(), {child.pid()});
  EXPECT_EQ(tree.peak(), 4000U);
}

TEST_F(GroupFolder, VersionOneHasOtherNames) {
  write("memory.max_usage_in_bytes", 10);
  write("memory.usage_in_bytes", 10);
  tree.look_at(group(1), {child.pid()});
  write("memory.max_usage_in_bytes", 77);
  tree.read();
  EXPECT_EQ(tree.peak(), 77U);
}

TEST_F(GroupFolder, WithoutTheControllerNothingIsKnown) {
  tree.look_at(group(), {child.pid()});
  EXPECT_EQ(tree.peak(), std::nullopt);
  EXPECT_EQ(TreeGroup(getpid()).peak(), std::nullopt);
}

TEST_F(GroupFolder, TheMeterMayBeInItAndGroupsBelow) {
  write("memory.current", 4000);
  members({getpid()});
  members({child.pid()}, "workers");
  const auto found = members_of(folder.string());
  EXPECT_EQ(found.size(), 2U);
  tree.look_at(group(), {child.pid()});
  EXPECT_EQ(tree.peak(), 4000U);
}

TEST_F(GroupFolder, AForeignProcessTakesTheFigureAwayForGood) {
  write("memory.current", 4000);
  for (const pid_t foreign : {getppid(), 0}) {  // 0: outside our PID namespace
    members({child.pid()});
    TreeGroup fresh(getpid());
    fresh.look_at(group(), {child.pid()});
    EXPECT_EQ(fresh.peak(), 4000U);
    members({child.pid(), foreign});
    fresh.look_at(group(), {child.pid()});
    EXPECT_EQ(fresh.peak(), std::nullopt);
    members({child.pid()});
    fresh.look_at(group(), {child.pid()});
    EXPECT_EQ(fresh.peak(), std::nullopt);
  }
  members({child.pid()});
  members({getppid()}, "guest");
  tree.look_at(group(), {child.pid()});
  EXPECT_EQ(tree.peak(), std::nullopt);
}

TEST_F(GroupFolder, AProcessOfTheTreeElsewhereTakesTheFigureAway) {
  write("memory.current", 4000);
  const Child other([] {});
  tree.look_at(group(), {child.pid(), other.pid()});  // its real cgroup is not the test folder
  EXPECT_EQ(tree.peak(), std::nullopt);
}

TEST_F(GroupFolder, WhoHasGoneIsNoForeigner) {
  write("memory.current", 4000);
  pid_t gone = 0;
  {
    const Child brief([] {});
    gone = brief.pid();
  }
  members({child.pid(), gone});
  tree.look_at(group(), {child.pid(), gone});
  EXPECT_EQ(tree.peak(), 4000U);
}

TEST_F(GroupFolder, WithoutMembersNothingIsKnownOfOthers) {
  write("memory.current", 4000);
  members({});
  tree.look_at(group(), {child.pid()});
  EXPECT_EQ(tree.peak(), std::nullopt);
  members({child.pid()});
  tree.look_at(group(), {child.pid()});
  members({});
  tree.look_at(group(), {child.pid()});
  EXPECT_EQ(tree.peak(), 4000U);
}

TEST_F(GroupFolder, AMoveToAnotherGroupBeginsAnew) {
  write("memory.current", 4000);
  members({child.pid(), getppid()});
  tree.look_at(group(), {child.pid()});
  EXPECT_EQ(tree.peak(), std::nullopt);
  members({child.pid()}, "scope");
  std::ofstream(folder / "scope" / "memory.current") << "123\n";
  tree.look_at({.folder = (folder / "scope").string()}, {child.pid()});
  EXPECT_EQ(tree.peak(), 123U);
}

TEST_F(GroupFolder, AGroupThatHasGoneKeepsItsFigure) {
  write("memory.peak", 10);
  tree.look_at(group(), {child.pid()});
  write("memory.peak", 5000);
  tree.read();
  std::filesystem::remove_all(folder);
  tree.read();
  EXPECT_EQ(tree.peak(), 5000U);
}

}  // namespace
}  // namespace heapwright::meter
