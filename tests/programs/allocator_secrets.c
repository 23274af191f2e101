/* Checks that an attacker who reads beyond a block or after its free learns no secret of a hardened heap. The
 * attacker sees canaries and links, and inverts the known transforms. The secrets are AT_RANDOM's bytes (the stack
 * protector's value), the key of the links, and another block's canary.
 *
 * Status 0 and "ok" if no secret is found, 3 and a line for each one found. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

enum { kBlocks = 64, kSize = 40, kSlot = 48 };

static int told;

static void tell(const char* what, int rotation) {
  printf("%s (rotation by %d)\n", what, rotation);
  told = 1;
}

static uint64_t rotated(uint64_t value, int by) { return by == 0 ? value : value << by | value >> (64 - by); }

static uint64_t read_word(const volatile char* at) {
  uint64_t word = 0;
  for (int i = 0; i < 8; ++i) word |= (uint64_t)(unsigned char)at[i] << 8 * i;
  return word;
}

/* Tells whether a value, unchanged or divided by the usual odd constants, is one of AT_RANDOM's up to one byte or
 * bit. */
static int is_known(uint64_t value, const uint64_t* known) {
  static const uint64_t kUndo[] = {1, 0xf1de83e19937733dU, 0x96de1b173f119089U, 0x319642b2d24d8ec3U}; /* inverses */
  for (int i = 0; i < 2; ++i)
    for (size_t k = 0; k < sizeof kUndo / sizeof *kUndo; ++k)
      for (uint64_t bit = 0; bit < 2; ++bit) {
        const uint64_t undone = (value ^ bit) * kUndo[k];
        if (undone == known[i] || undone >> 8 == known[i] >> 8 || undone << 8 == known[i] << 8) return 1;
      }
  return 0;
}

int main(void) {
  uint64_t known[2];
  memcpy(known, (const void*)getauxval(AT_RANDOM), sizeof known);
  char* blocks[kBlocks];
  uint64_t places[kBlocks];
  uint64_t canaries[kBlocks];
  uint64_t links[kBlocks];
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = malloc(kSize);
    places[i] = (uint64_t)(uintptr_t)blocks[i];
    canaries[i] = read_word(blocks[i] + kSlot - 8);
  }
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  for (int i = 0; i < kBlocks; ++i) links[i] = read_word((const volatile char*)places[i]);
  for (int by = 0; by < 64; ++by) {
    int same_link = 0;
    int same_canary = 0;
    int akin = 0;
    for (int i = 0; i < kBlocks; ++i) {
      const uint64_t mask = rotated(places[i], by);
      if (is_known(canaries[i] ^ mask, known) || is_known(canaries[i], known)) tell("a canary tells AT_RANDOM", by);
      if (is_known(links[i] ^ mask, known) || is_known(links[i], known)) tell("a link tells AT_RANDOM", by);
      if (i == 0) continue;
      const uint64_t before = rotated(places[i - 1], by);
      same_canary += (canaries[i] ^ mask) >> 8 == (canaries[i - 1] ^ before) >> 8;
      if (i == 1) continue;
      same_link += (links[i] ^ mask ^ places[i - 1]) == (links[i - 1] ^ before ^ places[i - 2]);
      akin += (links[i] ^ canaries[i]) >> 8 == places[i - 1] >> 8 ||
              (links[i] ^ canaries[i] ^ mask) >> 8 == places[i - 1] >> 8;
    }
    if (same_canary > kBlocks / 4) tell("one canary tells the others", by);
    if (same_link > kBlocks / 4) tell("one link tells the key of all", by);
    if (akin > kBlocks / 4) tell("a canary tells the key of links", by);
  }
  if (told) return 3;
  puts("ok");
  return 0;
}
