// Tests the JSON of the meter: null for unknown figures, and complete files only.
#include "outcome.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "child.h"
#include "in_folder.h"
#include "procfs.h"

namespace heapwright::meter {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Json, StringsAreEscaped) {
  EXPECT_EQ(quoted("plain"), "\"plain\"");
  EXPECT_EQ(quoted("a \"b\" \\ c"), R"("a \"b\" \\ c")");
  EXPECT_EQ(quoted("line\nbell\a"), R"("line\u000abell\u0007")");
  EXPECT_EQ(quoted("\u00b5"), "\"\u00b5\"");
}

// The path of a program may hold any bytes, but JSON is UTF-8.
TEST(Json, BytesThatAreNoUtf8AreReplaced) {
  EXPECT_EQ(quoted("€ 𝄞"), "\"€ 𝄞\"");
  EXPECT_EQ(quoted("a\xff!"), "\"a\ufffd!\"");
  EXPECT_EQ(quoted("\xe2\x82"), "\"\ufffd\ufffd\"");            // cut short
  EXPECT_EQ(quoted("\xc0\xaf"), "\"\ufffd\ufffd\"");            // too long a form of '/'
  EXPECT_EQ(quoted("\xed\xa0\x80"), "\"\ufffd\ufffd\ufffd\"");  // a surrogate
  EXPECT_EQ(quoted("\xf4\x90\x80\x80").size(), 2 + 4 * 3U);     // above the last character
}

TEST(Json, WhatABackEndCannotKnowIsNull) {
  Ledger ledger;
  const Watcher watcher(ledger);
  Outcome outcome;
  outcome.backend = Backend::kPoll;
  outcome.end = 1;
  const auto text = to_json(outcome, ledger, watcher);
  EXPECT_NE(text.find("\"mapping_calls\": null"), std::string::npos);
  EXPECT_NE(text.find("\"returned_bytes\": null"), std::string::npos);
  EXPECT_NE(text.find("\"instructions\": null"), std::string::npos);
  EXPECT_NE(text.find("\"massif_peak_bytes\": null"), std::string::npos);
  EXPECT_EQ(text.find("\"series\""), std::string::npos);
  EXPECT_NE(text.find("\"peak_pss_bytes\": null"), std::string::npos);
  EXPECT_NE(text.find("\"mean_pss_bytes\": null"), std::string::npos);
  EXPECT_NE(text.find("\"cgroup_peak_bytes\": null"), std::string::npos);
  EXPECT_NE(text.find("\"huge_bytes\": null"), std::string::npos);
  EXPECT_NE(text.find("\"huge_share\": null"), std::string::npos);
  EXPECT_NE(text.find("\"system_thp_faults\": null"), std::string::npos);
  EXPECT_NE(text.find("\"max_processes\": 1"),
            std::string::npos);  // the program itself, though none was seen
  outcome.backend = Backend::kNotify;
  EXPECT_NE(to_json(outcome, ledger, watcher).find("\"mapping_calls\": 0"), std::string::npos);
}

TEST(Json, ReadingsThatMissedThePeakAreNull) {
  Ledger ledger;
  ledger.set_root(1);
  ledger.sample(1, 0.01, {.vm = 400'000'000, .rss = 7'000'000, .heap = 10'000'000});
  const Watcher watcher(ledger);
  Outcome outcome;
  outcome.backend = Backend::kPoll;
  outcome.end = 0.1;
  outcome.max_rss = 1'190'000'000;  // the kernel's own mark: the program grew after the last reading
  const auto missed = to_json(outcome, ledger, watcher);
  EXPECT_NE(missed.find("\"peak_rss_bytes\": 1190000000"), std::string::npos);
  for (const std::string key : {"peak_vm_bytes", "peak_heap_bytes", "mean_heap_bytes", "mean_rss_bytes",
                                "p95_rss_bytes", "final_rss_bytes"}) {
    EXPECT_NE(missed.find("\"" + key + "\": null"), std::string::npos) << key;
  }
  ledger.sample(1, 0.05, {.vm = 1'400'000'000, .rss = 1'000'000'000, .heap = 900'000'000});
  const auto seen = to_json(outcome, ledger, watcher);
  EXPECT_NE(seen.find("\"peak_vm_bytes\": 1400000000"), std::string::npos);
  EXPECT_EQ(seen.find("\"mean_rss_bytes\": null"), std::string::npos);
}

