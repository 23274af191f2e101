// Plays an operations file by the rules of ops.h in the tests, one operation of a randomly chosen
// thread at a time.
//
// It keeps a shadow of the objects in all slots. run() tries one schedule that the rules allow and
// returns the fault of the file. The model never reads outside of the file, however damaged it is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "replay/ops.h"

namespace heapwright::replay {

class ReplayModel {
 public:
  ReplayModel(const std::string& path, std::uint64_t seed) : random_(seed) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    expect(bytes_.size() >= sizeof header_, "the file has no header");
    if (wrong_.empty()) {
      std::memcpy(&header_, bytes_.data(), sizeof header_);
      const std::uint64_t room = bytes_.size() - sizeof header_;
      expect(header_.magic == kOpsMagic && header_.threads > 0 && header_.lanes > 0, "the header is invalid");
      expect(header_.threads <= room / sizeof(ThreadEntry) && header_.lanes <= header_.threads &&
                 header_.shared_slots <= kMaxSlots,
             "the header names more than the file holds");
    }
    if (!wrong_.empty()) {
      return;
    }
    threads_.resize(header_.threads);
    for (std::size_t i = 0; i < threads_.size(); i++) {
      std::memcpy(&threads_[i].entry, bytes_.data() + sizeof header_ + i * sizeof(ThreadEntry),
                  sizeof(ThreadEntry));
      expect(threads_[i].entry.lane < header_.lanes, "a thread has no lane");
    }
    for (std::uint64_t lane = 0; lane < header_.lanes; lane++) {
      lanes_.push_back(
          read<LaneEntry>(sizeof header_ + header_.threads * sizeof(ThreadEntry) + lane * sizeof(LaneEntry))
              .slots);
    }
    shared_.resize(header_.shared_slots);
    lane_busy_.resize(header_.lanes);
    begin(0);
  }

  // Plays to the end. Returns the first fault, or an empty string.
  std::string run() {
    while (wrong_.empty()) {
      std::vector<std::size_t> able;
      bool any_running = false;
      for (std::size_t i = 0; i < threads_.size(); i++) {
        any_running = any_running || threads_[i].running;
        if (threads_[i].running && can(threads_[i])) {
          able.push_back(i);
        }
      }
      if (able.empty()) {
        expect(!any_running, "the threads wait for each other");
        break;
      }
      step(threads_[able[random_() % able.size()]]);
    }
    expect(calls == header_.events, "the header has another number of calls");
    expect(readings_ == header_.readings, "the header has another number of readings");
    for (const Thread& thread : threads_) {
      expect(thread.begun == (thread.entry.starts != 0), "a thread is started against its entry, or never");
    }
    return wrong_;
  }

  // Thread `by` has started another one, after so many calls of all threads.
  struct Start {
    std::uint64_t by;
    std::uint64_t thread;
    std::uint64_t calls;
  };
  std::vector<Start> starts;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> fills;  // bytes touched before and after each
  std::uint64_t calls = 0;
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  std::uint64_t clock = 0;        // the latest recorded time that the allocator was shown
  std::uint64_t clock_steps = 0;  // how often it was set
  std::uint64_t joins_before_last_call = 0;
  std::uint64_t sized_frees = 0;
  unsigned first_call = kNext;  // its operation; kNext: there is none
  const OpsHeader& header() const { return header_; }

 private:
  struct Slot {
    bool full = false;
    bool aligned = false;
    std::uint64_t size = 0;
    std::uint32_t turn = 0;
  };
  struct Thread {
    ThreadEntry entry;
    bool begun = false;
    bool running = false;
    bool ended = false;
    std::uint64_t chunk = 0;
    std::size_t at = 0;
    std::uint64_t epoch = 0;
    std::uint64_t parts = 0;
    std::uint64_t clock = 0;  // recorded nanoseconds
  };

