/* The load of `make bench`: prepared requests over many connections, one thread, one epoll; compiled where it runs.
 *
 *     load HOST PORT FRAMES DEPTH SECONDS RATE ERROR_AT
 *
 * FRAMES is a file that bench/_load.py writes with kohort's codec: the number of connections, then for each the number
 * of requests and the requests, each after its length as on the wire; numbers are 32 bits in network order. A connection
 * repeats its requests in turn. With RATE 0, DEPTH requests are always in flight on each connection. Else RATE is the
 * number a second over all connections, evenly spread, with at most DEPTH in flight on each; the latency of a late
 * request counts from when it was due, so a stall of the server shows.
 *
 * The load changes only the correlation id, which counts up on each connection. An answer must have the next id, and two
 * zero bytes at ERROR_AT, counted from after its length; ERROR_AT -1 checks nothing, and ERROR_AT below -1 counts from
 * the answer's end. The answers of the first tenth of the time are not counted.
 *
 * A line on stdout says that all connections are open; a line on stdin starts the run; at its end the program prints a
 * line of JSON, and another line on stdin ends it. So the caller can read the server's CPU time at both ends of the run,
 * without the cost of connecting. Times are CLOCK_MONOTONIC; CPU is this process's own.
 */
#include "frames.h"

#include <err.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <time.h>

enum { OCTAVE = 32, BUCKETS = 64 * OCTAVE };

struct connection {
    int socket;
    uint32_t index;
    uint32_t frames, next; /* of its requests */
    unsigned char **frame;
    uint32_t *size;
    uint64_t due, sent, answered; /* requests so far; `due` at a fixed rate only */
    int64_t *since;               /* by number modulo the depth: when it was due, or sent */
    unsigned char *out;           /* not yet taken by the kernel */
    size_t out_room, out_from, out_to;
    unsigned char in[ROOM];
    size_t in_to;
    int writing; /* epoll tells when it can */
};

static struct connection **all;
static uint32_t connections;
static uint64_t depth;
static double rate;
static long error_at;
static int epoll;
static int64_t began, counted_from, ends;
static uint64_t counted, histogram[BUCKETS];
static int64_t longest;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* -- latency: buckets of 1/32 of an octave, so within 3 % */

static int bucket_of(int64_t ns) {
    uint64_t v = ns < 1 ? 1 : (uint64_t)ns;
    int octave = 63 - __builtin_clzll(v);
    uint64_t part = octave < 5 ? 0 : (v >> (octave - 5)) & (OCTAVE - 1);
    return octave * OCTAVE + (int)part;
}

static double bucket_us(int bucket) {
    int octave = bucket / OCTAVE;
    double part = bucket % OCTAVE + 0.5;
    return (double)(1ULL << octave) * (1 + part / OCTAVE) / 1e3;
}

static double percentile(double share) {
    uint64_t wanted = (uint64_t)(counted * share), seen = 0;
    for (int bucket = 0; bucket < BUCKETS; bucket++)
        if ((seen += histogram[bucket]) > wanted) return bucket_us(bucket);
    return longest / 1e3;
}

/* -- connections */

static struct connection *read_connection(FILE *file) {
    unsigned char four[4];
    struct connection *c = calloc(1, sizeof *c);
    if (!c || fread(four, 4, 1, file) != 1) errx(1, "a short file of requests");
    c->frames = number(four);
    c->frame = calloc(c->frames, sizeof *c->frame);
    c->size = calloc(c->frames, sizeof *c->size);
    size_t largest = 0;
    for (uint32_t n = 0; n < c->frames; n++) {
        if (fread(four, 4, 1, file) != 1) errx(1, "a short file of requests");
        c->size[n] = 4 + number(four);
        c->frame[n] = malloc(c->size[n]);
        memcpy(c->frame[n], four, 4);
        if (c->size[n] < 12 || fread(c->frame[n] + 4, c->size[n] - 4, 1, file) != 1) errx(1, "a short file of requests");
        if (c->size[n] > largest) largest = c->size[n];
    }
    c->out_room = largest * depth * 2;
    c->out = malloc(c->out_room);
    c->since = calloc(depth, sizeof *c->since);
    return c;
}

static void read_all(const char *path) {
    unsigned char four[4];
    FILE *file = fopen(path, "rb");
    if (!file || fread(four, 4, 1, file) != 1) errx(1, "no requests in %s", path);
    connections = number(four);
    all = calloc(connections, sizeof *all);
    for (uint32_t n = 0; n < connections; n++) {
        all[n] = read_connection(file);
        all[n]->index = n;
    }
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
        fcntl(c->socket, F_SETFL, O_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(epoll, EPOLL_CTL_ADD, c->socket, &event);
    }
}

static void watch(struct connection *c, int writing) {
    if (c->writing == writing) return;
    c->writing = writing;
    struct epoll_event event = {.events = writing ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll, EPOLL_CTL_MOD, c->socket, &event);
}

