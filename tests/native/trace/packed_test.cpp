// Tests the packed form: written events are read back, and a damaged file is read as far as it is
// valid.
#include "trace/packed.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "events.h"
#include "trace/block.h"
#include "trace/bytes.h"
#include "trace/text.h"

namespace heapwright::trace {
namespace {

constexpr std::uint32_t kSmallBlock = 10000;  // events a block

class Packed : public ::testing::Test {
 protected:
  ~Packed() override { (void)std::remove(path_.c_str()); }

  void write(const std::vector<Event>& events, const Loss& loss = {}, std::uint64_t tick = 1,
             std::uint32_t block = 0) {
    std::string error;
    const auto writer = PackedWriter::create(path_, header_, error, tick, block);
    ASSERT_NE(writer, nullptr) << error;
    for (const Event& event : events) {
      ASSERT_TRUE(writer->add(event)) << writer->error();
    }
    ASSERT_TRUE(writer->finish(loss)) << writer->error();
  }

  // Returns all readable events; source_ holds the reader.
  std::vector<Event> read() {
    std::string error;
    source_ = open_packed(path_, error);
    std::vector<Event> events;
    if (source_ == nullptr) {
      EXPECT_FALSE(error.empty());
      return events;
    }
    for (Event event; source_->next(event);) {
      events.push_back(event);
    }
    return events;
  }

  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void overwrite(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  std::string path_ = ::testing::TempDir() + "packed." + std::to_string(::getpid()) + ".hwt";
  Header header_;
  std::unique_ptr<PackedSource> source_;
};

TEST_F(Packed, WrittenEventsAreReadBack) {
  for (std::uint64_t seed = 0; seed < 20; seed++) {
    const auto events = random_events(seed, seed * 300, static_cast<std::uint32_t>(1 + seed % 5));
    write(events);
    EXPECT_EQ(read(), events) << "seed " << seed;
    EXPECT_TRUE(source_->loss().why.empty());
    ASSERT_NE(source_->summary(), nullptr);
    EXPECT_EQ(source_->summary()->events, events.size());
  }
}

TEST_F(Packed, SeveralBlocks) {
  const auto events = random_events(1, 2 * kSmallBlock + 1000, 3);
  write(events, {}, 1, kSmallBlock);
  EXPECT_EQ(read(), events);
}

TEST_F(Packed, HeaderAndLossComeBack) {
  header_.command = {"a", "b c", ""};
  header_.executable = "/bin/a";
  header_.allocator = "glibc 2.36";
  header_.pid = 7;
  header_.parent = 3;
  header_.start = 1700000000;
  header_.page_size = 16384;
  header_.resident_at_start = 123456;
  header_.phases = {"load", "run"};
  header_.synthetic = true;
  Loss loss;
  loss.bytes = 1;
  loss.events = 2;
  loss.failed_calls = 3;
  loss.cut_short = true;
  loss.why = "killed";
  write({}, loss);
  EXPECT_TRUE(read().empty());
  const Header& back = source_->header();
  EXPECT_EQ(back.command, header_.command);
  EXPECT_EQ(back.phases, header_.phases);
  EXPECT_EQ(back.executable, header_.executable);
  EXPECT_EQ(back.allocator, header_.allocator);
  EXPECT_EQ(back.pid, 7U);
  EXPECT_EQ(back.parent, 3U);
  EXPECT_EQ(back.start, 1700000000U);
  EXPECT_EQ(back.page_size, 16384U);
  EXPECT_EQ(back.resident_at_start, 123456U);
  EXPECT_TRUE(back.synthetic);
  const Loss read_loss = source_->loss();
  EXPECT_EQ(read_loss.bytes, 1U);
  EXPECT_EQ(read_loss.events, 2U);
  EXPECT_EQ(read_loss.failed_calls, 3U);
  EXPECT_TRUE(read_loss.cut_short);
  EXPECT_EQ(read_loss.why, "killed");
}

TEST_F(Packed, SummaryKnowsThePeak) {
  Event event;
  std::vector<Event> events;
  for (std::uint64_t i = 0; i < 3; i++) {
    event = {};
    event.object = i;
    event.size = 100;
    events.push_back(event);
  }
  event.kind = Kind::kFree;
  event.object = 1;
  events.push_back(event);
  event = {};
  event.kind = Kind::kRealloc;
  event.object = 0;
  event.size = 150;
  events.push_back(event);
  write(events);
  (void)read();
  EXPECT_EQ(source_->summary()->peak_live_bytes, 300U);
  EXPECT_EQ(source_->summary()->peak_live_objects, 3U);
  EXPECT_EQ(source_->summary()->allocations, 3U);
}

TEST_F(Packed, TimesAreKeptToATick) {
  auto events = random_events(3, 500, 2);
  write(events, {}, 64);
  for (Event& event : events) {
    event.time = event.time / 64 * 64;
  }
  EXPECT_EQ(read(), events);
}

TEST_F(Packed, CutAnywhereItIsAPrefix) {
  const auto events = random_events(5, kSmallBlock + 2000, 2);
  write(events, {}, 1, kSmallBlock);
  const std::string whole = bytes();
  for (std::size_t size = 0; size < whole.size(); size += 1 + whole.size() / 40) {
    overwrite(whole.substr(0, size));
    const auto found = read();
    ASSERT_LE(found.size(), events.size());
    EXPECT_TRUE(std::equal(found.begin(), found.end(), events.begin()));
    if (source_ != nullptr) {
      EXPECT_TRUE(source_->loss().cut_short);
      EXPECT_FALSE(source_->loss().why.empty());
    }
  }
}

// The check sums detect changed bytes, so the events that are read are still a prefix.
TEST_F(Packed, ChangedBytesAreNoticed) {
  const auto events = random_events(6, 3000, 2);
  write(events);
  const std::string whole = bytes();
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; i++) {
    std::string changed = whole;
    changed[random() % changed.size()] ^= static_cast<char>(1 << random() % 8);
    overwrite(changed);
    const auto found = read();
    ASSERT_LE(found.size(), events.size());
    EXPECT_TRUE(std::equal(found.begin(), found.end(), events.begin()));
  }
}

TEST_F(Packed, AnotherVersionIsReported) {
  write({});
  std::string changed = bytes();
  changed[6] = 9;
  overwrite(changed);
  std::string error;
  EXPECT_EQ(open_packed(path_, error), nullptr);
  EXPECT_NE(error.find("version 9"), std::string::npos) << error;
}

TEST_F(Packed, NonsenseIsRefused) {
  std::string error;
  const auto writer = PackedWriter::create(path_, header_, error);
  Event event;
  event.kind = Kind::kFree;
  EXPECT_FALSE(writer->add(event));
  EXPECT_NE(writer->error().find("not live"), std::string::npos);
  EXPECT_FALSE(writer->finish({}));
  EXPECT_EQ(::access(path_.c_str(), F_OK), -1);
}

// A malicious block may be invalid although its check sum is right.
TEST(Block, AnyBytesAreDecodedOrRefused) {
  BlockEncoder encoder(1);
  std::uint64_t made = 0;
  for (const Event& event : random_events(9, 2000, 3)) {
    encoder.add(event, made);
    made += is_allocation(event.kind) ? 1 : 0;
  }
  const Bytes block = encoder.take();
  std::mt19937_64 random(2);
  for (int i = 0; i < 3000; i++) {
    Bytes changed = block;
    for (std::uint64_t k = random() % 5; k < 5; k++) {
      changed[random() % (random() % 2 == 0 ? 60 : changed.size())] = static_cast<char>(random());
    }
    BlockDecoder decoder(1);
    if (decoder.open(changed)) {
      for (Event event; decoder.next(event);) {
        EXPECT_LT(event.object, decoder.objects() + 1);
      }
    } else {
      EXPECT_FALSE(decoder.error().empty());
    }
  }
}

TEST(Text, WrittenTextIsReadBack) {
  for (const Event& event : random_events(10, 2000, 3)) {
    Event back;
    std::string error;
    ASSERT_TRUE(from_text(to_text(event), back, error)) << error;
    EXPECT_EQ(back, event);
  }
}

TEST(Text, ErrorsAreReported) {
  Event event;
  std::string error;
  for (const char* line :
       {"x 0 malloc 0 1", "0 0 mallok 0 1", "0 0 malloc 0", "0 0 free", "0 0 malloc 0 1 2", "0"}) {
    EXPECT_FALSE(from_text(line, event, error)) << line;
    EXPECT_FALSE(error.empty()) << line;
  }
  EXPECT_FALSE(from_text("  # nothing", event, error));
  EXPECT_TRUE(error.empty());
}

}  // namespace
}  // namespace heapwright::trace
