// Holds the live objects of a raw file by address, and the state of its threads, while it is read.
#pragma once

#include <cstdint>
#include <vector>

#include "raw_format/format.h"
#include "trace/live_table.h"

namespace heapwright::trace {

struct Live {
  std::uint64_t address = 0;
  std::uint64_t object = 0;
  std::uint64_t size = 0;
};

// Live objects by address.
class LiveObjects {
 public:
  const Live* find(std::uint64_t address) { return table_.find(address / raw::kAddressUnit); }
  void insert(const Live& live) { table_.insert(live.address / raw::kAddressUnit, live); }
  void erase(const Live& live) { table_.erase(live.address / raw::kAddressUnit); }
  // Calls visit(live) for each object, in no order.
  template <typename Visit>
  void each(Visit visit) {
    table_.each([&](std::uint64_t, const Live& live) { visit(live); });
  }

 private:
  LiveTable<Live> table_;
};

// An object between the two records of its reallocation.
struct PendingRealloc {
  bool known = false;
  Live live;
};
struct ReadThread {
  std::uint32_t number = 0;
  bool started = false;  // it has made a record
  std::vector<PendingRealloc> pending;
  std::uint64_t ticks = 0;    // as last read
  std::uint64_t further = 0;  // draws of its objects beyond one for each tick
  bool older = false;         // it has made ticks before the window
  bool counts = false;        // an older one: its ticks from now on are known
};

}  // namespace heapwright::trace
