// SPDX-License-Identifier: GPL-2.0
/*
 * The text of rules: rule_parse.t [seed]
 *
 * Texts are parsed in memory of just their size, so that ASan sees a read or
 * write beyond their end.
 */
#include <ctype.h>
#include <stdlib.h>
#include <time.h>

#include <linux/in.h>
#include <linux/kernel.h>
#include <linux/string.h>

#include "rule_parse.h"
#include "tap.h"

#define RANDOM_TEXTS 300000

/* On one line, for people. */
static const char *shown(const char *text)
{
	static char buf[200];
	size_t len = 0;

	for (; *text && len < sizeof(buf) - 3; text++) {
		if (*text == '\n')
			buf[len++] = '\\';
		buf[len++] = *text == '\n' ? 'n' : isprint((u8)*text) ? *text : '?';
	}
	buf[len] = '\0';
	return buf;
}

static int parse(const char *text, struct ps_rule_cmd *cmd)
{
	char *copy = strdup(text);
	int err = ps_rule_parse(copy, cmd);

	free(copy);
	return err;
}

static bool same(const struct ps_rule_cmd *a, const struct ps_rule_cmd *b)
{
	return a->verb == b->verb && a->proto == b->proto &&
	       a->port == b->port && a->policy == b->policy &&
	       a->lock == b->lock && a->migrate == b->migrate &&
	       a->force == b->force &&
	       a->sets_affinity == b->sets_affinity &&
	       a->affinity == b->affinity && a->sets_quic == b->sets_quic &&
	       a->quic_offset == b->quic_offset &&
	       a->quic_length == b->quic_length;
}

/* The plainest text of a command. */
static void print_rule(const struct ps_rule_cmd *cmd, char *buf, size_t size)
{
	const char *proto = cmd->proto == IPPROTO_TCP ? "tcp" : "udp";

	int len;

	switch (cmd->verb) {
	case PS_RULE_ADD:
		len = snprintf(buf, size,
			       "add %s %u policy=%s lock=%d migrate=%d force=%d",
			       proto, cmd->port, cmd->policy->name, cmd->lock,
			       cmd->migrate, cmd->force);
		if (cmd->sets_affinity)
			len += snprintf(buf + len, size - len, " affinity=%u",
					cmd->affinity);
		if (cmd->sets_quic)
			snprintf(buf + len, size - len,
				 " quic_offset=%u quic_length=%u",
				 cmd->quic_offset, cmd->quic_length);
		return;
	case PS_RULE_DEL:
		snprintf(buf, size, "del %s %u", proto, cmd->port);
		return;
	case PS_RULE_CLEAR:
		snprintf(buf, size, "clear");
		return;
	}
	abort();
}

