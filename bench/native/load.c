/* The load of `make bench`: prepared requests over many connections, one thread, one epoll; compiled where it runs.
 *
 *     load HOST PORT REQUESTS DEPTH SECONDS RATE ERROR_AT [STEPS]
 *
 * REQUESTS is a file that bench/_load.py writes with kohort's codec: the number of connections, then for each the size of
 * its requests and the requests, each after its length as on the wire; numbers are 32 bits in network order. A connection
 * repeats its requests in turn. With RATE 0, DEPTH requests are always in flight on each connection. Else RATE is the
 * number a second over all connections, evenly spread, with at most DEPTH in flight on each; the latency of a late
 * request counts from when it was due, so a stall of the server shows. DEPTH requests fit into a socket's buffer.
 *
 * The load changes only the correlation id, which counts up on each connection. An answer must have the next id, and two
 * zero bytes at ERROR_AT, counted from after its length; ERROR_AT -1 checks nothing, and ERROR_AT below -1 counts from
 * the answer's end. The answers of the first tenth of the time are not counted.
 *
 * With STEPS, a connection's requests are transactions of so many requests each, sent once, one request after the other
 * (DEPTH 1, RATE 0), and ERROR_AT has a position for each step, separated by commas. A request that is answered with
 * CONCURRENT_TRANSACTIONS is sent again at once. A transaction that has begun is finished, and counts in the rate if it
 * ends in time. The run ends early if a connection has no transactions left; then a run of less than a tenth of its time
 * has no rate and no times. Times are those of whole transactions, and
 * of their last steps.
 *
 * A line on stdout says that all connections are open; a line on stdin starts the run; at its end the program prints a
 * line of JSON, and another line on stdin ends it. So the caller can read the server's CPU time at both ends of the run,
 * without the cost of connecting. Times are CLOCK_MONOTONIC; CPU is this process's own.
 */
#include "frames.h"

#include <err.h>
#include <sys/prctl.h>
#include <time.h>

enum { LONGEST_US = 10000000, MOST_STEPS = 8, CONCURRENT_TRANSACTIONS = 51 };

typedef uint32_t histogram[LONGEST_US + 1]; /* counted answers by their latency in µs */

struct connection {
    int socket;
    uint32_t index;
    unsigned char *first, *next, *end; /* its requests */
    uint64_t due, sent, answered;      /* requests so far; `due` at a fixed rate only */
    int64_t *since;                    /* by number modulo the depth: when it was due, or sent */
    unsigned char *current;            /* with STEPS: the request in flight */
    int step;                          /* its place in the transaction */
    int64_t step_began;                /* when it was sent first */
    int64_t transaction_began;
    unsigned char in[ROOM];
    size_t in_to;
};

static struct connection **all;
static uint32_t connections;
static unsigned char *out; /* the requests of one write */
static uint64_t depth;
static double rate;
static long error_at[MOST_STEPS];
static int steps;          /* 0: each request is independent */
static uint64_t finished;  /* transactions */
static uint64_t unanswered; /* requests, with STEPS */
static uint64_t again;
static int epoll;
static int64_t began, counted_from, ends;
static uint64_t counted;
static histogram all_times, last_times;

static int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static int percentile_us(const histogram times, double share) {
    uint64_t wanted = (uint64_t)(counted * share), seen = 0;
    for (int us = 0; counted && us < LONGEST_US; us++)
        if ((seen += times[us]) > wanted) return us;
    return counted ? LONGEST_US : 0;
}

static void count(histogram times, int64_t took) { times[took / 1000 < LONGEST_US ? took / 1000 : LONGEST_US]++; }

/* -- connections */

static void read_exactly(void *to, size_t size, FILE *file) {
    if (fread(to, 1, size, file) != size) errx(1, "a short file of requests");
}

static uint32_t read_number(FILE *file) {
    unsigned char four[4];
    read_exactly(four, 4, file);
    return number(four);
}

