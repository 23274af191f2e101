// Computes the peak that Massif would report with --pages-as-heap=yes, from the mapping calls
// themselves.
//
// Why: papers quote max(mem_heap_B) of Massif in this mode. Massif takes 3-50 times as long and
// runs the program under its own address-space layout. Its accounting, however, is a simple rule
// over the process's mapping calls, so the meter, which sees those calls, can apply it. It is
// Massif's rule with all its faults:
//
//   - memory is a MULTISET of pages. Every successful mmap adds a copy of each of its pages, also
//     where MAP_FIXED lands on pages already counted; munmap removes ONE copy of each.
//     Reserve-then-commit is thus counted twice, and one copy stays counted after the unmapping;
//   - PROT_NONE, file and shared mappings count like any other; madvise, mprotect and growth of the
//     main stack do not count at all;
//   - a moving mremap removes the old range twice: once when 'copied', once when 'unmapped'.
//     Without duplicates the second removal finds nothing;
//   - brk rounds by the page below the limit, and its first page is counted once at start-up
//     (Valgrind maps one page there before the program runs) and once more when brk first grows
//     over it;
//   - the program starts with its ELF segments, its loader's, the initial stack, that brk page, and
//     twice the page of Valgrind's trampolines (shown to the tool as a client segment and again as
//     'assembly helpers'); without vdso and vvar, which Valgrind hides.
// (valgrind 3.19: massif/ms_main.c ms_*_page_mem, ms_*_mem_brk; m_syswrap/syswrap-generic.c
// do_mremap; m_main.c "Show client segments to the tool"; m_initimg/initimg-linux.c
// setup_client_stack.)
//
// The rule leaves out a constant: on amd64 Massif is always 40,960 bytes above this figure: 36,864
// for vgpreload_core.so, which Valgrind preloads (mappings of 20,480 + 4,096 + 4,096 + 8,192), and
// 4,096 for the page it keeps free below the first stack pointer because the ABI has a red zone
// (VG_STACK_REDZONE_SZB; there is none on x86 and arm64). A static program preloads nothing: 4,096.
//
// (Debian's wrapper script around Valgrind adds three environment variables, 120 bytes with their
// pointers: where these push the initial stack over a page boundary, that Massif is one page
// higher.)
//
// Under Valgrind brk ends at 8 MiB, and mappings have other addresses, on which glibc's heap
// depends. The meter gives the program the same limit and addresses (valgrind_layout.h).
//
// No emulation can know whether a program behaves differently under Valgrind. The dynamic loader
// with one library more can need a page more or less for its own records (seen with ls). Programs
// that copy their environment (gawk) or a static program's thread data have some bytes more or
// less, and glibc's heap then ends a step of 132 KiB earlier or later.
//
// The max(mem_heap_B) in Massif's output can be lower than this peak, never higher. Massif takes a
// snapshot just before memory is returned, and otherwise only when its snapshot clock allows: at
// every call until it has 100 snapshots. So it misses the final growth of a program that exits
// without unmapping.
//
// Invariants: the runs of PageMultiset are disjoint and each has one positive count; neighbours
// differ in count or do not touch; total() is the sum over runs of size x count. All addresses and
// lengths inside are whole pages. Nothing here makes system calls: callers feed calls that
// SUCCEEDED, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace heapwright::meter {

// A multiset of page addresses, stored as runs of equal count, so that a reservation of 64 GiB is
// one node.
class PageMultiset {
 public:
  void add(std::uint64_t address, std::uint64_t length);
  // Removes one copy of every page in the range that has one; returns the bytes removed.
  std::uint64_t remove(std::uint64_t address, std::uint64_t length);
  [[nodiscard]] std::uint64_t total() const { return total_; }
  [[nodiscard]] std::size_t runs() const { return runs_.size(); }

 private:
  struct Run {
    std::uint64_t end;
    std::uint64_t count;
  };
  using Runs = std::map<std::uint64_t, Run>;
  void split(std::uint64_t address);
  void join(std::uint64_t first, std::uint64_t last);

  Runs runs_;  // by first address
  std::uint64_t total_ = 0;
};

// The contents of the initial stack, as Valgrind lays it out.
struct StartStack {
  std::uint64_t word = 8;             // of the target: 4 for 32-bit programs
  std::uint64_t arguments = 0;        // argc
  std::uint64_t argument_bytes = 0;   // of the arguments with terminators
  std::uint64_t variables = 0;        // of the environment, without Valgrind's own LD_PRELOAD
  std::uint64_t variable_bytes = 0;   // of these variables with terminators
  bool has_ld_preload = false;        // then Valgrind prepends to it, otherwise it adds one variable
  std::uint64_t auxv_entries = 0;     // with AT_NULL
  std::uint64_t auxv_strings = 0;     // AT_PLATFORM, AT_BASE_PLATFORM with terminators; 16 for AT_RANDOM
  std::uint64_t exec_name_bytes = 0;  // AT_EXECFN with terminator; 0 if the auxv has none
};

// Returns the bytes of the initial stack mapping, without the red-zone page, which the 40,960 bytes
// of the head comment include.
[[nodiscard]] std::uint64_t start_stack_bytes(const StartStack& stack, std::uint64_t page);

class Massif {
 public:
  explicit Massif(std::uint64_t page) : page_(page) {}

  // Begins a new program image (exec): forgets all pages, keeps the peak. `stack_bytes` is
  // start_stack_bytes(). `brk` may be 0, which means unknown: then the first brk call gives it. The
  // file mappings of program and loader follow by start_segment.
  void start(std::uint64_t stack_bytes, std::uint64_t brk);
  void start_segment(std::uint64_t address, std::uint64_t length);

  void mmap(std::uint64_t address, std::uint64_t length);
  void munmap(std::uint64_t address, std::uint64_t length);
  void brk(std::uint64_t new_break);
  void mremap(std::uint64_t old_address, std::uint64_t old_length, std::uint64_t new_address,
              std::uint64_t new_length, bool keeps_old);
  void shmat(std::uint64_t address, std::uint64_t length);
  void shmdt(std::uint64_t address);

  [[nodiscard]] std::uint64_t now() const { return pages_.total() + unplaced_; }
  [[nodiscard]] std::uint64_t peak() const { return peak_; }

 private:
  [[nodiscard]] std::uint64_t down(std::uint64_t value) const { return value & ~(page_ - 1); }
  [[nodiscard]] std::uint64_t up(std::uint64_t value) const { return down(value + page_ - 1); }
  void add(std::uint64_t address, std::uint64_t length);

  std::uint64_t page_;
  PageMultiset pages_;
  std::map<std::uint64_t, std::uint64_t> attached_;  // shmat: address -> length
  std::uint64_t unplaced_ = 0;  // stack and trampoline: counted, at addresses no program can unmap
  std::uint64_t brk_ = 0;
  std::uint64_t peak_ = 0;
};

}  // namespace heapwright::meter
