/* Measures the CPU time of a TCP exchange over loopback after a burn of CPU time on the same thread, which burns like
 * `nginx-known-cost`: caches that cool meanwhile make the exchange more expensive, without any client. Prints
 * microseconds, twice for each burn.
 *
 *   cc -O2 -o cold-caches benches/truth.d/cold-caches.c && taskset -c 1 ./cold-caches
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* The last connection is that of the burn, whose last microseconds only read the clock. */
enum { CONNECTIONS = 50, MESSAGE_BYTES = 300, LAST_US = 12 };

static int near[CONNECTIONS + 1], far[CONNECTIONS + 1];
static char message[MESSAGE_BYTES];

static double now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void exchange(int at) {
    send(near[at], message, sizeof message, 0);
    recv(far[at], message, sizeof message, 0);
    send(far[at], message, sizeof message, 0);
    recv(near[at], message, sizeof message, 0);
}

int main(void) {
    const int burns_us[] = {0, 3, 10, 25, 50, 200, 1000};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (listener < 0 || bind(listener, (void *)&address, length) || listen(listener, CONNECTIONS + 1) ||
        getsockname(listener, (void *)&address, &length)) {
        perror("cold-caches: cannot listen");
        return 1;
    }
    for (int i = 0; i <= CONNECTIONS; i++) {
        near[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (near[i] < 0 || connect(near[i], (void *)&address, length) || (far[i] = accept(listener, 0, 0)) < 0) {
            perror("cold-caches: cannot connect");
            return 1;
        }
        setsockopt(near[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        setsockopt(far[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    }
    memset(message, 'x', sizeof message);
    for (int turn = 0; turn < 2; turn++) {
        for (size_t burn = 0; burn < sizeof burns_us / sizeof *burns_us; burn++) {
            int exchanges = burns_us[burn] > 100 ? 2000 : 20000;
            double sum_us = 0;
            for (int i = 0; i < exchanges; i++) {
                double end_us = now_us() + 1 + burns_us[burn];
                while (now_us() < end_us - LAST_US) { exchange(CONNECTIONS); }
                while (now_us() < end_us) { }
                double start_us = now_us();
                exchange(i % CONNECTIONS);
                sum_us += now_us() - start_us;
            }
            printf("after %d us: %.2f us\n", burns_us[burn], sum_us / exchanges);
        }
    }
    return 0;
}
