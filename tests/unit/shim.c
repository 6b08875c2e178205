// SPDX-License-Identifier: GPL-2.0
/* The shim itself: does it do what the kernel's functions do? */
#include <linux/atomic.h>
#include <linux/in6.h>
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/siphash.h>
#include <linux/skbuff.h>
#include <linux/string.h>
#include <linux/xarray.h>

#include <machine.h>

#include "tap.h"

/* The paper's appendix A: key 00 01 .. 0f, message 00 01 .. 0e. */
static void test_siphash_paper(void)
{
	siphash_key_t key;
	u8 message[15];
	u8 *bytes = (u8 *)&key;
	unsigned int i;

	for (i = 0; i < sizeof(key); i++)
		bytes[i] = i;
	for (i = 0; i < sizeof(message); i++)
		message[i] = i;
	is(shim_siphash(2, 4, message, 15, &key), (s64)0xa129ca6149be45e5,
	   "SipHash-2-4, the paper's vector");
	is(shim_siphash(2, 4, message, 0, &key), (s64)0x726fdb47dd0e0e31,
	   "SipHash-2-4, the reference's vector of no bytes");
	is(shim_siphash(2, 4, message, 8, &key), (s64)0x93f5f5799a932462,
	   "SipHash-2-4, the reference's vector of 8 bytes");
	is(shim_siphash(1, 3, message, 0, &key), (s64)0xabac0158050fc4dc,
	   "SipHash-1-3 of no bytes");
}

/* PYTHONHASHSEED=0 python3 -c 'print(hex(hash(b"...")))', from 3.11 on. */
static void test_siphash_python(void)
{
	static const struct {
		const char *text;
		u64 hash;
	} vectors[] = {
		{ "a", 0x407448d2b89b1813 },
		{ "portste", 0xb881d4779c2fbcc6 },
		{ "portstee", 0x3fdf72d2ea2015a8 },
		{ "portsteer: one more than a word", 0x8fb42676e086eecf },
		{ "siphash", 0x8264ceeccb16bcbe },
	};
	const siphash_key_t zero = { { 0 } };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(vectors); i++)
		is(shim_siphash(1, 3, vectors[i].text, strlen(vectors[i].text),
				&zero), (s64)vectors[i].hash,
		   "SipHash-1-3 of \"%s\" as in Python", vectors[i].text);
}

static void test_hsiphash(void)
{
	const hsiphash_key_t key = { { 0x0123456789abcdef, 0xfedcba9876543210 } };
	const u32 words[] = { 0xdeadbeef, 1, 0x80000000 };
	u64 full = shim_siphash(1, 3, words, sizeof(words), &key);
	bool differ = true;
	unsigned int i;

	is(hsiphash(words, sizeof(words), &key), (u32)full,
	   "hsiphash is the low half");
	is(hsiphash_3u32(words[0], words[1], words[2], &key), (u32)full,
	   "hsiphash_3u32 hashes the words in their order");
	is(hsiphash_2u32(words[0], words[1], &key), hsiphash(words, 8, &key),
	   "hsiphash_2u32 too");
	is(siphash_3u32(words[0], words[1], words[2], &key),
	   (s64)shim_siphash(2, 4, words, sizeof(words), &key),
	   "siphash_3u32 is SipHash-2-4 of the words");
	is(hsiphash_1u32(words[0], &key), hsiphash(words, 4, &key),
	   "hsiphash_1u32 too");
	for (i = 0; i < 128; i++) {
		hsiphash_key_t other = key;

		other.key[i / 64] ^= 1ull << i % 64;
		differ &= hsiphash(words, sizeof(words), &other) != (u32)full;
	}
	ok(differ, "each bit of the key matters");
}

