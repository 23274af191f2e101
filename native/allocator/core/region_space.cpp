// The region's address space: where it begins, how it grows, and how it shrinks. See region.h.
#include <algorithm>

#include "region.h"

namespace heapwright::alloc {

namespace {

constexpr std::uintptr_t kLowestBase =
    0x1000'0000'0000;  // 16 TiB: above the shadow memory of every sanitizer but one
constexpr std::uintptr_t kBases = 0x4000'0000'0000 / kChunkBytes;
constexpr std::size_t kFarthest = std::size_t{16} << 40U;
constexpr int kBaseTries = 4;
constexpr std::size_t kLargestReservation = std::size_t{64} << 30U;
constexpr std::size_t kMaxChunksAtOnce = 16;
constexpr std::size_t kLargestGuard =
    kSuperblockBytes / 4;  // the space that hardening.h's bits leave free at the end
constexpr std::uint64_t kAllFree = OpenChunks::kAllFree;

std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  return value ^ (value >> 31U);
}

}  // namespace

bool Region::start_at(std::uintptr_t base) {
  if (!platform::map_at(reinterpret_cast<void*>(base - kMapStep), kMapStep + kChunkBytes)) {
    return false;
  }
  __atomic_store_n(&base_, base, __ATOMIC_RELAXED);
  map_low_ = base - kMapStep;
  end_ = base + kChunkBytes;
  limit_ = base + kFarthest;
  map_limit_ = 0;
  return true;
}

bool Region::start_in_reservation() {
  for (std::size_t bytes = kLargestReservation; bytes >= kChunkBytes; bytes /= 2) {
    const std::size_t map = round_up(bytes / kSuperblockBytes * sizeof(std::uint32_t), kMapStep);
    void* const reservation = platform::reserve(map + bytes + kChunkBytes);
    if (reservation == nullptr) {
      continue;
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(reservation);
    __atomic_store_n(&base_, round_up(begin + map, kChunkBytes), __ATOMIC_RELAXED);
    map_low_ = end_ = base_;
    limit_ = base_ + bytes;
    map_limit_ = base_ - map;
    reserved_ = true;
    return true;
  }
  return false;
}

bool Region::start() {
  static_assert(sizeof(void*) == 8, "a region needs a 64-bit address space");
  std::uint64_t seed = platform::random_seed();
  for (int i = 0; i < kBaseTries && !settings.reservation; ++i) {
    seed = mix(seed + 1);
    if (start_at(kLowestBase + seed % kBases * kChunkBytes)) {
      platform::advise_huge_pages(reinterpret_cast<void*>(base_), kChunkBytes, advice());
      return true;
    }
  }
  return start_in_reservation();
}

// With `auto`, each chunk that shall have huge pages asks for them.
platform::HugePageMode Region::advice() const {
  return settings.huge_pages == platform::HugePageMode::kAuto ? platform::HugePageMode::kNever
                                                              : settings.huge_pages;
}

// Maps `chunks` more chunks, and their tags.
bool Region::obtain(std::size_t chunks) {
  const std::size_t bytes = chunks * kChunkBytes;
  if (limit_ - end_ < bytes || mapped_bytes() + bytes > settings.limit_bytes) {
    return false;
  }
  const std::uintptr_t low =
      base_ - round_up((end_ + bytes - base_) / kSuperblockBytes * sizeof(std::uint32_t), kMapStep);
  if (low < map_low_) {
    auto* const map = reinterpret_cast<void*>(low);
    const std::size_t more = map_low_ - low;
    if (low < map_limit_ || !(reserved_ ? platform::commit(map, more) : platform::map_at(map, more))) {
      return false;
    }
    map_low_ = low;
  }
  auto* const end = reinterpret_cast<void*>(end_);
  if (!(reserved_ ? platform::commit(end, bytes) : platform::map_at(end, bytes))) {
    return false;
  }
  platform::advise_huge_pages(end, bytes, advice());
  end_ += bytes;
  return true;
}

Chunk* Region::fresh_chunk(bool huge) {
  if (base_ == 0) {
    if (!start()) {
      return nullptr;
    }
    started_ms_ = settings.clock();
    premature_.start(started_ms_);
  }
  if (bytes_ > 0 && mapped_bytes() + kChunkBytes > settings.limit_bytes) {
    return nullptr;  // chunks mapped ahead may exceed the limit by now
  }
  if (base_ + bytes_ == end_) {
    const std::size_t chunks = std::clamp(bytes_ / kChunkBytes / 8, std::size_t{1}, kMaxChunksAtOnce);
    if (!obtain(chunks) && (chunks == 1 || !obtain(1))) {
      return nullptr;
    }
  }
  auto* const chunk = reinterpret_cast<Chunk*>(base_ + bytes_);
  if (huge) {
    huge_pages_.ask(chunk, used_, true, run_ms());
  }
  // After shrink() of a reservation the memory need not be zero.
  *chunk = {kAllFree, 0, 0, nullptr, nullptr, nullptr, huge ? chunk->huge : std::uint8_t{0}, 0, false, false};
  const std::size_t page = platform::page_size();
  if (settings.guards && page <= kLargestGuard &&
      !platform::protect(reinterpret_cast<char*>(chunk) + kSuperblockBytes - page, page)) {
    return nullptr;
  }
  __atomic_store_n(&bytes_, bytes_ + kChunkBytes, __ATOMIC_RELAXED);
  open_.update(chunk);
  return chunk;
}

void Region::shrink() {
  purge_all();
  while (bytes_ > 0) {
    auto* const last = reinterpret_cast<Chunk*>(base_ + bytes_ - kChunkBytes);
    if (last->free != kAllFree) {
      break;
    }
    open_.remove(last);
    __atomic_store_n(&bytes_, bytes_ - kChunkBytes, __ATOMIC_RELAXED);
  }
  const std::uintptr_t end = base_ + bytes_;
  auto* const from = reinterpret_cast<void*>(end);
  const std::size_t unused = end_ - end;
  if (unused == 0) {
    return;
  }
  if (reserved_ ? platform::release(from, unused) : platform::unmap(from, unused)) {
    end_ = end;
  } else if (reserved_ && !platform::commit(from, unused)) {
    limit_ = end_ = end;  // other mappings may now lie in the hole: the region ends before it
  }  // otherwise the addresses are still ours and can be used again
}

}  // namespace heapwright::alloc
