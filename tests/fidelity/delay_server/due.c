#include "due.h"

#include "connection.h"

static struct connection *heap[MAX_CONNECTIONS + 1]; /* from 1, as the children of i are 2i and 2i+1 */
static size_t count;

static void put(struct connection *connection, size_t place) {
    heap[place] = connection;
    connection->due_place = place;
}

static void sift_up(struct connection *connection, size_t place) {
    while (place > 1 && heap[place / 2]->due_ns > connection->due_ns) {
        put(heap[place / 2], place);
        place /= 2;
    }
    put(connection, place);
}

static void sift_down(struct connection *connection, size_t place) {
    for (;;) {
        size_t child = place * 2;
        if (child > count) break;
        if (child < count && heap[child + 1]->due_ns < heap[child]->due_ns) child++;
        if (heap[child]->due_ns >= connection->due_ns) break;
        put(heap[child], place);
        place = child;
    }
    put(connection, place);
}

void due_add(struct connection *connection, int64_t at_ns) {
    connection->due_ns = at_ns;
    sift_up(connection, ++count);
}

void due_remove(struct connection *connection) {
    size_t place = connection->due_place;
    if (place == 0) return;
    connection->due_place = 0;
    struct connection *last = heap[count--];
    if (last == connection) return;
    sift_down(last, place);
    sift_up(last, last->due_place);
}

struct connection *due_first(void) { return count > 0 ? heap[1] : NULL; }
