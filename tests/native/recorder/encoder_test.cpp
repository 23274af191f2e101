// Tests that the decoder reads all records of the encoder: random records of every width, from many
// seeds.
#include "recorder/encoder.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "trace/raw/decoder.h"

namespace heapwright::recorder {
namespace {

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::uint64_t below(std::uint64_t limit) { return engine_() % limit; }
  // Returns a number of up to this many bits; each width is equally likely.
  std::uint64_t wide(unsigned bits) {
    const auto width = static_cast<unsigned>(below(bits + 1));
    return width == 0 ? 0 : engine_() >> (64 - width);
  }

 private:
  std::mt19937_64 engine_;
};

bool has_size(Tag tag) { return tag == Tag::kMalloc || tag == Tag::kCalloc || tag == Tag::kRealloc; }

bool has_address(Other other) {
  return other == Other::kLive || other == Other::kUsableSize || other == Other::kInternalBlock;
}

// Writes a random record and returns the record that the decoder should return. It leaves out
// prefixes that the encoder adds.
Record put_random(Stream& stream, Random& random, std::uint64_t& now, std::uint64_t& last) {
  Record record;
  now += random.wide(random.below(50) == 0 ? 48 : 9);
  // Addresses as in a heap: mostly near the last one, sometimes anywhere.
  last = random.below(20) == 0 ? random.wide(random.below(20) == 0 ? 61 : 47)
                               : (last + random.wide(36) - random.wide(36)) & (~std::uint64_t{0} >> 3);
  record.address = last * kAddressUnit;
  record.tag = static_cast<Tag>(1 + random.below(7));
  if (record.tag == Tag::kOther) {
    constexpr auto kFirst = static_cast<std::uint64_t>(Other::kThread);
    constexpr auto kLast = static_cast<std::uint64_t>(Other::kWaited);
    record.other = static_cast<Other>(kFirst + random.below(kLast - kFirst + 1));
    if (has_address(record.other)) {
      put_other_address(stream, record.other, record.address);
    } else {
      record.address = 0;
      record.value = random.wide(64);
      put_other(stream, record.other, record.value);
    }
  } else if (has_size(record.tag)) {
    record.size = random.wide(64);
    random.below(2) == 0 ? put_stamped<true>(stream, record.tag, record.address, record.size, now)
                         : put_event<true>(stream, record.tag, record.address, record.size);
  } else {
    random.below(2) == 0 ? put_stamped<false>(stream, record.tag, record.address, 0, now)
                         : put_event<false>(stream, record.tag, record.address, 0);
  }
  record.clock = stream.clock;
  return record;
}

void expect_same(const Record& got, const Record& wanted) {
  ASSERT_EQ(got.tag, wanted.tag);
  EXPECT_EQ(got.clock, wanted.clock);
  EXPECT_EQ(got.address, wanted.address);
  EXPECT_EQ(got.size, wanted.size);
  if (got.tag == Tag::kOther) {
    EXPECT_EQ(got.other, wanted.other);
    if (!has_address(got.other)) {
      EXPECT_EQ(got.value, wanted.value);
    }
  }
}

// Returns the next record that the test wrote, without those that the encoder added.
BlockDecoder::Result next_asked(BlockDecoder& decoder, Record& record) {
  for (;;) {
    const BlockDecoder::Result result = decoder.next(record);
    const bool own = record.tag == Tag::kOther && record.other <= Other::kSizeHighBits;
    if (result != BlockDecoder::Result::kRecord || !own) {
      return result;
    }
  }
}

TEST(Encoder, DecoderReadsWhatItWrites) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::vector<std::uint8_t> block(kBlockBytes);
    Stream stream;
    stream.clock = random.wide(50);
    std::uint64_t now = stream.clock;
    std::uint64_t last = 0;
    begin_block(stream, block.data(), 3, 9, 4, 0);
    std::vector<Record> wanted;
    while (stream.at < stream.limit) {
      wanted.push_back(put_random(stream, random, now, last));
    }
    ASSERT_LE(stream.at, block.data() + kBlockBytes);
    BlockDecoder decoder(block);
    Record record;
    for (const Record& one : wanted) {
      ASSERT_EQ(next_asked(decoder, record), BlockDecoder::Result::kRecord);
      ASSERT_NO_FATAL_FAILURE(expect_same(record, one));
    }
    EXPECT_EQ(next_asked(decoder, record), BlockDecoder::Result::kEnd);
  }
}

