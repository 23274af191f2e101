// Tests files that are written under a temporary name: they appear complete or not at all.
#include "common/draft_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>

namespace heapwright {
namespace {

class DraftFileTest : public ::testing::Test {
 protected:
  ~DraftFileTest() override {
    (void)::unlink(path_.c_str());
    (void)::unlink(draft_name_.c_str());
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static bool exists(const std::string& path) {
    struct stat status{};
    return ::lstat(path.c_str(), &status) == 0;
  }
  void write(DraftFile& draft) const {
    const int file = draft.create(path_);
    ASSERT_GE(file, 0);
    ASSERT_EQ(::write(file, "new", 3), 3);
    ASSERT_EQ(::close(file), 0);
  }

  std::string path_ = ::testing::TempDir() + "draft_file." + std::to_string(::getpid());
  std::string draft_name_ = path_ + "." + std::to_string(::getpid()) + ".part";
};

TEST_F(DraftFileTest, AppearsWhenItIsPublished) {
  DraftFile draft;
  write(draft);
  EXPECT_FALSE(exists(path_));
  EXPECT_TRUE(draft.publish());
  EXPECT_EQ(read(path_), "new");
  EXPECT_FALSE(exists(draft_name_));
}

TEST_F(DraftFileTest, IsRemovedUnlessItIsPublished) {
  std::ofstream(path_) << "old";
  {
    DraftFile draft;
    write(draft);
    EXPECT_TRUE(exists(draft_name_));
  }
  EXPECT_FALSE(exists(draft_name_));
  EXPECT_EQ(read(path_), "old");
}

TEST_F(DraftFileTest, DoesNotFollowASymbolicLinkAtItsName) {
  const std::string victim = path_ + ".victim";
  std::ofstream(victim) << "untouched";
  ASSERT_EQ(::symlink(victim.c_str(), draft_name_.c_str()), 0);
  DraftFile draft;
  write(draft);
  EXPECT_TRUE(draft.publish());
  EXPECT_EQ(read(victim), "untouched");
  EXPECT_EQ(read(path_), "new");
  (void)::unlink(victim.c_str());
}

TEST_F(DraftFileTest, ReportsAFolderThatDoesNotExist) {
  DraftFile draft;
  EXPECT_EQ(draft.create(path_ + "/no/such/folder"), -1);
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace heapwright
