// Computes the addresses at which Valgrind would place the mappings of a program.
//
// Why: the peak of Massif depends on them. glibc extends its heap by brk until that fails, then by
// mappings. Two mappings that touch become one piece of heap, two that do not leave a rest each.
// Valgrind ends the data segment after 8 MiB and places mappings upwards, the kernel places them
// downwards. So the meter limits brk and asks the kernel for Valgrind's addresses; then glibc
// itself takes the way that it takes under Valgrind. (massif_tracker.cpp changes the calls.)
//
//   0x4000000   the loader                                     none in a static program
//               data segment: 8 MiB, or RLIMIT_DATA if smaller (at least 1 MiB)
//               mappings, each in the lowest gap that is long enough: those of the loader,
//               before its first file Valgrind's own preloaded library, then the program's
//   0x58000000  Valgrind's program; mappings pass over it
//
// (valgrind 3.19, amd64: m_aspacemgr/aspacemgr-linux.c VG_(am_get_advisory); m_ume/elf.c
// VG_(load_ELF); m_initimg/initimg-linux.c setup_client_dataseg; m_syswrap/syswrap-generic.c
// do_brk, do_mremap.)
//
// Invariants: used_ holds disjoint ranges that do not touch, of whole pages, from kFirst upwards.
#pragma once

#include <cstdint>
#include <map>

namespace heapwright::meter {

class ValgrindLayout {
 public:
  explicit ValgrindLayout(std::uint64_t page) : page_(page) {}

  // Begins a new program image.
  //
  // loader_bytes  length of the loader's mappings, 0 for a static program
  // program_end   first address after the program and its zero-initialised data, where brk starts
  //               for the kernel
  // data_limit    RLIMIT_DATA of the process in bytes
  void start(std::uint64_t loader_bytes, std::uint64_t program_end, std::uint64_t data_limit);
  // Places Valgrind's preloaded library: before the first file that the loader maps.
  void preload();
  [[nodiscard]] bool preloaded() const { return preloaded_; }

  // Returns the address for a mapping that may be anywhere.
  [[nodiscard]] std::uint64_t place(std::uint64_t length) const;
  [[nodiscard]] bool is_free(std::uint64_t address, std::uint64_t length) const;
  // Bytes by which brk can grow beyond its start.
  [[nodiscard]] std::uint64_t brk_bytes() const { return brk_bytes_; }

  void occupy(std::uint64_t address, std::uint64_t length);
  void release(std::uint64_t address, std::uint64_t length);

 private:
  [[nodiscard]] std::uint64_t up(std::uint64_t value) const { return (value + page_ - 1) & ~(page_ - 1); }

  std::uint64_t page_;
  std::uint64_t brk_bytes_ = 0;
  bool preloaded_ = false;
  std::map<std::uint64_t, std::uint64_t> used_;  // by first address: the end
};

}  // namespace heapwright::meter
