// Implements the rule of massif.h. The order within each call is Massif's. The order of removals
// and additions does not change the total, but the peak is taken where Massif can take it: after
// every addition.
#include "massif.h"

#include <algorithm>
#include <iterator>

namespace heapwright::meter {

// Makes `address` a border between runs, if a run lies across it.
void PageMultiset::split(std::uint64_t address) {
  auto after = runs_.upper_bound(address);
  if (after == runs_.begin()) {
    return;
  }
  auto& [start, run] = *std::prev(after);
  if (start < address && address < run.end) {
    runs_.emplace_hint(after, address, run);
    run.end = address;
  }
}

// Merges equal neighbours at every border in [first, last].
void PageMultiset::join(std::uint64_t first, std::uint64_t last) {
  auto run = runs_.lower_bound(first);
  if (run != runs_.begin()) {
    --run;
  }
  while (run != runs_.end() && run->first <= last) {
    auto next = std::next(run);
    if (next != runs_.end() && next->first == run->second.end && next->second.count == run->second.count) {
      run->second.end = next->second.end;
      runs_.erase(next);
    } else {
      run = next;
    }
  }
}

void PageMultiset::add(std::uint64_t address, std::uint64_t length) {
  const std::uint64_t end = address + length;
  split(address);
  split(end);
  std::uint64_t at = address;
  auto run = runs_.lower_bound(address);
  while (at < end) {
    if (run == runs_.end() || run->first > at) {  // a gap: a run of its own
      const std::uint64_t gap_end = run == runs_.end() ? end : std::min(end, run->first);
      run = std::next(runs_.emplace_hint(run, at, Run{gap_end, 1}));
      at = gap_end;
    } else {
      ++run->second.count;
      at = run->second.end;
      ++run;
    }
  }
  total_ += length;
  join(address, end);
}

std::uint64_t PageMultiset::remove(std::uint64_t address, std::uint64_t length) {
  const std::uint64_t end = address + length;
  std::uint64_t removed = 0;
  split(address);
  split(end);
  auto run = runs_.lower_bound(address);
  while (run != runs_.end() && run->first < end) {
    removed += run->second.end - run->first;
    run = --run->second.count == 0 ? runs_.erase(run) : std::next(run);
  }
  total_ -= removed;
  join(address, end);
  return removed;
}

namespace {

// The words that Valgrind puts into LD_PRELOAD. Massif's own library is preloaded even in this mode
// and is removed from the string only later, so it occupies space on the stack.
constexpr std::uint64_t kLdPreload = sizeof("LD_PRELOAD=") - 1;
constexpr std::uint64_t kPreloaded = sizeof(
                                         "/usr/libexec/valgrind/vgpreload_core-amd64-linux.so:"
                                         "/usr/libexec/valgrind/vgpreload_massif-amd64-linux.so") -
                                     1;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

std::uint64_t start_stack_bytes(const StartStack& stack, std::uint64_t page) {
  std::uint64_t variables = stack.variables;
  std::uint64_t strings =
      stack.argument_bytes + stack.variable_bytes + stack.auxv_strings + stack.exec_name_bytes;
  if (stack.has_ld_preload) {
    strings += kPreloaded + 1;  // "<preloaded>:" before the present value
  } else {
    strings += kLdPreload + kPreloaded + 1;
    ++variables;
  }
  // argc, argv and its NULL, envp and its NULL, auxv, strings; one more byte because Valgrind
  // counts down from the last byte of the mapping, not from its end.
  const std::uint64_t size = stack.word * (1 + stack.arguments + 1 + variables + 1) +
                             2 * stack.word * stack.auxv_entries + round_up(strings, stack.word);
  return round_up(size + 1, page);
}

void Massif::add(std::uint64_t address, std::uint64_t length) {
  pages_.add(address, length);
  peak_ = std::max(peak_, now());
}

void Massif::start(std::uint64_t stack_bytes, std::uint64_t brk) {
  pages_ = PageMultiset();
  attached_.clear();
  brk_ = brk;
  unplaced_ = stack_bytes + 2 * page_;  // the trampolines' page, twice
  add(up(brk), page_);
}

void Massif::start_segment(std::uint64_t address, std::uint64_t length) { add(down(address), up(length)); }

void Massif::mmap(std::uint64_t address, std::uint64_t length) { add(down(address), up(length)); }

void Massif::munmap(std::uint64_t address, std::uint64_t length) {
  pages_.remove(down(address), up(address + length) - down(address));
}

// Counts whole pages between the pages of the last bytes, but places them at the page of the OLD
// limit (growing) or the new one (shrinking): one page too low where that limit is not
// page-aligned.
void Massif::brk(std::uint64_t new_break) {
  if (brk_ == 0) {  // not known yet: a program first asks for the present break
    brk_ = new_break;
    return;
  }
  const std::uint64_t low = std::min(brk_, new_break);
  const std::uint64_t pages = down(std::max(brk_, new_break) - 1) - down(low - 1);
  if (pages != 0 && new_break > brk_) {
    add(down(low), pages);
  } else if (pages != 0) {
    pages_.remove(down(low), pages);
  }
  brk_ = new_break;
}

// `keeps_old`: MREMAP_DONTUNMAP, and the old length 0 that duplicates a shared mapping. Valgrind
// refuses both; here they count as new mappings.
void Massif::mremap(std::uint64_t old_address, std::uint64_t old_length, std::uint64_t new_address,
                    std::uint64_t new_length, bool keeps_old) {
  old_length = up(old_length);
  new_length = up(new_length);
  if (keeps_old) {
    add(new_address, new_length);
  } else if (new_address != old_address) {
    const std::uint64_t copied = std::min(old_length, new_length);
    pages_.remove(old_address, copied);
    add(new_address, copied);
    if (new_length > old_length) {
      add(new_address + old_length, new_length - old_length);
    }
    pages_.remove(old_address, old_length);
  } else if (new_length > old_length) {
    add(old_address + old_length, new_length - old_length);
  } else if (new_length < old_length) {
    pages_.remove(old_address + new_length, old_length - new_length);
  }
}

void Massif::shmat(std::uint64_t address, std::uint64_t length) {
  attached_[address] = up(length);
  add(address, up(length));
}

void Massif::shmdt(std::uint64_t address) {
  const auto found = attached_.find(address);
  if (found != attached_.end()) {
    pages_.remove(found->first, found->second);
    attached_.erase(found);
  }
}

}  // namespace heapwright::meter
