#include "log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RECORDS (UINT64_C(1) << 19)

static struct record records[MAX_RECORDS];
static uint64_t length;

void log_prepare(void) { memset(records, 0xff, sizeof records); }

struct record *log_request(uint64_t connection, int64_t arrived_ns, int64_t read_ns) {
    if (length == MAX_RECORDS) {
        fprintf(stderr, "delay_server: the log is full at %" PRIu64 " requests\n", length);
        exit(1);
    }
    struct record *record = &records[length++];
    *record = (struct record){
        .connection = connection, .outcome = OUTCOME_SILENT, .arrived_ns = arrived_ns, .read_ns = read_ns};
    return record;
}

uint64_t log_length(void) { return length; }

void log_write(const char *path) {
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    for (uint64_t i = 0; i < length; i++) {
        const struct record *record = &records[i];
        fprintf(file, "%" PRIu64 " %c %" PRId64 " %" PRId64 " %" PRId64 "\n", record->connection,
                (char)record->outcome, record->arrived_ns, record->read_ns, record->written_ns);
    }
    if (ferror(file) || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}
