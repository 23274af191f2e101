// Changes mapping calls to what Valgrind would do, and accounts them to Massif. See
// massif_tracker.h.
#include "massif_tracker.h"

#include <elf.h>
#include <fcntl.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "procfs.h"

namespace heapwright::meter {
namespace {

#ifdef MAP_32BIT
constexpr std::uint64_t kMap32Bit = MAP_32BIT;
#else
constexpr std::uint64_t kMap32Bit = 0;  // only x86 has it
#endif

constexpr int kMaxCallTicks = 5;  // that a call may take while other calls are held

std::string read_string(pid_t process, std::uint64_t address) {
  std::array<char, 64> path{};
  std::array<char, 4096> text{};
  (void)std::snprintf(path.data(), path.size(), "/proc/%d/mem", process);
  const int file = open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    // The kernel reads page by page: beyond the end of the stack it only shortens the read.
    (void)!pread(file, text.data(), text.size() - 1, static_cast<off_t>(address));
    close(file);
  }
  return text.data();
}

std::uint64_t count_ends(const std::string& strings) {
  return static_cast<std::uint64_t>(std::count(strings.begin(), strings.end(), '\0'));
}

template <typename Word>
void read_auxv(pid_t process, const std::string& auxv, const std::string& arguments, StartStack& stack) {
  for (std::size_t at = 0; at + 2 * sizeof(Word) <= auxv.size(); at += 2 * sizeof(Word)) {
    std::array<Word, 2> entry{};
    std::memcpy(entry.data(), auxv.data() + at, sizeof entry);
    ++stack.auxv_entries;
    if (entry[0] == AT_NULL) {
      break;
    }
    if (entry[0] == AT_PLATFORM || entry[0] == AT_BASE_PLATFORM) {
      stack.auxv_strings += read_string(process, entry[1]).size() + 1;
    } else if (entry[0] == AT_RANDOM) {
      stack.auxv_strings += 16;
    } else if (entry[0] == AT_EXECFN) {
      // Valgrind stores the name as typed, the kernel stores the path that was found for it.
      const std::string path = read_string(process, entry[1]);
      const std::string name =
          arguments.c_str();  // NOLINT(readability-redundant-string-cstr): the first of them
      stack.exec_name_bytes = (path.ends_with(name) ? name : path).size() + 1;
    }
  }
}

std::uint64_t whole_pages(std::uint64_t bytes, std::uint64_t page) {
  return (bytes + page - 1) & ~(page - 1);
}

// Returns where the loader is mapped; 0 for a static program.
std::uint64_t loader_base(pid_t process) {
  const std::string auxv = read_proc(process, "auxv");
  for (std::size_t at = 0; at + sizeof(Elf64_auxv_t) <= auxv.size(); at += sizeof(Elf64_auxv_t)) {
    Elf64_auxv_t entry{};
    std::memcpy(&entry, auxv.data() + at, sizeof entry);
    if (entry.a_type == AT_BASE) {
      return entry.a_un.a_val;
    }
  }
  return 0;
}

std::uint64_t initial_stack(pid_t process, std::uint64_t page) {
  const std::string arguments = read_proc(process, "cmdline");
  const std::string variables = read_proc(process, "environ");
  const std::string auxv = read_proc(process, "auxv");
  const std::string program = read_proc(process, "exe", EI_NIDENT);
  StartStack stack;
  stack.arguments = count_ends(arguments);
  stack.argument_bytes = arguments.size();
  stack.variables = count_ends(variables);
  stack.variable_bytes = variables.size();
  stack.has_ld_preload = ('\0' + variables).find(std::string("\0LD_PRELOAD=", 12)) != std::string::npos;
  if (program.size() > EI_CLASS && program[EI_CLASS] == ELFCLASS32) {
    stack.word = 4;
    read_auxv<std::uint32_t>(process, auxv, arguments, stack);
  } else {
    read_auxv<std::uint64_t>(process, auxv, arguments, stack);
  }
  return start_stack_bytes(stack, page);
}

}  // namespace

void MassifTracker::executed(pid_t process) {
  calls_.clear();  // other threads died in the exec
  held_.clear();
  in_call_ = 0;
  started_ = true;
  const auto stat = read_stat(process);
  const std::uint64_t brk = stat ? stat->start_brk : 0;
  const std::uint64_t loader = loader_base(process);
  std::uint64_t loader_end = loader;
  massif_.start(initial_stack(process, page_), brk);
  each_line(read_proc(process, "maps"), [&](std::string_view line) {
    const auto mapping = parse_mapping(line);
    const auto is_kernels = [](std::string_view name) {
      return name.starts_with("[stack") || name.starts_with("[v") || name.starts_with("[uprobes");
    };
    if (mapping && !is_kernels(mapping->path)) {
      massif_.start_segment(mapping->begin, mapping->end - mapping->begin);
      loader_end = mapping->begin == loader_end ? mapping->end : loader_end;
    }
  });
  rlimit limit{};
  prlimit(process, RLIMIT_DATA, nullptr, &limit);
  layout_.start(loader_end - loader, brk, limit.rlim_cur);
  brk_end_ = brk == 0 ? 0 : brk + layout_.brk_bytes();
}

