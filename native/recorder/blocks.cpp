#include "blocks.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "begin.h"
#include "system.h"

namespace heapwright::recorder {

namespace {

// States of the blocks of a bounded file; a block of level k has the state k + 1.
constexpr std::uint8_t kUnused = 0;
constexpr std::uint8_t kTaking = 254;
constexpr std::uint8_t kDropped = 255;
constexpr std::uint64_t kNone = ~std::uint64_t{0};

struct Block {
  std::uint64_t index = kNone;
  bool reused = false;
};

// Returns a descriptor of the raw file, or -1 with errno set, to kFileRemoved if the file was
// removed. The program may have closed ours, or opened another file under its number; then the file
// is opened again.
int current_file() {
  const int file = session->file.load(std::memory_order_relaxed);
  struct stat is{};
  if (file >= 0 && fstat(file, &is) == 0 && is.st_dev == session->device && is.st_ino == session->inode) {
    if (session->linked && is.st_nlink == 0) {
      errno = kFileRemoved;
      return -1;
    }
    return file;
  }
  const int again = move_to_high_descriptor(sys::open_file(session->path, O_RDWR));
  if (again >= 0) {
    session->file.store(again, std::memory_order_relaxed);
  } else if (is_packed(errno)) {
    errno = kFileRemoved;
  }
  return again;
}

// Calls f for each writer of a level.
template <class F>
void each_writer(std::uint32_t level, F f) {
  for (std::uint32_t i = 0; i < kWritersPerLevel; ++i) {
    f(session->writers[level * kWritersPerLevel + i]);
  }
  f(session->writers[kBornWriters + level]);
}

// Drops a block of a level; nothing if another thread has dropped it already.
void drop(std::uint64_t block, std::uint32_t level) {
  auto state = static_cast<std::uint8_t>(level + 1);
  session->block_states[block].compare_exchange_strong(state, kDropped, std::memory_order_seq_cst);
}

}  // namespace

bool drop_lowest_level() {
  std::uint64_t level = session->header->min_level.load(std::memory_order_seq_cst);
  if (level + 1 >= kLevels) {
    return false;
  }
  if (!session->header->min_level.compare_exchange_strong(level, level + 1, std::memory_order_seq_cst)) {
    return true;  // another thread has dropped it
  }
  const auto lowest = static_cast<std::uint32_t>(level);
  for (std::uint64_t block = 0; block < session->max_blocks; ++block) {
    if (session->block_states[block].load(std::memory_order_seq_cst) != lowest + 1) {
      continue;
    }
    bool current = false;
    each_writer(lowest, [&](const Writer& writer) {
      current = current || writer.block_number.load(std::memory_order_seq_cst) == block + 1;
    });
    if (!current) {
      drop(block, lowest);
    }
  }
  each_writer(lowest, [](Writer& writer) {
    if (writer.taken.load(std::memory_order_seq_cst) == 0) {
      drop_block(writer);
    }
  });
  return true;
}

namespace {

// Takes an unused or dropped block of a bounded file.
Block take_bounded(std::uint32_t level) {
  for (;;) {
    const std::uint64_t begin = session->next_block.load(std::memory_order_relaxed);
    for (std::uint64_t i = 0; i < session->max_blocks; ++i) {
      const std::uint64_t index = (begin + i) % session->max_blocks;
      std::uint8_t state = session->block_states[index].load(std::memory_order_relaxed);
      const bool free = state == kUnused || state == kDropped;
      if (free && session->block_states[index].compare_exchange_strong(state, kTaking)) {
        session->next_block.store(index + 1, std::memory_order_relaxed);
        std::uint64_t blocks = session->header->blocks.load(std::memory_order_relaxed);
        while (blocks <= index && !session->header->blocks.compare_exchange_weak(blocks, index + 1)) {
        }
        return {.index = index, .reused = state == kDropped};
      }
    }
    if (!drop_lowest_level()) {
      stop_recording(ENOSPC);
      return {};
    }
    if (level < session->header->min_level.load(std::memory_order_seq_cst)) {
      return {};
    }
  }
}

}  // namespace

void drop_block(Writer& writer) {
  const std::uint64_t number = writer.block_number.exchange(0, std::memory_order_seq_cst);
  if (number != 0) {
    drop(number - 1, level_of(writer));
  }
}

bool set_bound(Session& of, std::uint64_t bytes) {
  if (bytes == 0) {
    return true;
  }
  const std::uint64_t blocks = bytes / kBlockBytes;
  const std::uint64_t limit = blocks < 2 ? 1 : blocks - 1;
  void* const memory =
      mmap(nullptr, limit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return false;
  }
  madvise(memory, limit, MADV_DONTFORK);
  of.max_blocks = limit;
  of.block_states = static_cast<std::atomic<std::uint8_t>*>(memory);
  return true;
}

bool next_block(Writer& writer) {
  const sys::KeepErrno keep;
  const std::uint32_t level = kSampling ? level_of(writer) : 0;
  const bool bounded = kSampling && session->max_blocks != 0;
  const Block next = bounded
                         ? take_bounded(level)
                         : Block{.index = session->header->blocks.fetch_add(1, std::memory_order_relaxed)};
  if (next.index == kNone) {
    return false;
  }
  const std::uint64_t where = (next.index + 1) * kBlockBytes;
  const int file = current_file();
  const int error = file < 0 ? errno : sys::reserve(file, where, kBlockBytes);
  if (error != 0) {
    stop_recording(error);
    return false;
  }
  void* const block =
      mmap(nullptr, kBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(where));
  if (block == MAP_FAILED) {
    stop_recording(errno);
    return false;
  }
  madvise(block, kBlockBytes, MADV_DONTFORK);
  if (next.reused) {
    std::memset(block, 0, sizeof(BlockHeader));
    compiler_barrier();
    std::memset(static_cast<std::uint8_t*>(block) + sizeof(BlockHeader), 0,
                kBlockBytes - sizeof(BlockHeader));
  }
  std::uint8_t* const old = writer.block;
  writer.block = static_cast<std::uint8_t*>(block);
  begin_block(writer, block, static_cast<std::uint32_t>(&writer - session->writers), writer.sequence++,
              writer.thread, level);
  if (bounded) {
    const std::uint64_t full = writer.block_number.exchange(next.index + 1, std::memory_order_seq_cst);
    session->block_states[next.index].store(static_cast<std::uint8_t>(level + 1), std::memory_order_seq_cst);
    if (full != 0 && is_dropped(writer)) {
      drop(full - 1, level);
    }
  }
  if (old != nullptr) {
    munmap(old, kBlockBytes);
  }
  return true;
}

}  // namespace heapwright::recorder
