#include "response.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"

#define LENGTH_3 "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n"
#define OK LENGTH_3 "\r\nok\n"
#define EMPTY "Content-Length: 0\r\n\r\n"
#define CHUNKED "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
#define CONTINUE "HTTP/1.1 100 Continue\r\n\r\n"
#define SIXTEEN "0123456789abcdef"
#define BYTE_PAUSE_NS (200 * NS_PER_US)
#define DRIP_PAUSE_NS NS_PER_S

#define RESPONSE(path, bytes) {path, OUTCOME_RESPONDED, END_KEEP, bytes, NULL, 0}
#define LAST(path, bytes) {path, OUTCOME_RESPONDED, END_CLOSE, bytes, NULL, 0}
#define SILENT(path) {path, OUTCOME_SILENT, END_KEEP, "", NULL, 0}
#define CLOSED(path, bytes) {path, OUTCOME_CLOSED, END_CLOSE, bytes, NULL, 0}
#define RESET(path) {path, OUTCOME_RESET, END_RESET, "", NULL, 0}
#define MALFORMED(path, bytes) {path, OUTCOME_MALFORMED, END_KEEP, bytes, NULL, 0}
#define ENDLESS(path, bytes, filler) {path, OUTCOME_ENDLESS, END_KEEP, bytes, filler, 0}
#define DRIP(path, bytes, filler) {path, OUTCOME_ENDLESS, END_KEEP, bytes, filler, DRIP_PAUSE_NS}