// A thread that is killed between two stores leaves complete records and then no tag.
TEST(Encoder, UnfinishedRecordsAreNotRead) {
  Random random(1);
  std::vector<std::uint8_t> block(kBlockBytes);
  Stream stream;
  std::uint64_t now = 0;
  std::uint64_t last = 0;
  begin_block(stream, block.data(), 0, 0, 0, 0);
  std::vector<std::uint8_t*> begins;
  for (int i = 0; i < 500; ++i) {
    begins.push_back(stream.at);
    put_random(stream, random, now, last);
  }
  for (std::size_t i = begins.size(); i-- > 0;) {
    *begins[i] = 0;  // its tag, which is stored last
    std::fill(begins[i] + 1, begins[i] + 1 + random.below(5), std::uint8_t{0xa5});
    BlockDecoder decoder(block);
    Record record;
    std::size_t records = 0;
    BlockDecoder::Result result = BlockDecoder::Result::kEnd;
    while ((result = decoder.next(record)) == BlockDecoder::Result::kRecord) {
      ++records;
    }
    ASSERT_EQ(result, BlockDecoder::Result::kEnd);
    ASSERT_GE(records, i);
    ASSERT_EQ(decoder.used(), static_cast<std::size_t>(begins[i] - block.data()));
  }
}

TEST(Encoder, AnEventWithNearAddressTakesFewBytes) {
  std::vector<std::uint8_t> block(kBlockBytes);
  Stream stream;
  begin_block(stream, block.data(), 0, 0, 0, 0);
  put_event<true>(stream, Tag::kMalloc, 0x1000, 24);
  const std::uint8_t* const before = stream.at;
  put_event<true>(stream, Tag::kMalloc, 0x1020, 24);
  put_event<false>(stream, Tag::kFree, 0x1000, 0);
  EXPECT_EQ(stream.at - before, 3 + 2);
  put_stamped<false>(stream, Tag::kFree, 0x1020, 0, 200);
  EXPECT_EQ(stream.at - before, 3 + 2 + 2 + 3);  // from here on every event has a stamp
  put_stamped<true>(stream, Tag::kMalloc, 0x1020, 256, 201);
  EXPECT_EQ(stream.at - before, 3 + 2 + 2 + 3 + 5);
}

// A program that alternates between four places, as threads do that free each other's memory.
TEST(Encoder, FourPlacesFarApartAreNear) {
  std::vector<std::uint8_t> block(kBlockBytes);
  Stream stream;
  begin_block(stream, block.data(), 0, 0, 0, 0);
  const std::uint8_t* before = stream.at;
  for (std::uint64_t i = 0; i < 40; ++i) {
    if (i == 4) {
      before = stream.at;
    }
    put_event<false>(stream, Tag::kFree, 0x7000'0000'0000 + (i % 4 << 36) + i * 32, 0);
  }
  EXPECT_EQ(stream.at - before, 36 * 2);
}

TEST(Decoder, ReadsNothingBeyondAnyBytes) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    std::vector<std::uint8_t> block(random.below(200));
    for (std::uint8_t& byte : block) {
      byte = static_cast<std::uint8_t>(random.below(256));
    }
    BlockDecoder decoder(block);
    Record record;
    std::size_t records = 0;
    while (decoder.next(record) == BlockDecoder::Result::kRecord) {
      ASSERT_LE(++records, block.size());
    }
    EXPECT_LE(decoder.used() + decoder.unread_bytes(), block.size());
  }
}

}  // namespace
}  // namespace heapwright::recorder
