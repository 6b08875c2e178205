// SPDX-License-Identifier: GPL-2.0
/*
 * What may be written to a file: a number in decimal or a name, and a newline
 * if the writer likes.
 */
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/string.h>

#include <uapi/portsteer.h>

#include "setting.h"
#include "state_name.h"
#include "sysfs.h"

/* "-9223372036854775808\n" */
#define PS_NUMBER_LEN 21

/* sysfs ends what was written with a NUL; any other is the writer's. */
static bool ps_value_text(const char *buf, size_t count)
{
	return count && strlen(buf) == count;
}

/**
 * ps_value_number() - a number as written
 * @buf: what was written, and a NUL
 * @count: its length
 * @value: filled
 *
 * Context: any.
 * Return: 0 or -EINVAL.
 */
int ps_value_number(const char *buf, size_t count, s64 *value)
{
	if (!ps_value_text(buf, count) || count > PS_NUMBER_LEN ||
	    buf[0] == '+')
		return -EINVAL;
	return kstrtos64(buf, 10, value) ? -EINVAL : 0;
}

/**
 * ps_value_flag() - 0 or 1 as written
 * @buf: what was written, and a NUL
 * @count: its length
 * @value: filled
 *
 * Context: any.
 * Return: 0 or -EINVAL.
 */
int ps_value_flag(const char *buf, size_t count, bool *value)
{
	s64 num;

	if (ps_value_number(buf, count, &num) || num < 0 || num > 1)
		return -EINVAL;
	*value = num;
	return 0;
}

/**
 * ps_value_setting() - a setting as written, which it may have
 * @opt: PORTSTEER_...
 * @buf: what was written, and a NUL
 * @count: its length
 * @value: filled
 *
 * Context: any.
 * Return: 0 or -EINVAL.
 */
int ps_value_setting(int opt, const char *buf, size_t count, int *value)
{
	s64 num;

	if (!ps_value_text(buf, count))
		return -EINVAL;
	if (opt == PORTSTEER_STATE) {
		*value = ps_state_find(buf);
		if (*value >= 0)
			return 0;
	}
	if (ps_value_number(buf, count, &num) || !ps_setting_valid(opt, num))
		return -EINVAL;
	*value = num;
	return 0;
}
