// SPDX-License-Identifier: GPL-2.0
/*
 * hash: of the kernel, or keyed by a seed. Seeds are fixed, so what is found is
 * found again.
 */
#include "bed.h"
#include "stats.h"
#include "tap.h"

#define SEED "00112233445566778899aabbccddeeff"
#define OTHER "00112233445566778899aabbccddeefe"

static void test_chi_square(void)
{
	const u32 even[] = { 100, 100, 100, 100 };
	const u32 chance[] = { 95, 109, 92, 104 };
	const u32 odd[] = { 180, 60, 60, 100 };

	ok(chi_square(even, 4) < -2, "chi-square: no deviation at all");
	ok(fabs(chi_square(chance, 4)) < 1, "chi-square: by chance");
	ok(chi_square(odd, 4) > 4, "chi-square: far from chance");
	ok(chi_square_by(odd, odd, 4) < -2 && chi_square_by(chance, odd, 4) > 4,
	   "chi-square: by weight");
}

/* Without weights nothing else is read of a set. */
static const struct ps_set any_set;

static u32 pick(u32 k, bool v6, u32 n, u32 attempt)
{
	struct bed_flow f;

	return ps_policy_hash.pick(NULL, &any_set, n, bed_flow(&f, k, v6), attempt);
}

/* With as many members, what is picked is the hash (or one less). */
static u32 whole(const struct ps_flow *flow)
{
	return ps_policy_hash.pick(NULL, &any_set, U32_MAX, flow, 0);
}

static const char *seed_now(void)
{
	static char buf[64];

	ps_hash_show_seed(buf);
	return buf;
}

/* The kernel's hash times an odd number is what serves without a seed. */
static u32 scatter = 1;

static void init_scatter(void)
{
	struct ps_flow one = { .hash = 1 };
	u32 keyed = ps_keyed_hash(1, 2);

	ps_hash_init();
	ok(ps_keyed_hash(1, 2) != keyed, "another key");
	scatter = whole(&one) + 1;
	ok(scatter & 1 && scatter >> 16, "scattered by odd %#x", scatter);
}

static u32 scattered(const struct ps_flow *flow, u32 n)
{
	return reciprocal_scale(flow->hash * scatter, n);
}

static void test_kernels_hash(const char *when)
{
	struct bed_flow f;
	bool same = true;
	u32 k, n;

	is_str(seed_now(), "random\n", "%s: shown", when);
	for (k = 0; k < 2000; k++) {
		bed_flow(&f, k, k & 1);
		f.flow.skb = (const struct sk_buff *)1;	/* not to be read */
		for (n = 1; n <= 1000; n += 1 + n / 8)
			same &= scattered(&f.flow, n) ==
				ps_policy_hash.pick(NULL, &any_set, n, &f.flow, 0);
	}
	ok(same, "%s: the kernel's hash, to scale", when);
}

static void test_seed(void)
{
	static const char *const bad[] = {
		"", "\n", "0", "0011223344556677", SEED "0", SEED "00", SEED "\n\n",
		SEED " ", SEED "\nx", SEED "\n0", " " SEED, "0x" SEED,
		"0011223344556677\n8899aabbccddeeff",
		"0x112233445566778899aabbccddeeff", "g0112233445566778899aabbccddeeff",
		"00112233445566778899aabbccddeefg", "00112233445566778899aabbccddeef",
		"00112233445566778899aabbccddeef\n", "00112233-4455-6677-8899-aabbccdde",
		"+0112233445566778899aabbccddeeff", "rando", "randomm", "Random",
		"random\n\n", " random", "random ", "random" SEED,
	};
	static const char *const before[] = { SEED "\n", "random\n" };
	unsigned int i, j;
	u32 before_init;

	test_kernels_hash("before load");
	init_scatter();
	test_kernels_hash("at load");
	before_init = scatter;
	init_scatter();
	ok(scatter != before_init, "another one each time");
	is(ps_hash_set_seed(SEED), 0, "32 hex digits");
	is_str(seed_now(), SEED "\n", "are the seed");
	is(ps_hash_set_seed(OTHER "\n"), 0, "and a newline");
	is_str(seed_now(), OTHER "\n", "are too");
	is(ps_hash_set_seed("00112233445566778899AABBCCDDEEFF"), 0, "capitals");
	is_str(seed_now(), SEED "\n", "are read");
	for (j = 0; j < ARRAY_SIZE(before); j++) {
		ok(!ps_hash_set_seed(before[j]), "set what was shown");
		for (i = 0; i < ARRAY_SIZE(bad); i++) {
			char *copy = strdup(bad[i]);

			if (!ok(ps_hash_set_seed(copy) == -EINVAL,
				"bad seed %u", i))
				diag("it is \"%s\"", bad[i]);
			free(copy);
			is_str(seed_now(), before[j], "the old one is kept");
		}
	}
	ps_hash_set_seed(SEED);
	is(ps_hash_set_seed("random"), 0, "random");
	test_kernels_hash("random again");
}

