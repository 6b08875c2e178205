// SPDX-License-Identifier: GPL-2.0
/*
 * A TCP server of four listeners that get connections strictly in turn, or, on
 * a kernel without portsteer, as the kernel's hash has it.
 *
 * cc -Wall -I../include/uapi -o example server.c; ./example 8080
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <portsteer.h>

#define LISTENERS 4

static int listener(unsigned short port)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
	};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int one = 1;

	if (fd < 0)
		return -1;
	if (!setsockopt(fd, IPPROTO_IP, PORTSTEER_JOIN, &one, sizeof(one)))
		setsockopt(fd, IPPROTO_IP, PORTSTEER_POLICY, "rr", 2);
	else if (errno == ENOPROTOOPT)	/* not loaded */
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) ||
	    listen(fd, 1024)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void report(int fd)
{
	struct portsteer_info info;
	socklen_t len = sizeof(info);

	if (!getsockopt(fd, IPPROTO_IP, PORTSTEER_INFO, &info, &len))
		printf("listener %u of %u: policy %s, %llu connections\n",
		       info.id, info.members, info.policy,
		       (unsigned long long)info.picked);
}

int main(int argc, char **argv)
{
	struct pollfd fds[LISTENERS];
	int i, fd;

	for (i = 0; i < LISTENERS; i++) {
		fds[i].fd = listener(argc > 1 ? atoi(argv[1]) : 8080);
		fds[i].events = POLLIN;
		if (fds[i].fd < 0) {
			perror("listener");
			return 1;
		}
	}
	while (poll(fds, LISTENERS, -1) > 0) {
		for (i = 0; i < LISTENERS; i++) {
			if (!(fds[i].revents & POLLIN))
				continue;
			fd = accept(fds[i].fd, NULL, NULL);
			if (fd < 0)
				continue;
			report(fds[i].fd);
			close(fd);
		}
	}
	return 0;
}
