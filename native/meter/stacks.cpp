// See stacks.h.
#include "stacks.h"

#include <sys/mman.h>

namespace heapwright::meter {
namespace {

constexpr std::uint64_t kGuardInstall = 102;  // MADV_GUARD_INSTALL, Linux 6.13

}  // namespace

void ThreadStacks::called(pid_t thread, const CallArguments& call) {
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
      unmap(first, second);
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

void ThreadStacks::unmap(std::uint64_t address, std::uint64_t length) {
  for (auto at = stacks_.lower_bound(address); at != stacks_.end() && at->first < address + length;) {
    bytes_ -= at->second.writable;
    at = stacks_.erase(at);
  }
}

}  // namespace heapwright::meter
