/* The least that a client with one thread and epoll can do: connect, send, count what is read.
 *
 * It parses nothing and times nothing, so its CPU per request is the kernel's price for the same
 * traffic. An answer counts when something of it was read, which holds for answers that fit one
 * segment; without keep-alive, when the server has closed.
 *
 *   bare-loop PORT CONNECTIONS SECONDS kept|close        prints REQUESTS and REQUESTS_PER_SECOND
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS_MAX = 256, WAIT_MS_MAX = 100, ANSWER_BYTES_MAX = 65536 };

static struct sockaddr_in server;
static char request[256];
static size_t request_bytes;
static int epoll;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void send_request(int connection)
{
    if (write(connection, request, request_bytes) != (ssize_t)request_bytes)
        fail("cannot send the request");
}

/* The sockets block: nothing is read before epoll has announced it, and a request fits any socket's
 * buffer, so no call waits, and no call is spent on making them non-blocking. */
static void open_connection(void)
{
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    if (connection < 0)
        fail("cannot make a socket");
    if (connect(connection, (struct sockaddr *)&server, sizeof server) != 0)
        fail("cannot connect");
    struct epoll_event readable = {.events = EPOLLIN, .data.fd = connection};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, connection, &readable) != 0)
        fail("cannot watch a socket");
    send_request(connection);
}

/* Takes what has arrived, and sends the next request. Returns whether an answer is complete. */
static bool take_answer(int connection, bool kept)
{
    static char answer[ANSWER_BYTES_MAX];
    ssize_t bytes = read(connection, answer, sizeof answer);
    if (bytes < 0)
        fail("cannot read an answer");
    if (kept) {
        if (bytes == 0) {
            fputs("the server closed a connection that was to be kept\n", stderr);
            exit(1);
        }
        send_request(connection);
        return true;
    }
    if (bytes > 0)
        return false;
    close(connection);
    open_connection();
    return true;
}

int main(int arguments, char **argument)
{
    if (arguments != 5) {
        fputs("bare-loop PORT CONNECTIONS SECONDS kept|close\n", stderr);
        return 2;
    }
    int port = atoi(argument[1]);
    int connections = atoi(argument[2]);
    double length_s = atof(argument[3]);
    bool kept = strcmp(argument[4], "kept") == 0;

    server.sin_family = AF_INET;
    server.sin_port = htons((unsigned short)port);
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    request_bytes = (size_t)snprintf(request, sizeof request, "GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s\r\n",
                                     port, kept ? "" : "Connection: close\r\n");
    epoll = epoll_create1(0);
    if (epoll < 0)
        fail("cannot make an epoll instance");

    double begin_s = now_s();
    double time_s = begin_s;
    for (int i = 0; i < connections; i++)
        open_connection();
    struct epoll_event events[EVENTS_MAX];
    unsigned long answers = 0;
    while (time_s < begin_s + length_s) {
        int ready = epoll_wait(epoll, events, EVENTS_MAX, WAIT_MS_MAX);
        if (ready < 0)
            fail("cannot wait");
        for (int i = 0; i < ready; i++)
            answers += take_answer(events[i].data.fd, kept);
        time_s = now_s();
    }
    printf("%lu %.1f\n", answers, (double)answers / (time_s - begin_s));
    return 0;
}
