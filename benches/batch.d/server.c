/* A web server that burns CPU time for each request: WORK rounds of arithmetic, as defined in work.h. Responds to
   every request with 200 and the name of the revision. Single-threaded, with keep-alive. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "work.h"

static uint64_t burn(uint64_t state) {
    for (long round = 0; round < WORK; round++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    return state;
}

/* Responds to every complete request head in the buffer; bodies are not supported. */
static int respond(int connection, uint64_t *state) {
    static char bytes[65536];
    ssize_t got = recv(connection, bytes, sizeof bytes - 1, 0);
    if (got <= 0) return -1;
    bytes[got] = 0;
    for (char *at = bytes; (at = strstr(at, "\r\n\r\n")); at += 4) {
        *state = burn(*state);
        char text[256];
        int length = snprintf(text, sizeof text,
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer: %s-%d\r\n\r\nok",
            REVISION, (int)(*state & 1));
        if (send(connection, text, (size_t)length, MSG_NOSIGNAL) != length) return -1;
    }
    return 0;
}

int main(int count, char **words) {
    if (CRASHES || count < 2) {
        fprintf(stderr, "this revision crashes at start\n");
        abort();
    }
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(words[1])) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0), poller = epoll_create1(0), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 512)) return 1;
    struct epoll_event event = { .events = EPOLLIN, .data.fd = listener }, ready[64];
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    uint64_t state = 88172645463325252u;
    for (;;) {
        int events = epoll_wait(poller, ready, 64, -1);
        for (int index = 0; index < events; index++) {
            int from = ready[index].data.fd;
            if (from != listener) {
                if (respond(from, &state)) close(from);
                continue;
            }
            event.data.fd = accept(listener, NULL, NULL);
            setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            epoll_ctl(poller, EPOLL_CTL_ADD, event.data.fd, &event);
        }
    }
}
