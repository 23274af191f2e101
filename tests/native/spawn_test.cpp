// Tests which program a command names. tests/meter tests that it runs as it does without the meter.
#include "spawn.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "in_folder.h"

namespace heapwright::meter {
namespace {

class FindProgram : public InFolder {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(InFolder::SetUp());
    for (const char* const part : {"one", "two"}) {
      std::filesystem::create_directory(folder / part);
    }
    const char* const before = getenv("PATH");
    path_before = before == nullptr ? "" : before;
    setenv("PATH", (one() + ":" + two()).c_str(), 1);
  }
  void TearDown() override {
    setenv("PATH", path_before.c_str(), 1);
    InFolder::TearDown();
  }
  [[nodiscard]] std::string one() const { return (folder / "one").string(); }
  [[nodiscard]] std::string two() const { return (folder / "two").string(); }
  static void make(const std::string& path, mode_t mode) {
    std::ofstream(path) << "#!/bin/sh\n";
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
  }
  std::string path_before;
};

TEST_F(FindProgram, TheFirstInThePathWins) {
  make(two() + "/prog", 0755);
  EXPECT_EQ(find_program("prog"), two() + "/prog");
  make(one() + "/prog", 0755);
  EXPECT_EQ(find_program("prog"), one() + "/prog");
}

TEST_F(FindProgram, WhatMayNotBeExecutedIsPassedOverButRemembered) {
  make(one() + "/prog", 0644);
  EXPECT_EQ(find_program("prog"), "");
  EXPECT_EQ(errno, EACCES);
  make(two() + "/prog", 0755);
  EXPECT_EQ(find_program("prog"), two() + "/prog");
}

TEST_F(FindProgram, AFolderIsNoProgram) {
  std::filesystem::create_directory(folder / "one" / "prog");
  EXPECT_EQ(find_program("prog"), "");
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(FindProgram, ASlashMeansNoSearch) {
  EXPECT_EQ(find_program("./no/such"), "./no/such");  // exec reports the error
}

TEST_F(FindProgram, AnEmptyPartOfThePathIsHere) {
  make(two() + "/prog", 0755);
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder / "two");
  for (const std::string& path :
       {one() + ":", std::string(":").append(one()), one() + "::" + one(), std::string()}) {
    setenv("PATH", path.c_str(), 1);
    EXPECT_EQ(find_program("prog"), "./prog") << path;
  }
  std::filesystem::current_path(before);
}

TEST_F(FindProgram, WithoutAPathThereIsTheUsualOne) {
  unsetenv("PATH");
  EXPECT_TRUE(find_program("sh").ends_with("/bin/sh"));
  EXPECT_EQ(find_program("no-such-program"), "");
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(FindProgram, NothingIsNoProgram) {
  EXPECT_EQ(find_program(""), "");
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace heapwright::meter
