// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

//go:build ignore

/*
 * Where the time of receiving goes: kernel stacks at a clock's ticks, kept
 * only while the CPU is in NET_RX or a NAPI thread polls.
 *
 * napi_poll tells the end of a poll, not its beginning. So a sample waits in
 * its CPU's pending slots until the poll that it interrupted ends and names its
 * NAPI; what waits when the run ends was taken after its last poll.
 *
 * Object and marks of its own: a profile runs by itself, and rx.bpf.c's marks
 * would have to be shared across two collections for three lines.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "profile.h"

#define SOFTIRQ_NET_RX 3 /* include/linux/interrupt.h */

/* include/uapi/linux/bpf.h */
#define PERCPU_ARRAY 6
#define STACK_TRACE  7

struct {
	__uint(type, PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct profile_cpu);
} state SEC(".maps");

struct {
	__uint(type, STACK_TRACE);
	__uint(max_entries,
	       16384); /* set by Go; two stacks of one hash: the second is lost */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, STACK_DEPTH * sizeof(__u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384); /* set by Go */
	__type(key, struct profile_key);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline struct profile_cpu *this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&state, &zero);
}

/*
 * flush counts the waiting samples for a NAPI, NULL: for none. A tick may come
 * in the middle; it only fills slots that are 0, and only others are emptied.
 */
static __always_inline void flush(struct profile_cpu *cpu, struct napi_struct *napi)
{
	struct profile_key key = {};
	struct net_device *dev;
	__u64 one = 1, *count;

	key.cpu = bpf_get_smp_processor_id();
	if (napi) {
		key.napi = (__u64)napi;
		key.napi_id = napi->napi_id;
		dev = napi->dev;
		if (dev) {
			key.ifindex = dev->ifindex;
			key.netns = dev->nd_net.net->ns.inum;
#pragma unroll
			for (__u32 i = 0; i < sizeof(key.name); i++)
				key.name[i] = dev->name[i];
		}
	}
#pragma unroll
	for (__u32 i = 0; i < sizeof(cpu->pending) / sizeof(cpu->pending[0]); i++) {
		__u64 waits = cpu->pending[i];

		if (!waits)
			continue;
		key.stack = (__u32)waits - 1;
		key.context = waits >> 32;
		cpu->pending[i] = 0;
		count = bpf_map_lookup_elem(&counts, &key);
		if (count)
			(*count)++; /* the key holds the CPU */
		else if (bpf_map_update_elem(&counts, &key, &one, BPF_NOEXIST))
			cpu->lost_keys++;
	}
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(profile_softirq_entry, unsigned int vec)
{
	struct profile_cpu *cpu;

	if (vec != SOFTIRQ_NET_RX)
		return 0;
	cpu = this_cpu();
	if (!cpu)
		return 0; /* never: there is one per CPU */
	if (cpu->pending[0])
		flush(cpu, (void *)0); /* of a NAPI thread, outside its polls */
	cpu->in = 1;
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(profile_softirq_exit, unsigned int vec)
{
	struct profile_cpu *cpu;

	if (vec != SOFTIRQ_NET_RX)
		return 0;
	cpu = this_cpu();
	if (!cpu)
		return 0; /* never, as above */
	cpu->in = 0;
	if (cpu->pending[0])
		flush(cpu, (void *)0);
	return 0;
}

SEC("tp_btf/napi_poll")
int BPF_PROG(profile_napi_poll, struct napi_struct *napi)
{
	struct profile_cpu *cpu = this_cpu();

	if (cpu && cpu->pending[0])
		flush(cpu, napi);
	return 0;
}

static __always_inline int starts_with(const char *comm, const char *prefix, __u32 n)
{
#pragma unroll
	for (__u32 i = 0; i < n; i++)
		if (comm[i] != prefix[i])
			return 0;
	return 1;
}

SEC("perf_event")
int profile_tick(void *ctx)
{
	static const char ksoftirqd[] = "ksoftirqd/";
	static const char thread[] = "napi/"; /* napi_kthread_create, net/core/dev.c */
	enum profile_context context = PROFILE_IDLE;
	struct profile_cpu *cpu = this_cpu();
	char comm[16] = {};
	__s64 stack;
	__u64 waits;

	if (!cpu)
		return 0; /* never, as above */
	if ((__u32)bpf_get_current_pid_tgid()) {
		if (bpf_get_current_comm(comm, sizeof(comm)))
			return 0; /* never: the buffer is that of a name */
		if (cpu->in)
			context = starts_with(comm, ksoftirqd, sizeof(ksoftirqd) - 1)
					  ? PROFILE_KSOFTIRQD
					  : PROFILE_TASK;
		else if (starts_with(comm, thread, sizeof(thread) - 1))
			context = PROFILE_THREAD;
		else
			return 0; /* not receiving */
	} else if (!cpu->in) {
		return 0; /* idle */
	}
	cpu->samples++;
	stack = bpf_get_stackid(ctx, &stacks, 0);
	if (stack < 0) {
		cpu->lost_stacks++;
		return 0;
	}
	waits = ((__u64)context << 32 | (__u32)stack) + 1;
#pragma unroll
	for (__u32 i = 0; i < sizeof(cpu->pending) / sizeof(cpu->pending[0]); i++)
		if (!cpu->pending[i]) {
			cpu->pending[i] = waits;
			return 0;
		}
	cpu->lost_pending++;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
