// heapwright-diagnose PID: reads where the memory of a running process is, and prints it as one
// JSON object. docs/diagnose.md explains the figures.
//
// The process is not stopped, and nothing is written to it. Pages that were never touched are not
// read, so that reading does not give the process memory. Swapped pages are read where they hold a
// heap's structures or links between free blocks, and are in memory then.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "class_json.h"
#include "glibc_heap.h"
#include "meter/parts.h"
#include "meter/procfs.h"
#include "process.h"

namespace {

using heapwright::diagnose::Arena;
using heapwright::diagnose::GlibcHeap;
using heapwright::diagnose::Memory;
using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json to_json(const Arena& arena, std::size_t index) {
  return {{"index", index},
          {"address", arena.address},
          {"system_bytes", arena.system},
          {"live_bytes", arena.system - std::min(arena.system, arena.free)},
          {"free_bytes", arena.free},
          {"fast_bytes", arena.fast},
          {"thread_cache_bytes", or_null(arena.cached)},
          {"top_bytes", arena.top},
          {"free_pages_bytes", arena.free_pages},
          {"trimmable_bytes", arena.trimmable},
          {"largest_free_bytes", arena.largest_free},
          {"free_chunks", arena.free_chunks},
          {"live_blocks", or_null(arena.live_blocks)},
          {"threads", arena.threads},
          {"resident_bytes", or_null(arena.resident)},
          {"consistent", arena.consistent}};
}

Json to_json(const std::optional<GlibcHeap>& heap) {
  if (!heap) {
    return nullptr;
  }
  Arena sum;
  sum.live_blocks = 0;
  Json arenas = Json::array();
  for (const Arena& arena : heap->arenas) {
    arenas.push_back(to_json(arena, arenas.size()));
    sum.system += arena.system;
    sum.free += arena.free;
    sum.fast += arena.fast;
    sum.free_pages += arena.free_pages;
    sum.absent += arena.absent;
    sum.trimmable += arena.trimmable;
    // The number is known if that of each arena is.
    sum.live_blocks = arena.live_blocks && sum.live_blocks
                          ? std::optional(*sum.live_blocks + *arena.live_blocks)
                          : std::nullopt;
    if (arena.cached) {
      sum.cached = sum.cached.value_or(0) + *arena.cached;
    }
    sum.resident = sum.resident.value_or(0) + arena.resident.value_or(0);
    sum.consistent = sum.consistent && arena.consistent;
  }
  const auto& mapped = heap->mapped;
  const std::uint64_t mapped_bytes = mapped ? mapped->bytes : 0;
  return {{"consistent", sum.consistent},
          {"system_bytes", sum.system + mapped_bytes},
          {"live_bytes", sum.system - std::min(sum.system, sum.free) + mapped_bytes},
          {"free_bytes", sum.free},
          {"fast_bytes", sum.fast},
          {"thread_cache_bytes", or_null(sum.cached)},
          {"free_pages_bytes", sum.free_pages},
          {"releasable_bytes", sum.free - std::min(sum.free, sum.absent)},
          {"trimmable_bytes", sum.trimmable},
          {"live_blocks", or_null(sum.live_blocks)},
          {"resident_bytes", or_null(sum.resident)},
          {"mapped_blocks", mapped ? Json(mapped->blocks) : Json(nullptr)},
          {"mapped_bytes", mapped ? Json(mapped->bytes) : Json(nullptr)},
          {"mapped_resident_bytes", mapped ? or_null(mapped->resident) : Json(nullptr)},
          {"arenas", arenas}};
}

int fail(const std::string& why) {
  (void)std::fprintf(stderr, "heapwright-diagnose: %s\n", why.c_str());
  return 1;
}

int diagnose(pid_t pid) {
  using namespace heapwright::diagnose;  // NOLINT(google-build-using-namespace)
  using Clock = std::chrono::steady_clock;
  if (const std::string why = why_unreadable(pid); !why.empty()) {
    return fail(why);
  }
  const auto start = start_of(pid);
  Memory memory(pid);
  if (const int error = memory.open(); error != 0) {
    return fail(why_refused(pid, error));
  }
  const auto began = Clock::now();
  const auto sums = heapwright::meter::read_rollup(pid);
  const auto parts = heapwright::meter::read_breakdown(pid);
  const auto glibc = read_glibc_heap(memory);
  const auto own = read_own_heap(memory);
  const auto cpython = read_cpython(memory);
  const std::chrono::duration<double, std::milli> took = Clock::now() - began;
  if (!sums || !parts || !start || start_of(pid) != start) {
    return fail(why_refused(pid, ESRCH));
  }
  const Json found = {{"pid", pid},
                      {"threads", thread_count(pid)},
                      {"resident_bytes", sums->rss},
                      {"pss_bytes", sums->pss},
                      {"swap_bytes", sums->swap},
                      {"huge_bytes", sums->huge},
                      {"parts",
                       {{"program", parts->rss.program},
                        {"files", parts->rss.files},
                        {"stacks", parts->rss.stacks},
                        {"heap", parts->rss.heap},
                        {"other", parts->rss.other}}},
                      {"pss_parts",
                       {{"program", parts->pss.program},
                        {"files", parts->pss.files},
                        {"stacks", parts->pss.stacks},
                        {"heap", parts->pss.heap},
                        {"other", parts->pss.other}}},
                      {"glibc", to_json(glibc)},
                      {"own", own ? to_json(*own) : Json(nullptr)},
                      {"cpython", cpython ? to_json(*cpython) : Json(nullptr)},
                      {"took_ms", took.count()}};
  const std::string text = found.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (std::printf("%s\n", text.c_str()) < 0 || std::fflush(stdout) != 0) {
    return fail(std::string("stdout cannot be written: ") + std::strerror(errno));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  char* end = nullptr;
  const long pid = argc == 2 ? std::strtol(argv[1], &end, 10) : 0;
  if (pid <= 0 || pid > INT32_MAX || *end != '\0') {
    (void)std::fputs("usage: heapwright-diagnose PID\n", stderr);
    return 2;
  }
  try {
    return diagnose(static_cast<pid_t>(pid));
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}