static void read_all(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) err(1, "%s", path);
    connections = read_number(file);
    all = calloc(connections, sizeof *all);
    size_t largest = 0;
    for (uint32_t n = 0; n < connections; n++) {
        struct connection *c = all[n] = calloc(1, sizeof *c);
        size_t size = read_number(file);
        c->index = n;
        c->since = calloc(depth, sizeof *c->since);
        c->first = c->next = malloc(size);
        c->end = c->first + size;
        read_exactly(c->first, size, file);
        if (size > largest) largest = size;
    }
    out = malloc(largest * depth);
    fclose(file);
}

static void connect_all(const char *host, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1) errx(1, "not an address: %s", host);
    for (uint32_t n = 0; n < connections; n++) {
        struct connection *c = all[n];
        int one = 1;
        c->socket = socket(AF_INET, SOCK_STREAM, 0);
        if (c->socket < 0) err(1, "socket");
        if (connect(c->socket, (struct sockaddr *)&to, sizeof to)) err(1, "connect");
        setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(epoll, EPOLL_CTL_ADD, c->socket, &event);
    }
}

/* When a request is due at a fixed rate; `nth` counts those of all connections, which take turns. */
static int64_t due_at(uint64_t nth) { return began + (int64_t)(nth / rate * 1e9); }

/* The error at that position of an answer. */
static int error_in(const unsigned char *body, uint32_t size, long position) {
    if (position == -1) return 0;
    long at = position < -1 ? (long)size + position : position;
    if (at < 0 || at + 2 > (long)size) errx(1, "a short answer of %u bytes", size);
    return (int16_t)(body[at] << 8 | body[at + 1]);
}

static void answer(struct connection *c, const unsigned char *body, uint32_t size, int64_t now) {
    if (size < 4 || number(body) != (uint32_t)c->answered) errx(1, "an answer out of order");
    int error = error_in(body, size, error_at[c->step]);
    if (error && !(steps && error == CONCURRENT_TRANSACTIONS)) errx(1, "error %d in an answer", error);
    int64_t since = c->since[c->answered++ % depth];
    if (!steps) {
        if (now >= counted_from && now < ends) counted++, count(all_times, now - since);
        return;
    }
    unanswered--;
    if (error) {
        again++;
        c->next = c->current;
        return;
    }
    c->current = NULL;
    if (++c->step < steps) return;
    c->step = 0;
    finished++;
    if (now >= counted_from && now < ends) {
        counted++;
        count(all_times, now - c->transaction_began);
        count(last_times, now - c->step_began);
    }
}

