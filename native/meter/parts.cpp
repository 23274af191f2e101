// Reads smaps and applies the rules of parts.h.
#include "parts.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string_view>
#include <vector>

#include "procfs.h"

namespace heapwright::meter {
namespace {

constexpr std::uint64_t kArena = 64ULL << 20U;  // HEAP_MAX_SIZE, glibc's malloc/arena.c

struct SizedMapping : Mapping {
  std::uint64_t rss = 0;
  std::uint64_t pss = 0;
};

bool unnamed(const Mapping& mapping) { return mapping.inode == 0 && mapping.path.empty(); }

std::vector<SizedMapping> mappings_of(const std::string& text) {
  std::vector<SizedMapping> mappings;
  each_line(text, [&](std::string_view line) {
    const bool field = !line.empty() && line.front() >= 'A' && line.front() <= 'Z';
    const auto mapping = field ? std::nullopt : parse_mapping(line);
    if (mapping) {
      mappings.push_back({*mapping});
    } else if (!mappings.empty() && line.starts_with("Rss:")) {
      mappings.back().rss = std::strtoull(line.data() + 4, nullptr, 10) * 1024;
    } else if (!mappings.empty() && line.starts_with("Pss:")) {
      mappings.back().pss = std::strtoull(line.data() + 4, nullptr, 10) * 1024;
    }
  });
  return mappings;
}

// Returns whether an unnamed mapping may belong to glibc's arenas. Neighbouring mappings of equal
// rights are one mapping, so an arena may begin, and another end, anywhere within it.
bool is_arena(const std::vector<SizedMapping>& mappings, std::size_t i) {
  const SizedMapping& mapping = mappings[i];
  const std::uint64_t boundary = (mapping.begin + kArena - 1) / kArena * kArena;
  if (mapping.access != "rw-p" || boundary >= mapping.end) {
    return false;
  }
  std::uint64_t end = mapping.end;
  if (i + 1 < mappings.size()) {
    const SizedMapping& next = mappings[i + 1];
    const bool reserved = unnamed(next) && next.access == "---p" && next.begin == end;
    if (reserved && next.end <= (end + kArena - 1) / kArena * kArena) {
      end = next.end;
    }
  }
  return end % kArena == 0;
}

std::uint64_t Parts::* part_of(const std::vector<SizedMapping>& mappings, std::size_t i,
                               const std::set<std::uint64_t>& programs, bool after_executable) {
  const SizedMapping& mapping = mappings[i];
  if (mapping.inode != 0) {
    const bool zero = mapping.path == "/dev/zero" && mapping.access.back() == 'p';  // anonymous memory of old
    return zero ? &Parts::other : programs.contains(mapping.inode) ? &Parts::program : &Parts::files;
  }
  if (mapping.path == "[stack]") {
    return &Parts::stacks;
  }
  if (mapping.path == "[heap]" || mapping.path.starts_with("[anon: glibc: malloc")) {
    return &Parts::heap;
  }
  if (mapping.path.starts_with("[v") || after_executable) {  // [vdso], [vvar], [vsyscall]
    return &Parts::program;
  }
  return unnamed(mapping) && is_arena(mappings, i) ? &Parts::heap : &Parts::other;
}

}  // namespace

Parts& Parts::operator+=(const Parts& more) {
  program += more.program;
  files += more.files;
  stacks += more.stacks;
  heap += more.heap;
  other += more.other;
  return *this;
}

Breakdown parse_smaps(const std::string& text, const std::string& executable) {
  const std::vector<SizedMapping> mappings = mappings_of(text);
  std::set<std::uint64_t> programs;
  Breakdown sum;
  for (const SizedMapping& mapping : mappings) {
    if (mapping.inode != 0 && mapping.access[2] == 'x') {
      programs.insert(mapping.inode);
      sum.program_files.emplace(mapping.path);
    }
  }
  std::uint64_t executable_end = 0;  // of the executable's mappings, its bss included
  for (std::size_t i = 0; i < mappings.size(); ++i) {
    const SizedMapping& mapping = mappings[i];
    const bool bss = unnamed(mapping) && mapping.begin == executable_end;
    if (bss || (mapping.inode != 0 && mapping.path == executable)) {
      executable_end = mapping.end;
    }
    const auto part = part_of(mappings, i, programs, bss);
    sum.rss.*part += mapping.rss;
    sum.pss.*part += mapping.pss;
  }
  return sum;
}

std::string executable_of(pid_t pid) {
  std::array<char, 4096> path{};
  const ssize_t size = readlink(("/proc/" + std::to_string(pid) + "/exe").c_str(), path.data(), path.size());
  return size <= 0 ? std::string{} : std::string(path.data(), static_cast<std::size_t>(size));
}

std::optional<Breakdown> read_breakdown(pid_t pid) {
  errno = 0;
  const std::string text = read_proc(pid, "smaps");
  if (text.empty()) {
    errno = errno == 0 ? ESRCH : errno;
    return std::nullopt;
  }
  return parse_smaps(text, executable_of(pid));
}

}  // namespace heapwright::meter