static void test_uniform(bool v6)
{
	double z, worst = 0;
	u32 k, n, samples, above = 0, worst_n = 0;
	bool inside = true;

	for (n = 1; n <= 1000; n++) {
		u32 count[1000] = { 0 };

		samples = n < 100 ? 2000 : 10 * n;
		for (k = 0; k < samples; k++) {
			u32 i = pick(k, v6, n, 0);

			inside &= i < n;
			count[i < n ? i : 0]++;
		}
		z = chi_square(count, n);
		above += z > 2;
		if (z > worst) {
			worst = z;
			worst_n = n;
		}
	}
	ok(inside, "always below n");
	ok(worst < 5, "uniform for n = 1 to 1000 (worst %.1f sigma at %u)",
	   worst, worst_n);
	ok(above < 60, "%u of 1000 above 2 sigma", above);
}

/* How many of 6400 flows are with the same one of 64 members under @seed. */
static u32 stay(const char *seed, bool v6)
{
	u32 k, before[6400], same = 0;

	ps_hash_set_seed(SEED);
	for (k = 0; k < 6400; k++)
		before[k] = pick(k, v6, 64, 0);
	ps_hash_set_seed(OTHER);
	is(ps_hash_set_seed(seed), 0, "set seed %s", seed);
	for (k = 0; k < 6400; k++)
		same += before[k] == pick(k, v6, 64, 0);
	return same;
}

static void test_mapping(bool v6)
{
	static const char *const others[] = { OTHER, "random" };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(others); i++) {
		u32 same = stay(others[i], v6);

		ok(same > 50 && same < 150, "%u of 6400 stay by chance", same);
	}
	is(stay(SEED, v6), 6400, "same seed: same mapping");
}

/* What several hosts have to agree about. */
static void test_definition(bool v6)
{
	static const u8 seed[16] = {
		0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
		0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff,
	};
	size_t len = v6 ? 16 : 4;
	hsiphash_key_t key;
	struct bed_flow f;
	bool same = true;
	u8 bytes[36];
	u32 k;

	memcpy(&key, seed, sizeof(key));
	for (k = 0; k < 2000; k++) {
		const void *addrs = v6 ? (void *)&f.packet.v6.saddr :
					 (void *)&f.packet.v4.saddr;

		bed_flow(&f, k, v6);
		memcpy(bytes, addrs, 2 * len);
		memcpy(bytes + 2 * len, &f.packet.sport, 4);
		same &= whole(&f.flow) ==
			reciprocal_scale(hsiphash(bytes, 2 * len + 4, &key),
					 U32_MAX);
	}
	ok(same, "hsiphash of source, destination, both ports");
	f.flow.skb = NULL;
	is(whole(&f.flow), scattered(&f.flow, U32_MAX),
	   "without a packet: the kernel's hash");
}

/*
 * Every bit of the tuple matters, and one half of the bits of the hash change;
 * no other bit of the packet does, but for those of the version.
 */
