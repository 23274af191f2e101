// Writes heaps with size classes as JSON. See class_json.h.
#include "class_json.h"

namespace heapwright::diagnose {

namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::optional<std::uint64_t>& value) { return value ? Json(*value) : Json(nullptr); }

Json to_json(const std::vector<SizeClass>& classes) {
  Json all = Json::array();
  for (const SizeClass& one : classes) {
    all.push_back({{"size", one.size},
                   {"live_blocks", one.live_blocks},
                   {"free_blocks", one.free_blocks},
                   {"live_bytes", one.live_bytes},
                   {"free_bytes", one.free_bytes},
                   {"spans", one.spans}});
  }
  return all;
}

}  // namespace

Json to_json(const ClassHeap& heap) {
  return {{"allocator", heap.allocator},
          {"evidence", heap.evidence},
          {"consistent", heap.consistent},
          {"resident_bytes", or_null(heap.resident_bytes)},
          {"live_bytes", heap.live_bytes},
          {"free_bytes", heap.free_bytes},
          {"free_pages_bytes", or_null(heap.free_pages_bytes)},
          {"releasable_bytes", or_null(heap.releasable_bytes)},
          {"mapped_blocks", heap.mapped_blocks},
          {"mapped_bytes", heap.mapped_bytes},
          {"span_blocks", heap.span_blocks},
          {"span_bytes", heap.span_bytes},
          {"heaps", heap.heaps},
          {"superblocks_bytes", heap.used_bytes},
          {"empty_bytes", heap.empty_bytes},
          {"kept_bytes", heap.kept_bytes},
          {"waiting_bytes", or_null(heap.waiting_bytes)},
          {"cached_bytes", or_null(heap.cached_bytes)},
          {"quarantined_bytes", heap.quarantined_bytes},
          {"purged_bytes", heap.purged_bytes},
          {"arenas", Json::array()},
          {"classes", to_json(heap.classes)}};
}

Json to_json(const PythonHeap& heap) {
  return {{"name", heap.name},
          {"consistent", heap.consistent},
          {"arenas", heap.arenas},
          {"arena_bytes", heap.arena_bytes},
          {"resident_bytes", or_null(heap.resident_bytes)},
          {"live_bytes", heap.live_bytes},
          {"free_bytes", heap.free_bytes},
          {"free_pages_bytes", or_null(heap.free_pages_bytes)},
          {"free_arenas", heap.free_arenas},
          {"classes", to_json(heap.classes)}};
}

}  // namespace heapwright::diagnose
