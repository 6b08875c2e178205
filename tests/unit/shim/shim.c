// SPDX-License-Identifier: GPL-2.0
/*
 * Kernel functions that user space has no equivalent of, written from their
 * documented behaviour. Tested by ../shim.c.
 */
#include <ctype.h>
#include <stdlib.h>

#include <linux/in6.h>
#include <linux/kernel.h>
#include <linux/siphash.h>
#include <linux/skbuff.h>
#include <linux/string.h>

ssize_t strscpy(char *dst, const char *src, size_t size)
{
	size_t len = strnlen(src, size);

	if (!size)
		return -E2BIG;
	if (len == size) {
		memcpy(dst, src, size - 1);
		dst[size - 1] = '\0';
		return -E2BIG;
	}
	memcpy(dst, src, len + 1);
	return len;
}

char *strim(char *s)
{
	size_t len = strlen(s);

	while (len && isspace((unsigned char)s[len - 1]))
		s[--len] = '\0';
	while (isspace((unsigned char)*s))
		s++;
	return s;
}

/* Equal but for one newline at the end of either. */
bool sysfs_streq(const char *s1, const char *s2)
{
	while (*s1 && *s1 == *s2) {
		s1++;
		s2++;
	}
	s1 += s1[0] == '\n' && !s1[1];
	s2 += s2[0] == '\n' && !s2[1];
	return !*s1 && !*s2;
}

static int hex_digit(char c)
{
	if (!isxdigit((unsigned char)c))
		return -1;
	return isdigit((unsigned char)c) ? c - '0' : (c | 0x20) - 'a' + 10;
}

int hex2bin(u8 *dst, const char *src, size_t count)
{
	for (; count; count--, src += 2) {
		int high = hex_digit(src[0]);
		int low = high < 0 ? -1 : hex_digit(src[1]);

		if (low < 0)
			return -EINVAL;
		*dst++ = high << 4 | low;
	}
	return 0;
}

/* One plus and one closing newline are allowed, nothing else around it. */
int kstrtoull(const char *s, unsigned int base, unsigned long long *res)
{
	unsigned long long value = 0;
	bool overflow = false;
	const char *start;
	int digit;

	if (*s == '+')
		s++;
	if ((base == 0 || base == 16) && s[0] == '0' && (s[1] | 0x20) == 'x') {
		s += 2;
		base = 16;
	} else if (base == 0) {
		base = *s == '0' ? 8 : 10;
	}
	for (start = s; (digit = hex_digit(*s)) >= 0 && digit < (int)base; s++)
		if (__builtin_mul_overflow(value, base, &value) ||
		    __builtin_add_overflow(value, digit, &value))
			overflow = true;
	if (s != start && overflow)
		return -ERANGE;
	if (s == start || (*s == '\n' ? s[1] : s[0]))
		return -EINVAL;
	*res = value;
	return 0;
}

int kstrtou16(const char *s, unsigned int base, u16 *res)
{
	unsigned long long value;
	int err = kstrtoull(s, base, &value);

	if (err)
		return err;
	if (value > UINT16_MAX)
		return -ERANGE;
	*res = value;
	return 0;
}

int kstrtou32(const char *s, unsigned int base, u32 *res)
{
	unsigned long long value;
	int err = kstrtoull(s, base, &value);

	if (err)
		return err;
	if (value > UINT32_MAX)
		return -ERANGE;
	*res = value;
	return 0;
}

int skb_copy_bits(const struct sk_buff *skb, int offset, void *to, int len)
{
	int i, headlen = skb_headlen(skb);

	if (offset > (int)skb->len - len)
		return -EFAULT;
	for (i = 0; i < len; i++, offset++)
		((u8 *)to)[i] = offset < headlen ? skb->data[offset] :
						   skb->frag[offset - headlen];
	return 0;
}

static u64 rotl(u64 x, unsigned int n)
{
	return x << n | x >> (64 - n);
}