static const struct fixed {
    const char *path;
    enum outcome outcome;
    enum end end;
    const char *bytes;
    const char *filler;
    int64_t pause_ns;
} FIXED[] = {
    /* Framings of RFC 9112, section 6, one each. */
    RESPONSE("/length", OK),
    RESPONSE("/chunked", CHUNKED "1;ext=\"a\"\r\no\r\n2\r\nk\n\r\n0\r\nX-Trailer: 1\r\n\r\n"),
    RESPONSE("/interim", CONTINUE "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" OK),
    RESPONSE("/head", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"),
    RESPONSE("/no-content", "HTTP/1.1 204 No Content\r\n\r\n"),
    RESPONSE("/not-modified", "HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n"),
    LAST("/until-close", "HTTP/1.1 200 OK\r\n\r\nok\n"),
    LAST("/last", LENGTH_3 "Connection: close\r\n\r\nok\n"),
    /* Missing and incomplete responses. */
    SILENT("/silent"),
    CLOSED("/closed", ""),
    CLOSED("/half", LENGTH_3 "\r\no"),
    CLOSED("/half-head", "HTTP/1.1 200 OK\r\nContent-Le"),
    CLOSED("/half-chunk", CHUNKED "3\r\nok"),
    RESET("/reset"),
    /* The connection stays open: a client that waits for more hangs. */
    MALFORMED("/malformed/version", "HTTZ/1.1 200 OK\r\n" EMPTY),
    MALFORMED("/malformed/status", "HTTP/1.1 2x0 OK\r\n" EMPTY),
    MALFORMED("/malformed/header", "HTTP/1.1 200 OK\r\nno colon\r\n" EMPTY),
    MALFORMED("/malformed/length", "HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n"),
    MALFORMED("/malformed/lengths", LENGTH_3 "Content-Length: 4\r\n\r\nok\n"),
    MALFORMED("/malformed/chunk-size", CHUNKED "zz\r\n"),
    MALFORMED("/malformed/chunk-end", CHUNKED "2\r\nokXX"),
    ENDLESS("/endless/headers", "HTTP/1.1 200 OK\r\n", "X-Filler: " SIXTEEN "\r\n"),
    ENDLESS("/endless/header", "HTTP/1.1 200 OK\r\nX-Filler: ", SIXTEEN),
    ENDLESS("/endless/interim", "", CONTINUE),
    ENDLESS("/endless/body", "HTTP/1.1 200 OK\r\n\r\n", SIXTEEN),
    ENDLESS("/endless/chunks", CHUNKED, "10\r\n" SIXTEEN "\r\n"),
    ENDLESS("/endless/chunk-size", CHUNKED, "0000000000000000"),
    ENDLESS("/endless/trailers", CHUNKED "0\r\n", "X-Filler: " SIXTEEN "\r\n"),
    ENDLESS("/endless/garbage", "", "\xff\xfe\x01garbage\r\n\r\n\r\r"),
    DRIP("/drip", "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", "0"),
};

/* Faults of `/faults`, by the number of the request modulo 20. Proxies differ in how they treat malformed responses;
 * `/faults/well-formed` is without. */
static const char *const FAULTS[20] = {
    [3] = "/closed", [7] = "/reset", [11] = "/silent", [13] = "/malformed/length", [17] = "/last",
};

static uint64_t random_state;

void response_seed(uint64_t seed) { random_state = seed; }

/* Returns a random number in (0, 1]: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). */
static double draw(void) {
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (double)((z >> 11) + 1) / 9007199254740992.0;
}

static struct response plain(int64_t delay_us) {
    return (struct response){
        .outcome = OUTCOME_RESPONDED, .bytes = OK, .length = strlen(OK), .delay_ns = delay_us * NS_PER_US};
}

static bool fixed_of(const char *path, struct response *response) {
    for (size_t i = 0; i < sizeof FIXED / sizeof FIXED[0]; i++) {
        const struct fixed *fixed = &FIXED[i];
        if (strcmp(path, fixed->path) == 0) {
            *response = (struct response){
                .outcome = fixed->outcome, .end = fixed->end,
                .bytes = fixed->bytes, .length = strlen(fixed->bytes), .filler = fixed->filler,
                .pause_ns = fixed->pause_ns,
            };
            return true;
        }
    }
    return false;
}

struct response response_for(const char *path, uint64_t number, uint64_t nth) {
    static const char BYTEWISE[] = "/bytewise";
    struct response response;
    long long a, b, c;
    if (fixed_of(path, &response)) return response;
    bool bytewise = strncmp(path, BYTEWISE, strlen(BYTEWISE)) == 0;
    if (bytewise && fixed_of(path + strlen(BYTEWISE), &response)) {
        response.pause_ns = BYTE_PAUSE_NS;
        return response;
    }
    bool well_formed = strcmp(path, "/faults/well-formed") == 0;
    if (well_formed || strcmp(path, "/faults") == 0) {
        const char *fault = FAULTS[number % (sizeof FAULTS / sizeof FAULTS[0])];
        if (fault != NULL && fixed_of(fault, &response) && !(well_formed && response.outcome == OUTCOME_MALFORMED)) {
            return response;
        }
        return plain(0);
    }
    /* Delays in microseconds, shares in thousandths. */
    if (sscanf(path, "/delay/%lld", &a) == 1) return plain(a);
    if (sscanf(path, "/in-turn/%lld", &a) == 1) {
        response = plain(a);
        response.in_turn = true;
        return response;
    }
    if (sscanf(path, "/bimodal/%lld/%lld/%lld", &a, &b, &c) == 3) {
        return plain(draw() * 1000 <= (double)a ? c : b);
    }
    if (sscanf(path, "/exponential/%lld", &a) == 1) {
        return plain((int64_t)(-log(draw()) * (double)a));
    }
    if (sscanf(path, "/close-after/%lld", &a) == 1) {
        response = plain(0);
        response.end = nth >= (uint64_t)a ? END_CLOSE : END_KEEP;
        return response;
    }
    if (sscanf(path, "/responses-until/%lld", &a) == 1) {
        response = plain(0);
        if (number >= (uint64_t)a) response.outcome = OUTCOME_SILENT;
        return response;
    }
    fprintf(stderr, "delay_server: unknown path %s\n", path);
    exit(1);
}
