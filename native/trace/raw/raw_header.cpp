#include "raw_header.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "raw_reader.h"

namespace heapwright::trace {

using raw::FileHeader;

namespace {

constexpr std::uint64_t kSane = 1ULL << 62;  // nanoseconds or units; more is damage

std::string text_of(const char* field, std::size_t room) { return {field, strnlen(field, room)}; }

// When the recording began, on the monotonic clock.
std::uint64_t begin_ns(const FileHeader& raw) {
  return raw.windowed != 0 ? std::max(raw.first_ns, raw.window_begin_ns.load()) : raw.first_ns;
}

// Whether the header has the end of a process that could not record it.
bool has_end(const FileHeader& raw) {
  const raw::Ending ending = raw.ending.load();
  const bool began = raw.windowed == 0 || raw.window_begin_ns.load() != 0;
  const std::uint64_t end = raw.end_ns.load();
  return began && (ending == raw::Ending::kRunning || ending == raw::Ending::kReplaced) &&
         end >= begin_ns(raw) && end <= kSane;
}

}  // namespace

std::vector<std::uint64_t> read_phases(const FileHeader& raw, std::vector<std::string>& names) {
  std::vector<std::uint64_t> numbers;
  const std::uint32_t count = std::min(raw.phases.load(), raw::kMaxPhases);
  for (std::uint32_t i = 0; i < count; ++i) {
    std::string name = text_of(raw.phase[i].name, sizeof(raw.phase[i].name));
    const auto known = std::find(names.begin(), names.end(), name);
    numbers.push_back(static_cast<std::uint64_t>(known - names.begin()));
    if (known == names.end()) {
      names.push_back(std::move(name));
    }
  }
  return numbers;
}

Header read_header(const FileHeader& raw) {
  Header header;
  const std::size_t room = std::min<std::size_t>(raw.command_bytes, sizeof(raw.command));
  for (std::size_t at = 0; at < room;) {
    header.command.push_back(text_of(raw.command + at, room - at));
    at += header.command.back().size() + 1;
  }
  header.executable = text_of(raw.executable, sizeof(raw.executable));
  header.allocator = text_of(raw.allocator, sizeof(raw.allocator));
  header.pid = raw.pid;
  header.parent = raw.parent;
  header.start = raw.start;
  header.page_size = page_size_of(raw.page_size);
  header.resident_at_start = raw.resident_at_start;
  header.forked = raw.forked != 0;
  header.spawns = raw.sample == 0;
  header.fills = raw.sample == 0;
  header.ends = has_end(raw);
  const std::uint64_t level = std::min<std::uint64_t>(raw.min_level.load(), raw::kLevels);
  const std::uint64_t rate = std::min(raw.sample, Header::kMaxSample >> level) << level;
  header.sample = rate > 1 ? rate : 0;
  if (raw.windowed != 0 && raw.window_begin_ns.load() != 0) {
    const auto seconds = [&raw](std::uint64_t ns) {
      return static_cast<double>(ns - std::min(ns, raw.first_ns)) * 1e-9;
    };
    const std::uint64_t end = raw.window_end_ns.load();
    header.window_begin = seconds(raw.window_begin_ns.load());
    header.window_end = seconds(end != 0 ? end : header.ends ? raw.end_ns.load() : raw.last_ns.load());
  }
  return header;
}

ClockConversion::ClockConversion(const FileHeader& raw)
    : first_(raw.windowed != 0 ? std::max(raw.first_stamp, raw.window_begin_stamp.load()) : raw.first_stamp),
      units_(raw.last_stamp.load() - raw.first_stamp),
      ns_(raw.last_ns.load() - raw.first_ns),
      end_ns_(has_end(raw) ? raw.end_ns.load() - begin_ns(raw) : 0) {
  if (raw.clock == raw::ClockKind::kMonotonic) {
    units_ = 1;
    ns_ = 1U << raw::kNanosecondsShift;
  } else if (units_ == 0 || units_ > kSane || ns_ < 1000 || ns_ > kSane) {
    // The process ended before the header had two useful moments. Assume a processor of 3.2 GHz.
    units_ = 1;
    ns_ = 10;
  }
}

std::uint64_t ClockConversion::to_ns(std::uint64_t stamp) const {
  if (stamp <= first_) {
    return 0;
  }
  const double ns =
      static_cast<double>(stamp - first_) * (static_cast<double>(ns_) / static_cast<double>(units_));
  return ns < static_cast<double>(kSane) ? static_cast<std::uint64_t>(ns) : kSane;
}

bool is_raw(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t magic = 0;
  return file.read(reinterpret_cast<char*>(&magic), sizeof(magic)) && magic == raw::kFileMagic;
}

}  // namespace heapwright::trace