static void sip_rounds(u64 v[4], unsigned int n)
{
	while (n--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotl(v[1], 13) ^ v[0];
		v[3] = rotl(v[3], 16) ^ v[2];
		v[0] = rotl(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = rotl(v[1], 17) ^ v[2];
		v[3] = rotl(v[3], 21) ^ v[0];
		v[2] = rotl(v[2], 32);
	}
}

u64 shim_siphash(unsigned int c, unsigned int d, const void *data, size_t len,
		 const siphash_key_t *key)
{
	/* "somepseudorandomlygeneratedbytes" */
	u64 v[4] = {
		key->key[0] ^ 0x736f6d6570736575, key->key[1] ^ 0x646f72616e646f6d,
		key->key[0] ^ 0x6c7967656e657261, key->key[1] ^ 0x7465646279746573,
	};
	const u8 *bytes = data;
	size_t i, words = len / 8 + 1;

	for (i = 0; i < words; i++) {
		bool last = i == words - 1;
		u64 m = 0;

		/* Little endian; the last word ends in the length. */
		memcpy(&m, bytes + 8 * i, last ? len % 8 : 8);
		if (last)
			m |= (u64)len << 56;
		v[3] ^= m;
		sip_rounds(v, c);
		v[0] ^= m;
	}
	v[2] ^= 0xff;
	sip_rounds(v, d);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Text that is cut where the buffer ends. */
struct out {
	char *buf;
	size_t size, len;
};

static void put(struct out *out, const char *text)
{
	for (; *text && out->len + 1 < out->size; text++)
		out->buf[out->len++] = *text;
	if (out->size)
		out->buf[out->len] = '\0';
}

/* RFC 5952, with the lower half dotted where the kernel does that. */
static void put_ipv6(struct out *out, const struct in6_addr *addr)
{
	bool mapped = IN6_IS_ADDR_V4MAPPED(addr);
	bool isatap = (ntohl(addr->s6_addr32[2]) & ~0x02000000u) == 0x5efe;
	int words = mapped || isatap ? 6 : 8;
	int i, j, best = -1, run = 1;
	char text[INET_ADDRSTRLEN];

	for (i = 0; i < words; i++) {
		for (j = i; j < words && !addr->s6_addr16[j]; j++)
			;
		if (j - i > run) {
			best = i;
			run = j - i;
		}
	}
	for (i = 0; i < words; i++) {
		if (i == best) {
			put(out, "::");
			i += run - 1;
			continue;
		}
		if (i && i != best + run)
			put(out, ":");
		snprintf(text, sizeof(text), "%x", ntohs(addr->s6_addr16[i]));
		put(out, text);
	}
	if (words == 8)
		return;
	if (best + run != words || best < 0)
		put(out, ":");
	inet_ntop(AF_INET, &addr->s6_addr32[3], text, sizeof(text));
	put(out, text);
}

/* Behind %p; returns the rest of the format. */
static const char *put_pointer(struct out *out, const char *fmt, int width,
			       const void *ptr)
{
	char text[INET_ADDRSTRLEN];
	int i;

	if (!strncmp(fmt, "I4", 2)) {
		put(out, inet_ntop(AF_INET, ptr, text, sizeof(text)));
		return fmt + 2;
	}
	if (!strncmp(fmt, "I6c", 3)) {
		put_ipv6(out, ptr);
		return fmt + 3;
	}
	if (strncmp(fmt, "hN", 2))
		abort();
	for (i = 0; i < width; i++) {
		snprintf(text, sizeof(text), "%02x", ((const u8 *)ptr)[i]);
		put(out, text);
	}
	return fmt + 2;
}

/* %s, %d, %u, %x, %llu, %%, and the pointers; a new one aborts: add it. */
int shim_vscnprintf(char *buf, size_t size, const char *fmt, va_list args)
{
	struct out out = { .buf = buf, .size = size };
	char text[24];

	put(&out, "");
	while (*fmt) {
		int width = 0;

		if (*fmt != '%') {
			put(&out, (char[]){ *fmt++, '\0' });
			continue;
		}
		if (*++fmt == '*') {
			width = va_arg(args, int);
			fmt++;
		}
		text[0] = '\0';
		if (!strncmp(fmt, "llu", 3)) {
			snprintf(text, sizeof(text), "%llu",
				 va_arg(args, unsigned long long));
			fmt += 2;
		} else if (*fmt == 'd') {
			snprintf(text, sizeof(text), "%d", va_arg(args, int));
		} else if (*fmt == 'u') {
			snprintf(text, sizeof(text), "%u", va_arg(args, u32));
		} else if (*fmt == 'x') {
			snprintf(text, sizeof(text), "%x", va_arg(args, u32));
		} else if (*fmt == 's') {
			put(&out, va_arg(args, const char *));
		} else if (*fmt == '%') {
			put(&out, "%");
		} else if (*fmt == 'p') {
			fmt = put_pointer(&out, fmt + 1, width,
					  va_arg(args, const void *));
			continue;
		} else {
			abort();
		}
		put(&out, text);
		fmt++;
	}
	return out.len;
}

int scnprintf(char *buf, size_t size, const char *fmt, ...)
{
	va_list args;
	int len;

	va_start(args, fmt);
	len = shim_vscnprintf(buf, size, fmt, args);
	va_end(args);
	return len;
}
