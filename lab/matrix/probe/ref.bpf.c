// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

//go:build ignore

/*
 * What the attribution of bpf/rx.bpf.c is held against: the time between entry
 * and return of __napi_poll where fentry loads, and a burn at tc ingress whose
 * time is known because it reads the clock itself: it stays known when the
 * virtual CPU is preempted in it. (A rig that must saturate CPUs burns
 * iterations instead, see lab/burn.)
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
#include <bpf/bpf_tracing.h>
#include "ref.h"

struct __sk_buff;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

/* ns to burn per packet, set by Go while the programs run. */
volatile __u64 burn_ns;

static __always_inline struct tally *this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&tallies, &zero);
}

SEC("fentry/__napi_poll")
int BPF_PROG(poll_entry)
{
	struct tally *t = this_cpu();

	if (t)
		t->entered = bpf_ktime_get_ns();
	return 0;
}

SEC("fexit/__napi_poll")
int BPF_PROG(poll_exit)
{
	struct tally *t = this_cpu();

	if (!t || !t->entered)
		return 0; /* began before we were attached */
	t->poll_time += bpf_ktime_get_ns() - t->entered;
	t->polls++;
	t->entered = 0;
	return 0;
}

#define ROUND(x) ((x) ^= (x) << 13, (x) ^= (x) >> 7, (x) ^= (x) << 17)

/*
 * spin works until the clock reads end or its turns are used up, and returns the
 * time. A global function: the verifier walks it once, not at each call, and each
 * turn leaves it a branch to look at later, at most 8192 of them
 * (BPF_COMPLEXITY_LIMIT_JMP_SEQ).
 */
__attribute__((noinline)) __u64 spin(__u64 end)
{
	__u64 now = 0, x = end;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < 4000; i++) {
		ROUND(x);
		ROUND(x);
		now = bpf_ktime_get_ns() + (x == 0);
		if (now >= end)
			break;
	}
	return now;
}

SEC("tc")
int clock_burn(struct __sk_buff *skb)
{
	struct tally *t = this_cpu();
	__u64 want = burn_ns, start, now;

	if (!t || !want)
		return TC_ACT_UNSPEC;
	start = bpf_ktime_get_ns();
	now = start;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < 200 && now - start < want; i++)
		now = spin(start + want);
	t->packets++;
	t->burnt += now - start;
	return TC_ACT_UNSPEC;
}

char __license[] SEC("license") = "Dual BSD/GPL";
