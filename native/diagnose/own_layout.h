// Finds the descriptor of exgen's or reaper's heap in another process
// (allocator/core/heap_layout.h), and reads what it points to.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "allocator/core/heap_layout.h"
#include "memory.h"
#include "page_map.h"

namespace heapwright::diagnose {

// A descriptor, and the file in whose data it lies.
struct FoundLayout {
  alloc::HeapLayout layout;
  std::string file;
};

// Finds the descriptor of the heap that the process uses: of several, the one with most memory.
// nullopt: the process has no such heap or does not use it, or the heap has another version.
std::optional<FoundLayout> find_layout(const Memory& memory, const PageMap& page_map);

// Reads a value of the process, by the address of the field that holds it. 0 if it cannot be read.
template <class T = std::uint64_t>
T value_at(const Memory& memory, const void* address) {
  T value{};
  return memory.read(reinterpret_cast<std::uint64_t>(address), &value, sizeof value) ? value : T{};
}

// Returns a field of a structure that was read into `bytes`.
template <class T>
T field(const char* bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes + offset, sizeof value);
  return value;
}

}  // namespace heapwright::diagnose
