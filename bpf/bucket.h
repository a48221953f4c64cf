/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef RXSTEER_BUCKET_H
#define RXSTEER_BUCKET_H

/* bucket returns 0 for 0, else 1 + floor(log2(v)), at most last. */
static __always_inline __u32 bucket(__u64 v, __u32 last)
{
	__u32 w = v >> 32 ? 0xffffffff : (__u32)v;
	__u32 b = w != 0;

	if (w >> 16) {
		b += 16;
		w >>= 16;
	}
	if (w >> 8) {
		b += 8;
		w >>= 8;
	}
	if (w >> 4) {
		b += 4;
		w >>= 4;
	}
	if (w >> 2) {
		b += 2;
		w >>= 2;
	}
	b += w >> 1;
	return b > last ? last : b;
}

/* draw returns how many to leave out until the next of one in `rate` is taken: 0 to
 * 2·rate − 2, rate − 1 in the mean. A fixed distance would always meet the same place. */
static __always_inline __u32 draw(__u32 *seed, __u32 rate)
{
	__u32 x = *seed;

	if (!x)
		x = bpf_get_prandom_u32() | 1;
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	*seed = x;
	return (__u64)x * (2 * rate - 1) >> 32;
}

#endif
