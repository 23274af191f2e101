// Merges the records of all writers of a raw file into one order, by their stamps. Where stamps
// nearly agree, the caller says which record is possible first.
#pragma once

#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "raw_file.h"
#include "writer_stream.h"

namespace heapwright::raw {

class RecordMerge {
 public:
  explicit RecordMerge(const RawFile& file) {
    const std::vector<BlockLocation>& blocks = file.blocks();
    for (std::size_t begin = 0; begin < blocks.size();) {
      std::size_t end = begin;
      while (end < blocks.size() && blocks[end].writer == blocks[begin].writer) {
        ++end;
      }
      heads_.emplace_back(WriterStream(file, std::span(blocks).subspan(begin, end - begin)));
      begin = end;
    }
    for (std::size_t i = 0; i < heads_.size(); ++i) {
      advance(i);
    }
  }

  // Takes the next record; returns false at the end. `is_possible(record)` says whether a record
  // can come now.
  template <typename IsPossible>
  bool next(TimedRecord& record, IsPossible is_possible) {
    while (!queue_.empty()) {
      const std::size_t i = queue_.top().head;
      queue_.pop();
      Head& head = heads_[i];
      if (!is_possible(head.record)) {
        // The cause may be an event of another writer with nearly the same stamp: let those events
        // go first.
        if (!head.deferred && !queue_.empty() && queue_.top().clock <= head.record.clock + kSlack) {
          head.deferred = true;
          queue_.push({head.record.clock + kSlack, i});
          continue;
        }
      }
      record = head.record;
      advance(i);
      return true;
    }
    return false;
  }

  // Calls visit(stream) for the stream of each writer.
  template <typename Visit>
  void each_stream(Visit visit) const {
    for (const Head& head : heads_) {
      visit(head.stream);
    }
  }

 private:
  // If two stamps differ by this or less, the order of their events is not known. In units of the
  // clock, about 100 ns.
  static constexpr std::uint64_t kSlack = 8;

  // The next record of a writer. It is deferred once if it is impossible at its turn.
  struct Head {
    explicit Head(WriterStream of) : stream(std::move(of)) {}
    WriterStream stream;
    TimedRecord record;
    bool deferred = false;
  };
  struct QueueEntry {
    std::uint64_t clock;
    std::size_t head;
    bool operator>(const QueueEntry& other) const {
      return clock != other.clock ? clock > other.clock : head > other.head;
    }
  };

  void advance(std::size_t i) {
    Head& head = heads_[i];
    head.deferred = false;
    if (head.stream.next(head.record)) {
      queue_.push({head.record.clock, i});
    }
  }

  std::vector<Head> heads_;
  std::priority_queue<QueueEntry, std::vector<QueueEntry>, std::greater<>> queue_;
};

}  // namespace heapwright::raw