static void flush(struct connection *c) {
    while (c->out_from < c->out_to) {
        ssize_t done = send(c->socket, c->out + c->out_from, c->out_to - c->out_from, MSG_NOSIGNAL);
        if (done < 0 && errno == EAGAIN) break;
        if (done < 0) err(1, "send");
        c->out_from += done;
    }
    if (c->out_from == c->out_to) c->out_from = c->out_to = 0;
    watch(c, c->out_to > 0);
}

static void add(struct connection *c, int64_t since) {
    uint32_t size = c->size[c->next];
    if (c->out_to + size > c->out_room) {
        memmove(c->out, c->out + c->out_from, c->out_to - c->out_from);
        c->out_to -= c->out_from, c->out_from = 0;
    }
    memcpy(c->out + c->out_to, c->frame[c->next], size);
    uint32_t id = htonl((uint32_t)c->sent);
    memcpy(c->out + c->out_to + 8, &id, sizeof id);
    c->out_to += size;
    c->since[c->sent % depth] = since;
    c->sent++;
    if (++c->next == c->frames) c->next = 0;
}

/* When request `nth` of a connection is due at a fixed rate. */
static int64_t due_at(uint32_t connection, uint64_t nth) {
    return began + (int64_t)((nth * (double)connections + connection) / rate * 1e9);
}

static void send_more(struct connection *c, int64_t now) {
    int any = 0;
    while (c->sent - c->answered < depth && (rate == 0 || c->sent < c->due)) {
        add(c, rate == 0 ? now : due_at(c->index, c->sent));
        any = 1;
    }
    if (any) flush(c);
}

static void answer(struct connection *c, const unsigned char *body, uint32_t size, int64_t now) {
    if (size < 4 || number(body) != (uint32_t)c->answered) errx(1, "an answer out of order");
    long at = error_at < -1 ? (long)size + error_at : error_at;
    if (error_at != -1 && (at < 0 || at + 2 > (long)size)) errx(1, "a short answer of %u bytes", size);
    if (error_at != -1 && (body[at] || body[at + 1])) errx(1, "error %d in an answer", (int16_t)(body[at] << 8 | body[at + 1]));
    if (now >= counted_from && now < ends) {
        int64_t took = now - c->since[c->answered % depth];
        counted++;
        histogram[bucket_of(took)]++;
        if (took > longest) longest = took;
    }
    c->answered++;
}

static void readable(struct connection *c) {
    ssize_t more = recv(c->socket, c->in + c->in_to, ROOM - c->in_to, 0);
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

static uint32_t due_next;   /* which connection is due next, at a fixed rate */
static uint64_t due_rounds; /* how often all were */

static void take_due(int64_t now) {
    while (due_at(due_next, due_rounds) <= now) {
        struct connection *c = all[due_next];
        c->due++;
        send_more(c, now);
        if (++due_next == connections) due_next = 0, due_rounds++;
    }
}

static int wait_for(struct epoll_event *events, int64_t now) {
    int64_t until = rate == 0 ? ends : due_at(due_next, due_rounds);
    if (until > ends) until = ends;
    int64_t left = until > now ? until - now : 0;
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
    for (int64_t now = began; now < ends; now = now_ns()) {
        if (rate > 0) take_due(now);
        int found = wait_for(events, now);
        for (int n = 0; n < found; n++) {
            struct connection *c = events[n].data.ptr;
            if (events[n].events & EPOLLOUT) flush(c);
            if (events[n].events & ~EPOLLOUT) readable(c);
            send_more(c, now_ns());
        }
    }
}

static void wait_for_line(void) {
    fflush(stdout);
    for (int c = getchar(); c != '\n' && c != EOF; c = getchar()) continue;
}

int main(int count, char **words) {
    if (count != 8) errx(1, "load HOST PORT FRAMES DEPTH SECONDS RATE ERROR_AT");
    depth = strtoull(words[4], NULL, 10);
    double seconds = atof(words[5]);
    rate = atof(words[6]);
    error_at = atol(words[7]);
    prctl(PR_SET_TIMERSLACK, 1UL);
    epoll = epoll_create1(0);
    read_all(words[3]);
    connect_all(words[1], atoi(words[2]));
    puts("connected");
    wait_for_line();
    double cpu = cpu_s();
    int64_t start = now_ns();
    run(seconds);
    double took = (now_ns() - start) / 1e9;
    uint64_t answered = 0;
    for (uint32_t n = 0; n < connections; n++) answered += all[n]->answered;
    printf("{\"answered\": %llu, \"counted\": %llu, \"seconds\": %.6f, \"counted_seconds\": %.6f, \"own_cpu\": %.6f, "
           "\"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n",
           (unsigned long long)answered, (unsigned long long)counted, took, (ends - counted_from) / 1e9, cpu_s() - cpu,
           percentile(0.5), percentile(0.99), longest / 1e3);
    wait_for_line();
    return 0;
}