static void test_good(void)
{
	static const struct {
		const char *text;
		struct ps_rule_cmd want;
	} cases[] = {
#define ALL(proto, port, policy, lock, migrate, force) \
	{ PS_RULE_ADD, proto, port, policy, lock, migrate, force, \
	  false, 0, false, 1, 2 }
#define ADD(proto, port, policy) ALL(proto, port, policy, false, true, false)
#define UDP(...) { PS_RULE_ADD, IPPROTO_UDP, 443, &ps_policy_quic, \
	false, true, false, __VA_ARGS__ }
#define DEL(_proto, _port) \
	{ .verb = PS_RULE_DEL, .proto = (_proto), .port = (_port) }
#define CLEAR { .verb = PS_RULE_CLEAR }
#define RR(...) ALL(IPPROTO_TCP, 443, &ps_policy_rr, __VA_ARGS__)
		{ "add tcp 443 policy=rr", ADD(IPPROTO_TCP, 443, &ps_policy_rr) },
		{ "add udp 53 policy=hash", ADD(IPPROTO_UDP, 53, &ps_policy_hash) },
		{ "add tcp 1 policy=rr\n", ADD(IPPROTO_TCP, 1, &ps_policy_rr) },
		{ "add udp 65535 policy=rr", ADD(IPPROTO_UDP, 65535, &ps_policy_rr) },
		{ "  add  tcp\t443 \t policy=rr  ", ADD(IPPROTO_TCP, 443, &ps_policy_rr) },
		{ "\tadd tcp 443 policy=rr\t\n", ADD(IPPROTO_TCP, 443, &ps_policy_rr) },
		{ "add tcp 443 policy=rr lock=1", RR(true, true, false) },
		{ "add tcp 443 lock=1 policy=rr\n", RR(true, true, false) },
		{ "add tcp 443 policy=rr lock=0", RR(false, true, false) },
		{ "add tcp 443 policy=rr migrate=0", RR(false, false, false) },
		{ "add tcp 443 policy=rr migrate=1", RR(false, true, false) },
		{ "add tcp 443 policy=rr force=1", RR(false, true, true) },
		{ "add tcp 443 policy=rr force=0\n", RR(false, true, false) },
		{ "add tcp 443\tforce=1  migrate=0 policy=rr lock=1 ",
		  RR(true, false, true) },
		{ "add udp 443 policy=quic", UDP(false, 0, false, 1, 2) },
		{ "add udp 443 policy=quic affinity=30", UDP(true, 30, false, 1, 2) },
		{ "add udp 443 affinity=0 policy=quic\n", UDP(true, 0, false, 1, 2) },
		{ "add udp 443 policy=quic affinity=2147483647",
		  UDP(true, 2147483647, false, 1, 2) },
		{ "add udp 443 policy=quic affinity=007", UDP(true, 7, false, 1, 2) },
		{ "add udp 443 policy=quic quic_offset=0", UDP(false, 0, true, 0, 2) },
		{ "add udp 443 policy=quic quic_offset=1", UDP(false, 0, true, 1, 2) },
		{ "add udp 443 policy=quic quic_offset=18", UDP(false, 0, true, 18, 2) },
		{ "add udp 443 policy=quic quic_length=1", UDP(false, 0, true, 1, 1) },
		{ "add udp 443 policy=quic quic_length=8", UDP(false, 0, true, 1, 8) },
		{ "add udp 443 policy=quic quic_offset=19 quic_length=1",
		  UDP(false, 0, true, 19, 1) },
		{ "add udp 443 policy=quic quic_length=1 quic_offset=19",
		  UDP(false, 0, true, 19, 1) },
		{ "add udp 443 policy=quic quic_offset=12 quic_length=8",
		  UDP(false, 0, true, 12, 8) },
		{ "add udp 443 quic_length=4 affinity=60 policy=quic quic_offset=3",
		  UDP(true, 60, true, 3, 4) },
		{ "add tcp 443 policy=quic", ADD(IPPROTO_TCP, 443, &ps_policy_quic) },
		{ "del tcp 443", DEL(IPPROTO_TCP, 443) },
		{ "del udp 53\n", DEL(IPPROTO_UDP, 53) },
		{ " del\tudp  65535\t\n", DEL(IPPROTO_UDP, 65535) },
		{ "clear", CLEAR },
		{ "clear\n", CLEAR },
		{ " \tclear \t\n", CLEAR },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct ps_rule_cmd cmd;

		memset(&cmd, 0x5a, sizeof(cmd));
		is(parse(cases[i].text, &cmd), 0, "good text %u", i);
		ok(same(&cmd, &cases[i].want), "means what it says");
	}
}

#define POLICY(name) #name
static const char *const policies[] = {
#include "policies.h"
};

static void test_policies(void)
{
	struct ps_rule_cmd cmd;
	char text[64];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(policies); i++) {
		snprintf(text, sizeof(text), "add tcp 80 policy=%s", policies[i]);
		is(parse(text, &cmd), 0, "a rule with %s", policies[i]);
		is_str(cmd.policy->name, policies[i], "has that policy");
	}
}

