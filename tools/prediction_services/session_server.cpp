// A server with a thread for each connection: session_server PORT
//
// A request is a line with a number. It parses a document of some thousand small nodes, and frees it with the request.
// Its session, some texts of 100 bytes to 20 KB, stays until 400 further sessions of any thread have come.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kSessions = 400;

struct Session {
  std::map<unsigned, std::string> texts;
};

std::mutex lock;
std::deque<Session> sessions;

std::size_t handle(unsigned long number) {
  std::mt19937 random(static_cast<unsigned>(number));
  std::vector<std::vector<std::string>> document(20 + random() % 200);
  std::size_t sum = 0;
  for (auto& node : document) {
    for (unsigned i = random() % 40; i > 0; --i) {
      node.emplace_back(8 + random() % 300, 'x');
      sum += node.back().size();
    }
  }
  Session session;
  for (unsigned i = 0; i < 30; ++i) {
    session.texts[random()] = std::string(random() % 8 != 0 ? 100 + random() % 900 : 20000, 'y');
  }
  const std::lock_guard<std::mutex> guard(lock);
  sessions.push_back(std::move(session));
  if (sessions.size() > kSessions) {
    sessions.erase(sessions.begin() + static_cast<long>(random() % 50));
  }
  return sum;
}

void serve(int connection) {
  std::FILE* const in = fdopen(connection, "r");
  char line[64];
  while (std::fgets(line, sizeof(line), in) != nullptr) {
    const std::string answer = std::to_string(handle(std::strtoul(line, nullptr, 10))) + "\n";
    if (write(connection, answer.data(), answer.size()) < 0) {
      break;
    }
  }
  std::fclose(in);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    return 2;
  }
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<unsigned short>(std::atoi(argv[1])));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, 64) != 0) {
    std::perror("session_server");
    return 1;
  }
  for (;;) {
    const int connection = accept(listener, nullptr, nullptr);
    if (connection >= 0) {
      setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      std::thread(serve, connection).detach();
    }
  }
}
