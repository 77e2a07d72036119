/* Runs a corpus of requests through libmodsecurity, as crates/waf-tools/examples/wafbench.rs does through
 * this project's engine: `modsecurity verdicts|time|once RULES CORPUS`; `once` runs each request once.
 *
 *     cc -O2 -o modsecurity modsecurity.c -lmodsecurity
 */
#define _GNU_SOURCE
#include <modsecurity/modsecurity.h>
#include <modsecurity/rules_set.h>
#include <modsecurity/transaction.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct { const unsigned char *at, *end; } Reader;
typedef struct { const unsigned char *bytes; uint32_t length; } Field;

static long ids[4096];
static int id_count;
static char score[32];

static void on_log(void *data, const void *message) {
    (void)data;
    const char *id = strstr(message, "[id \"");
    if (id && id_count < 4096) ids[id_count++] = atol(id + 5);
    const char *total = strstr(message, "Inbound Anomaly Score Exceeded (Total Score: ");
    if (total) snprintf(score, sizeof score, "%ld", atol(strstr(total, "Score: ") + 7));
}

static int next(Reader *reader, Field *field) {
    if (reader->end - reader->at < 4) return 0;
    memcpy(&field->length, reader->at, 4);
    field->bytes = reader->at + 4;
    reader->at += 4 + field->length;
    return 1;
}

static char *text(Field field) {
    return strndup((const char *)field.bytes, field.length);
}

static double cpu_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

/* Runs the record at the reader's position and returns its CPU time. */
static double run(ModSecurity *engine, RulesSet *rules, Reader *reader, uint32_t *size) {
    Field method, target, protocol, count, name, value, body, type, page;
    next(reader, &method);
    next(reader, &target);
    next(reader, &protocol);
    next(reader, &count);
    char *m = text(method), *t = text(target), *p = text(protocol);
    const char *version = strncmp(p, "HTTP/", 5) == 0 ? p + 5 : p;
    uint32_t headers;
    memcpy(&headers, count.bytes, 4);
    id_count = 0;
    strcpy(score, "-");
    double before = cpu_us();
    Transaction *transaction = msc_new_transaction(engine, rules, NULL);
    msc_process_connection(transaction, "127.0.0.1", 33333, "127.0.0.1", 80);
    msc_process_uri(transaction, t, m, version);
    for (uint32_t i = 0; i < headers; i++) {
        next(reader, &name);
        next(reader, &value);
        msc_add_n_request_header(transaction, name.bytes, name.length, value.bytes, value.length);
    }
    msc_process_request_headers(transaction);
    next(reader, &body);
    if (body.length) msc_append_request_body(transaction, body.bytes, body.length);
    msc_process_request_body(transaction);
    next(reader, &type);
    next(reader, &page);
    if (type.length) {
        const unsigned char header[] = "Content-Type";
        msc_add_n_response_header(transaction, header, sizeof header - 1, type.bytes, type.length);
        msc_process_response_headers(transaction, 200, "HTTP/1.1");
        msc_append_response_body(transaction, page.bytes, page.length);
        msc_process_response_body(transaction);
        msc_process_logging(transaction);
    }
    msc_transaction_cleanup(transaction);
    double taken = cpu_us() - before;
    *size = target.length + body.length + page.length;
    free(m);
    free(t);
    free(p);
    return taken;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int by_id(const void *a, const void *b) {
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

static long resident_kb(void) {
    long kb = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "VmRSS: %ld", &kb);
    if (file) fclose(file);
    return kb;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: modsecurity verdicts|time|once RULES CORPUS\n");
        return 2;
    }
    ModSecurity *engine = msc_init();
    msc_set_log_cb(engine, on_log);
    RulesSet *rules = msc_create_rules_set();
    const char *error = NULL;
    double before = cpu_us();
    long kb = resident_kb();
    int loaded = msc_rules_add_file(rules, argv[2], &error);
    if (loaded < 0) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    fprintf(stderr, "loaded %d rules in %.1f ms, %ld kB\n", loaded, (cpu_us() - before) / 1e3, resident_kb() - kb);
    FILE *file = fopen(argv[3], "rb");
    if (!file) { perror(argv[3]); return 1; }
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    rewind(file);
    unsigned char *corpus = malloc(length);
    if (fread(corpus, 1, length, file) != (size_t)length) return 1;
    Reader reader = {corpus, corpus + length};
    uint32_t size;
    for (int index = 0; reader.at < reader.end; index++) {
        Reader start = reader;
        double first = run(engine, rules, &reader, &size);
        if (strcmp(argv[1], "verdicts") == 0) {
            qsort(ids, id_count, sizeof *ids, by_id);
            printf("%d ", index);
            for (int i = 0, any = 0; i < id_count; i++)
                if (i == 0 || ids[i] != ids[i - 1]) printf(any++ ? ",%ld" : "%ld", ids[i]);
            printf(" %s\n", score);
            continue;
        }
        int once = strcmp(argv[1], "once") == 0, matches = id_count, repetitions = 1e6 / first;
        if (repetitions < 7) repetitions = 7;
        if (repetitions > 1001) repetitions = 1001;
        if (once) repetitions = 1;
        double *times = malloc(repetitions * sizeof *times);
        for (int i = 0; i < repetitions; i++) {
            Reader again = start;
            times[i] = once ? first : run(engine, rules, &again, &size);
        }
        qsort(times, repetitions, sizeof *times, by_value);
        printf("%d bytes %u matches %d first_us %.1f median_us %.1f\n", index, size, matches, first, times[repetitions / 2]);
        fflush(stdout);
        free(times);
    }
    fprintf(stderr, "%ld kB resident\n", resident_kb());
    return 0;
}