static void test_bad(void)
{
	static const char *const texts[] = {
		/* nothing */
		"", "\n", " ", "\t \t", "\t\n",
		/* verbs */
		"ad", "addd tcp 443 policy=rr", "ADD tcp 443 policy=rr", "tcp",
		"policy=rr", "443", "add", "del", "delete tcp 443",
		/* protocols */
		"add sctp 443 policy=rr", "add TCP 443 policy=rr", "add tcp",
		"add 443 policy=rr", "add 6 443 policy=rr", "add tcp6 80 policy=rr",
		"del sctp 443", "del tcp", "del 443", "del tcp\n",
		/* ports */
		"add tcp 0 policy=rr", "add tcp 65536 policy=rr",
		"add tcp 99999999999999999999999 policy=rr",
		"add tcp 4294967376 policy=rr", "add tcp -1 policy=rr",
		"add tcp +80 policy=rr", "add tcp 0x50 policy=rr",
		"add tcp 80a policy=rr", "add tcp a80 policy=rr",
		"add tcp 80. policy=rr", "add tcp 80-90 policy=rr",
		"add tcp 80,81 policy=rr", "add tcp http policy=rr",
		"add tcp policy=rr", "add tcp policy=rr 80",
		"del tcp 0", "del tcp 65536", "del tcp -1", "del tcp +80",
		"del tcp 0x50", "del tcp 80a",
		/* options */
		"add tcp 443", "add tcp 443 ", "add tcp 443 policy",
		"add tcp 443 policy=", "add tcp 443 policy=none",
		"add tcp 443 policy=RR", "add tcp 443 policy=rrr",
		"add tcp 443 policy=r", "add tcp 443 policy= rr",
		"add tcp 443 policy =rr", "add tcp 443 policy==rr",
		"add tcp 443 policy=rr=", "add tcp 443 policy=rr,hash",
		"add tcp 443 Policy=rr", "add tcp 443 policy:rr",
		"add tcp 443 policy=rr policy=rr",
		"add tcp 443 policy=rr policy=hash", "add tcp 443 =rr",
		"add tcp 443 =", "add tcp 443 frob=1", "add tcp 443 frob=1 policy=rr",
		"add tcp 443 policy=rr frob=1", "add tcp 443 lock=1",
		"add tcp 443 policy=rr lock", "add tcp 443 policy=rr lock=",
		"add tcp 443 policy=rr lock=2", "add tcp 443 policy=rr lock=01",
		"add tcp 443 policy=rr lock=-1", "add tcp 443 policy=rr lock=on",
		"add tcp 443 policy=rr lock=1 lock=1",
		"add tcp 443 lock=1 policy=rr lock=0", "add tcp 443 policy=rr locked=1",
		"add tcp 443 policy=rr migrate=", "add tcp 443 policy=rr migrate=no",
		"add tcp 443 migrate=0 force=1", "add tcp 443 policy=rr force=1=",
		"add tcp 443 policy=rr force=1 force=0", "add tcp 443 policy=rr FORCE=1",
		"del tcp 443 lock=1", "clear force=1",
		/* those of UDP groups */
		"add tcp 443 policy=rr affinity=1", "add tcp 443 policy=rr affinity=0",
		"add tcp 443 affinity=60 policy=hash",
		"add tcp 443 policy=quic quic_offset=1",
		"add tcp 443 policy=quic quic_length=2",
		"add udp 443 affinity=1", "add udp 443 quic_offset=1 quic_length=2",
		"add udp 443 policy=rr affinity", "add udp 443 policy=rr affinity=",
		"add udp 443 policy=rr affinity=-1", "add udp 443 policy=rr affinity=+1",
		"add udp 443 policy=rr affinity=0x1", "add udp 443 policy=rr affinity=1s",
		"add udp 443 policy=rr affinity=1.5", "add udp 443 policy=rr affinity=on",
		"add udp 443 policy=rr affinity=2147483648",
		"add udp 443 policy=rr affinity=4294967295",
		"add udp 443 policy=rr affinity=4294967296",
		"add udp 443 policy=rr affinity=4294967297",
		"add udp 443 policy=rr affinity=99999999999999999999",
		"add udp 443 policy=rr affinity=1 affinity=1",
		"add udp 443 affinity=0 policy=rr affinity=1",
		"add udp 443 policy=rr Affinity=1", "add udp 443 policy=rr affinity =1",
		"add udp 443 policy=rr affinity= 1",
		"add udp 443 policy=quic quic_offset=", "add udp 443 policy=quic quic_offset",
		"add udp 443 policy=quic quic_offset=20",
		"add udp 443 policy=quic quic_offset=20 quic_length=1",
		"add udp 443 policy=quic quic_offset=-1",
		"add udp 443 policy=quic quic_offset=4294967296",
		"add udp 443 policy=quic quic_length=0",
		"add udp 443 policy=quic quic_length=9",
		"add udp 443 policy=quic quic_length=", "add udp 443 policy=quic quic_length",
		"add udp 443 policy=quic quic_length=4294967297",
		"add udp 443 policy=quic quic_offset=19",
		"add udp 443 policy=quic quic_offset=19 quic_length=2",
		"add udp 443 policy=quic quic_length=2 quic_offset=19",
		"add udp 443 policy=quic quic_offset=13 quic_length=8",
		"add udp 443 policy=quic quic_length=8 quic_offset=19",
		"add udp 443 policy=quic quic_offset=1 quic_offset=1",
		"add udp 443 policy=quic quic_length=2 quic_length=2",
		"add udp 443 policy=quic quicoffset=1", "add udp 443 policy=quic quic=1",
		"add udp 443 policy=quic quic_Offset=1",
		"del udp 443 affinity=1", "del udp 443 quic_offset=1",
		/* trailing words */
		"add tcp 443 policy=rr x", "add tcp 443 policy=rr 80",
		"del tcp 443 x", "del tcp 443 443", "del tcp 443 policy=rr",
		"clear x", "clear tcp 443", "clear clear", "clear=1",
		/* other blanks, and more than one line */
		"add tcp 443\vpolicy=rr", "add\ntcp\n443\npolicy=rr",
		"add tcp 443 policy=rr\r\n", "add tcp 443 policy=rr\n\n",
		"add tcp 443 policy=rr\nadd tcp 80 policy=rr", "\nclear",
		"clear\n\n", "clear\nclear", "clear\t\n ",
		"del tcp 443\n\n", "del tcp 443\n ", "add tcp 443\n policy=rr",
		"del tcp 443\ndel tcp 80",
	};
	struct ps_rule_cmd cmd;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(texts); i++)
		if (!ok(parse(texts[i], &cmd) == -EINVAL, "bad text %u", i))
			diag("it is \"%s\"", shown(texts[i]));
}