/* Send the next request of the transaction, or the same one again, or begin the next transaction. */
static void send_step(struct connection *c, int64_t now) {
    if (c->sent > c->answered) return;
    if (c->step == 0 && !c->current) {
        if (now < ends && c->next == c->end) ends = now;
        if (now >= ends) return;
        c->transaction_began = now;
    }
    if (!c->current) c->step_began = now;
    uint32_t size = 4 + number(c->next), id = htonl((uint32_t)c->sent);
    c->current = c->next;
    memcpy(c->current + 8, &id, sizeof id);
    if (send(c->socket, c->current, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size)
        err(1, "the socket does not take %u bytes", size);
    c->next += size;
    c->sent++;
    unanswered++;
}

static void send_more(struct connection *c, int64_t now) {
    if (steps) {
        send_step(c, now);
        return;
    }
    size_t size = 0;
    while (c->sent - c->answered < depth && (rate == 0 || c->sent < c->due)) {
        uint32_t more = 4 + number(c->next), id = htonl((uint32_t)c->sent);
        memcpy(out + size, c->next, more);
        memcpy(out + size + 8, &id, sizeof id);
        size += more;
        c->next = c->next + more < c->end ? c->next + more : c->first;
        c->since[c->sent % depth] = rate == 0 ? now : due_at(c->sent * connections + c->index);
        c->sent++;
    }
    if (size && send(c->socket, out, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size)
        err(1, "the socket does not take %zu bytes", size);
}

static void readable(struct connection *c) {
    ssize_t more = recv(c->socket, c->in + c->in_to, ROOM - c->in_to, MSG_DONTWAIT);
    if (more < 0 && errno == EAGAIN) return;
    if (more <= 0) errx(1, "the server closed a connection");
    c->in_to += more;
    int64_t now = now_ns();
    size_t from = 0;
    while (c->in_to - from >= 4) {
        uint32_t size = number(c->in + from);
        if (size > ROOM - 4) errx(1, "an answer of %u bytes", size);
        if (c->in_to - from < 4 + (size_t)size) break;
        answer(c, c->in + from + 4, size, now);
        from += 4 + size;
    }
    memmove(c->in, c->in + from, c->in_to - from);
    c->in_to -= from;
}

/* -- the run */

static uint64_t due; /* requests so far, at a fixed rate */

static void take_due(int64_t now) {
    for (; due_at(due) <= now; due++) {
        struct connection *c = all[due % connections];
        c->due++;
        send_more(c, now);
    }
}

static int wait_for(struct epoll_event *events, int64_t now) {
    int64_t until = rate == 0 ? ends : due_at(due);
    if (until > ends) until = ends;
    int64_t left = until > now ? until - now : steps ? 1000000 : 0;
    struct timespec timeout = {left / 1000000000LL, left % 1000000000LL};
    int found = epoll_pwait2(epoll, events, EVENTS, &timeout, NULL);
    if (found < 0 && errno != EINTR) err(1, "epoll");
    return found < 0 ? 0 : found;
}

static void run(double seconds) {
    struct epoll_event events[EVENTS];
    began = now_ns();
    counted_from = began + (int64_t)(seconds * 1e8);
    ends = began + (int64_t)(seconds * 1e9);
    for (uint32_t n = 0; rate == 0 && n < connections; n++) send_more(all[n], began);
    for (int64_t now = began; now < ends || unanswered; now = now_ns()) {
        if (rate > 0) take_due(now);
        int found = wait_for(events, now);
        for (int n = 0; n < found; n++) {
            struct connection *c = events[n].data.ptr;
            readable(c);
            send_more(c, now_ns());
        }
    }
}

static void read_positions(const char *words) {
    for (int n = 0; n < (steps ? steps : 1); n++) {
        char *end;
        error_at[n] = strtol(words, &end, 10);
        if (end == words) errx(1, "ERROR_AT has %d positions instead of %d", n, steps);
        words = end + (*end == ',');
    }
}

static void wait_for_line(void) {
    fflush(stdout);
    for (int c = getchar(); c != '\n' && c != EOF; c = getchar()) continue;
}

int main(int count, char **words) {
    if (count != 8 && count != 9) errx(1, "load HOST PORT REQUESTS DEPTH SECONDS RATE ERROR_AT [STEPS]");
    depth = strtoull(words[4], NULL, 10);
    double seconds = atof(words[5]);
    rate = atof(words[6]);
    steps = count > 8 ? atoi(words[8]) : 0;
    if (steps < 0 || steps > MOST_STEPS || (steps && (depth != 1 || rate != 0)))
        errx(1, "STEPS are at most %d, with DEPTH 1 and RATE 0", MOST_STEPS);
    read_positions(words[7]);
    prctl(PR_SET_TIMERSLACK, 1UL);
    epoll = epoll_create1(0);
    read_all(words[3]);
    connect_all(words[1], atoi(words[2]));
    puts("connected");
    wait_for_line();
    int64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID), start = now_ns();
    run(seconds);
    double took = now_ns() - start, own = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    uint64_t answered = finished;
    for (uint32_t n = 0; !steps && n < connections; n++) answered += all[n]->answered;
    printf("{\"answered\": %llu, \"rate\": %.1f, \"p50_us\": %d, \"p99_us\": %d, \"load_share\": %.6f",
           (unsigned long long)answered, ends > counted_from ? counted * 1e9 / (ends - counted_from) : 0.0, percentile_us(all_times, 0.5),
           percentile_us(all_times, 0.99), own / took);
    if (steps)
        printf(", \"last_p50_us\": %d, \"last_p99_us\": %d, \"again\": %llu, \"client_us\": %.1f",
               percentile_us(last_times, 0.5), percentile_us(last_times, 0.99), (unsigned long long)again,
               own / (answered ? answered : 1) / 1e3);
    puts("}");
    fflush(stdout);
    wait_for_line();
    return 0;
}
