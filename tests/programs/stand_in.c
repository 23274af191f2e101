// Stands in for the programs that the documentation tunes. It allocates many small blocks, for which glibc needs
// twice the memory that exgen needs, and always prints the same, with one line of progress. If $STAND_IN_PORT names a
// port, it answers there as a server until it is told to stop.
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void serve(int port) {
  const int one = 1;
  const int listening = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
      bind(listening, (struct sockaddr *)&at, sizeof at) || listen(listening, 8)) {
    perror("stand_in");
    exit(1);
  }
  for (;;) {
    const int caller = accept(listening, NULL, NULL);
    char *answer = malloc(100000);
    memset(answer, '.', 100000);
    (void)!write(caller, answer, 1000);
    free(answer);
    close(caller);
  }
}

int main(int argc, char **argv) {
  for (int i = 0; i < 400000; ++i) {
    *(volatile char *)malloc(16) = 1;
  }
  printf("%d words\niteration 100\n", argc - 1);
  if (getenv("STAND_IN_PORT") && argc > 1 && !strcmp(argv[1], "--config")) {
    serve(atoi(getenv("STAND_IN_PORT")));
  }
  return 0;
}