  bool expect(bool so, const char* otherwise) {
    if (!so && wrong_.empty()) {
      wrong_ = otherwise;
    }
    return so;
  }
  template <class T>
  T read(std::uint64_t place) const {
    T found{};
    if (place <= bytes_.size() && bytes_.size() - place >= sizeof found) {
      std::memcpy(&found, bytes_.data() + place, sizeof found);
    }
    return found;
  }
  void begin(std::uint64_t number) {
    if (!expect(number < threads_.size() && !threads_[number].begun, "a thread is started that cannot be") ||
        !wrong_.empty()) {
      return;
    }
    Thread& thread = threads_[number];
    expect(!lane_busy_[thread.entry.lane], "two threads have one lane");
    lane_busy_[thread.entry.lane] = true;
    thread.begun = thread.running = true;
    thread.chunk = thread.entry.chunk;
  }
  Word look(const Thread& thread, std::size_t ahead = 0) const {
    return read<Word>(header_.first_chunk + thread.chunk * kChunkBytes + (thread.at + ahead) * sizeof(Word));
  }
  bool can(const Thread& thread) {
    const Word w = look(thread);
    if (op_of(w) == kEpoch) {
      return thread.parts > 0 ||
             argument_of(w) == epoch_;  // only entering an epoch waits, leaving one never does
    }
    if (op_of(w) == kSpawn || op_of(w) == kJoin) {
      if (!expect(argument_of(w) < threads_.size(), "there is no such thread")) {
        return false;
      }
      const Thread& other = threads_[argument_of(w)];
      return op_of(w) == kSpawn ? !lane_busy_[other.entry.lane] : other.ended && other.entry.ends != 0;
    }
    bool shared = false;
    std::uint64_t turn = 0;
    std::size_t ahead = 0;
    for (; op_of(look(thread, ahead)) >= kTouch && op_of(look(thread, ahead)) <= kShared; ahead++) {
      if (op_of(look(thread, ahead)) == kShared) {
        shared = true;
        turn = argument_of(look(thread, ahead));
      }
    }
    const std::uint64_t slot = slot_of(look(thread, ahead));
    return !shared ||
           (expect(slot < shared_.size(), "there is no such shared slot") && shared_[slot].turn == turn);
  }
  void leave(Thread& thread) {
    if (thread.parts > 0 && ++arrived_ == thread.parts) {
      arrived_ = 0;
      epoch_++;
    }
    thread.parts = 0;
  }
  void end(Thread& thread) {
    leave(thread);
    thread.running = false;
    thread.ended = true;
    if (thread.entry.ends != 0) {
      lane_busy_[thread.entry.lane] = false;
    }
  }
  void step(Thread& thread) {
    std::uint64_t upper = 0;
    bool shared = false;
    Word w = look(thread);
    if (op_of(w) == kEpoch && thread.parts > 0) {
      leave(thread);
      return;  // and waits for the new one
    }
    while (op_of(w) >= kTouch && op_of(w) <= kShared && thread.at < kChunkWords) {
      upper = op_of(w) == kWide ? argument_of(w) << 32 : upper;
      shared = shared || op_of(w) == kShared;
      thread.at++;
      w = look(thread);
    }
    thread.at++;
    if (!expect(thread.at <= kChunkWords, "a chunk has no end")) {
      return;
    }
    switch (op_of(w)) {
      case kNext:
        if (w == kStreamEnd) {
          end(thread);
          return;
        }
        expect(argument_of(w) < header_.chunks && argument_of(w) > thread.chunk,
               "there is no such chunk, or it was");
        thread.chunk = argument_of(w);
        thread.at = 0;
        return;
      case kEpoch:
        thread.parts = slot_of(w);
        thread.epoch = argument_of(w);
        expect(thread.epoch == epoch_, "an epoch has not come");
        return;
      case kSpawn:
        begin(argument_of(w));
        starts.push_back({static_cast<std::uint64_t>(&thread - threads_.data()), argument_of(w), calls});
        return;
      case kJoin:
        joins_++;
        return;
      case kClock:
        readings_ += number_of(w) & 1;
        expect(number_of(w) >> 1 >= thread.clock, "the clock of a thread goes back");
        thread.clock = number_of(w) >> 1;
        clock = std::max(clock, thread.clock);
        clock_steps++;
        return;
      default:
        call(thread, w, shared, upper | argument_of(w));
    }
  }
  void call(Thread& thread, Word w, bool shared, std::uint64_t size) {
    const std::uint64_t number = slot_of(w);
    if (!expect(number < (shared ? shared_.size() : lanes_[thread.entry.lane]), "there is no such slot")) {
      return;
    }
    Slot& slot = shared ? shared_[number] : own_[{thread.entry.lane, number}];
    if (op_of(w) == kFill) {
      expect(slot.full && look(thread, 1) > look(thread) && look(thread, 1) <= slot.size,
             "a step touches no more bytes of its block");
      fills.emplace_back(look(thread), look(thread, 1));
      thread.at += 2;
      slot.turn++;
      return;
    }
    first_call = calls == 0 ? op_of(w) : first_call;
    calls++;
    joins_before_last_call = joins_;
    const bool dummy = !shared && number == 0;
    if (op_of(w) == kMalloc || op_of(w) == kCalloc || op_of(w) == kAligned) {
      expect(!slot.full || dummy, "a slot is taken twice");
      thread.at += op_of(w) == kAligned ? 1 : 0;
      slot.full = true;
      slot.aligned = op_of(w) == kAligned;
      slot.size = size;
      live += size;
    } else {
      expect(slot.full && !dummy, "a slot without an object is used");
      if (op_of(w) == kRealloc) {
        expect(look(thread) <= std::min(slot.size, size), "more bytes are touched than the block has");
        thread.at++;
        live += size - slot.size;
        slot.size = size;
      } else if (op_of(w) == kFree || op_of(w) == kFreeSized) {
        expect(op_of(w) == kFree || (size == slot.size && !slot.aligned), "a sized free has a wrong size");
        sized_frees += op_of(w) == kFreeSized ? 1 : 0;
        slot.full = false;
        live -= slot.size;
      }
    }
    slot.turn++;
    peak = std::max(peak, live);
  }

  std::mt19937_64 random_;
  std::string bytes_;
  std::string wrong_;
  OpsHeader header_;
  std::vector<Thread> threads_;
  std::vector<std::uint64_t> lanes_;  // slots of each
  std::vector<Slot> shared_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, Slot> own_;
  std::vector<bool> lane_busy_;
  std::uint64_t epoch_ = 0;
  std::uint64_t arrived_ = 0;
  std::uint64_t readings_ = 0;
  std::uint64_t joins_ = 0;
};

}  // namespace heapwright::replay
