/* The minimal work of a proxy with one thread and epoll: recv, send, recv, send.
 *
 * It parses nothing, has no timeouts and allocates only for bytes that a peer has no room for, so its CPU per request is
 * the kernel's cost of moving the bytes. Both sockets of a request are registered once, edge-triggered.
 *
 * kept:  each client connection has its own connection to an origin; bytes are copied in both directions.
 * close: each client connection carries one request. Connections to the origins are kept, last in, first out, as in a
 *        proxy. It finds the end of a response and announces it without parsing: every request is forwarded as `GET PATH`,
 *        every response is as long as the first one, which it gets at the start, and `Connection: close` is inserted behind
 *        the status line.
 *
 *   bare-relay PORT kept ORIGIN_PORT...
 *   bare-relay PORT close PATH ORIGIN_PORT...
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { EVENTS_MAX = 256, BUFFER_BYTES = 256 * 1024, SOCKETS_MAX = 65536, ORIGINS_MAX = 8, BACKLOG = 65535 };
enum { ENDED = EPOLLRDHUP | EPOLLHUP | EPOLLERR };

static const char status_line[] = "HTTP/1.1 200 OK\r\n";
static const char last_one[] = "Connection: close\r\n";

/* A socket, indexed by its number. An unused entry has no peer and is not open. */
struct side {
    bool open;
    bool is_client;
    bool readable;  /* more may be readable, for which the peer had no room */
    int peer;       /* socket that receives its bytes; -1: none */
    int origin;     /* index of the origin, for a connection to one */
    size_t left;    /* close: remaining bytes of the response */
    char *unsent;   /* bytes that this socket had no room for */
    size_t unsent_bytes, unsent_start;
};

static struct side sides[SOCKETS_MAX];
static char buffer[BUFFER_BYTES];
static int epoll;
static struct sockaddr_in origins[ORIGINS_MAX];
static int origins_count;
static int idle[ORIGINS_MAX][SOCKETS_MAX]; /* close: idle connections, a stack per origin */
static int idle_count[ORIGINS_MAX];
static bool kept;
static char request[512];
static size_t request_bytes, answer_bytes;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void watch(int socket, bool is_client, int origin)
{
    if (socket >= SOCKETS_MAX) {
        fputs("too many sockets\n", stderr);
        exit(1);
    }
    sides[socket] = (struct side){.open = true, .is_client = is_client, .peer = -1, .origin = origin};
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.fd = socket};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event) != 0)
        fail("cannot watch a socket");
}

static void end_one(int socket)
{
    struct side *side = &sides[socket];
    if (!side->is_client)
        for (int at = 0; at < idle_count[side->origin]; at++)
            if (idle[side->origin][at] == socket)
                idle[side->origin][at--] = idle[side->origin][--idle_count[side->origin]];
    free(side->unsent);
    *side = (struct side){.peer = -1};
    close(socket);
}

/* Closes both sides of a request. */
static void end(int socket)
{
    int peer = sides[socket].peer;
    end_one(socket);
    if (peer >= 0)
        end_one(peer);
}