static void test_kstrto(void)
{
	static const struct {
		const char *text;
		unsigned int base;
		int want;	/* value, or errno */
	} cases[] = {
		{ "0", 10, 0 }, { "1", 10, 1 }, { "65535", 10, 65535 },
		{ "0080", 10, 80 }, { "+80", 10, 80 }, { "80\n", 10, 80 },
		{ "0x50", 0, 0x50 }, { "050", 0, 050 }, { "50", 16, 0x50 },
		{ "65536", 10, -ERANGE }, { "99999999999999999999", 10, -ERANGE },
		{ "-1", 10, -EINVAL }, { "", 10, -EINVAL }, { "\n", 10, -EINVAL },
		{ "80\n\n", 10, -EINVAL }, { "80 ", 10, -EINVAL },
		{ " 80", 10, -EINVAL }, { "8a", 10, -EINVAL },
		{ "0x50", 10, -EINVAL }, { "0x", 16, -EINVAL },
		{ "++8", 10, -EINVAL }, { "08", 0, -EINVAL },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		u16 value = 7;
		int err = kstrtou16(cases[i].text, cases[i].base, &value);

		is(err ? err : value, cases[i].want, "kstrtou16 case %u", i);
		if (err)
			is(value, 7, "and the value is untouched");
	}
}

static void test_strings(void)
{
	char buf[4] = "xxx", text[] = " \t a b\n ", blanks[] = "  ";
	u8 bytes[2] = { 0 };

	is(strscpy(buf, "abc", 4), 3, "strscpy of what fits");
	is_str(buf, "abc", "is whole");
	is(strscpy(buf, "12345", 4), -E2BIG, "strscpy of what doesn't");
	is_str(buf, "123", "is cut");
	is(strscpy(buf, "a", 0), -E2BIG, "strscpy to nowhere");
	is_str(strim(text), "a b", "strim takes blanks off both ends");
	is_str(strim(blanks), "", "strim of blanks");
	ok(sysfs_streq("ab", "ab") && sysfs_streq("ab\n", "ab") &&
	   sysfs_streq("ab", "ab\n") && sysfs_streq("\n", ""),
	   "sysfs_streq but for a newline");
	ok(!sysfs_streq("ab\n\n", "ab") && !sysfs_streq("ab", "a") &&
	   !sysfs_streq("a", "ab") && !sysfs_streq("ab ", "ab") &&
	   !sysfs_streq("Ab", "ab"), "and nothing else");
	is(hex2bin(bytes, "a0Ff", 2), 0, "hex2bin");
	ok(bytes[0] == 0xa0 && bytes[1] == 0xff, "gives the bytes");
	is(hex2bin(bytes, "0g", 1), -EINVAL, "hex2bin of other letters");
	is(hex2bin(bytes, "", 1), -EINVAL, "hex2bin of text that ends");
}

static void test_printf(void)
{
	char buf[64];

	is(scnprintf(buf, sizeof(buf), "%s:%u%%%d %x", "a", 4000000000u, -1, 255),
	   18, "scnprintf returns the length");
	is_str(buf, "a:4000000000%-1 ff", "common formats");
	is(scnprintf(buf, 3, "%s", "abcdef"), 2, "scnprintf returns the length cut");
	is_str(buf, "ab", "and closes the text");
	buf[0] = 'x';
	is(scnprintf(buf, 0, "%s", "abcdef"), 0, "scnprintf to nowhere");
	is(buf[0], 'x', "writes nothing");
	sprintf(buf, "%*phN", 3, "\x01\xab\xff");
	is_str(buf, "01abff", "%%*phN");
	sprintf(buf, "%pI4", "\x7f\x00\x00\x01");
	is_str(buf, "127.0.0.1", "%%pI4");
}

static void test_ipv6(void)
{
	/* Written the shortest way: what is printed has to be the same. */
	static const char *const texts[] = {
		"::", "::1", "1::", "fe80::1", "2001:db8::8:800:200c:417a",
		"1:2:3:4:5:6:7:8", "1:0:3:4:5:6:7:8", "0:2:3:4:5:6:7:8",
		"1:2:3:4:5:6:7:0", "1::4:5:0:0:8", "1:0:0:4::8", "::5:6:7:8",
		"1:2::", "::ffff:127.0.0.2", "2001:db8::5efe:192.0.2.33",
		"2001:db8:1:2:200:5efe:192.0.2.33", "::200:5efe:10.0.0.1",
	};
	struct in6_addr addr;
	char buf[64];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(texts); i++) {
		ok(inet_pton(AF_INET6, texts[i], &addr) == 1, "%s", texts[i]);
		sprintf(buf, "%pI6c", &addr);
		is_str(buf, texts[i], "%%pI6c of %s", texts[i]);
	}
}

