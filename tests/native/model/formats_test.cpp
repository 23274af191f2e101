// Tests the formats wl and heaptrack: events come back as far as the format can hold them, and a
// damaged file is read up to the damage, without a crash.
#include "trace/formats.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>

#include "workload.h"

namespace heapwright::trace {
namespace {

class Wl : public ::testing::Test {
 protected:
  ~Wl() override { (void)std::remove(path_.c_str()); }

  void write(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }
  std::string bytes() {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Reads the file; -1 allocations where it is none.
  model::Judged read() {
    std::string error;
    const auto source = open_wl(path_, error);
    if (source == nullptr) {
      EXPECT_FALSE(error.empty());
      loss_ = {};
      events_.clear();
      return {};
    }
    events_ = model::all_of(*source);
    loss_ = source->loss();
    return model::judge(events_);
  }
  void exported(const std::vector<Event>& events) {
    trace::VectorSource source(events);
    Exported done;
    std::string error;
    ASSERT_TRUE(write_wl(source, path_, done, error)) << error;
  }

  std::string path_ = ::testing::TempDir() + "/wl_" + std::to_string(::getpid());
  std::vector<Event> events_;
  Loss loss_;
};

std::string file_of(std::initializer_list<int> thread) {
  // One slot table, one sync, one thread at offset 9.
  std::string text{8, 9, 9, 2, 10, 1, 11, 9, 1};
  for (const int byte : thread) {
    text += static_cast<char>(byte);
  }
  return text;
}

TEST_F(Wl, ReadsEveryOperation) {
  // malloc 1 of 300 (two bytes: 2 * 128 + 44), calloc 2 of 5, realloc 1 → 3 of 7, memalign 4 to 64
  // of 9, valloc, pvalloc, free 2, a failed malloc, malloc into a slot in use.
  write(file_of({2, 1, 0x82, 44, 3, 2, 5, 4, 3, 1, 7, 12, 4,  64, 9, 13,
                 5, 6, 14,   6,  7, 5, 2, 2, 0, 8, 2, 3,  11, 0,  1}));
  const model::Judged found = read();
  EXPECT_EQ(loss_.failed_calls, 1U);
  EXPECT_FALSE(loss_.cut_short);
  ASSERT_EQ(events_.size(), 9U);
  EXPECT_EQ(events_[0].size, 300U);
  EXPECT_EQ(events_[1].kind, Kind::kCalloc);
  EXPECT_EQ(events_[2].kind, Kind::kRealloc);
  EXPECT_EQ(events_[2].object, 0U);
  EXPECT_EQ(events_[3].alignment, 64U);
  EXPECT_EQ(events_[4].alignment, 4096U);
  EXPECT_EQ(events_[5].size, 4096U);
  EXPECT_EQ(events_[6].kind, Kind::kFree);
  EXPECT_EQ(events_[6].object, 1U);
  EXPECT_EQ(events_[7].kind, Kind::kFree);  // the earlier object of the slot
  EXPECT_EQ(events_[7].object, 0U);
  EXPECT_EQ(events_[8].size, 11U);
  EXPECT_EQ(found.live, 9U + 6 + 4096 + 11);
}

// The fields of an event that the format holds; objects and threads are numbered in order of
// appearance.
std::vector<Event> carried(std::vector<Event> events) {
  std::erase_if(events, [](const Event& e) {
    return !is_allocation(e.kind) && !is_free(e.kind) && e.kind != Kind::kRealloc;
  });
  for (Event& event : events) {
    event.kind = event.kind == Kind::kFreeSized ? Kind::kFree : event.kind;
    event.time = 0;
    event.touched = kUnknown;
    event.value = 0;
    event.size = is_free(event.kind) ? 0 : event.size;
  }
  return events;
}

TEST_F(Wl, OneThreadComesBackAsItWas) {
  const auto events = model::workload(5, 3);
  exported(events);
  read();
  EXPECT_EQ(carried(events_), carried(events));
}

TEST_F(Wl, ThreadsComeBackEachInItsOrder) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const auto events = model::workload(seed, 2, 4);
    const model::Judged truth = model::judge(events);
    exported(events);
    const model::Judged found = read();
    EXPECT_EQ(loss_.events, 0U);
    EXPECT_EQ(found.live, truth.live);
    EXPECT_EQ(found.remote_frees, truth.remote_frees);
    for (std::uint32_t thread = 0; thread < 4; ++thread) {
      const auto own = [thread](const std::vector<Event>& of) {
        std::vector<std::pair<Kind, std::uint64_t>> sizes;
        for (const Event& event : carried(of)) {
          if (event.thread == thread) {
            sizes.emplace_back(event.kind, event.size);
          }
        }
        return sizes;
      };
      EXPECT_EQ(own(events_), own(events));
    }
    // Once in the format's own order, it stays as it is.
    const auto once = carried(events_);
    exported(events_);
    read();
    EXPECT_EQ(carried(events_).size(), once.size());
  }
}

TEST_F(Wl, EveryCutIsReadAsFarAsItGoes) {
  exported(model::workload(9, 1, 2));
  const std::string whole = bytes();
  const std::size_t all = model::judge((read(), events_)).allocations;
  std::size_t last = 0;
  for (std::size_t length = 0; length < whole.size(); length += 1 + length / 7) {
    write(whole.substr(0, length));
    last = std::max<std::size_t>(last, read().allocations);
    EXPECT_TRUE(events_.empty() || loss_.cut_short);
  }
  EXPECT_GT(last, all / 2);
}

TEST_F(Wl, SurvivesDamage) {
  exported(model::workload(10, 1, 3));
  const std::string whole = bytes().substr(0, 3000);
  std::mt19937_64 random(1);
  for (int i = 0; i < 1500; ++i) {
    std::string damaged = whole;
    for (std::uint64_t n = 1 + random() % 8; n > 0; --n) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    write(damaged);
    read();  // judges that it is a trace
  }
  for (const std::string& junk :
       {std::string(), std::string(1, '\x08'), std::string(200, '\xff'), std::string(100, '\0')}) {
    write(junk);
    read();
    EXPECT_TRUE(events_.empty());
  }
}

struct Text {
  std::vector<Event> events;
  Loss loss;
  bool sound = false;
  Header header;
};

Text heaptrack(const std::string& text) {
  Text found;
  std::string error;
  std::FILE* file = text.empty() ? std::fopen("/dev/null", "r")
                                 : ::fmemopen(const_cast<char*>(text.data()), text.size(), "r");
  if (const auto source = open_heaptrack(file, error)) {
    found.sound = true;
    found.events = model::all_of(*source);
    found.loss = source->loss();
    found.header = source->header();
    model::judge(found.events);
  } else {
    EXPECT_FALSE(error.empty());
  }
  (void)std::fclose(file);
  return found;
}

TEST(Heaptrack, ReadsWhatTheLibraryWrites) {
  const Text found = heaptrack(
      "v 10400 3\nx 4 prog\nX prog a b\nI 1000 ffff\nc 5\nR 10\n+ 20 1 7f00\n+ 40 1 7f20\n- 7f00\n+ 8 1 "
      "7f00\n");
  ASSERT_TRUE(found.sound);
  EXPECT_EQ(found.header.command, (std::vector<std::string>{"prog", "a", "b"}));
  ASSERT_EQ(found.events.size(), 5U);
  EXPECT_EQ(found.events[0].kind, Kind::kResident);
  EXPECT_EQ(found.events[0].value, 0x10U * 0x1000);
  EXPECT_EQ(found.events[1].time, 5000000U);
  EXPECT_EQ(found.events[1].size, 0x20U);
  EXPECT_EQ(found.events[3].object, 0U);
  EXPECT_EQ(found.events[4].object, 2U);
  EXPECT_FALSE(found.loss.cut_short);
}

TEST(Heaptrack, ReadsWhatIsInterpreted) {
  const Text found = heaptrack("v 10400 3\na 20 1\n+ 0\na 30 2\n+ 1\n+ 0\n- 0\n- 0\n- 1\n");
  ASSERT_EQ(found.events.size(), 6U);
  EXPECT_EQ(found.events[3].object, 2U);  // the latest of its kind
  EXPECT_EQ(found.events[4].object, 0U);
  EXPECT_EQ(found.events[5].object, 1U);
}

TEST(Heaptrack, SaysWhatIsLost) {
  EXPECT_EQ(heaptrack("v 1\n- 99\n+ zz\n+\n+ 1 1 10\n").loss.events, 3U);
  const Text again = heaptrack("v 1\n+ 10 1 10\n+ 20 1 10\n- 10\n");
  EXPECT_EQ(again.events.size(), 4U);
  EXPECT_EQ(again.loss.events, 1U);
  EXPECT_TRUE(heaptrack("v 1\n+ 10 1 10\n- 1").loss.cut_short);
  const Text cut = heaptrack("v 1\n+ 10 1 10\n!cut the file ends early\n");
  EXPECT_TRUE(cut.loss.cut_short);
  EXPECT_EQ(cut.loss.why, "the file ends early");
  EXPECT_FALSE(heaptrack("").sound);
  EXPECT_FALSE(heaptrack("hello\n").sound);
}

TEST(Heaptrack, SurvivesDamage) {
  std::string whole = "v 10400 3\na 20 1\nI 1000 1\n";
  std::mt19937_64 random(2);
  for (int i = 0; i < 60; ++i) {
    whole += random() % 3 == 0 ? "- " + std::to_string(random() % 2) + "\n"
                               : "+ " + std::to_string(random() % 2) + "\nc 7\n";
  }
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = whole;
    for (std::uint64_t n = 1 + random() % 10; n > 0; --n) {
      damaged[10 + random() % (damaged.size() - 10)] = random() % 3 == 0 ? '\n' : static_cast<char>(random());
    }
    heaptrack(damaged);
  }
}

}  // namespace
}  // namespace heapwright::trace
