// Tests the reading of EXGEN_OPTIONS and REAPER_OPTIONS: accepted options, and messages about
// others.
#include "core/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/message.h"

namespace heapwright::alloc {
namespace {

struct Read {
  Options options;
  std::string said;
};

Read read(const char* text) {
  testing::internal::CaptureStderr();
  const Options options = read_options("TEST_OPTIONS", text);
  return {options, testing::internal::GetCapturedStderr()};
}

TEST(Options, UnsetOrEmptyIsTheDefault) {
  for (const char* const text : {static_cast<const char*>(nullptr), "", ",", ",,"}) {
    const Read got = read(text);
    EXPECT_EQ(got.said, "");
    EXPECT_EQ(got.options.limit, SIZE_MAX);
    EXPECT_FALSE(got.options.report);
  }
}

TEST(Options, EachIsUnderstood) {
  const Read got =
      read("limit=2g,keep=64k,purge_delay=20,cache=4096,huge_pages=never,on_error=report,stats=1");
  EXPECT_EQ(got.said, "");
  EXPECT_EQ(got.options.limit, std::size_t{2} << 30U);
  EXPECT_EQ(got.options.keep, 64U * 1024);
  EXPECT_EQ(got.options.purge_delay, 20U);
  EXPECT_EQ(got.options.cache_bytes_per_class, 4096U);
  EXPECT_EQ(got.options.huge_pages, Options::Huge::kNever);
  EXPECT_TRUE(got.options.report);
  EXPECT_TRUE(got.options.statistics);
}

TEST(Options, TheCacheHasAnOlderName) {
  const Read got = read("front=4096");
  EXPECT_EQ(got.said, "");
  EXPECT_EQ(got.options.cache_bytes_per_class, 4096U);
  EXPECT_EQ(read("front=1,cache=2").options.cache_bytes_per_class, 2U);
  EXPECT_EQ(read("cache=2,front=1").options.cache_bytes_per_class, 1U);
}

TEST(Options, SizesHaveUnitsInEitherCase) {
  EXPECT_EQ(read("keep=3").options.keep, 3U);
  EXPECT_EQ(read("keep=3K").options.keep, std::size_t{3} << 10U);
  EXPECT_EQ(read("keep=3m").options.keep, std::size_t{3} << 20U);
  EXPECT_EQ(read("keep=3T").options.keep, std::size_t{3} << 40U);
  EXPECT_EQ(read("keep=0").options.keep, 0U);
  EXPECT_EQ(read("keep=18446744073709551615").options.keep, SIZE_MAX);
}

TEST(Options, TheLastOfTwoCounts) { EXPECT_EQ(read("keep=1,keep=2").options.keep, 2U); }

TEST(Options, WhatIsBadIsNamedInOneLineAndIgnored) {
  for (const char* const bad : {"limit",
                                "limit=",
                                "limit=0",
                                "limit=-1",
                                "limit=1x",
                                "limit=1kk",
                                "limit=k",
                                "limit= 1",
                                "limit=18446744073709551616",
                                "limit=18446744073709551615k",
                                "keep=many",
                                "purge_delay=soon",
                                "cache=0",
                                "front=0",
                                "huge_pages=maybe",
                                "huge_pages=",
                                "on_error=0",
                                "stats=2",
                                "stats=yes",
                                "Limit=1",
                                "=",
                                "=1",
                                "nonsense"}) {
    const Read got = read(bad);
    const Options defaults;
    EXPECT_EQ(got.said.rfind(std::string("TEST_OPTIONS: not understood and ignored: '") + bad + "'", 0), 0U)
        << got.said;
    EXPECT_EQ(std::count(got.said.begin(), got.said.end(), '\n'), 1) << got.said;
    EXPECT_EQ(got.said.back(), '\n');
    EXPECT_EQ(got.options.limit, defaults.limit) << bad;
    EXPECT_EQ(got.options.keep, defaults.keep) << bad;
    EXPECT_EQ(got.options.purge_delay, defaults.purge_delay) << bad;
    EXPECT_EQ(got.options.cache_bytes_per_class, defaults.cache_bytes_per_class) << bad;
    EXPECT_EQ(got.options.huge_pages, defaults.huge_pages) << bad;
    EXPECT_EQ(got.options.report, defaults.report) << bad;
    EXPECT_EQ(got.options.statistics, defaults.statistics) << bad;
  }
}

TEST(Options, ABadOneAfterAGoodOneLeavesTheGoodOne) {
  const Read got = read("keep=5,keep=x,cache=0,limit=7m,limit=0");
  EXPECT_EQ(got.options.keep, 5U);
  EXPECT_EQ(got.options.limit, std::size_t{7} << 20U);
  EXPECT_EQ(std::count(got.said.begin(), got.said.end(), '\n'), 3) << "one line for each";
}

TEST(Options, EveryLineEndsHoweverLongTheValue) {
  const std::string said = read(("keep=" + std::string(5000, 'x')).c_str()).said;
  EXPECT_EQ(said.back(), '\n');
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
}

TEST(Options, TheVariableWinsOverWhatIsBuiltIn) {
  const Options built = read_options(kBuiltInOptions, "keep=64k,stats=1");
  const Options options = read_options("TEST_OPTIONS", "stats=0,cache=4096", built);
  EXPECT_EQ(options.keep, 64U * 1024);
  EXPECT_EQ(options.cache_bytes_per_class, 4096U);
  EXPECT_FALSE(options.statistics);
  EXPECT_EQ(built_in_options(), nullptr);  // this program has none
}

TEST(Messages, NumbersAndAddresses) {
  testing::internal::CaptureStderr();
  Message message;
  message << "a " << std::size_t{0} << " " << SIZE_MAX << " " << reinterpret_cast<const void*>(0xabc0)
          << "\n";
  message.write();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "a 0 18446744073709551615 0xabc0\n");
}

}  // namespace
}  // namespace heapwright::alloc