/* The connect blocks, but returns at once over loopback. Later calls do not block. */
static int connect_origin(int origin)
{
    int socket_ = socket(AF_INET, SOCK_STREAM, 0);
    int on = 1;
    if (socket_ < 0)
        fail("cannot make a socket");
    if (setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        fail("cannot set TCP_NODELAY");
    if (connect(socket_, (struct sockaddr *)&origins[origin], sizeof origins[origin]) != 0)
        fail("cannot connect to the origin");
    watch(socket_, false, origin);
    return socket_;
}

/* Gives a client a connection to the next origin in turn. */
static int join(int client)
{
    static int turn;
    int origin = turn++ % origins_count;
    int upstream = !kept && idle_count[origin] > 0 ? idle[origin][--idle_count[origin]] : connect_origin(origin);
    sides[client].peer = upstream;
    sides[upstream].peer = client;
    sides[upstream].left = answer_bytes;
    return upstream;
}

/* Keeps bytes that a socket had no room for. Returns false if the connection is lost. */
static bool put_by(int socket, ssize_t sent, const struct iovec *parts, int count)
{
    struct side *side = &sides[socket];
    size_t skip = sent > 0 ? (size_t)sent : 0, all = 0;
    if (sent < 0 && errno != EAGAIN)
        return false;
    for (int at = 0; at < count; at++)
        all += parts[at].iov_len;
    if (skip == all)
        return true;
    side->unsent = malloc(all - skip);
    if (side->unsent == NULL)
        fail("cannot keep what a peer does not take");
    for (int at = 0; at < count; at++) {
        size_t jump = skip < parts[at].iov_len ? skip : parts[at].iov_len;
        memcpy(side->unsent + side->unsent_bytes, (char *)parts[at].iov_base + jump, parts[at].iov_len - jump);
        side->unsent_bytes += parts[at].iov_len - jump;
        skip -= jump;
    }
    return true;
}

static bool pass_on(int socket, char *bytes, size_t count)
{
    struct iovec whole = {bytes, count};
    return put_by(socket, send(socket, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL), &whole, 1);
}

/* Sends the first piece of a response, which must contain the status line, with the inserted header. */
static bool pass_on_first(int socket, char *bytes, size_t count)
{
    size_t line = sizeof status_line - 1;
    if (count < line || memcmp(bytes, status_line, line) != 0)
        return false;
    struct iovec parts[] = {{bytes, line}, {(char *)last_one, sizeof last_one - 1}, {bytes + line, count - line}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    return put_by(socket, sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL), parts, 3);
}

/* Forwards the bytes that were read. Returns false if the request is lost. */
static bool move(int socket, size_t count)
{
    struct side *side = &sides[socket];
    if (kept)
        return pass_on(side->peer, buffer, count);
    if (side->is_client)
        return pass_on(side->peer, request, request_bytes);
    if (count > side->left)
        return false;
    bool first = side->left == answer_bytes;
    side->left -= count;
    return first ? pass_on_first(side->peer, buffer, count) : pass_on(side->peer, buffer, count);
}

/* close: a response is done once all of it was received and sent. */
static bool is_over(int upstream)
{
    int client = sides[upstream].peer;
    return !kept && sides[upstream].left == 0 && sides[client].unsent == NULL;
}

static void release(int upstream)
{
    struct side *side = &sides[upstream];
    end_one(side->peer);
    side->peer = -1;
    idle[side->origin][idle_count[side->origin]++] = upstream;
}

/* Forwards everything readable. A read that leaves room in the buffer has emptied the socket, unless the stream has
 * ended, which no other event reports. */
static void read_all(int socket, bool to_the_end)
{
    for (;;) {
        struct side *side = &sides[socket];
        if (side->peer >= 0 && sides[side->peer].unsent != NULL) {
            side->readable = true;
            return;
        }
        ssize_t count = recv(socket, buffer, sizeof buffer, MSG_DONTWAIT);
        if (count < 0 && errno == EAGAIN)
            return;
        if (count > 0 && side->peer < 0 && side->is_client)
            join(socket);
        if (count <= 0 || side->peer < 0 || !move(socket, (size_t)count)) {
            end(socket);
            return;
        }
        if (!side->is_client && is_over(socket)) {
            release(socket);
            return;
        }
        if ((size_t)count < sizeof buffer && !to_the_end)
            return;
    }
}

static void send_rest(int socket)
{
    struct side *side = &sides[socket];
    ssize_t sent = send(socket, side->unsent + side->unsent_start, side->unsent_bytes - side->unsent_start,
                        MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
        if (errno != EAGAIN)
            end(socket);
        return;
    }
    side->unsent_start += (size_t)sent;
    if (side->unsent_start < side->unsent_bytes)
        return;
    free(side->unsent);
    side->unsent = NULL;
    side->unsent_bytes = side->unsent_start = 0;
    int peer = side->peer;
    if (side->is_client && is_over(peer)) {
        release(peer);
    } else if (sides[peer].readable) {
        sides[peer].readable = false;
        read_all(peer, true);
    }
}

static void accept_all(int listener)
{
    for (;;) {
        int client = accept4(listener, NULL, NULL, 0);
        if (client < 0) {
            if (errno == EAGAIN || errno == ECONNABORTED)
                return;
            fail("cannot accept");
        }
        watch(client, true, -1);
    }
}

static int listen_at(int port)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    /* Accepted sockets inherit TCP_NODELAY. */
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, BACKLOG) != 0 ||
        setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &on, sizeof on) != 0)
        fail("cannot listen");
    return listener;
}

/* Returns the length of a response of the first origin, with its head. */
static size_t measure_answer(void)
{
    static const char length[] = "\r\nContent-Length: ";
    int origin = connect_origin(0);
    if (send(origin, request, request_bytes, MSG_NOSIGNAL) < 0)
        fail("cannot send to the origin");
    size_t count = 0;
    char *head_end = NULL;
    while (head_end == NULL) {
        ssize_t more = recv(origin, buffer + count, sizeof buffer - 1 - count, 0);
        if (more <= 0)
            fail("no response from the origin");
        count += (size_t)more;
        buffer[count] = 0;
        head_end = strstr(buffer, "\r\n\r\n");
    }
    char *value = strcasestr(buffer, length);
    if (value == NULL || value > head_end) {
        fputs("the response of the origin has no Content-Length\n", stderr);
        exit(1);
    }
    end_one(origin);
    return (size_t)(head_end + 4 - buffer) + strtoul(value + sizeof length - 1, NULL, 10);
}

int main(int arguments, char **argument)
{
    kept = arguments > 3 && strcmp(argument[2], "kept") == 0;
    int first = kept ? 3 : 4;
    if (arguments <= first || arguments - first > ORIGINS_MAX) {
        fputs("bare-relay PORT kept ORIGIN_PORT...\n"
              "bare-relay PORT close PATH ORIGIN_PORT..., with at most 8 origins\n", stderr);
        return 2;
    }
    for (int at = first; at < arguments; at++)
        origins[origins_count++] =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argument[at])),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    epoll = epoll_create1(0);
    if (epoll < 0)
        fail("cannot wait for events");
    if (!kept) {
        request_bytes = (size_t)snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", argument[3]);
        if (request_bytes >= sizeof request) {
            fputs("the path is too long\n", stderr);
            return 2;
        }
        answer_bytes = measure_answer();
    }
    int listener = listen_at(atoi(argument[1]));
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = listener};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) != 0)
        fail("cannot watch the listener");

    for (;;) {
        struct epoll_event events[EVENTS_MAX];
        int count = epoll_wait(epoll, events, EVENTS_MAX, -1);
        if (count < 0)
            fail("cannot wait");
        for (int at = 0; at < count; at++) {
            int socket = events[at].data.fd;
            if (socket == listener) {
                accept_all(listener);
                continue;
            }
            /* The socket of an event may have been closed, or its number reused; then nothing is readable. */
            if (sides[socket].open && sides[socket].unsent != NULL && events[at].events & EPOLLOUT)
                send_rest(socket);
            if (sides[socket].open && events[at].events & (EPOLLIN | ENDED))
                read_all(socket, (events[at].events & ENDED) != 0);
        }
    }
}
