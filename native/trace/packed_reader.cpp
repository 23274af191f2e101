// Reads a packed trace, complete or not. The first damaged section ends the stream; all events
// before it are valid.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "block.h"
#include "packed.h"
#include "packed_format.h"

namespace heapwright::trace {
namespace {

class Reader final : public PackedSource {
 public:
  bool open(const std::string& path, std::string& error) {
    file_.reset(std::fopen(path.c_str(), "rbe"));
    struct stat status{};
    if (!file_ || ::fstat(::fileno(file_.get()), &status) != 0) {
      error = path + ": " + std::strerror(errno);
      return false;
    }
    if (!S_ISREG(status.st_mode)) {
      error = path + ": a trace is read from a regular file, not from a device or a pipe";
      return false;
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
    Bytes start(kPackedMagic.size() + 2, '\0');
    if (std::fread(start.data(), 1, start.size(), file_.get()) != start.size() ||
        !start.starts_with(kPackedMagic)) {
      error = path +
              ": this is not a packed trace (heapwright import reads those of other tools, heapwright synth "
              "a model)";
      return false;
    }
    offset_ = start.size();
    const auto version =
        ByteReader(std::string_view(start).substr(kPackedMagic.size())).fixed<std::uint16_t>();
    if (version == 0 || version > kPackedVersion) {
      error = path + ": a packed trace of version " + std::to_string(version) +
              "; this heapwright reads versions 1 to " + std::to_string(kPackedVersion) +
              ": use the heapwright that wrote it, or record again";
      return false;
    }
    std::string letters;
    if (!read_section(letters) || letters != "HEAD" || !decode_header(bytes_, header_, tick_)) {
      error = path + ": its header is damaged; nothing can be read";
      return false;
    }
    block_ = BlockDecoder(tick_);
    read_trailer();
    return true;
  }

  const Header& header() const override { return header_; }
  const Summary* summary() const override { return complete_ ? &summary_ : nullptr; }

  bool next(Event& event) override {
    while (!block_.next(event)) {
      if (ended_) {
        return false;
      }
      if (!block_.error().empty()) {
        return end_with_loss(block_.error());
      }
      if (!next_block()) {
        return false;
      }
    }
    if (event.thread > events_ + kThreadsAhead) {
      return end_with_loss("a thread number is too high");
    }
    events_++;
    objects_ += is_allocation(event.kind) ? 1 : 0;
    return true;
  }

  Loss loss() const override {
    Loss loss = loss_;
    if (!complete_ && loss.why.empty()) {
      loss.cut_short = true;
      loss.why = "the end of the file is missing";
    }
    return loss;
  }

 private:
  bool seek_to(std::uint64_t offset) {
    offset_ = offset;
    return ::fseeko(file_.get(), static_cast<off_t>(offset), SEEK_SET) == 0;
  }

  // Reads the next section into bytes_. Returns false if there is no complete one, also at the end
  // of the file.
  bool read_section(std::string& letters) {
    Bytes head(kSectionHead, '\0');
    if (std::fread(head.data(), 1, head.size(), file_.get()) != head.size()) {
      return false;
    }
    ByteReader reader(head);
    letters = reader.bytes(4);
    const auto length = reader.fixed<std::uint32_t>();
    const auto sum = reader.fixed<std::uint32_t>();
    if (length > kMaxSection || length > size_ - std::min(size_, offset_ + kSectionHead)) {
      return false;
    }
    std::fill(head.begin() + 8, head.end(), '\0');
    const std::size_t before = head.size();
    head.resize(before + length);
    if (std::fread(head.data() + before, 1, length, file_.get()) != length || crc32(head) != sum) {
      return false;
    }
    bytes_.assign(head, before);
    offset_ += head.size();
    return true;
  }

  // Ends the stream because of an error. All bytes from here to the end of the file are lost.
  // Returns false.
  bool end_with_loss(const std::string& why) {
    ended_ = true;
    loss_.cut_short = true;
    loss_.bytes += size_ - std::min(size_, offset_);
    if (complete_) {
      const std::uint64_t lost = summary_.events - std::min(summary_.events, opened_events_);
      loss_.events += lost;
    }
    loss_.why = why;
    return false;
  }

  bool next_block() {
    std::string letters;
    if (offset_ == size_) {
      ended_ = true;
      return false;
    }
    if (!read_section(letters)) {
      return end_with_loss(offset_ + kSectionHead > size_ || !complete_
                               ? "the file is cut off or damaged in the middle of a block"
                               : "a block is damaged");
    }
    if (letters != "EVTS") {
      ended_ = true;
      return false;
    }
    if (!block_.open(bytes_)) {
      offset_ -= std::min<std::uint64_t>(offset_, bytes_.size());
      return end_with_loss(block_.error());
    }
    if (block_.objects() != objects_) {
      return end_with_loss("a block does not continue the one before it");
    }
    opened_events_ += block_.left();
    return true;
  }

  // Reads the summary, which follows the index, if the file is complete. Goes back to the first
  // block.
  void read_trailer() {
    const std::uint64_t start = offset_;
    Bytes end(kEndSize, '\0');
    if (size_ >= start + kEndSize && seek_to(size_ - kEndSize) &&
        std::fread(end.data(), 1, end.size(), file_.get()) == end.size() && end.ends_with(kPackedEnd)) {
      const auto index = ByteReader(end).fixed<std::uint64_t>();
      std::string letters;
      if (index >= start && index < size_ && seek_to(index) && read_section(letters) && letters == "INDX") {
        complete_ = read_section(letters) && letters == "DONE" && decode_done(bytes_, summary_, loss_);
      }
    }
    if (!complete_) {
      summary_ = {};
      loss_ = {};
    }
    (void)seek_to(start);
  }

  File file_;
  std::uint64_t size_ = 0;
  std::uint64_t offset_ = 0;
  std::uint64_t tick_ = 1;
  std::uint64_t opened_events_ = 0;  // events in the blocks opened so far
  std::uint64_t events_ = 0;         // up to here
  std::uint64_t objects_ = 0;        // objects up to here
  bool ended_ = false;
  bool complete_ = false;
  Bytes bytes_;
  Header header_;
  Summary summary_;
  Loss loss_;
  BlockDecoder block_;
};

}  // namespace

std::unique_ptr<PackedSource> open_packed(const std::string& path, std::string& error) {
  auto reader = std::make_unique<Reader>();
  if (!reader->open(path, error)) {
    return nullptr;
  }
  return reader;
}

}  // namespace heapwright::trace
