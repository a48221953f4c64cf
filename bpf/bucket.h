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

#endif
