// Writes a packed trace. A table of the live objects gives the peak of live bytes and shows which
// events are impossible.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "block.h"
#include "common/draft_file.h"
#include "live_table.h"
#include "packed.h"
#include "packed_format.h"

namespace heapwright::trace {
namespace {

class Writer final : public PackedWriter {
 public:
  Writer(std::string path, std::uint64_t tick, std::uint32_t block_events)
      : path_(std::move(path)),
        tick_(tick),
        block_events_(block_events == 0 ? kBlockEvents : std::min(block_events, kBlockEvents)),
        block_(tick) {}

  bool begin(const Header& header) {
    const int descriptor = draft_.create(path_);
    file_.reset(descriptor < 0 ? nullptr : ::fdopen(descriptor, "wb"));
    if (!file_) {
      return fail(std::string("cannot be written: ") + std::strerror(errno));
    }
    Bytes start(kPackedMagic);
    put_fixed(start, packed_version(header));
    return write(start) && write(section("HEAD", encode_header(header, tick_)));
  }

  bool add(const Event& event) override {
    if (!error_.empty() || !track_live(event)) {
      return false;
    }
    block_.add(event, summary_.allocations - (is_allocation(event.kind) ? 1 : 0));
    summary_.events++;
    summary_.duration = std::max(summary_.duration, event.time / tick_ * tick_);
    summary_.threads = std::max<std::uint64_t>(summary_.threads, std::uint64_t{event.thread} + 1);
    return block_.events() < block_events_ || flush();
  }

  bool finish(const Loss& loss) override {
    if (!error_.empty() || (block_.events() > 0 && !flush())) {
      return false;
    }
    const std::uint64_t index = offset_;
    Bytes end;
    put_fixed(end, index);
    end += kPackedEnd;
    if (!write(section("INDX", index_)) || !write(section("DONE", encode_done(summary_, loss))) ||
        !write(end)) {
      return false;
    }
    if (std::fclose(file_.release()) != 0 || !draft_.publish()) {
      return fail(std::string("cannot be written: ") + std::strerror(errno));
    }
    return true;
  }

  const std::string& error() const override { return error_; }
  const Summary& summary() const override { return summary_; }

 private:
  bool fail(const std::string& why) {
    if (error_.empty()) {
      error_ = path_ + ": " + why;
    }
    return false;
  }

  bool refuse(const Event& event, const char* problem) {
    return fail("event " + std::to_string(summary_.events) + " " + problem + " " +
                std::to_string(event.object));
  }

  bool write(std::string_view bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
      return fail(std::string("cannot be written: ") + std::strerror(errno));
    }
    offset_ += bytes.size();
    return true;
  }

  bool flush() {
    put_varint(index_, offset_ - last_offset_);
    put_varint(index_, block_.events());
    put_varint(index_, block_.objects_before());
    put_varint(index_, block_.first_tick());
    last_offset_ = offset_;
    return write(section("EVTS", block_.take()));
  }

  // Updates the live objects and the peaks. Returns false, with a line in error_, if the event is
  // impossible.
  bool track_live(const Event& event) {
    if (event.thread >= kMaxThreads) {
      return refuse(event, "has too high a thread number; object");
    }
    if (is_allocation(event.kind)) {
      if (event.object != summary_.allocations || event.object >= kMaxObjects) {
        return refuse(event, "allocates objects out of order: object");
      }
      if (event.kind == Kind::kAligned && !std::has_single_bit(event.alignment)) {
        return refuse(event, "has an alignment that is not a power of two, for object");
      }
      summary_.allocations++;
      sizes_.insert(event.object, event.size);
      live_ += event.size;
    } else if (event.kind == Kind::kRealloc) {
      std::uint64_t* size = sizes_.find(event.object);
      if (size == nullptr) {
        return refuse(event, "reallocs an object that is not live: object");
      }
      live_ += event.size - *size;
      *size = event.size;
    } else if (is_free(event.kind)) {
      const std::uint64_t* size = sizes_.find(event.object);
      if (size == nullptr) {
        return refuse(event, "frees an object that is not live: object");
      }
      live_ -= *size;
      sizes_.erase(event.object);
    } else if ((event.kind == Kind::kUsableSize || event.kind == Kind::kTouched ||
                event.kind == Kind::kTouchedSoFar) &&
               sizes_.find(event.object) == nullptr) {
      return refuse(event, "names an object that is not live: object");
    }
    summary_.peak_live_bytes = std::max(summary_.peak_live_bytes, live_);
    summary_.peak_live_objects = std::max<std::uint64_t>(summary_.peak_live_objects, sizes_.size());
    return true;
  }

  std::string path_;
  DraftFile draft_;
  std::uint64_t tick_;
  std::uint32_t block_events_;
  BlockEncoder block_;
  File file_;
  std::uint64_t offset_ = 0;
  std::uint64_t last_offset_ = 0;
  Bytes index_;
  Summary summary_;
  LiveTable<std::uint64_t> sizes_;
  std::uint64_t live_ = 0;
  std::string error_;
};

}  // namespace

std::unique_ptr<PackedWriter> PackedWriter::create(const std::string& path, const Header& header,
                                                   std::string& error, std::uint64_t tick,
                                                   std::uint32_t block_events) {
  auto writer = std::make_unique<Writer>(path, std::max<std::uint64_t>(tick, 1), block_events);
  if (!writer->begin(header)) {
    error = writer->error();
    return nullptr;
  }
  return writer;
}

}  // namespace heapwright::trace
