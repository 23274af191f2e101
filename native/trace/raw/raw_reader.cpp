#include "raw_reader.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "raw_header.h"
#include "trace/live_table.h"
#include "writer_stream.h"

namespace heapwright::trace {

namespace {

using raw::Ending;
using raw::FileHeader;
using raw::Item;
using raw::Other;
using raw::RawFile;
using raw::Tag;
using raw::WriterStream;

struct Live {
  std::uint64_t address = 0;
  std::uint64_t object = 0;
  std::uint64_t size = 0;
};

// Live objects by address.
class LiveObjects {
 public:
  const Live* find(std::uint64_t address) { return table_.find(address / raw::kAddressUnit); }
  void insert(const Live& live) { table_.insert(live.address / raw::kAddressUnit, live); }
  void erase(const Live& live) { table_.erase(live.address / raw::kAddressUnit); }

 private:
  LiveTable<Live> table_;
};

// Two stamps that are no further apart tell nothing of the order: units of the clock, about 100 ns.
constexpr std::uint64_t kSlack = 8;

class Reader : public RawSource {
 public:
  explicit Reader(std::unique_ptr<RawFile> file)
      : file_(std::move(file)), header_(read_header(file_->header())), time_(file_->header()) {
    phases_ = read_phases(file_->header(), header_.phases);
    const std::vector<raw::BlockPlace>& blocks = file_->blocks();
    for (std::size_t begin = 0; begin < blocks.size();) {
      std::size_t end = begin;
      while (end < blocks.size() && blocks[end].writer == blocks[begin].writer) {
        ++end;
      }
      heads_.emplace_back(WriterStream(*file_, std::span(blocks).subspan(begin, end - begin)));
      begin = end;
    }
    for (std::size_t i = 0; i < heads_.size(); ++i) {
      advance(i);
    }
  }

  const Header& header() const override { return header_; }
  bool next(Event& event) override;
  Loss loss() const override;
  RawFacts facts() const override;

 private:
  // One writer's next record; `late` after it was put off because it made no sense yet.
  struct Head {
    explicit Head(WriterStream of) : stream(std::move(of)) {}
    WriterStream stream;
    Item item;
    bool late = false;
  };
  struct Waiting {
    std::uint64_t clock;
    std::size_t head;
    bool operator>(const Waiting& other) const {
      return clock != other.clock ? clock > other.clock : head > other.head;
    }
  };
  // An object between the two halves of its reallocation.
  struct Moving {
    bool known = false;
    Live live;
  };
  struct Thread {
    std::uint32_t number = 0;
    std::vector<Moving> moving;
  };

  void advance(std::size_t i) {
    Head& head = heads_[i];
    head.late = false;
    if (head.stream.next(head.item)) {
      waiting_.push({head.item.clock, i});
    }
  }
  bool makes_sense(const Item& item);
  void take(const Item& item);
  void take_other(const Item& item, Thread& thread);
  void take_make(const Item& item, Thread& thread, Kind kind);
  void take_end(const Item& item, Thread& thread, Kind kind);
  void finish_move(const Item& item, Thread& thread);
  Thread& thread_of(const Item& item);
  void emit(const Item& item, const Thread& thread, Event event);
  void miss(std::uint64_t address);
  void make_room_at(const Item& item, const Thread& thread);

