// SPDX-License-Identifier: GPL-2.0
#include <linux/bits.h>
#include <linux/errno.h>
#include <linux/in.h>
#include <linux/kernel.h>
#include <linux/limits.h>
#include <linux/string.h>

#include "policy/quic.h"
#include "rule_parse.h"

/* The next word, or NULL; words are parted by any number of blanks. */
static char *ps_word(char **text)
{
	char *word;

	do {
		word = strsep(text, " \t");
	} while (word && !*word);
	return word;
}

static int ps_parse_proto(const char *word, u8 *proto)
{
	if (!word)
		return -EINVAL;
	if (!strcmp(word, "tcp"))
		*proto = IPPROTO_TCP;
	else if (!strcmp(word, "udp"))
		*proto = IPPROTO_UDP;
	else
		return -EINVAL;
	return 0;
}

static int ps_parse_port(const char *word, u16 *port)
{
	/* kstrtou16() would also take a sign, and a newline at the end. */
	if (!word || word[strspn(word, "0123456789")] ||
	    kstrtou16(word, 10, port) || !*port)
		return -EINVAL;
	return 0;
}

/* What may follow the port of an add, each once. */
enum ps_rule_option {
	PS_RULE_POLICY = BIT(0),
	PS_RULE_LOCK = BIT(1),
	PS_RULE_MIGRATE = BIT(2),
	PS_RULE_FORCE = BIT(3),
	PS_RULE_AFFINITY = BIT(4),
	PS_RULE_QUIC_OFFSET = BIT(5),
	PS_RULE_QUIC_LENGTH = BIT(6),
};

/* In decimal, from @min to @max. */
static int ps_parse_number(const char *value, u32 min, u32 max, u32 *num)
{
	if (value[strspn(value, "0123456789")] ||
	    kstrtou32(value, 10, num) || *num < min || *num > max)
		return -EINVAL;
	return 0;
}

static int ps_parse_flag(const char *value, bool *flag)
{
	if (strcmp(value, "0") && strcmp(value, "1"))
		return -EINVAL;
	*flag = *value == '1';
	return 0;
}

static int ps_parse_value(u32 option, const char *value,
			  struct ps_rule_cmd *cmd)
{
	switch (option) {
	case PS_RULE_POLICY:
		cmd->policy = ps_policy_find(value);
		return cmd->policy ? 0 : -EINVAL;
	case PS_RULE_LOCK:
		return ps_parse_flag(value, &cmd->lock);
	case PS_RULE_MIGRATE:
		return ps_parse_flag(value, &cmd->migrate);
	case PS_RULE_FORCE:
		return ps_parse_flag(value, &cmd->force);
	case PS_RULE_AFFINITY:
		return ps_parse_number(value, 0, INT_MAX, &cmd->affinity);
	case PS_RULE_QUIC_OFFSET:
		return ps_parse_number(value, 0, PS_QUIC_CID_MAX - 1,
				       &cmd->quic_offset);
	case PS_RULE_QUIC_LENGTH:
		return ps_parse_number(value, 1, PS_QUIC_LENGTH_MAX,
				       &cmd->quic_length);
	default:
		return -EINVAL;
	}
}

/* @seen: which options the line had before. */
static int ps_parse_option(char *word, u32 *seen, struct ps_rule_cmd *cmd)
{
	static const char *const names[] = {
		"policy", "lock", "migrate", "force", "affinity",
		"quic_offset", "quic_length",
	};
	char *value = strchr(word, '=');
	unsigned int i;

	if (!value)
		return -EINVAL;
	*value++ = '\0';
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(word, names[i]))
			continue;
		if (*seen & BIT(i))
			return -EINVAL;
		*seen |= BIT(i);
		return ps_parse_value(BIT(i), value, cmd);
	}
	return -EINVAL;
}

/**
 * ps_rule_parse() - read one line written to `rules`
 * @text: is cut up; may end in one newline
 * @cmd: filled
 *
 * Context: any.
 * Return: 0 or -EINVAL.
 */
int ps_rule_parse(char *text, struct ps_rule_cmd *cmd)
{
	size_t len = strlen(text);
	u32 seen = 0;
	char *word;
	int err;

	memset(cmd, 0, sizeof(*cmd));
	if (len && text[len - 1] == '\n')
		text[len - 1] = '\0';

	word = ps_word(&text);
	if (!word)
		return -EINVAL;
	if (!strcmp(word, "clear")) {
		cmd->verb = PS_RULE_CLEAR;
		return ps_word(&text) ? -EINVAL : 0;
	}
	if (!strcmp(word, "add"))
		cmd->verb = PS_RULE_ADD;
	else if (!strcmp(word, "del"))
		cmd->verb = PS_RULE_DEL;
	else
		return -EINVAL;

	err = ps_parse_proto(ps_word(&text), &cmd->proto);
	if (err)
		return err;
	err = ps_parse_port(ps_word(&text), &cmd->port);
	if (err)
		return err;
	if (cmd->verb == PS_RULE_DEL)
		return ps_word(&text) ? -EINVAL : 0;

	cmd->migrate = true;
	cmd->quic_offset = PS_QUIC_OFFSET(PS_QUIC_DEFAULT);
	cmd->quic_length = PS_QUIC_LENGTH(PS_QUIC_DEFAULT);
	while ((word = ps_word(&text))) {
		err = ps_parse_option(word, &seen, cmd);
		if (err)
			return err;
	}
	cmd->sets_affinity = seen & PS_RULE_AFFINITY;
	cmd->sets_quic = seen & (PS_RULE_QUIC_OFFSET | PS_RULE_QUIC_LENGTH);
	/* What says something of UDP is a mistake elsewhere. */
	if (cmd->proto != IPPROTO_UDP && (cmd->sets_affinity || cmd->sets_quic))
		return -EINVAL;
	if (cmd->quic_offset + cmd->quic_length > PS_QUIC_CID_MAX)
		return -EINVAL;
	return cmd->policy ? 0 : -EINVAL;
}
