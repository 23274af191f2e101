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

struct Mapping {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t inode = 0;
  std::string_view access;  // "rw-p"
  std::string_view path;
  std::uint64_t rss = 0;
  std::uint64_t pss = 0;
};

bool unnamed(const Mapping& mapping) { return mapping.inode == 0 && mapping.path.empty(); }

// "START-END PERMS OFFSET DEVICE INODE   PATH"
bool parse_head(std::string_view line, Mapping& mapping) {
  const char* const text = line.data();  // a line feed or the string's end stops strtoull
  char* at = nullptr;
  mapping.start = std::strtoull(text, &at, 16);
  if (at == text || *at != '-') {
    return false;
  }
  mapping.end = std::strtoull(at + 1, &at, 16);
  std::size_t place = static_cast<std::size_t>(at - text) + 1;
  if (*at != ' ' || place + 4 > line.size()) {
    return false;
  }
  mapping.access = line.substr(place, 4);
  for (int field = 0; field < 3; ++field) {  // to the inode
    place = line.find(' ', place);
    if (place == std::string_view::npos) {
      return false;
    }
    ++place;
  }
  mapping.inode = std::strtoull(text + place, &at, 10);
  place = line.find_first_not_of(' ', static_cast<std::size_t>(at - text));
  mapping.path = place == std::string_view::npos ? std::string_view{} : line.substr(place);
  return true;
}

std::vector<Mapping> mappings_of(const std::string& text) {
  std::vector<Mapping> mappings;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t length = rest.find('\n');
    const std::string_view line = rest.substr(0, length);
    rest.remove_prefix(length == std::string_view::npos ? rest.size() : length + 1);
    const bool field = !line.empty() && line.front() >= 'A' && line.front() <= 'Z';
    Mapping mapping;
    if (!field && parse_head(line, mapping)) {
      mappings.push_back(mapping);
    } else if (!mappings.empty() && line.starts_with("Rss:")) {
      mappings.back().rss = std::strtoull(line.data() + 4, nullptr, 10) * 1024;
    } else if (!mappings.empty() && line.starts_with("Pss:")) {
      mappings.back().pss = std::strtoull(line.data() + 4, nullptr, 10) * 1024;
    }
  }
  return mappings;
}

// Returns whether an unnamed mapping may belong to glibc's arenas. Neighbouring mappings of equal
// rights are one mapping, so an arena may begin, and another end, anywhere within it.
bool is_arena(const std::vector<Mapping>& mappings, std::size_t i) {
  const Mapping& mapping = mappings[i];
  const std::uint64_t boundary = (mapping.start + kArena - 1) / kArena * kArena;
  if (mapping.access != "rw-p" || boundary >= mapping.end) {
    return false;
  }
  std::uint64_t end = mapping.end;
  if (i + 1 < mappings.size()) {
    const Mapping& next = mappings[i + 1];
    const bool reserved = unnamed(next) && next.access == "---p" && next.start == end;
    if (reserved && next.end <= (end + kArena - 1) / kArena * kArena) {
      end = next.end;
    }
  }
  return end % kArena == 0;
}

std::uint64_t Parts::* part_of(const std::vector<Mapping>& mappings, std::size_t i,
                               const std::set<std::uint64_t>& programs, bool after_executable) {
  const Mapping& mapping = mappings[i];
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
  const std::vector<Mapping> mappings = mappings_of(text);
  std::set<std::uint64_t> programs;
  for (const Mapping& mapping : mappings) {
    if (mapping.inode != 0 && mapping.access[2] == 'x') {
      programs.insert(mapping.inode);
    }
  }
  Breakdown sum;
  std::uint64_t executable_end = 0;  // of the executable's mappings, its bss included
  for (std::size_t i = 0; i < mappings.size(); ++i) {
    const Mapping& mapping = mappings[i];
    const bool bss = unnamed(mapping) && mapping.start == executable_end;
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
