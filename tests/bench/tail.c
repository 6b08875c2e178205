// SPDX-License-Identifier: GPL-2.0
/*
 * Four workers behind one port, requests at times that don't depend on how fast
 * they are answered, and how long each request took: what tail.py runs for
 * each of the ways to share the port.
 *
 * A request is a connection, on which the worker sends its number and closes.
 * A worker is a thread that serves one request after the other: accept(),
 * sleep as long as the work would take, answer. It sleeps rather than computes
 * so that the speed of an emulated machine doesn't matter.
 *
 * Requests come at random (Poisson), by the same schedule in every run. A
 * request's time counts from when it was due, also if the client was late to
 * send it: a client that waits would forgive the server its pauses.
 *
 * Prints a line for each request: microseconds, and the worker's number.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <portsteer.h>

#define WORKERS 4
#define BACKLOG 4096
#define MS 1000000LL
#define SEC (1000 * MS)
#define TIMER UINT_MAX	/* among the numbers of requests */

static struct {
	bool shared;		/* one listener for all */
	const char *policy;	/* NULL: the kernel's own choice */
	int weights[WORKERS];	/* 0: not set */
	long long service;	/* ns a request */
	int factor;		/* worker 0 takes so many times longer */
	long long pause;		/* ns that it pauses, once a second */
	double rate;		/* requests a second */
	unsigned int count;
	unsigned short port;
} opt = {
	.service = 4 * MS,
	.factor = 1,
	.rate = 500,
	.count = 1000,
	.port = 7000,
};

static struct request {
	long long due;		/* ns from the start */
	long long took;
	int fd;
	unsigned char worker;
} *requests;

static int listeners[WORKERS];

static void die(const char *what)
{
	fprintf(stderr, "tail: %s: %s\n", what, strerror(errno));
	exit(2);
}

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * SEC + t.tv_nsec;
}

static void rest(long long ns)
{
	struct timespec t = { .tv_sec = ns / SEC, .tv_nsec = ns % SEC };

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
		;
}

/* xorshift64* of a fixed seed: the same schedule every time */
static double random_01(void)
{
	static unsigned long long x = 0x9e3779b97f4a7c15ULL;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	return ((x * 0x2545f4914f6cdd1dULL >> 11) + 0.5) / (1ULL << 53);
}

static void schedule(void)
{
	double t = 0;

	requests = calloc(opt.count, sizeof(*requests));
	if (!requests)
		die("memory");
	for (unsigned int i = 0; i < opt.count; i++) {
		t += -log(random_01()) / opt.rate;
		requests[i].due = t * SEC;
	}
}

static void set_int(int fd, int level, int option, int value)
{
	if (setsockopt(fd, level, option, &value, sizeof(value)))
		die("setsockopt()");
}

static int listener(int weight)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_port = htons(opt.port),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		die("socket()");
	if (opt.policy) {
		set_int(fd, IPPROTO_IP, PORTSTEER_JOIN, 1);
		if (setsockopt(fd, IPPROTO_IP, PORTSTEER_POLICY, opt.policy,
			       strlen(opt.policy)))
			die(opt.policy);
		if (weight)
			set_int(fd, IPPROTO_IP, PORTSTEER_WEIGHT, weight);
	} else if (!opt.shared) {
		set_int(fd, SOL_SOCKET, SO_REUSEPORT, 1);
	}
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)))
		die("bind()");
	if (listen(fd, BACKLOG))
		die("listen()");
	return fd;
}

static void *__attribute__((noreturn)) work(void *arg)
{
	unsigned char me = (int *)arg - listeners;
	int listener = listeners[me];
	long long service = opt.service * (me ? 1 : opt.factor);
	long long pause_at = now() + SEC / 2;
	int fd;

	prctl(PR_SET_TIMERSLACK, 1);
	for (;;) {
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			die("accept()");
		rest(service);
		/* A client that is gone will say so. */
		if (send(fd, &me, 1, MSG_NOSIGNAL) != 1)
			die("send()");
		close(fd);
		/* Collects garbage, rotates a log: what servers do. */
		if (!me && opt.pause && now() >= pause_at) {
			rest(opt.pause);
			pause_at += SEC;
		}
	}
}

static void start_workers(void)
{
	pthread_t thread;

	for (int i = 0; i < WORKERS; i++) {
		listeners[i] = i && opt.shared ? listeners[0] :
						 listener(opt.weights[i]);
		if (pthread_create(&thread, NULL, work, &listeners[i]))
			die("pthread_create()");
	}
	/* until all of them wait */
	rest(SEC / 5);
}

static void watch(int epoll, int fd, unsigned int number)
{
	struct epoll_event event = {
		.events = EPOLLIN,
		.data.u32 = number,
	};

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
		die("epoll_ctl()");
}

