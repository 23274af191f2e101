// Estimates how many bytes of the large live blocks a program had touched, for a recording whose
// process was killed, called exec or quick_exit: there the recorder could not read them. A replay
// that touched such blocks whole would need more memory than the program.
//
// The estimate needs two kinds of readings:
//
//   untouched   bytes of the large live blocks that are not resident, rare
//   resident    all resident bytes of the process, frequent
//
// Blocks of the last untouched reading share its bytes in proportion to their sizes. For blocks
// that were allocated later, the growth of resident memory since then is the most that they can
// have touched.
#pragma once

#include <cstdint>
#include <vector>

namespace heapwright::trace {

class TouchedEstimate {
 public:
  // Takes a reading. `objects` is the number of objects allocated before it.
  void on_untouched(std::uint64_t bytes, std::uint64_t objects);
  void on_resident(std::uint64_t bytes, std::uint64_t objects);
  // Takes the free of a large object whose touched bytes are known.
  void on_free(std::uint64_t object, std::uint64_t size, std::uint64_t touched);

  struct Block {
    std::uint64_t object;
    std::uint64_t size;     // bytes, at least kLargeBlock
    std::uint64_t touched;  // the result, bytes
  };
  // Sets `touched` of all blocks that are live at the end, and removes those of which nothing is
  // known. Sorts them by object.
  void finish(std::vector<Block>& blocks) const;

 private:
  struct Reading {
    std::uint64_t bytes = 0;
    std::uint64_t objects = 0;  // 0: there is no reading
  };
  Reading untouched_;
  Reading resident_;                 // the last one
  std::uint64_t resident_then_ = 0;  // at the untouched reading
};

}  // namespace heapwright::trace