static void test_arithmetic(void)
{
	atomic_t v;

	is(reciprocal_scale(0, 7), 0, "reciprocal_scale of the lowest");
	is(reciprocal_scale(U32_MAX, 7), 6, "reciprocal_scale of the highest");
	is(reciprocal_scale(0x80000000, 7), 3, "reciprocal_scale of the middle");
	is(reciprocal_scale(U32_MAX, 1), 0, "reciprocal_scale to one");
	atomic_set(&v, INT32_MAX);
	is(atomic_inc_return(&v), INT32_MIN, "atomics wrap around");
	is(cmpxchg(&v.counter, INT32_MIN, 5), INT32_MIN, "cmpxchg returns what was");
	is(cmpxchg(&v.counter, 4, 6), 5, "also if it isn't what is wanted");
	is(v.counter, 5, "and then changes nothing");
	is(roundup_pow_of_two(1), 1, "roundup_pow_of_two of 1");
	is(roundup_pow_of_two(64), 64, "of one");
	is(roundup_pow_of_two(65), 128, "of one more");
}

static void test_packet(void)
{
	u8 head[] = { 0, 1, 2, 3 }, frag[] = { 4, 5, 6 }, buf[8];
	struct sk_buff skb = {
		.head = head, .data = head + 1, .len = 6, .data_len = 3,
		.frag = frag,
	};
	u8 *got;

	ok(skb_header_pointer(&skb, 0, 3, buf) == head + 1, "bytes at the head");
	got = skb_header_pointer(&skb, 1, 4, buf);
	ok(got == buf && !memcmp(buf, "\x02\x03\x04\x05", 4),
	   "bytes across the end of it are copied");
	got = skb_header_pointer(&skb, 3, 3, buf);
	ok(got == buf && !memcmp(buf, frag, 3), "as are those behind");
	ok(!skb_header_pointer(&skb, 3, 4, buf), "there are no more");
	ok(!skb_header_pointer(&skb, 7, 1, buf), "nor beyond");
}

static void test_xarray(void)
{
	static const u32 at[] = { 0, 1, 63, 64, 4095, 65535, U32_MAX - 1 };
	struct xarray xa;
	unsigned int i;

	xa_init_flags(&xa, 0);
	for (i = 0; i < ARRAY_SIZE(at); i++)
		ok(!xa_load(&xa, at[i]) &&
		   !xa_store(&xa, at[i], (void *)&at[i], 0), "store at %u", at[i]);
	for (i = 0; i < ARRAY_SIZE(at); i++)
		ok(xa_load(&xa, at[i]) == &at[i], "load from %u", at[i]);
	ok(!xa_load(&xa, 2) && !xa_load(&xa, U32_MAX), "nothing elsewhere");
	ok(xa_erase(&xa, 64) == &at[3] && !xa_load(&xa, 64) && !xa_erase(&xa, 64),
	   "erase");
	is(xa_insert(&xa, 0, &xa, 0), -EBUSY, "insert where there is something");
	ok(xa_load(&xa, 0) == &at[0], "changes nothing");
	machine.no_memory = true;
	is(xa_insert(&xa, 64, &xa, 0), -ENOMEM, "insert without memory");
	machine.no_memory = false;
	ok(!xa_load(&xa, 64), "neither");
	is(xa_insert(&xa, 64, &xa, 0), 0, "insert where there is nothing");
	ok(xa_load(&xa, 64) == &xa, "stores");
	xa_destroy(&xa);
}

int main(void)
{
	test_siphash_paper();
	test_siphash_python();
	test_hsiphash();
	test_kstrto();
	test_strings();
	test_printf();
	test_ipv6();
	test_arithmetic();
	test_packet();
	test_xarray();
	return done();
}
