// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

//go:build ignore

/*
 * A fixed cost per packet at tc ingress, which runs after RPS: work counted in
 * iterations, never by the clock, so that a preempted CPU burns no less.
 */
/* <linux/types.h> does not build for target bpf everywhere; libbpf needs these. */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

/* include/uapi/linux/bpf.h, include/uapi/linux/pkt_cls.h */
enum { BPF_MAP_TYPE_PERCPU_ARRAY = 6 };
enum { TC_ACT_UNSPEC = -1 }; /* also TCX_NEXT: the next program decides */

#include <bpf/bpf_helpers.h>

struct __sk_buff;

struct count {
	__u64 packets;
	__u64 sink; /* keeps the work from being optimised away */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct count);
} counts SEC(".maps");

/* Set by the loader; a constant to the verifier, which walks every iteration. */
const volatile __u32 iterations;

#define ROUND(x) ((x) ^= (x) << 13, (x) ^= (x) >> 7, (x) ^= (x) << 17)

SEC("tc")
int burn(struct __sk_buff *skb)
{
	__u32 zero = 0, n = iterations;
	struct count *c = bpf_map_lookup_elem(&counts, &zero);
	__u64 x;

	if (!c)
		return TC_ACT_UNSPEC; /* cannot happen: entry 0 of an array */
	x = c->sink | 1;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < n; i++) {
		ROUND(x);
		ROUND(x);
		ROUND(x);
		ROUND(x);
	}
	c->sink = x;
	c->packets++;
	return TC_ACT_UNSPEC;
}

char __license[] SEC("license") = "Dual BSD/GPL";
