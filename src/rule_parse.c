// SPDX-License-Identifier: GPL-2.0
#include <linux/errno.h>
#include <linux/in.h>
#include <linux/kernel.h>
#include <linux/string.h>

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

static int ps_parse_option(char *word, struct ps_rule_cmd *cmd)
{
	char *value = strchr(word, '=');

	if (!value)
		return -EINVAL;
	*value++ = '\0';
	if (!strcmp(word, "policy") && !cmd->policy) {
		cmd->policy = ps_policy_find(value);
		return cmd->policy ? 0 : -EINVAL;
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

	while ((word = ps_word(&text))) {
		err = ps_parse_option(word, cmd);
		if (err)
			return err;
	}
	return cmd->policy ? 0 : -EINVAL;
}
