/* The floor of `make bench`: the cost of the kernel and a loop in C alone.
 *
 *     echo ANSWER_HEX
 *
 * Listens on a port of 127.0.0.1 and prints its address; it has one thread and one epoll. Every request, framed by its
 * length, gets the same answer with the request's correlation id; the answers to the requests of one read leave in one
 * write, as in a good server. It has no state and reads only lengths and ids.
 */
#include "frames.h"

enum { LARGEST = 1 << 16 };

struct connection {
    int socket;
    size_t in_to;
    unsigned char in[ROOM];
};

static unsigned char answer[LARGEST], out[LARGEST * 8];
static size_t answer_size;
static int epoll;

static int serve(struct connection *c) {
    ssize_t more = recv(c->socket, c->in + c->in_to, ROOM - c->in_to, 0);
    if (more <= 0) return 0;
    c->in_to += more;
    size_t from = 0, to = 0;
    while (c->in_to - from >= 12) {
        uint32_t size = number(c->in + from);
        if (size > ROOM - 4) return 0;
        if (c->in_to - from < 4 + (size_t)size) break;
        if (to + answer_size > sizeof out) send(c->socket, out, to, MSG_NOSIGNAL), to = 0;
        memcpy(out + to, answer, answer_size);
        memcpy(out + to + 4, c->in + from + 8, 4);
        to += answer_size;
        from += 4 + size;
    }
    if (to) send(c->socket, out, to, MSG_NOSIGNAL);
    memmove(c->in, c->in + from, c->in_to - from);
    c->in_to -= from;
    return 1;
}

static void read_answer(const char *hex) {
    answer_size = strlen(hex) / 2;
    if (answer_size < 8 || answer_size > LARGEST) exit(2);
    for (size_t n = 0; n < answer_size; n++) {
        unsigned int byte;
        if (sscanf(hex + 2 * n, "%2x", &byte) != 1) exit(2);
        answer[n] = byte;
    }
}

static void accept_one(int listener) {
    int one = 1, socket = accept(listener, NULL, NULL);
    if (socket < 0) return;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct connection *c = calloc(1, sizeof *c);
    c->socket = socket;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event);
}

int main(int count, char **words) {
    if (count != 2) return 2;
    read_answer(words[1]);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 4096)) return 1;
    getsockname(listener, (struct sockaddr *)&at, &size);
    printf("127.0.0.1:%d\n", ntohs(at.sin_port));
    fflush(stdout);
    epoll = epoll_create1(0);
    struct epoll_event events[EVENTS], event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int found = epoll_wait(epoll, events, EVENTS, -1);
        for (int n = 0; n < found; n++) {
            struct connection *c = events[n].data.ptr;
            if (!c) accept_one(listener);
            else if (!serve(c)) close(c->socket), free(c);
        }
    }
}
