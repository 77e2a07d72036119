#include "timers.h"

#include "connection.h"

static struct connection *heap[MAX_CONNECTIONS + 1]; /* from 1: the children of i are 2i and 2i+1 */
static size_t count;

static void put(struct connection *connection, size_t index) {
    heap[index] = connection;
    connection->heap_index = index;
}

static void sift_up(struct connection *connection, size_t index) {
    while (index > 1 && heap[index / 2]->due_ns > connection->due_ns) {
        put(heap[index / 2], index);
        index /= 2;
    }
    put(connection, index);
}

static void sift_down(struct connection *connection, size_t index) {
    for (;;) {
        size_t child = index * 2;
        if (child > count) break;
        if (child < count && heap[child + 1]->due_ns < heap[child]->due_ns) child++;
        if (heap[child]->due_ns >= connection->due_ns) break;
        put(heap[child], index);
        index = child;
    }
    put(connection, index);
}

void timer_set(struct connection *connection, int64_t at_ns) {
    connection->due_ns = at_ns;
    sift_up(connection, ++count);
}

void timer_cancel(struct connection *connection) {
    size_t index = connection->heap_index;
    if (index == 0) return;
    connection->heap_index = 0;
    struct connection *last = heap[count--];
    if (last == connection) return;
    sift_down(last, index);
    sift_up(last, last->heap_index);
}

struct connection *timer_first(void) { return count > 0 ? heap[1] : NULL; }
