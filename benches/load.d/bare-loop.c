/* The minimum of a client with one thread and epoll: connects, sends, counts reads.
 *
 * It does not parse and does not measure times, so its CPU per request is that of the kernel for the same
 * traffic. A response counts when any of it is read, which is right for responses in one segment;
 * without keep-alive, when the server has closed.
 *
 * With a rate it is the minimum of an open loop: requests leave at constant gaps on connections that are
 * kept, and it sleeps between them. Where its ratio is high, a sleep is expensive.
 *
 *   bare-loop PORT CONNECTIONS SECONDS kept|close [RATE]
 *
 * prints REQUESTS, REQUESTS_PER_SECOND and, with kept connections, the number of those with a response.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS_MAX = 256, WAIT_MS_MAX = 100, RESPONSE_BYTES_MAX = 65536, CONNECTIONS_MAX = 16384, SOCKETS_MAX = 65536 };

static struct sockaddr_in server;
static char request[256];
static size_t request_bytes;
static int epoll;
static int idle[CONNECTIONS_MAX]; /* with a rate: free connections, in a ring */
static unsigned idle_first, idle_count;
static double rate_per_s; /* 0: a closed loop */
static bool has_response[SOCKETS_MAX];
static unsigned connections_with_response;

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

static void add_idle(int connection)
{
    idle[(idle_first + idle_count++) % CONNECTIONS_MAX] = connection;
}

/* The sockets are blocking: nothing is read before epoll reports it, and a request fits any send buffer, so
 * no call waits, and no call is needed to make them nonblocking. */
static void open_connection(void)
{
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    if (connection < 0)
        fail("cannot make a socket");
    if (connection >= SOCKETS_MAX) {
        fputs("too many sockets\n", stderr);
        exit(1);
    }
    if (connect(connection, (struct sockaddr *)&server, sizeof server) != 0)
        fail("cannot connect");
    struct epoll_event readable = {.events = EPOLLIN, .data.fd = connection};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, connection, &readable) != 0)
        fail("cannot watch a socket");
    if (rate_per_s > 0)
        add_idle(connection);
    else
        send_request(connection);
}

/* Reads and sends the next request. Returns true if a response is complete. */
static bool read_response(int connection, bool kept)
{
    static char response[RESPONSE_BYTES_MAX];
    ssize_t bytes = read(connection, response, sizeof response);
    if (bytes < 0)
        fail("cannot read a response");
    if (kept) {
        if (bytes == 0) {
            fputs("the server closed a connection that was to be kept\n", stderr);
            exit(1);
        }
        connections_with_response += !has_response[connection];
        has_response[connection] = true;
        if (rate_per_s > 0)
            add_idle(connection);
        else
            send_request(connection);
        return true;
    }
    if (bytes > 0)
        return false;
    close(connection);
    open_connection();
    return true;
}

/* Sends the requests that are due. Returns the time until the next one, or a long time if one is due and no
 * connection is free. */
static double send_due(double since_begin_s)
{
    static unsigned long sent;
    while (idle_count > 0) {
        double left_s = (double)sent / rate_per_s - since_begin_s;
        if (left_s > 0)
            return left_s;
        send_request(idle[idle_first++ % CONNECTIONS_MAX]);
        idle_count--;
        sent++;
    }
    return WAIT_MS_MAX / 1e3;
}

static int wait_for_responses(struct epoll_event *events, double wait_s)
{
    struct timespec wait = {.tv_sec = 0, .tv_nsec = (long)(wait_s * 1e9)};
    if (rate_per_s > 0)
        return epoll_pwait2(epoll, events, EVENTS_MAX, &wait, NULL);
    return epoll_wait(epoll, events, EVENTS_MAX, WAIT_MS_MAX);
}

int main(int arguments, char **argument)
{
    if (arguments < 5 || arguments > 6 || atoi(argument[2]) > CONNECTIONS_MAX) {
        fputs("bare-loop PORT CONNECTIONS SECONDS kept|close [RATE], with at most 16384 connections\n", stderr);
        return 2;
    }
    int port = atoi(argument[1]);
    int connections = atoi(argument[2]);
    double length_s = atof(argument[3]);
    bool kept = strcmp(argument[4], "kept") == 0;
    rate_per_s = arguments == 6 ? atof(argument[5]) : 0;
    if (prctl(PR_SET_TIMERSLACK, 1) != 0)
        fail("cannot set the timer slack");

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
    unsigned long responses = 0;
    while (time_s < begin_s + length_s) {
        double wait_s = rate_per_s > 0 ? send_due(time_s - begin_s) : 0;
        int ready = wait_for_responses(events, wait_s);
        if (ready < 0)
            fail("cannot wait");
        for (int i = 0; i < ready; i++)
            responses += read_response(events[i].data.fd, kept);
        time_s = now_s();
    }
    printf("%lu %.1f %u\n", responses, (double)responses / (time_s - begin_s), connections_with_response);
    return 0;
}
