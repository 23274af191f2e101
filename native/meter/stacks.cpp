// Recognises thread stacks by the mapping calls of one thread. See stacks.h.
#include "stacks.h"

#include <sys/mman.h>

#include <algorithm>

namespace heapwright::meter {
namespace {

constexpr std::uint64_t kGuardInstall = 102;  // MADV_GUARD_INSTALL, Linux 6.13

}  // namespace

void ThreadStacks::reading(std::uint64_t data) {
  data_ = data;
  if (leaving_bytes_ != 0 && data + leaving_bytes_ <= data_before_) {
    leaving_.clear();
    leaving_bytes_ = 0;
  }
}

void ThreadStacks::called(pid_t thread, const CallArguments& call) {
  if (const auto left = leaving_.find(thread); left != leaving_.end()) {
    leaving_bytes_ -= left->second;
    data_before_ -= std::min(data_before_, left->second);
    leaving_.erase(left);
  }
  const auto& [first, second, third, fourth, fifth, sixth] = call.values;
  (void)fifth;
  (void)sixth;
  const auto pending = pending_.find(thread);
  const std::uint64_t length = pending == pending_.end() ? 0 : pending->second;
  if (pending != pending_.end()) {
    pending_.erase(pending);
  }
  switch (call.call) {
    case Call::kMmap:
      if ((fourth & MAP_STACK) != 0 && (fourth & MAP_PRIVATE) != 0) {
        pending_[thread] = second;
      }
      break;
    case Call::kMprotect:
      if (length != 0 && (third & PROT_WRITE) != 0 && second <= length) {
        add(first + second - length, {.length = length, .writable = second});
      }
      break;
    case Call::kMadvise:
      if (length != 0 && third == kGuardInstall) {
        add(first, {.length = length, .writable = length});
      }
      break;
    case Call::kMunmap:
      if (const std::uint64_t bytes = unmap(first, second); bytes != 0) {
        data_before_ = leaving_.empty() ? data_ : data_before_;
        leaving_[thread] = bytes;
        leaving_bytes_ += bytes;
      }
      break;
    default:
      break;
  }
}

void ThreadStacks::add(std::uint64_t address, const Stack& stack) {
  unmap(address, stack.length);
  stacks_[address] = stack;
  bytes_ += stack.writable;
}

std::uint64_t ThreadStacks::unmap(std::uint64_t address, std::uint64_t length) {
  const std::uint64_t before = bytes_;
  for (auto at = stacks_.lower_bound(address); at != stacks_.end() && at->first < address + length;) {
    bytes_ -= at->second.writable;
    at = stacks_.erase(at);
  }
  return before - bytes_;
}

}  // namespace heapwright::meter
