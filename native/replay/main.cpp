// heapwright-replay OPS [--touch none|page|full] [--dry] [--pace real] [--slowdown F] [--report
// FILE]: plays a trace with the malloc of this process.
//
// It prints the number of calls, which is always the same. So the output of a replay can be
// compared like that of any program. Its own measurements go to the report. It uses no library but
// libc, because libstdc++ allocates before main.
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "clock.h"
#include "player.h"

namespace {

using heapwright::replay::read_now;
using heapwright::replay::Reading;
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

bool parse(int argc, char** argv, Replay& replay, const char*& ops, const char*& report) {
  for (int i = 1; i < argc; i++) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--dry") == 0) {
      replay.dry = true;
    } else if (std::strcmp(argv[i], "--pace") == 0 && more && std::strcmp(argv[i + 1], "real") == 0) {
      replay.real_pace = true;
      i++;
    } else if (std::strcmp(argv[i], "--slowdown") == 0 && more) {
      replay.slowdown = std::strtod(argv[++i], nullptr);
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
  return ops != nullptr && replay.slowdown > 0.0 && replay.slowdown <= 1e6;
}

int is_libstdcxx(dl_phdr_info* library, std::size_t, void*) {
  return std::strstr(library->dlpi_name, "libstdc++.so") != nullptr ? 1 : 0;
}

bool write_whole(int file, const char* text, int length) {
  return ::write(file, text, static_cast<std::size_t>(length)) == length;
}

// Writes clock times relative to the first reading.
bool write_reading(int file, const Reading& reading, const Reading& start, const char* then) {
  char text[128];  // NOLINT(modernize-avoid-c-arrays)
  const int length = std::snprintf(text, sizeof text, "[%llu, %llu, %llu, %llu]%s",
                                   static_cast<unsigned long long>(reading.recorded),
                                   static_cast<unsigned long long>(reading.resident),
                                   static_cast<unsigned long long>(reading.cpu - start.cpu),
                                   static_cast<unsigned long long>(reading.wall - start.wall), then);
  return write_whole(file, text, length);
}

}  // namespace

int main(int argc, char** argv) {
  static Replay replay;
  const char* ops = nullptr;
  const char* report = nullptr;
  if (!parse(argc, argv, replay, ops, report)) {
    return say(2, "usage: OPS [--touch none|page|full] [--dry] [--pace real] [--slowdown F] [--report FILE]",
               "");
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
    return say(1, "not an operations file of this version; make one with heapwright-trace expand", "");
  }
  replay.has_libstdcxx = ::dl_iterate_phdr(is_libstdcxx, nullptr) != 0;
  const Reading start = read_now(replay, 0);
  const std::uint64_t start_files = heapwright::replay::resident_files(replay);
  heapwright::replay::begin_clock(replay.real_pace, replay.slowdown);
  heapwright::replay::play(replay);
  const Reading end = read_now(replay, replay.header.last_stretch);

  char text[640];  // NOLINT(modernize-avoid-c-arrays)
  const auto events = static_cast<unsigned long long>(replay.events.load());
  int length = std::snprintf(text, sizeof text, "%llu calls replayed\n", events);
  if (!write_whole(1, text, length)) {
    return say(1, "stdout cannot be written", "");
  }
  if (out >= 0) {
    length = std::snprintf(text, sizeof text,
                           "{\"events\": %llu, \"events_expected\": %llu, \"threads\": %llu, "
                           "\"own_rss_bytes\": %llu, \"start_files_bytes\": %llu, "
                           "\"end_files_bytes\": %llu, \"readings\": [",
                           events, static_cast<unsigned long long>(replay.header.events),
                           static_cast<unsigned long long>(replay.header.threads),
                           static_cast<unsigned long long>(replay.own_bytes),
                           static_cast<unsigned long long>(start_files),
                           static_cast<unsigned long long>(heapwright::replay::resident_files(replay)));
    bool good = write_whole(out, text, length) && write_reading(out, start, start, ", ");
    for (std::uint64_t i = 0; i < replay.readings_taken; i++) {
      good = good && write_reading(out, replay.readings[i], start, ", ");
    }
    if (!good || !write_reading(out, end, start, "]}\n")) {
      return say(1, "the report cannot be written", "");
    }
  }
  ::_exit(events == replay.header.events || replay.dry ? 0
                                                       : say(1, "not all calls of the trace were made", ""));
}
