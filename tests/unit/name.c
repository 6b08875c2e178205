// SPDX-License-Identifier: GPL-2.0
/* What groups are called. */
#include <stdlib.h>

#include <linux/kernel.h>
#include <linux/netdevice.h>

#include "name.h"
#include "tap.h"

static struct net_device devices[] = {
	{ .name = "eth0", .ifindex = 2 },
	{ .name = "fifteen-letters", .ifindex = 3 },
};

static struct net net = { .devices = devices, .n_devices = 2 };

static struct ps_group group(u8 proto, const char *addr, int dev, u16 port)
{
	struct ps_group g = {
		.key = { .net = &net, .proto = proto, .dev = dev, .port = port },
		.twin = 1,
	};

	g.key.family = strchr(addr, ':') ? AF_INET6 : AF_INET;
	if (inet_pton(g.key.family, addr, &g.key.addr) != 1)
		abort();
	return g;
}

static void name_is(const struct ps_group *g, const char *want)
{
	char *buf = malloc(PS_NAME_LEN), *cut = malloc(8);

	ps_group_name(g, buf, PS_NAME_LEN);
	is_str(buf, want, "%s", want);
	ps_group_name(g, cut, 8);
	ok(strlen(cut) == 7 && !strncmp(cut, want, 7), "cut to fit");
	free(buf);
	free(cut);
}

#define test(proto, addr, dev, port, want) do {				\
	struct ps_group g = group(proto, addr, dev, port);		\
									\
	name_is(&g, want);						\
} while (0)

static void test_twins(void)
{
	struct ps_group g = group(IPPROTO_TCP, "0.0.0.0", 0, 443);

	g.twin = 2;
	name_is(&g, "tcp:0.0.0.0:443~2");
	g.twin = 1000;
	name_is(&g, "tcp:0.0.0.0:443~1000");
	g = group(IPPROTO_UDP, "fe80::1", 2, 53);
	g.twin = 3;
	name_is(&g, "udp:[fe80::1]%eth0:53~3");
}

static void test_longest(void)
{
	static const char want[] =
		"udp:[fe80:1111:2222:3333:4444:5555:6666:7777]%fifteen-letters:65535~4294967295";
	struct ps_group g = group(IPPROTO_UDP,
				  "fe80:1111:2222:3333:4444:5555:6666:7777", 3,
				  65535);

	g.twin = U32_MAX;
	name_is(&g, want);
	ok(sizeof(want) <= PS_NAME_LEN, "%zu of %d bytes", sizeof(want),
	   PS_NAME_LEN);
}

/* ISATAP: the kernel prints the lower half dotted, which is longer. */
static void test_isatap(void)
{
	static const char want[] =
		"udp:[2001:1111:2222:3333:200:5efe:192.168.100.100]%fifteen-letters:65535~999999";
	struct ps_group g = group(IPPROTO_UDP,
				  "2001:1111:2222:3333:200:5efe:192.168.100.100",
				  3, 65535);

	g.twin = 999999;
	name_is(&g, want);
}

int main(void)
{
	test(IPPROTO_TCP, "0.0.0.0", 0, 443, "tcp:0.0.0.0:443");
	test(IPPROTO_UDP, "::", 0, 53, "udp:[::]:53");
	test(IPPROTO_TCP, "10.0.0.1", 2, 80, "tcp:10.0.0.1%eth0:80");
	test(IPPROTO_TCP, "fe80::1", 2, 80, "tcp:[fe80::1]%eth0:80");
	test(IPPROTO_UDP, "127.0.0.1", 0, 1, "udp:127.0.0.1:1");
	test(IPPROTO_TCP, "255.255.255.255", 0, 65535, "tcp:255.255.255.255:65535");
	test(IPPROTO_TCP, "::ffff:127.0.0.2", 0, 80, "tcp:[::ffff:127.0.0.2]:80");
	test(IPPROTO_TCP, "2001:db8::443", 0, 443, "tcp:[2001:db8::443]:443");
	/* a device that is gone */
	test(IPPROTO_TCP, "10.0.0.1", 77, 80, "tcp:10.0.0.1%77:80");
	test(IPPROTO_UDP, "::1", 77, 80, "udp:[::1]%77:80");
	test_twins();
	test_longest();
	test_isatap();
	return done();
}