static void ask(int epoll, unsigned int number)
{
	/* Closing resets: no TIME_WAIT, no want of ports. */
	struct linger reset = { .l_onoff = 1 };
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_port = htons(opt.port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	if (fd < 0)
		die("socket()");
	if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)))
		die("SO_LINGER");
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) &&
	    errno != EINPROGRESS)
		die("connect()");
	requests[number].fd = fd;
	watch(epoll, fd, number);
}

static void answered(struct request *r, long long start)
{
	if (read(r->fd, &r->worker, 1) != 1)
		die("a request failed");
	r->took = now() - start - r->due;
	close(r->fd);
}

/* Sends what is due, returns the number of the next one. */
static unsigned int send_due(int epoll, int timer, unsigned int next, long long start)
{
	struct itimerspec when = { 0 };
	unsigned long long expirations;
	long long at;

	if (read(timer, &expirations, sizeof(expirations)) < 0 &&
	    errno != EAGAIN)
		die("timer");
	while (next < opt.count && start + requests[next].due <= now())
		ask(epoll, next++);
	if (next == opt.count)
		return next;
	at = start + requests[next].due;
	when.it_value.tv_sec = at / SEC;
	when.it_value.tv_nsec = at % SEC;
	if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL))
		die("timerfd_settime()");
	return next;
}

static void drive(void)
{
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	int epoll = epoll_create1(0);
	struct epoll_event events[64];
	unsigned int next = 0, done = 0;
	long long start = now();
	int i, n;

	if (timer < 0 || epoll < 0)
		die("epoll");
	watch(epoll, timer, TIMER);
	next = send_due(epoll, timer, next, start);
	while (done < opt.count) {
		n = epoll_wait(epoll, events, 64, -1);
		if (n < 0 && errno != EINTR)
			die("epoll_wait()");
		for (i = 0; i < n; i++) {
			if (events[i].data.u32 == TIMER) {
				next = send_due(epoll, timer, next, start);
				continue;
			}
			answered(&requests[events[i].data.u32], start);
			done++;
		}
	}
	close(epoll);
	close(timer);
}

/* What is measured is the policy: it has to have chosen every time. */
static void check_picked(void)
{
	struct portsteer_info info;
	unsigned long long picked = 0;

	for (int i = 0; i < WORKERS; i++) {
		socklen_t len = sizeof(info);

		if (getsockopt(listeners[i], IPPROTO_IP, PORTSTEER_INFO, &info,
			       &len))
			die("PORTSTEER_INFO");
		picked += info.picked;
	}
	if (picked == opt.count && !strcmp(info.policy, opt.policy))
		return;
	fprintf(stderr, "tail: %s picked %llu of %u\n", info.policy,
		picked, opt.count);
	exit(2);
}

static void usage(void)
{
	fprintf(stderr,
		"tail [-s | -p POLICY [-w WEIGHT,...]] [-f FACTOR] [-m PAUSE_MS]\n"
		"     [-r PER_SECOND] [-n COUNT] [-t PORT]\n");
	exit(2);
}

static void parse(int argc, char **argv)
{
	char *word;
	int c, i;

	while ((c = getopt(argc, argv, "sp:w:f:m:r:n:t:")) != -1) {
		switch (c) {
		case 's':
			opt.shared = true;
			break;
		case 'p':
			opt.policy = optarg;
			break;
		case 'w':
			word = strtok(optarg, ",");
			for (i = 0; word && i < WORKERS; i++) {
				opt.weights[i] = atoi(word);
				word = strtok(NULL, ",");
			}
			break;
		case 'f':
			opt.factor = atoi(optarg);
			break;
		case 'm':
			opt.pause = atoi(optarg) * MS;
			break;
		case 'r':
			opt.rate = atof(optarg);
			break;
		case 'n':
			opt.count = atoi(optarg);
			break;
		case 't':
			opt.port = atoi(optarg);
			break;
		default:
			usage();
		}
	}
	if (optind < argc || opt.rate <= 0 || !opt.count || !opt.port ||
	    opt.factor < 1 || (opt.shared && opt.policy))
		usage();
}

int main(int argc, char **argv)
{
	struct rlimit files = { 16384, 16384 };

	parse(argc, argv);
	if (setrlimit(RLIMIT_NOFILE, &files))
		die("setrlimit()");
	prctl(PR_SET_TIMERSLACK, 1);
	schedule();
	start_workers();
	drive();
	if (opt.policy)
		check_picked();
	for (unsigned int i = 0; i < opt.count; i++)
		printf("%lld %u\n", requests[i].took / 1000,
		       requests[i].worker);
	return 0;
}
