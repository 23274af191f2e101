#include "memory.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "meter/procfs.h"

namespace heapwright::diagnose {

Memory::~Memory() {
  if (file_ >= 0) {
    (void)::close(file_);
  }
}

int Memory::open() {
  const std::string path = "/proc/" + std::to_string(pid_) + "/mem";
  file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  return file_ < 0 ? errno : 0;
}

bool Memory::read(std::uint64_t address, void* to, std::size_t bytes) const {
  auto* at = static_cast<char*>(to);
  while (bytes != 0) {
    const ssize_t got = ::pread(file_, at, bytes, static_cast<off_t>(address));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return false;
    }
    at += got;
    address += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

std::vector<std::array<std::uint64_t, 2>> Memory::pairs(const std::vector<std::uint64_t>& addresses) const {
  std::vector<std::array<std::uint64_t, 2>> found(addresses.size());
  constexpr std::size_t kBytes = sizeof found[0];
  std::vector<iovec> pieces;
  pieces.reserve(addresses.size());
  for (const std::uint64_t address : addresses) {
    pieces.push_back({reinterpret_cast<void*>(address), kBytes});  // NOLINT(performance-no-int-to-ptr)
  }
  const iovec whole = {found.data(), found.size() * kBytes};
  const ssize_t got = ::process_vm_readv(pid_, &whole, 1, pieces.data(), pieces.size(), 0);
  for (std::size_t i = got < 0 ? 0 : static_cast<std::size_t>(got) / kBytes; i < found.size(); ++i) {
    if (!read(addresses[i], found[i].data(), kBytes)) {  // it ends at the first page that is gone
      found[i] = {};
    }
  }
  return found;
}

std::optional<std::uint64_t> Memory::word(std::uint64_t address) const {
  std::uint64_t value = 0;
  return read(address, &value, sizeof value) ? std::optional(value) : std::nullopt;
}

std::vector<Mapping> Memory::mappings() const {
  std::vector<Mapping> found;
  meter::each_line(meter::read_proc(pid_, "maps"), [&found](std::string_view line) {
    if (const auto mapping = meter::parse_mapping(line)) {
      found.push_back({.begin = mapping->begin,
                       .end = mapping->end,
                       .writable = mapping->access[1] == 'w',
                       .private_ = mapping->access[3] == 'p',
                       .path = std::string(mapping->path)});
    }
  });
  return found;
}

}  // namespace heapwright::diagnose
