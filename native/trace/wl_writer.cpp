// Writes a trace as a wl file. The operations of all threads go to a temporary file first, in
// chunks, because the file begins with the number of threads and the offset of each.
//
// Slots: an allocation takes the slot that its thread freed last. If its thread has no free slot,
// and more slots are free than in use, it takes one that another thread freed; else a new one. When
// a slot passes from one thread to another, a pair of syncs orders the two threads. All syncs
// follow the order of the trace, so they cannot deadlock.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "common/draft_file.h"
#include "formats.h"
#include "live_table.h"
#include "wl_format.h"

namespace heapwright::trace {

namespace {

constexpr std::size_t kChunk = 16384;

void put_number(std::string& out, std::uint64_t value) {
  char bytes[10];
  int used = 0;
  bytes[used++] = static_cast<char>(value & 0x7F);
  while ((value >>= 7) != 0) {
    bytes[used++] = static_cast<char>((value & 0x7F) | 0x80);
  }
  while (used > 0) {
    out += bytes[--used];
  }
}

struct Piece {
  std::uint64_t at = 0;
  std::uint64_t size = 0;
};

struct ThreadOutput {
  std::string text;  // not yet written to the temporary file
  std::vector<Piece> pieces;
  std::uint64_t size = 0;  // bytes of all operations
  std::vector<std::uint64_t> free_slots;
  bool started = false;
};

struct Slot {
  std::uint64_t index = 0;
  std::uint32_t owner = 0;
};

class WlWriter {
 public:
  explicit WlWriter(std::FILE* temporary) : temporary_(temporary) {}

  bool add(const Event& event, Exported& done);
  bool finish(std::FILE* out);

 private:
  ThreadOutput& output_of(std::uint32_t thread) {
    if (thread >= outputs_.size()) {
      outputs_.resize(thread + 1);
    }
    return outputs_[thread];
  }
  bool flush(ThreadOutput& output, bool all);
  void synchronize(std::uint32_t from, std::uint32_t to);
  void start(std::uint32_t thread);
  Slot take_slot(std::uint32_t thread);
  void operation(std::uint32_t thread, wl::Operation code, std::initializer_list<std::uint64_t> numbers) {
    std::string& text = output_of(thread).text;
    text += static_cast<char>(code);
    for (const std::uint64_t number : numbers) {
      put_number(text, number);
    }
    written_ = flush(output_of(thread), false) && written_;
  }

