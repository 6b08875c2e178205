/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What chance gives. Nothing here is seeded by anything that changes, so what
 * is found is found again.
 */
#ifndef STATS_H
#define STATS_H

#include <math.h>

#include <linux/types.h>

/* SplitMix64. */
static inline u32 rnd(void)
{
	static u64 state = 0x706f727473746565;
	u64 x = state += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x >> 32;
}

/* 0..@n - 1 */
static inline u32 rnd_below(u32 n)
{
	return (u64)rnd() * n >> 32;
}

/*
 * By how many standard deviations a chi-square of @n cells, as likely as
 * @weight says (NULL: equally), is above what chance gives (Wilson and
 * Hilferty's cube root).
 */
static inline double chi_square_by(const u32 *count, const u32 *weight, u32 n)
{
	double sum = 0, total = 0, weights = 0, df = n - 1, mean;
	u32 i;

	if (n < 2)
		return 0;
	for (i = 0; i < n; i++) {
		total += count[i];
		weights += weight ? weight[i] : 1;
	}
	for (i = 0; i < n; i++) {
		mean = total * (weight ? weight[i] : 1) / weights;
		sum += (count[i] - mean) * (count[i] - mean) / mean;
	}
	return (cbrt(sum / df) - (1 - 2 / (9 * df))) / sqrt(2 / (9 * df));
}

static inline double chi_square(const u32 *count, u32 n)
{
	return chi_square_by(count, NULL, n);
}

#endif /* STATS_H */
