// Tests the parser of the meter's command line.
#include "options.h"

#include <getopt.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <initializer_list>

namespace heapwright::meter {
namespace {

struct Parsed {
  bool good = false;
  Options options;
  std::string error;
};

Parsed parse(std::initializer_list<const char*> words) {
  static std::vector<std::string> kept;  // options.command points into it
  kept.assign(words.begin(), words.end());
  kept.insert(kept.begin(), "heapwright-meter");
  std::vector<char*> arguments;
  for (auto& word : kept) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  optind = 1;  // getopt keeps its position between calls
  Parsed parsed;
  parsed.good = parse_options(static_cast<int>(kept.size()), arguments.data(), parsed.options, parsed.error);
  return parsed;
}

TEST(Options, DefaultsAreWhatTheHeaderSays) {
  const auto parsed = parse({"--", "true"});
  ASSERT_TRUE(parsed.good) << parsed.error;
  EXPECT_EQ(parsed.options.backend, Backend::kAuto);
  EXPECT_EQ(parsed.options.interval_ms, 10);
  EXPECT_FALSE(parsed.options.massif);
  EXPECT_FALSE(parsed.options.pss);
  ASSERT_EQ(parsed.options.command.size(), 2U);
  EXPECT_STREQ(parsed.options.command[0], "true");
  EXPECT_EQ(parsed.options.command[1], nullptr);
}

TEST(Options, MassifAsValgrindOrInTheKernelsLayout) {
  const auto valgrind = parse({"--massif-compat", "--", "true"});
  EXPECT_TRUE(valgrind.options.massif && valgrind.options.massif_as_valgrind);
  const auto kernel = parse({"--massif-compat=kernel", "--", "true"});
  EXPECT_TRUE(kernel.options.massif && !kernel.options.massif_as_valgrind);
  EXPECT_FALSE(parse({"--massif-compat=other", "--", "true"}).good);
}

TEST(Options, TheParentMayBeNamed) {
  const auto parsed = parse({"--die-with-parent=123", "--", "true"});
  ASSERT_TRUE(parsed.good) << parsed.error;
  EXPECT_TRUE(parsed.options.die_with_parent);
  EXPECT_EQ(parsed.options.parent, 123);
  EXPECT_FALSE(parsed.options.attended);
  EXPECT_TRUE(parse({"--die-with-parent=123", "--attended", "--", "true"}).options.attended);
  EXPECT_FALSE(parse({"--die-with-parent=me", "--", "true"}).good);
}

TEST(Options, EveryOptionIsTaken) {
  const auto parsed =
      parse({"--output", "o",   "--backend", "ptrace",   "--interval-ms", "5", "--massif-compat",   "--pss",
             "--series", "240", "--timeout", "1.5",      "--kill-grace",  "0", "--die-with-parent", "--wait",
             "root",     "--",  "prog",      "--output", "its own"});
  ASSERT_TRUE(parsed.good) << parsed.error;
  const auto& options = parsed.options;
  EXPECT_EQ(options.output, "o");
  EXPECT_EQ(options.backend, Backend::kPtrace);
  EXPECT_EQ(options.interval_ms, 5);
  EXPECT_TRUE(options.massif);
  EXPECT_TRUE(options.pss);
  EXPECT_EQ(options.series, 240U);
  EXPECT_DOUBLE_EQ(options.timeout_s, 1.5);
  EXPECT_DOUBLE_EQ(options.kill_grace_s, 0);
  EXPECT_TRUE(options.die_with_parent);
  EXPECT_EQ(options.parent, getppid());
  EXPECT_TRUE(options.wait_for_root_only);
  ASSERT_EQ(options.command.size(), 4U);  // the options of the target are not parsed
  EXPECT_STREQ(options.command[1], "--output");
}

TEST(Options, TheCommandBeginsAtTheFirstWordThatIsNoOption) {
  const auto parsed = parse({"--series", "2", "prog", "--series", "x"});
  ASSERT_TRUE(parsed.good) << parsed.error;
  EXPECT_EQ(parsed.options.command.size(), 4U);
}

TEST(Options, WhatCannotBeMeantIsNamed) {
  EXPECT_EQ(parse({"--backend", "best", "--", "true"}).error, "bad option: --backend best");
  EXPECT_EQ(parse({"--interval-ms", "0", "--", "true"}).error, "bad option: --interval-ms 0");
  EXPECT_EQ(parse({"--timeout", "1s", "--", "true"}).error, "bad option: --timeout 1s");
  EXPECT_EQ(parse({"--timeout", "nan", "--", "true"}).error, "bad option: --timeout nan");
  EXPECT_EQ(parse({"--series", "1", "--", "true"}).error, "bad option: --series 1");
  EXPECT_EQ(parse({"--wait", "all", "--", "true"}).error, "bad option: --wait all");
  EXPECT_FALSE(parse({"--no-such", "--", "true"}).good);
  EXPECT_FALSE(parse({"--output"}).good);
  EXPECT_NE(parse({}).error.find("there is no command to run"), std::string::npos);
  EXPECT_EQ(parse({"--massif-compat", "--backend", "poll", "--", "true"}).error,
            "--massif-compat needs the ptrace back end");
  EXPECT_TRUE(parse({"--probe"}).good);
}

TEST(Options, NamesOfBackEndsGoBothWays) {
  for (const Backend backend :
       {Backend::kAuto, Backend::kNotify, Backend::kPtrace, Backend::kPoll, Backend::kNone}) {
    const auto parsed = parse({"--backend", backend_name(backend), "--", "true"});
    ASSERT_TRUE(parsed.good);
    EXPECT_EQ(parsed.options.backend, backend);
  }
}

}  // namespace
}  // namespace heapwright::meter