TEST(Json, NoReadingExceedsThePeak) {
  Ledger ledger;
  ledger.set_root(1);
  ledger.sample(1, 0, {.vm = 9'000'000, .rss = 1'800'000, .heap = 4'096});
  ledger.sample(1, 1, {.vm = 9'000'000, .rss = 1'800'000, .heap = 4'096});
  const Watcher watcher(ledger);
  Outcome outcome;
  outcome.backend = Backend::kNotify;
  outcome.end = 1;
  outcome.max_rss = 1'700'000;  // the kernel's mark lags
  const auto text = to_json(outcome, ledger, watcher);
  for (const std::string key : {"peak_rss_bytes", "mean_rss_bytes", "p95_rss_bytes"}) {
    EXPECT_NE(text.find("\"" + key + "\": 1700000"), std::string::npos) << text;
  }
}

TEST(Json, AProgramSmallerThanTheMeterHasReadings) {
  Ledger ledger;
  ledger.set_root(1);
  ledger.sample(1, 0.01, {.vm = 200'000, .rss = 68'000, .heap = 4'096});
  const Watcher watcher(ledger);
  Outcome outcome;
  outcome.backend = Backend::kNotify;
  outcome.end = 0.1;
  outcome.max_rss = 700'000;  // the kernel keeps the mark of the process that forked it
  EXPECT_NE(to_json(outcome, ledger, watcher).find("\"peak_vm_bytes\": 200000"), std::string::npos);
}

TEST(Json, AskedForAndNeverReadIsNullToo) {
  Ledger ledger;
  const Watcher watcher(ledger, true);
  Outcome outcome;
  outcome.backend = Backend::kPoll;
  const auto text = to_json(outcome, ledger, watcher);
  EXPECT_NE(text.find("\"peak_pss_bytes\": null"), std::string::npos);
  EXPECT_EQ(text.find("pss_samples"), std::string::npos);
}

TEST(Json, ProportionalMemoryOfAProcess) {
  const Child root([] {});
  const Child child([] {});
  Ledger ledger;
  const double start = now();
  ledger.start(start);
  Watcher watcher(ledger, true);
  watcher.started(root.pid(), start);  // before its exec: not counted
  watcher.adopt(child.pid(), false);
  watcher.tick(start + 1);
  ASSERT_NE(watcher.pss(), nullptr);
  EXPECT_EQ(watcher.pss()->samples(), 1U);
  EXPECT_EQ(ledger.max_live(), 1U);
  Outcome outcome;
  outcome.backend = Backend::kPoll;
  outcome.start = start;
  outcome.end = start + 1;
  const auto text = to_json(outcome, ledger, watcher);
  const auto at = text.find("\"peak_pss_bytes\": ");
  ASSERT_NE(at, std::string::npos);
  const double peak = std::strtod(text.c_str() + at + 18, nullptr);
  EXPECT_GT(peak, 0);
  EXPECT_LE(peak, static_cast<double>(read_rollup(child.pid())->rss));
  EXPECT_NE(text.find("\"pss_samples\": 1"), std::string::npos);
}

TEST(Json, WarningsOfAllAreOneList) {
  Ledger ledger;
  const Watcher watcher(ledger);
  Outcome outcome;
  EXPECT_NE(to_json(outcome, ledger, watcher).find("\"warnings\": []"), std::string::npos);
  outcome.warnings = {"b", "a \"quoted\" one"};
  EXPECT_NE(to_json(outcome, ledger, watcher).find(R"("warnings": ["a \"quoted\" one", "b"])"),
            std::string::npos);
}

TEST(Json, ASeriesIsOneListAMetric) {
  Ledger ledger(10);
  ledger.start(1);
  ledger.sample(1, 1, {.vm = 30, .rss = 10, .heap = 20});
  ledger.tick(1.5);
  ledger.process_ended(1, 2);
  ledger.tick(2);
  const Watcher watcher(ledger);
  Outcome outcome;
  outcome.backend = Backend::kNotify;
  EXPECT_NE(to_json(outcome, ledger, watcher)
                .find(R"({"t": [0.5000,1.0000], "rss": [10,10], "heap": [20,20], "vm": [30,30]})"),
            std::string::npos);
}

TEST(Json, OnlyWaitingKnowsNoMoreThanTheKernelSays) {
  Ledger ledger;
  const Watcher watcher(ledger);
  Outcome outcome;
  outcome.max_rss = 4096;
  const auto text = to_json(outcome, ledger, watcher);
  EXPECT_NE(text.find("\"meter\": \"none\""), std::string::npos);
  EXPECT_NE(text.find("\"peak_rss_bytes\": 4096"), std::string::npos);
  EXPECT_EQ(text.find("heap"), std::string::npos);
}

TEST(Json, ADeathBySignalIsNoExitCode) {
  Ledger ledger;
  const Watcher watcher(ledger);
  Outcome outcome;
  outcome.status = 11;
  auto text = to_json(outcome, ledger, watcher);
  EXPECT_NE(text.find("\"exit_code\": null"), std::string::npos);
  EXPECT_NE(text.find("\"signal\": 11"), std::string::npos);
  outcome.status = 3 << 8;
  text = to_json(outcome, ledger, watcher);
  EXPECT_NE(text.find("\"exit_code\": 3"), std::string::npos);
  EXPECT_NE(text.find("\"signal\": null"), std::string::npos);
}

TEST(Json, ARunThatGoesOnHasNoExitStatusYet) {
  Ledger ledger;
  const Watcher watcher(ledger);
  Outcome outcome;
  outcome.unfinished = true;
  const auto text = to_json(outcome, ledger, watcher);
  EXPECT_NE(text.find("\"exit_code\": null"), std::string::npos);
  EXPECT_NE(text.find("\"signal\": null"), std::string::npos);
}

TEST(Outcome, AddsTimesAndKeepsTheLargestResidentSize) {
  Outcome outcome;
  rusage usage{};
  usage.ru_utime = {.tv_sec = 1, .tv_usec = 500000};
  usage.ru_maxrss = 100;
  usage.ru_minflt = 7;
  outcome.add(usage);
  usage.ru_maxrss = 40;
  outcome.add(usage);
  EXPECT_DOUBLE_EQ(outcome.user_s, 3.0);
  EXPECT_EQ(outcome.max_rss, 100U * 1024);
  EXPECT_EQ(outcome.minor_faults, 14U);
}

class WriteWhole : public InFolder {};

TEST_F(WriteWhole, ReplacesAFileAndLeavesNoDraft) {
  const auto path = folder / "report";
  ASSERT_TRUE(write_whole(path, "first, longer"));
  ASSERT_TRUE(write_whole(path, "second"));
  EXPECT_EQ(read(path), "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST_F(WriteWhole, FailsWithoutTouchingWhatIsThere) {
  EXPECT_FALSE(write_whole(folder / "no" / "report", "text"));
  const auto path = folder / "taken";
  std::filesystem::create_directory(path);
  EXPECT_FALSE(write_whole(path, "text"));  // a directory cannot be replaced
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

}  // namespace
}  // namespace heapwright::meter