// Returns the call with the arguments under which the kernel does what Valgrind would do.
CallArguments MassifTracker::rearrange(const CallArguments& call) {
  CallArguments changed = call;
  auto& argument = changed.values;
  if (call.call == Call::kBrk && brk_end_ != 0 && argument[0] > brk_end_) {
    argument[0] = 0;  // fails: the kernel returns the present break
  } else if (call.call == Call::kMmap) {
    constexpr std::uint64_t kPlaced = MAP_FIXED | MAP_FIXED_NOREPLACE | kMap32Bit | MAP_HUGETLB;
    if (!layout_.preloaded() && (argument[3] & MAP_ANONYMOUS) == 0) {
      layout_.preload();
    }
    if ((argument[3] & kPlaced) == 0 && (argument[0] == 0 || !layout_.is_free(argument[0], argument[1]))) {
      argument[0] = layout_.place(argument[1]);
    }
  } else if (call.call == Call::kMremap && argument[3] == MREMAP_MAYMOVE && argument[1] != 0 &&
             argument[2] > argument[1] &&
             !layout_.is_free(argument[0] + whole_pages(argument[1], page_),
                              whole_pages(argument[2], page_) - whole_pages(argument[1], page_))) {
    argument[3] |= MREMAP_FIXED;
    argument[4] = layout_.place(argument[2]);
  }
  return changed;
}

TraceListener::Resume MassifTracker::called(pid_t thread, const CallArguments& call, bool movable) {
  const bool counts = call.call == Call::kMmap || call.call == Call::kMunmap || call.call == Call::kMremap ||
                      call.call == Call::kBrk || call.call == Call::kShmat || call.call == Call::kShmdt;
  if (!started_ || !counts) {
    return TraceListener::Resume::kRun;
  }
  if (in_call_ != 0) {
    held_.push_back({thread, call, movable});
    return TraceListener::Resume::kHold;
  }
  in_call_ = thread;
  ticks_ = 0;
  Running& running = calls_[thread];
  running = {call, movable ? rearrange(call) : call};
  if (!movable && call.call == Call::kBrk && brk_end_ != 0 && call.values[0] > brk_end_) {
    as_under_valgrind_ = false;  // from here on Valgrind's heap would consist of mappings
  }
  for (unsigned index = 0; index < call.values.size(); ++index) {
    const std::uint64_t value = running.changed.values.at(index);
    if (value != call.values.at(index) && !Tracer::set_argument(thread, index, value)) {
      running.changed.values.at(index) = call.values.at(index);
      as_under_valgrind_ = false;
    }
  }
  return TraceListener::Resume::kStopAtEnd;
}

void MassifTracker::returned(pid_t thread) {
  const auto call = calls_.find(thread);
  if (call == calls_.end()) {
    return;
  }
  const Running& running = call->second;
  for (unsigned index = 0; index < running.call.values.size(); ++index) {
    if (running.changed.values.at(index) != running.call.values.at(index)) {
      Tracer::set_argument(thread, index, running.call.values.at(index));
    }
  }
  std::uint64_t value = 0;
  if (Tracer::result(thread, value)) {
    account(thread, running, value);
  }
  ended(thread);
}

void MassifTracker::account(pid_t thread, const Running& running, std::uint64_t result) {
  const CallArguments& call = running.call;
  const auto& argument = call.values;
  switch (call.call) {
    case Call::kMmap:
      as_under_valgrind_ &= running.changed.values[0] == 0 || running.changed.values[0] == result;
      massif_.mmap(result, argument[1]);
      layout_.occupy(result, argument[1]);
      break;
    case Call::kMunmap:
      massif_.munmap(argument[0], argument[1]);
      layout_.release(argument[0], argument[1]);
      break;
    case Call::kMremap: {
      const bool keeps_old = argument[1] == 0 || (argument[3] & MREMAP_DONTUNMAP) != 0;
      as_under_valgrind_ &= running.changed.values[4] == argument[4] || running.changed.values[4] == result;
      massif_.mremap(argument[0], argument[1], result, argument[2], keeps_old);
      if (!keeps_old) {
        layout_.release(argument[0], argument[1]);
      }
      layout_.occupy(result, argument[2]);
      break;
    }
    case Call::kBrk:
      massif_.brk(result);
      if (brk_end_ == 0) {
        brk_end_ = result + layout_.brk_bytes();
      }
      break;
    case Call::kShmat:
      each_line(read_proc(thread, "maps"), [&](std::string_view line) {
        if (const auto mapping = parse_mapping(line); mapping && mapping->begin == result) {
          massif_.shmat(mapping->begin, mapping->end - mapping->begin);
        }
      });
      break;
    case Call::kShmdt:
      massif_.shmdt(argument[0]);
      break;
    default:
      break;
  }
}

void MassifTracker::ended(pid_t thread) {
  calls_.erase(thread);
  std::erase_if(held_, [thread](const Held& held) { return held.thread == thread; });
  if (thread == in_call_) {
    next();
  }
}

void MassifTracker::tick() {
  if (in_call_ != 0 && !held_.empty() && ++ticks_ > kMaxCallTicks) {
    next();
  }
}

// Lets the longest-held thread make its call.
void MassifTracker::next() {
  in_call_ = 0;
  while (in_call_ == 0 && !held_.empty()) {
    const Held held = held_.front();
    held_.pop_front();
    const auto resume = called(held.thread, held.call, held.movable);
    tracer_.release(held.thread, resume == TraceListener::Resume::kStopAtEnd);
  }
}

}  // namespace heapwright::meter
