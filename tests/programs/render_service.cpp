// A service that answers each request with the checksum of an image that it makes: render_service
// PORT
//
// A thread serves each connection. A request is a line with a number. It takes some large buffers,
// fills them, and frees them with the request; a few small blocks of each request stay in a cache.
// So a malloc that gives memory back at once needs less of it, and makes each request wait for page
// faults.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using Buffer = std::unique_ptr<unsigned char[]>;

constexpr std::size_t kTiles = 12;            // of an image
constexpr std::size_t kTileBytes = 96 << 10;  // and up to twice as much
constexpr std::size_t kCached = 20000;        // small blocks

std::mutex lock;
std::deque<std::string> cache;

unsigned long render(unsigned long number) {
  std::vector<Buffer> tiles;
  unsigned long sum = 0;
  for (std::size_t i = 0; i < kTiles; ++i) {
    const std::size_t bytes = kTileBytes + (number * 7919 + i * 104729) % kTileBytes;
    tiles.emplace_back(new unsigned char[bytes]);
    std::memset(tiles.back().get(), static_cast<int>(number + i), bytes);
    sum += tiles.back()[bytes / 2];
  }
  const std::lock_guard<std::mutex> guard(lock);
  for (unsigned i = 0; i < 20; ++i) {
    cache.emplace_back(20 + (number * 31 + i) % 400, 'x');
  }
  while (cache.size() > kCached) {
    cache.pop_front();
  }
  return sum;
}

void serve(int connection) {
  std::FILE* const in = fdopen(connection, "r");
  char line[64];
  while (std::fgets(line, sizeof(line), in) != nullptr) {
    const std::string answer = std::to_string(render(std::strtoul(line, nullptr, 10))) + "\n";
    if (write(connection, answer.data(), answer.size()) < 0) {
      break;
    }
  }
  std::fclose(in);
}

}  // namespace

int main(int count, char** words) {
  const int socket_number = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(socket_number, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(count > 1 ? std::atoi(words[1]) : 18766));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(socket_number, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 || listen(socket_number, 64) != 0) {
    std::perror("render_service");
    return 1;
  }
  for (;;) {
    const int connection = accept(socket_number, nullptr, nullptr);
    if (connection >= 0) {
      setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      std::thread(serve, connection).detach();
    }
  }
}