static void test_avalanche(bool v6)
{
	size_t ip = offsetof(typeof(((struct bed_flow *)0)->packet), v4);
	size_t ports = offsetof(typeof(((struct bed_flow *)0)->packet), sport);
	size_t addrs = ip + (v6 ? offsetof(struct ipv6hdr, saddr) :
				  offsetof(struct iphdr, saddr));
	size_t addrs_end = addrs + (v6 ? 32 : 8);
	u32 hash, i, bits = 0, changed = 0;
	bool all = true, others = false;
	struct bed_flow f;

	hash = whole(bed_flow(&f, 0, v6));
	for (i = 0; i < 8 * sizeof(f.packet); i++) {
		size_t byte = i / 8;
		u32 diff;

		if (byte == ip)
			continue;
		bed_flow(&f, 0, v6);
		f.skb.head[byte] ^= 1 << i % 8;
		diff = hash ^ whole(&f.flow);
		if ((byte >= addrs && byte < addrs_end) ||
		    (byte >= ports && byte < ports + 4)) {
			all &= !!diff;
			bits++;
			changed += __builtin_popcount(diff);
		} else {
			others |= !!diff;
		}
	}
	bed_flow(&f, 0, v6);
	f.flow.hash ^= 1;
	others |= whole(&f.flow) != hash;
	ok(all, "every one of %u bits of the tuple matters", bits);
	ok(changed > bits * 14 && changed < bits * 18, "%u of %u bits change",
	   changed, 32 * bits);
	ok(!others, "nothing else does");
}

/* Flows of member 0: another attempt takes them to all others alike. */
static void test_attempts(u32 n, bool v6)
{
	u32 attempt, k, flows, stuck = 0, uneven = 0;
	u32 count[PS_PICK_ATTEMPTS][64] = { 0 };

	for (flows = 0, k = 0; flows < 200 * n; k++) {
		if (pick(k, v6, n, 0))
			continue;
		for (attempt = 1; attempt < PS_PICK_ATTEMPTS; attempt++)
			count[attempt][pick(k, v6, n, attempt)]++;
		flows++;
	}
	for (attempt = 1; attempt < PS_PICK_ATTEMPTS; attempt++) {
		stuck += count[attempt][0];
		uneven += chi_square(count[attempt] + 1, n - 1) >= 5;
	}
	is(stuck, 0, "n = %u: another attempt is another member", n);
	is(uneven, 0, "and they spread evenly");
}

/* The first @broken of @n are: what they would have got goes to all others. */
static void test_unusable(u32 n, u32 broken, bool v6)
{
	u32 i, k, picked[64];
	struct bed_flow f;
	struct bed bed;

	bed_init(&bed, n);
	for (i = 0; i < broken; i++)
		bed_break(&bed, i);
	for (k = 0; k < 1000 * n; k++)
		bed_steer(&bed, &ps_policy_hash, bed_flow(&f, k, v6));
	ok(bed_fallbacks(&bed) <= (broken > 1 ? k / 100 : 0),
	   "%u of %u unusable: %u of %u fall back", broken, n,
	   bed_fallbacks(&bed), k);
	for (i = 0; i < n; i++)
		picked[i] = bed_picked(&bed, i);
	if (!ok(chi_square(picked + broken, n - broken) < 5,
		"the others' shares are equal"))
		for (i = 0; i < n && n <= 8; i++)
			diag("member %u gets %u", i, picked[i]);
	bed_free(&bed);
}

static void test_retries(bool v6)
{
	static const u32 sizes[] = { 2, 3, 4, 8, 16, 64 };
	unsigned int i;

	is(pick(0, v6, 1, 1), 0, "n = 1: there is no other");
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		test_attempts(sizes[i], v6);
		test_unusable(sizes[i], 1, v6);
		test_unusable(sizes[i], sizes[i] / 2, v6);
	}
}

int main(void)
{
	int v6;

	test_chi_square();
	test_seed();
	test_retries(false);
	for (v6 = 0; v6 < 2; v6++) {
		printf("# seeded, IPv%d\n", v6 ? 6 : 4);
		test_mapping(v6);
		test_definition(v6);
		test_avalanche(v6);
		test_uniform(v6);
		test_retries(v6);
	}
	return done();
}