/* Each word of a rule in its turn replaced by a very long one. */
static void test_long(void)
{
	static const char *const formats[] = {
		"%s", "%s tcp 443 policy=rr", "add %s 443 policy=rr",
		"add tcp %s policy=rr", "add tcp 443 %s", "add tcp 443 policy=%s",
		"add tcp 443 %s=rr", "add tcp 443 policy=rr %s", "del tcp 443 %s",
	};
	static const char letters[] = "a0 9=";
	struct ps_rule_cmd cmd;
	char word[4096], text[5000];
	unsigned int i, j;
	bool all = true;

	for (i = 0; i < sizeof(letters) - 1; i++) {
		if (letters[i] == ' ')
			continue;
		memset(word, letters[i], sizeof(word) - 1);
		word[sizeof(word) - 1] = '\0';
		for (j = 0; j < ARRAY_SIZE(formats); j++) {
			snprintf(text, sizeof(text), formats[j], word);
			all &= parse(text, &cmd) == -EINVAL;
		}
	}
	ok(all, "very long words");
	memset(word, ' ', sizeof(word) - 1);
	snprintf(text, sizeof(text), "%sdel tcp 443", word);
	is(parse(text, &cmd), 0, "a good rule behind very many blanks");
}

static void mutate(char *text, size_t size)
{
	static const char *const words[] = {
		"add", "del", "clear", "tcp", "udp", "443", "0", "65535", "65536",
		"policy=rr", "policy=hash", "policy=", "=", "x", "\n", "\t", " ",
		" lock=1 ", " lock=0", "migrate=0 ", " force=1", "force=",
		" affinity=7", "affinity=", " affinity=2147483648",
		" quic_offset=18", " quic_length=3 ", "quic_length=",
	};
	size_t len = strlen(text), at = random() % (len + 1);
	const char *word = words[random() % ARRAY_SIZE(words)];

	switch (random() % 4) {
	case 0:
		if (at < len)
			text[at] = 1 + random() % 255;
		break;
	case 1:
		if (at < len)
			memmove(text + at, text + at + 1, len - at);
		break;
	case 2:
		text[at] = '\0';
		break;
	default:
		if (len + strlen(word) < size) {
			memmove(text + at + strlen(word), text + at, len - at + 1);
			memcpy(text + at, word, strlen(word));
		}
	}
}

static void make_text(char *text, size_t size)
{
	static const char *const good[] = {
		"add tcp 443 policy=rr\n", "add udp 53 policy=hash", "del tcp 443\n",
		"del udp 65535", "clear\n", "",
	};
	unsigned int i, n = random() % 5;

	snprintf(text, size, "%s", good[random() % ARRAY_SIZE(good)]);
	/* Now and then nothing but noise. */
	if (random() % 8 == 0) {
		n = random() % (size - 1);
		for (i = 0; i < n; i++)
			text[i] = 1 + random() % 255;
		text[n] = '\0';
		return;
	}
	for (i = 0; i < n; i++)
		mutate(text, size);
}

static void test_random(unsigned int seed)
{
	unsigned int i, good = 0, wrong = 0;
	struct ps_rule_cmd cmd, again;
	char text[100], plain[200];

	printf("# seed %u\n", seed);
	srandom(seed);
	for (i = 0; i < RANDOM_TEXTS; i++) {
		const char *why = NULL, *line;
		int err;

		make_text(text, sizeof(text));
		line = strchr(text, '\n');
		err = parse(text, &cmd);
		if (err && err != -EINVAL)
			why = "another error";
		if (!err) {
			good++;
			print_rule(&cmd, plain, sizeof(plain));
			if (parse(plain, &again) || !same(&cmd, &again))
				why = plain;
			else if (line && line[1])
				why = "more than one line accepted";
		}
		if (why && wrong++ < 5)
			diag("\"%s\" gives %d: %s", shown(text), err, why);
	}
	is(wrong, 0, "random texts, seed %u", seed);
	ok(good > RANDOM_TEXTS / 20, "%u of %u random texts are good", good, i);
}

int main(int argc, char **argv)
{
	unsigned int seed = argc > 1 ? strtoul(argv[1], NULL, 0) :
				       (unsigned int)time(NULL);

	test_good();
	test_policies();
	test_bad();
	test_long();
	test_random(seed);
	return done();
}
