// Reads the memory of another process by /proc/PID/mem, without stopping it.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heapwright::diagnose {

// One line of /proc/PID/maps.
struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool writable = false;
  bool private_ = false;
  std::string path;  // empty for anonymous memory; [heap] and [stack] as the kernel names them
};

class Memory {
 public:
  explicit Memory(pid_t pid) : pid_(pid) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Opens the memory. Returns an error number, or 0.
  int open();
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Reads `bytes` bytes at an address; returns whether all of them could be read.
  bool read(std::uint64_t address, void* to, std::size_t bytes) const;
  // Reads the first 16 bytes at each of up to kMaxPieces addresses, in one system call. Those that
  // cannot be read are zero.
  [[nodiscard]] std::vector<std::array<std::uint64_t, 2>> pairs(
      const std::vector<std::uint64_t>& addresses) const;
  static constexpr std::size_t kMaxPieces = 1024;  // UIO_MAXIOV
  // Reads one word; nullopt if it is not mapped.
  [[nodiscard]] std::optional<std::uint64_t> word(std::uint64_t address) const;
  // The mappings of the process; empty if it has ended.
  [[nodiscard]] std::vector<Mapping> mappings() const;

 private:
  pid_t pid_;
  int file_ = -1;
};

}  // namespace heapwright::diagnose