  std::FILE* temporary_;
  std::uint64_t temporary_size_ = 0;
  std::vector<ThreadOutput> outputs_;
  LiveTable<Slot> live_;
  std::uint64_t slots_ = 1;  // 0 is NULL
  std::uint64_t free_ = 0;
  std::uint64_t syncs_ = 0;
  std::uint32_t last_freer_ = 0;
  std::uint32_t main_ = 0;
  bool any_ = false;
  bool written_ = true;  // no write to the temporary file has failed
};

bool WlWriter::flush(ThreadOutput& output, bool all) {
  if (output.text.empty() || (!all && output.text.size() < kChunk)) {
    return true;
  }
  output.pieces.push_back({temporary_size_, output.text.size()});
  temporary_size_ += output.text.size();
  output.size += output.text.size();
  const bool written =
      std::fwrite(output.text.data(), 1, output.text.size(), temporary_) == output.text.size();
  output.text.clear();
  return written;
}

// Writes a pair of syncs: the operations of `from` so far happen before the further ones of `to`.
void WlWriter::synchronize(std::uint32_t from, std::uint32_t to) {
  if (from != to) {
    ++syncs_;
    operation(from, wl::kSyncWrite, {syncs_});
    operation(to, wl::kSyncRead, {syncs_});
  }
}

void WlWriter::start(std::uint32_t thread) {
  if (!any_) {
    any_ = true;
    main_ = thread;
    output_of(thread).started = true;
  } else if (!output_of(thread).started) {
    output_of(thread).started = true;
    synchronize(main_, thread);
  }
}

Slot WlWriter::take_slot(std::uint32_t thread) {
  std::uint32_t last_owner = thread;
  if (output_of(thread).free_slots.empty() && free_ > live_.size() + 16 &&
      !output_of(last_freer_).free_slots.empty()) {
    last_owner = last_freer_;
    synchronize(last_owner, thread);
  }
  std::vector<std::uint64_t>& own = output_of(last_owner).free_slots;
  if (own.empty()) {
    return {slots_++, thread};
  }
  const std::uint64_t index = own.back();
  own.pop_back();
  --free_;
  return {index, thread};
}

bool WlWriter::add(const Event& event, Exported& done) {
  const bool has_operation = is_allocation(event.kind) || is_free(event.kind) || event.kind == Kind::kRealloc;
  Slot* known = has_operation && !is_allocation(event.kind) ? live_.find(event.object) : nullptr;
  if (!has_operation || (!is_allocation(event.kind) && known == nullptr)) {
    ++done.left_out;
    return true;
  }
  ++done.events;
  start(event.thread);
  if (is_allocation(event.kind)) {
    const Slot slot = take_slot(event.thread);
    live_.insert(event.object, slot);
    if (event.kind == Kind::kAligned) {
      operation(event.thread, wl::kMemalign, {slot.index, event.alignment, event.size});
    } else {
      operation(event.thread, event.kind == Kind::kCalloc ? wl::kCalloc : wl::kMalloc,
                {slot.index, event.size});
    }
  } else {
    synchronize(known->owner, event.thread);
    known->owner = event.thread;
    if (event.kind == Kind::kRealloc) {
      operation(event.thread, wl::kRealloc, {known->index, known->index, event.size});
    } else {
      operation(event.thread, wl::kFree, {known->index});
      output_of(event.thread).free_slots.push_back(known->index);
      ++free_;
      last_freer_ = event.thread;
      live_.erase(event.object);
    }
  }
  return written_;
}

bool WlWriter::finish(std::FILE* out) {
  std::vector<std::uint32_t> order;  // the threads with operations, the main thread first
  for (std::uint32_t thread = 0; thread < outputs_.size(); ++thread) {
    if (outputs_[thread].started) {
      operation(thread, wl::kDone, {});
      if (!flush(outputs_[thread], true)) {
        return false;
      }
      order.push_back(thread);
    }
  }
  // The offset of each thread depends on the length of the list of offsets, so the list is built
  // until its length stays the same.
  std::string head;
  for (std::size_t length = 0; length != head.size() || length == 0;) {
    length = head.size();
    head.clear();
    const auto add = [&head](wl::Operation code, std::uint64_t number) {
      head += static_cast<char>(code);
      put_number(head, number);
    };
    add(wl::kAllocPointers, slots_);
    add(wl::kAllocSyncs, syncs_ + 1);
    add(wl::kThreads, order.size());
    std::uint64_t at = length;
    for (const std::uint32_t thread : order) {
      add(wl::kStartThread, at);
      at += outputs_[thread].size;
    }
    head += static_cast<char>(wl::kDone);
  }
  bool sound = std::fwrite(head.data(), 1, head.size(), out) == head.size() && std::fflush(temporary_) == 0;
  std::string piece;
  for (const std::uint32_t thread : order) {
    for (const Piece& part : outputs_[thread].pieces) {
      piece.resize(part.size);
      sound = sound && ::fseeko(temporary_, static_cast<off_t>(part.at), SEEK_SET) == 0 &&
              std::fread(piece.data(), 1, part.size, temporary_) == part.size &&
              std::fwrite(piece.data(), 1, part.size, out) == part.size;
    }
  }
  return sound && std::fflush(out) == 0;
}

std::FILE* open_stream(int descriptor) { return descriptor < 0 ? nullptr : ::fdopen(descriptor, "w+b"); }

}  // namespace

bool write_wl(EventSource& source, const std::string& path, Exported& done, std::string& error) {
  DraftFile draft;
  DraftFile temporary;
  std::FILE* out = open_stream(draft.create(path));
  std::FILE* threads = out == nullptr ? nullptr : open_stream(temporary.create(path + ".threads"));
  bool sound = out != nullptr && threads != nullptr;
  if (sound) {
    temporary.discard();  // `threads` can still be read and written
    WlWriter writer(threads);
    Event event;
    while (sound && source.next(event)) {
      sound = writer.add(event, done);
    }
    sound = sound && writer.finish(out);
  }
  if (!sound) {
    error = path + ": cannot be written: " + std::strerror(errno);
  }
  if (threads != nullptr) {
    (void)std::fclose(threads);
  }
  if (out != nullptr && std::fclose(out) != 0 && sound) {
    error = path + ": cannot be written: " + std::strerror(errno);
    sound = false;
  }
  if (sound && !draft.publish()) {
    error = path + ": cannot be renamed: " + std::strerror(errno);
    sound = false;
  }
  return sound;
}

}  // namespace heapwright::trace