  std::unique_ptr<RawFile> file_;
  Header header_;
  Time time_;
  std::vector<std::uint64_t> phases_;
  std::vector<Head> heads_;
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting_;
  std::deque<Event> ready_;
  std::unordered_map<std::uint32_t, Thread, Mixed> threads_;
  std::uint32_t threads_seen_ = 0;
  LiveObjects live_;
  std::unordered_set<std::uint64_t, Mixed> inner_;  // blocks that were made inside the allocator
  std::uint64_t objects_ = 0;
  std::uint64_t last_time_ = 0;
  std::uint64_t last_clock_ = 0;  // of the item before
  std::uint64_t waited_ = 0;      // nanoseconds, for a processor: no time of the program's
  std::uint64_t dropped_ = 0;
  RawFacts facts_;
};

bool Reader::next(Event& event) {
  while (ready_.empty()) {
    if (waiting_.empty()) {
      return false;
    }
    const std::size_t i = waiting_.top().head;
    waiting_.pop();
    Head& head = heads_[i];
    if (!makes_sense(head.item)) {
      // Perhaps it comes after another writer's event with nearly the same stamp: let those go first.
      if (!head.late && !waiting_.empty() && waiting_.top().clock <= head.item.clock + kSlack) {
        head.late = true;
        waiting_.push({head.item.clock + kSlack, i});
        continue;
      }
    } else if (head.late) {
      ++facts_.reordered;
    }
    const Item item = head.item;
    advance(i);
    take(item);
  }
  event = ready_.front();
  ready_.pop_front();
  return true;
}

bool Reader::makes_sense(const Item& item) {
  switch (item.record.tag) {
    case Tag::kMalloc:
    case Tag::kCalloc:
    case Tag::kRealloc:
      return live_.find(item.record.address) == nullptr;
    case Tag::kFree:
    case Tag::kFreeSized:
    case Tag::kRelease:
      return live_.find(item.record.address) != nullptr;
    default:
      return true;
  }
}

Reader::Thread& Reader::thread_of(const Item& item) {
  const auto [at, is_new] = threads_.try_emplace(item.thread);
  if (is_new) {
    at->second.number = threads_seen_++;
    emit(item, at->second, {.kind = Kind::kThreadStart});
  }
  return at->second;
}

void Reader::emit(const Item& item, const Thread& thread, Event event) {
  event.thread = thread.number;
  const std::uint64_t passed = time_.of(item.clock);
  last_time_ = std::max(last_time_, passed - std::min(passed, waited_));
  event.time = last_time_;
  ready_.push_back(event);
}

// Of memory that nobody made. A forked process has some of its parent's.
void Reader::miss(std::uint64_t address) {
  if (inner_.erase(address) != 0) {
    return;  // made by the allocator for itself
  }
  if (file_->header().forked != 0) {
    ++facts_.inherited;
  } else {
    ++facts_.unknown_frees;
    ++facts_.inverted;
    ++dropped_;
  }
}

// Something is made where an object lives: its end has been lost, or is yet to come.
void Reader::make_room_at(const Item& item, const Thread& thread) {
  const Live* const there = live_.find(item.record.address);
  if (there != nullptr) {
    ++facts_.inverted;
    ++dropped_;
    emit(item, thread, {.kind = Kind::kFree, .object = there->object, .size = there->size});
    live_.erase(*there);
  }
}

void Reader::take_make(const Item& item, Thread& thread, Kind kind) {
  if (item.record.address == 0) {
    ++dropped_;
    return;
  }
  make_room_at(item, thread);
  inner_.erase(item.record.address);
  const std::uint64_t size = item.record.size;
  const std::uint64_t alignment = item.alignment_log2 < 0 ? 0 : std::uint64_t{1} << item.alignment_log2;
  live_.insert({.address = item.record.address, .object = objects_, .size = size});
  emit(item, thread,
       {.kind = item.alignment_log2 < 0 ? kind : Kind::kAligned,
        .object = objects_,
        .size = size,
        .alignment = alignment});
  ++objects_;
}

void Reader::take_end(const Item& item, Thread& thread, Kind kind) {
  const Live* const live = live_.find(item.record.address);
  if (live == nullptr) {
    miss(item.record.address);
    return;
  }
  emit(item, thread,
       {.kind = kind,
        .object = live->object,
        .size = kind == Kind::kFreeSized ? live->size : 0,
        .touched = item.touched == ~std::uint64_t{0} ? kUnknown : item.touched});
  live_.erase(*live);
}

void Reader::finish_move(const Item& item, Thread& thread) {
  Moving moving;
  if (!thread.moving.empty()) {
    moving = thread.moving.back();
    thread.moving.pop_back();
  }
  const bool moved = item.record.tag == Tag::kRealloc;
  if (!moving.known) {
    if (moved) {
      take_make(item, thread, Kind::kMalloc);
    }
    return;
  }
  Live& live = moving.live;
  if (moved) {
    if (item.record.address == 0) {
      ++dropped_;
      return;
    }
    make_room_at(item, thread);
    inner_.erase(item.record.address);
    live.address = item.record.address;
    live.size = item.record.size;
    live_.insert(live);
    emit(item, thread, {.kind = Kind::kRealloc, .object = live.object, .size = live.size});
  } else if (item.record.other == Other::kGone) {
    emit(item, thread, {.kind = Kind::kFree, .object = live.object});
  } else if (live_.find(live.address) == nullptr) {
    live_.insert(live);
  }
}

void Reader::take_other(const Item& item, Thread& thread) {
  const std::uint64_t value = item.record.value;
  switch (item.record.other) {
    case Other::kThreadEnd:
      emit(item, thread, {.kind = Kind::kThreadEnd});
      threads_.erase(item.thread);  // what it still does is another thread's doing
      break;
    case Other::kLive:
    case Other::kUsableSize:
      if (const Live* const live = live_.find(item.record.address); live != nullptr) {
        const bool is_live = item.record.other == Other::kLive;
        emit(item, thread,
             {.kind = is_live ? Kind::kTouched : Kind::kUsableSize,
              .object = live->object,
              .touched = is_live ? item.touched : kUnknown});
      } else if (item.record.other == Other::kUsableSize) {
        miss(item.record.address);
      }
      break;
    case Other::kKept:
    case Other::kGone:
      finish_move(item, thread);
      break;
    case Other::kWaited:
      // Only where nobody did anything: while others go on the process's time does.
      waited_ +=
          std::min(value, time_.of(item.clock) - std::min(time_.of(last_clock_), time_.of(item.clock)));
      break;
    case Other::kInner:
      inner_.insert(item.record.address);
      break;
    case Other::kFork:
      emit(item, thread, {.kind = Kind::kFork, .value = value});
      break;
    case Other::kPhase:
      if (value < phases_.size()) {
        emit(item, thread, {.kind = Kind::kPhase, .value = phases_[value]});
      } else {
        ++dropped_;
      }
      break;
    case Other::kResident:
      emit(item, thread, {.kind = Kind::kResident, .value = value});
      break;
    default:
      break;  // kThreadStart: thread_of has seen to it
  }
}

void Reader::take(const Item& item) {
  Thread& thread = thread_of(item);
  switch (item.record.tag) {
    case Tag::kMalloc:
      take_make(item, thread, Kind::kMalloc);
      break;
    case Tag::kCalloc:
      take_make(item, thread, Kind::kCalloc);
      break;
    case Tag::kFree:
      take_end(item, thread, Kind::kFree);
      break;
    case Tag::kFreeSized:
      take_end(item, thread, Kind::kFreeSized);
      break;
    case Tag::kRelease: {
      Moving moving;
      if (const Live* const live = live_.find(item.record.address); live != nullptr) {
        moving = {.known = true, .live = *live};
        live_.erase(*live);
      } else {
        miss(item.record.address);
      }
      thread.moving.push_back(moving);
      break;
    }
    case Tag::kRealloc:
      finish_move(item, thread);
      break;
    case Tag::kOther:
      take_other(item, thread);
      break;
    case Tag::kEnd:
      break;
  }
  last_clock_ = item.clock;
}

RawFacts Reader::facts() const {
  RawFacts facts = facts_;
  facts.bytes = raw::kBlockBytes;
  for (const Head& head : heads_) {
    facts.bytes += head.stream.bytes();
  }
  return facts;
}

Loss Reader::loss() const {
  const FileHeader& raw = file_->header();
  Loss loss;
  loss.failed_calls = raw.failed.load();
  loss.events = dropped_;
  loss.bytes = file_->lost_bytes();
  std::uint64_t blocks = 0;
  for (const Head& head : heads_) {
    loss.bytes += head.stream.lost_bytes();
    blocks += head.stream.lost_blocks();
  }
  const Ending ending = raw.ending.load();
  loss.cut_short =
      ending == Ending::kRunning || ending == Ending::kStopped || file_->truncated() || blocks != 0;
  if (ending == Ending::kStopped) {
    loss.why = std::string("recording stopped early: ") + std::strerror(static_cast<int>(raw.error.load()));
  } else if (file_->truncated() || blocks != 0 || loss.bytes != 0) {
    loss.why = "the file is damaged or cut: " + std::to_string(blocks) + " blocks are missing and " +
               std::to_string(loss.bytes) + " bytes could not be read";
  } else if (loss.events != 0) {
    loss.why =
        std::to_string(loss.events) + " events made no sense, such as freeing what was never allocated";
  } else if (ending == Ending::kRunning) {
    loss.why = "the process was killed, or ended without exit()";
  } else if (facts_.inherited != 0) {
    loss.why = std::to_string(facts_.inherited) +
               " frees and reallocations of memory from before fork() are left out";
  }
  return loss;
}

}  // namespace

std::unique_ptr<RawSource> open_raw(const std::string& path, std::string& error) {
  std::unique_ptr<RawFile> file = RawFile::open(path, error);
  return file == nullptr ? nullptr : std::make_unique<Reader>(std::move(file));
}

bool is_raw(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t magic = 0;
  return file.read(reinterpret_cast<char*>(&magic), sizeof(magic)) && magic == raw::kFileMagic;
}

}  // namespace heapwright::trace
