// The region: handing out superblocks, taking them back, and purging. See region.h.
#include "region.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace heapwright::alloc {

namespace {

constexpr std::size_t kChunksToSearch = 16;
constexpr std::uint64_t kAllFree = OpenChunks::kAllFree;

std::uint64_t mask_of(std::size_t index, std::size_t count) {
  return (count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << index;
}

Superblock* at(Chunk* chunk, std::size_t index) { return reinterpret_cast<Superblock*>(chunk) + index; }

}  // namespace

bool Region::may_use_huge_pages() const {
  return used_ >= HugePages::kSmallHeap / kSuperblockBytes &&
         settings.huge_pages == platform::HugePageMode::kAuto && !settings.guards;
}

// Takes free superblocks out of the masks and lists.
Superblock* Region::claim(Chunk* chunk, std::size_t index, const SuperblockRequest& request) {
  const std::uint64_t mask = mask_of(index, request.count);
  if (HugePages::begins_second_half(chunk, mask)) {
    huge_pages_.begin_second_half(chunk, run_ms());
  }
  clean_ = (chunk->dirty & mask) == 0;
  std::size_t purged = static_cast<std::size_t>(std::popcount(chunk->purged & mask)) * kSuperblockBytes;
  for (std::uint64_t held = chunk->dirty & mask; held != 0; held &= held - 1) {
    Superblock* const superblock = at(chunk, static_cast<std::size_t>(std::countr_zero(held)));
    purged += take_purged_pages(superblock);
    dirty_.remove(superblock);
    --dirty_count_;
  }
  low_water_.after_fall(listed_dirty());
  chunk->dirty &= ~mask;
  chunk->purged &= ~mask;
  chunk->free &= ~mask;
  open_.update(chunk);
  used_ += request.count;
  if (request.number != 0) {
    huge_pages_.count(request.number, 1);
  }
  if (purged != 0) {
    count_reused(purged);
  }
  purge_above_peak();
  return at(chunk, index);
}

// Chooses a free superblock that holds memory, preferably one that the same class used before: a
// class that uses a quarter of a superblock then touches the same quarter again. When this function
// chose the latest freed superblock of any class, 300 threads in sequence touched three times as
// much memory as one thread.
Superblock* Region::choose_dirty(std::uint8_t number) const {
  std::size_t searched = 0;
  for (Superblock* held = dirty_.first; held != nullptr && searched < kDirtyToSearch;
       held = held->next, ++searched) {
    if (held->size_class == number) {
      return held;
    }
  }
  return dirty_.first;
}

// Takes superblocks from a chunk in use; nullptr: none has so many together.
Superblock* Region::take_open(OpenChunks::Runs& runs, std::uint64_t Chunk::* where,
                              const SuperblockRequest& request) {
  const auto [chunk, first] = OpenChunks::choose(runs, where, request.count, kChunksToSearch);
  return chunk == nullptr ? nullptr : claim(chunk, first, request);
}

// Takes superblocks from a wholly free chunk. The chunk gets huge pages exactly if `request.huge`.
Superblock* Region::take_empty(const SuperblockRequest& request) {
  Chunk* chunk = OpenChunks::choose(open_.empty, &Chunk::free, request.count, kChunksToSearch).chunk;
  if (chunk == nullptr) {
    chunk = fresh_chunk(request.huge);
  } else if (chunk->dirty == 0) {
    if (!request.huge) {
      HugePages::refuse(chunk, chunk->huge);
    } else if (chunk->huge != HugePages::kBothHalves) {
      huge_pages_.ask(chunk, used_, false, run_ms());
    }
  }
  return chunk == nullptr ? nullptr : claim(chunk, 1, request);
}

Superblock* Region::take(std::size_t count, std::uint8_t number, bool small) {
  SuperblockRequest request{count, number, false};
  if (count > 1 || dirty_.first == nullptr) {
    split_freed_spans();
  }
  if (count == 1) {
    if (Superblock* const held = choose_dirty(number); held != nullptr) {
      return claim(chunk_of(held), index_in_chunk(held), request);
    }
  }
  Superblock* first = nullptr;
  if (may_use_huge_pages()) {
    const std::uint64_t now = run_ms();
    look_at_next_chunk(now);
    request.huge = small && huge_pages_.pay_off(used_, sharing_heaps());
    if (request.huge) {
      first = take_open(open_.huge, &Chunk::free, request);
      request.huge = huge_pages_.may_ask(now);
    }
  }
  if (first == nullptr && !request.huge) {
    first = take_open(open_.plain, &Chunk::dirty, request);  // using them costs no page faults
  }
  if (first == nullptr) {
    first = take_open(open_.plain, request.huge ? &Chunk::purged : &Chunk::free, request);
  }
  if (first == nullptr) {
    first = take_empty(request);
  }
  // If the kernel gave no new chunk, take superblocks of any chunk in use.
  for (OpenChunks::Runs* runs : {&open_.plain, &open_.huge}) {
    first = first != nullptr ? first : take_open(*runs, &Chunk::free, request);
  }
  return first;
}

Superblock* Region::take_dirty(std::size_t count) {
  split_freed_spans();
  if (dirty_count_ < count) {
    return nullptr;
  }
  const SuperblockRequest request{count, 0, false};
  if (Superblock* const first = take_open(open_.plain, &Chunk::dirty, request); first != nullptr) {
    return first;
  }
  const auto [chunk, first] = OpenChunks::choose(open_.empty, &Chunk::dirty, count, kChunksToSearch);
  return chunk == nullptr ? nullptr : claim(chunk, first, request);
}

void Region::look_at_next_chunk(std::uint64_t now) {
  next_look_ = next_look_ < bytes_ ? next_look_ : 0;
  auto* const chunk = reinterpret_cast<Chunk*>(base_ + next_look_);
  next_look_ += kChunkBytes;
  if (huge_pages_.look(chunk, now)) {
    open_.update(chunk);
  }
}

void Region::give(Superblock* first, std::size_t count) {
  make_free(first, count);
  purge_above_allowance();
}

void Region::make_free(Superblock* first, std::size_t count) {
  Chunk* const chunk = chunk_of(first);
  const std::size_t index = index_in_chunk(first);
  const std::uint64_t mask = mask_of(index, count);
  if (first->kind == Kind::kBlocks) {
    huge_pages_.count(first->size_class, -1);
  }
  chunk->free |= mask;
  chunk->dirty |= mask;
  chunk->full = 0;
  for (std::size_t i = count; i-- > 0;) {
    first[i].kind = Kind::kFree;
    dirty_.push_front(first + i);
  }
  open_.update(chunk);
  dirty_count_ += count;
  used_ -= count;
}

void Region::give_span(Superblock* span) {
  if (span->length > FreedSpans::kLongest) {
    give(span, span->length);
    return;
  }
  set_kind(span, Kind::kFree);
  freed_spans_.put(span);
  move_to_dirty(span->length);
  purge_above_allowance();
  set_span_bounds();
}

Superblock* Region::take_span(std::size_t count) {
  Superblock* const span = freed_spans_.take(count);
  if (span != nullptr) {
    clean_ = false;
    move_to_dirty(-count);
    peak_in_use_ = std::max(peak_in_use_, in_use());  // used and free memory together are as before
    set_span_bounds();
  }
  return span;
}

// Lets the fast paths take spans until memory in use would exceed its peak, and keep them until free
// memory would exceed the least allowance.
void Region::set_span_bounds() {
  const auto superblocks = static_cast<std::int64_t>(freed_spans_.superblocks());
  const auto below_peak = static_cast<std::int64_t>(peak_in_use_ - in_use());
  const auto room = static_cast<std::int64_t>(settings.keep_bytes / kSuperblockBytes - held_count());
  const bool throttled = held_count() > allowance();
  freed_spans_.set_bounds(superblocks - below_peak, superblocks + room, throttled ? kSpansPerClock - 1 : 0);
}

void Region::split_freed_spans() {
  forget_span_bounds();
  used_ += freed_spans_.superblocks();
  dirty_count_ -= freed_spans_.superblocks();
  freed_spans_.take_all([this](Superblock* span) { make_free(span, span->length); });
}

void Region::purge_above_allowance() {
  forget_span_bounds();
  const std::size_t allowed = allowance();
  const std::size_t held = held_count();
  if (held > allowed && may_purge()) {
    purge(held - allowed / 2);
  }
}

void Region::purge_unused(std::size_t bytes, std::uint64_t now, std::uint64_t window_ms) {
  const std::size_t unused = low_water_.unused(listed_dirty(), now, window_ms);
  const std::size_t keep = settings.keep_bytes / kSuperblockBytes;
  std::size_t count = std::min(unused - std::min(keep, unused), bytes / kSuperblockBytes);
  if (count != 0) {
    forget_span_bounds();
  }
  while (count != 0 && dirty_.last != nullptr) {
    const std::size_t before = dirty_count_;
    purge_around(dirty_.last, count);
    count -= before - dirty_count_;
  }
}

void Region::purge_above_peak() {
  forget_span_bounds();
  peak_in_use_ = std::max(peak_in_use_, in_use());
  const std::size_t held = held_count();
  if (held <= allowance()) {
    return;
  }
  const std::size_t allowed =
      allowance_at(premature_.are_paid_below_peak(settings.clock()) ? peak_in_use_ / 2 : peak_in_use_);
  const std::size_t all = in_use() + lent_count() + held;
  if (all > peak_in_use_ + allowed) {
    purge(all - peak_in_use_ - allowed / 2);
  }
}

void Region::purge(std::size_t count) {
  split_freed_spans();
  Chunk* whole = may_use_huge_pages() ? open_.empty.first : nullptr;
  while (count > 0 && held_count() > 0) {
    const std::size_t before = held_count();
    if (large.kept_bytes() / kSuperblockBytes > dirty_count_) {
      count_purged(large.drop_oldest(count * kSuperblockBytes));
      count -= std::min(count, before - held_count());
      continue;
    }
    while (whole != nullptr && whole->dirty == 0) {
      whole = whole->next;
    }
    purge_around(whole != nullptr ? at(whole, static_cast<std::size_t>(std::countr_zero(whole->dirty)))
                                  : dirty_.last);
    count -= std::min(count, before - held_count());
  }
}

void Region::count_purged(std::size_t bytes) {
  purged_bytes_ += bytes;
  ++purges_;
  premature_.add_purged(bytes, settings.clock(), settings.delay_ms);
}

void Region::count_reused(std::size_t bytes) {
  if (premature_.may_be()) {
    premature_.add_obtained(bytes, settings.clock(), settings.delay_ms, in_use() <= peak_in_use_);
  }
}

bool Region::holds_memory_behind(Superblock* first, std::size_t count, std::size_t wanted) {
  split_freed_spans();
  const std::size_t index = index_in_chunk(first);
  const std::uint64_t mask =
      index + wanted > kSuperblocksInChunk ? 0 : mask_of(index + count, wanted - count);
  return mask != 0 && (chunk_of(first)->dirty & mask) == mask;
}

bool Region::grow(Superblock* first, std::size_t count, std::size_t wanted) {
  const std::size_t index = index_in_chunk(first);
  if (index + wanted > kSuperblocksInChunk) {
    return false;
  }
  split_freed_spans();
  Chunk* const chunk = chunk_of(first);
  const std::uint64_t mask = mask_of(index + count, wanted - count);
  if ((chunk->free & mask) != mask) {
    return false;
  }
  claim(chunk, index + count, {wanted - count, 0, false});
  return true;
}

std::size_t Region::allowance_at(std::size_t in_use) const {
  return std::max(settings.keep_bytes / kSuperblockBytes, in_use / 4);
}

// Purges a free superblock and, in the same call, its dirty neighbours: at most `most` in all.
void Region::purge_around(Superblock* superblock, std::size_t most) {
  Chunk* const chunk = chunk_of(superblock);
  std::size_t from = index_in_chunk(superblock);
  std::size_t to = from + 1;
  while (to - from < most && (chunk->dirty >> (from - 1) & 1U) != 0) {  // bit 0 is never set
    --from;
  }
  while (to - from < most && to < kSuperblocksInChunk && (chunk->dirty >> to & 1U) != 0) {
    ++to;
  }
  std::size_t purged = (to - from) * kSuperblockBytes;
  for (std::size_t i = from; i < to; ++i) {
    purged -= take_purged_pages(at(chunk, i));
    dirty_.remove(at(chunk, i));
  }
  const std::uint64_t mask = mask_of(from, to - from);
  chunk->dirty &= ~mask;
  chunk->purged |= mask;
  dirty_count_ -= to - from;
  low_water_.after_purge(to - from, listed_dirty());
  HugePages::before_purge(chunk, from, to);
  open_.update(chunk);
  platform::purge(memory_of(at(chunk, from)), (to - from) * kSuperblockBytes);
  if (chunk->free == kAllFree && chunk->dirty == 0) {
    if (chunk->bits_resident) {
      HugePages::purge_free_bits(chunk);
    }
    if (std::exchange(chunk->looks_resident, false) && kQueuesBegin % platform::page_size() == 0 &&
        kQueuesBytes % platform::page_size() == 0) {
      platform::purge(reinterpret_cast<char*>(chunk) + kQueuesBegin, kQueuesBytes);
    }
  }
  count_purged(purged);
}

bool Region::purge_all() {
  forget_span_bounds();
  split_freed_spans();
  const bool any = dirty_count_ > 0 || large.kept_bytes() > 0;
  while (dirty_count_ > 0) {
    purge_around(dirty_.last);
  }
  while (large.drop_oldest() > 0) {
  }
  premature_.forget_purged();
  return any;
}

Region::Statistics Region::statistics() const {
  return {
      bytes_,  used_ * kSuperblockBytes, dirty_count_ * kSuperblockBytes, large.kept_bytes(), purged_bytes_,
      purges_, huge_pages_.collapses()};
}

Superblock* Region::next_used(Superblock* after) const {
  std::uintptr_t chunk = after == nullptr ? base_ : reinterpret_cast<std::uintptr_t>(chunk_of(after));
  std::size_t index = after == nullptr ? 1 : index_in_chunk(after) + 1;
  for (; chunk < base_ + bytes_; chunk += kChunkBytes, index = 1) {
    auto* const here = reinterpret_cast<Chunk*>(chunk);
    for (; index < kSuperblocksInChunk; ++index) {
      if ((here->free >> index & 1U) == 0) {
        return at(here, index);
      }
    }
  }
  return nullptr;
}

}  // namespace heapwright::alloc
