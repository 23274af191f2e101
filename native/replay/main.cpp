// heapwright-replay OPS [--touch none|page|full] [--dry] [--report FILE]: plays a trace against the malloc it finds itself with.
//
// Says on stdout how many calls it made, which is the same every time, so that a replay's output can be compared like any
// program's; what it measured of itself goes to the report. No library but libc: libstdc++ allocates before main.
#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "player.h"

namespace {

using heapwright::replay::Replay;
using heapwright::replay::Touch;

int say(int status, const char* what, const char* about) {
  char line[512];  // NOLINT(modernize-avoid-c-arrays)
  const int length = std::snprintf(line, sizeof line, "heapwright-replay: %s%s\n", about, what);
  (void)!::write(
      2, line,
      static_cast<std::size_t>(length) < sizeof line ? static_cast<std::size_t>(length) : sizeof line - 1);
  return status;
}

double now() {
  timespec time{};
  (void)::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

double cpu() {
  rusage usage{};
  (void)::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

bool parse(int argc, char** argv, Replay& replay, const char*& ops, const char*& report) {
  for (int i = 1; i < argc; i++) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--dry") == 0) {
      replay.dry = true;
    } else if (std::strcmp(argv[i], "--report") == 0 && more) {
      report = argv[++i];
    } else if (std::strcmp(argv[i], "--touch") == 0 && more) {
      i++;
      if (std::strcmp(argv[i], "none") == 0) {
        replay.touch = Touch::kNone;
      } else if (std::strcmp(argv[i], "page") == 0) {
        replay.touch = Touch::kPage;
      } else if (std::strcmp(argv[i], "full") == 0) {
        replay.touch = Touch::kFull;
      } else {
        return false;
      }
    } else if (ops == nullptr && argv[i][0] != '-') {
      ops = argv[i];
    } else {
      return false;
    }
  }
  return ops != nullptr;
}

bool write_whole(int file, const char* text, int length) {
  return ::write(file, text, static_cast<std::size_t>(length)) == length;
}

}  // namespace

int main(int argc, char** argv) {
  static Replay replay;
  const char* ops = nullptr;
  const char* report = nullptr;
  if (!parse(argc, argv, replay, ops, report)) {
    return say(2, "usage: OPS [--touch none|page|full] [--dry] [--report FILE]", "");
  }
  replay.file = ::open(ops, O_RDONLY | O_CLOEXEC);
  if (replay.file < 0) {
    return say(1, std::strerror(errno), "the operations file cannot be opened: ");
  }
  const int out = report == nullptr ? -1 : ::open(report, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (report != nullptr && out < 0) {
    return say(1, std::strerror(errno), "the report cannot be written: ");
  }
  if (!heapwright::replay::prepare(replay)) {
    return say(1, "this is no operations file; make one with heapwright-trace expand", "");
  }
  const std::uint64_t at_start = heapwright::replay::resident(replay);
  const double cpu_before = cpu();
  const double before = now();
  heapwright::replay::play(replay);
  const double elapsed = now() - before;
  const double cpu_spent = cpu() - cpu_before;
  const std::uint64_t at_end = heapwright::replay::resident(replay);

  double nanoseconds = static_cast<double>(replay.plan.last_weight);
  double weighted = replay.weighted.load() + nanoseconds * static_cast<double>(at_end);
  nanoseconds = static_cast<double>(replay.plan.duration);
  const double mean = nanoseconds > 0 ? weighted / nanoseconds : static_cast<double>(at_end);

  char text[640];  // NOLINT(modernize-avoid-c-arrays)
  const auto events = static_cast<unsigned long long>(replay.events.load());
  int length = std::snprintf(text, sizeof text, "%llu calls replayed\n", events);
  if (!write_whole(1, text, length)) {
    return say(1, "stdout cannot be written", "");
  }
  if (out >= 0) {
    length = std::snprintf(
        text, sizeof text,
        "{\"events\": %llu, \"events_expected\": %llu, \"threads\": %llu, \"own_rss_bytes\": %llu, "
        "\"start_rss_bytes\": %llu, \"end_rss_bytes\": %llu, \"recorded_mean_rss_bytes\": %.0f, "
        "\"elapsed_s\": %.9f, \"calls_cpu_s\": %.6f}\n",
        events, static_cast<unsigned long long>(replay.plan.events),
        static_cast<unsigned long long>(replay.plan.threads),
        static_cast<unsigned long long>(replay.own_bytes), static_cast<unsigned long long>(at_start),
        static_cast<unsigned long long>(at_end), mean, elapsed, cpu_spent);
    if (!write_whole(out, text, length)) {
      return say(1, "the report cannot be written", "");
    }
  }
  ::_exit(events == replay.plan.events || replay.dry ? 0
                                                     : say(1, "not all calls of the trace were made", ""));
}
