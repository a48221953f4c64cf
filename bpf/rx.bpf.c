// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

//go:build ignore

/*
 * Level 1: who spends the receive softirq's time.
 *
 * net_rx_action() tells the end of each poll but not its beginning, so a
 * poll's time is the time since the poll before it in the same run, or since
 * the run began. What follows the last poll is the run's tail. Hence
 * polls + tail = NET_RX, and nothing needs a second clock per poll.
 *
 * Softirqs do not nest and only their own CPU writes its counters: no locks,
 * no atomics. Each program costs about 20 ns whatever it does and each clock
 * read 27 ns more, so there are as few of both as the figures allow.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "rx.h"
#include "bucket.h"

/* Set by Go after the last program is attached: a half-attached set would count
 * ends without beginnings. 0 is off; it grows each time measuring is switched on, so
 * that what was begun before is known for it. */
volatile __u32 on;
/* One softirq run, one interrupt and one poll outside NET_RX in so many is looked at,
 * the rest only passed by: half the cost of being looked at or less. A run is looked at
 * as a whole, so that its figures fit together. Set by Go. */
volatile __u32 rate = 1;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* page-aligned: CPUs do not share lines */
	__uint(max_entries, 1);		   /* possible CPUs, set by Go */
	__type(key, __u32);
	__type(value, struct cpu_stat);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096); /* set by Go */
	__type(key, struct napi_key);
	__type(value, struct napi_stat);
} napis SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096); /* set by Go */
	__type(key, struct irq_key);
	__type(value, struct irq_stat);
} irqs SEC(".maps");

/* New map entries are copied from these: too big for the stack. */
static const struct napi_stat no_polls;
static const struct irq_stat no_irqs;

static __always_inline struct cpu_stat *this_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &cpu);
}

/* passed_by says whether an event is left out. The distance to the next that is not is
 * drawn anew each time: a fixed one would always meet the same place in a pattern. */
static __always_inline __u32 passed_by(__u32 *skip)
{
	__u32 n = rate;

	if (*skip && *skip < 2 * n) { /* else drawn for a greater rate */
		--*skip;
		return 1;
	}
	*skip = 0;
	if (n > 1) /* 0 to 2·rate − 2, rate − 1 in the mean */
		*skip = (__u64)bpf_get_prandom_u32() * (2 * n - 1) >> 32;
	return 0;
}

/* context says over what this CPU entered NET_RX. ksoftirqd is known by its
 * name: its pid is hidden from Go in a container, and reading task->flags is
 * refused under lockdown. The answer is kept for the task asked about last. */
static __always_inline enum context context(struct cpu_stat *cpu)
{
	static const char ksoftirqd[] = "ksoftirqd/";
	char comm[16];
	__u32 pid = bpf_get_current_pid_tgid();

	if (!pid)
		return OVER_IDLE;
	if (pid == cpu->last_pid)
		return cpu->last_context;
	cpu->last_pid = pid;
	cpu->last_context = OVER_TASK;
	if (bpf_get_current_comm(comm, sizeof(comm)))
		return OVER_TASK;
#pragma unroll
	for (__u32 i = 0; i < sizeof(ksoftirqd) - 1; i++)
		if (comm[i] != ksoftirqd[i])
			return OVER_TASK;
	cpu->last_context = IN_KSOFTIRQD;
	return IN_KSOFTIRQD;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry, unsigned int vec)
{
	struct cpu_stat *cpu;

	if (!on)
		return 0;
	cpu = this_cpu();
	if (!cpu)
		return 0; /* never: the array holds all possible CPUs */
	cpu->known = on;
	if (passed_by(&cpu->skip)) {
		cpu->passing = 1;
		cpu->start = 0;
		cpu->mark = 0;
		return 0;
	}
	cpu->passing = 0;
	cpu->start = bpf_ktime_get_ns();
	if (vec == SOFTIRQ_NET_RX) {
		cpu->mark = cpu->start;
		cpu->context = context(cpu);
	}
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit, unsigned int vec)
{
	struct cpu_stat *cpu;
	__u64 start, mark, now, ran;
	__u32 in;

	if (!on)
		return 0;
	cpu = this_cpu();
	if (!cpu)
		return 0; /* never, as above */
	start = cpu->start;
	mark = cpu->mark;
	cpu->start = 0;
	cpu->mark = 0;
	cpu->passing = 0;
	if (cpu->known != on) {
		cpu->known = on;
		return 0; /* began before we were on */
	}
	if (!start || vec >= SOFTIRQS)
		return 0; /* left out, or began before we were on */
	now = bpf_ktime_get_ns();
	ran = now - start;
	cpu->runs[vec]++;
	cpu->time[vec] += ran;
	if (vec != SOFTIRQ_NET_RX)
		return 0;
	cpu->tail += now - mark;
	in = cpu->context;
	if (in < CONTEXTS) {
		cpu->runs_in[in]++;
		cpu->time_in[in] += ran;
	}
	return 0;
}

static __always_inline struct napi_stat *stat_of(struct napi_struct *napi)
{
	struct napi_key key = {
		.napi = (__u64)napi,
		.napi_id = napi->napi_id,
		.cpu = bpf_get_smp_processor_id(),
	};
	struct net_device *dev = napi->dev;
	struct napi_stat *stat;

	if (dev) {
		key.ifindex = dev->ifindex;
		key.netns = dev->nd_net.net->ns.inum;
	}
	stat = bpf_map_lookup_elem(&napis, &key);
	if (stat)
		return stat;
	bpf_map_update_elem(&napis, &key, &no_polls, BPF_NOEXIST);
	stat = bpf_map_lookup_elem(&napis, &key);
	if (stat && dev)
#pragma unroll
		for (__u32 i = 0; i < sizeof(stat->name); i++)
			stat->name[i] = dev->name[i];
	return stat;
}

SEC("tp_btf/napi_poll")
int BPF_PROG(napi_poll, struct napi_struct *napi, int work, int budget)
{
	struct cpu_stat *cpu;
	struct napi_stat *stat;
	__u64 now, took;
	__u32 packets = work < 0 ? 0 : work;

	if (!on)
		return 0;
	cpu = this_cpu();
	if (!cpu)
		return 0; /* never, as above */
	if (cpu->known != on)
		return 0; /* this run may have begun before we were on */
	if (cpu->passing)
		return 0; /* with its run */
	if (!cpu->mark) {
		cpu->busy_polls++;
		if (passed_by(&cpu->busy_skip))
			return 0;
	}
	stat = stat_of(napi);
	if (!cpu->mark) {
		/* Not in NET_RX: busy polling spins here 330,000 times a second. */
		if (!stat) {
			cpu->lost_polls++;
			return 0;
		}
		stat->busy_polls++;
		stat->packets += packets;
		return 0;
	}
	now = bpf_ktime_get_ns();
	took = now - cpu->mark;
	cpu->mark = now;
	if (!stat) {
		cpu->lost_polls++;
		cpu->lost_poll_time += took;
		return 0;
	}
	stat->polls++;
	stat->packets += packets;
	stat->time += took;
	stat->time_hist[bucket(took, TIME_BUCKETS - 1)]++;
	stat->work_hist[bucket(packets, WORK_BUCKETS - 1)]++;
	if (!packets)
		stat->empty++;
	else if (work >= budget)
		stat->full_budget++;
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_entry)
{
	struct cpu_stat *cpu;

	if (!on)
		return 0;
	cpu = this_cpu();
	if (!cpu)
		return 0; /* never, as above */
	cpu->irq_start = 0;
	if (passed_by(&cpu->irq_skip))
		return 0;
	cpu->irq_known = on;
	cpu->irq_start = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_handler_exit, int irq)
{
	struct irq_key key = {.irq = irq, .cpu = bpf_get_smp_processor_id()};
	struct cpu_stat *cpu;
	struct irq_stat *stat;
	__u64 start;

	if (!on)
		return 0;
	cpu = this_cpu();
	if (!cpu)
		return 0; /* never, as above */
	start = cpu->irq_start;
	cpu->irq_start = 0;
	if (!start || cpu->irq_known != on)
		return 0; /* left out, or began before we were on */
	stat = bpf_map_lookup_elem(&irqs, &key);
	if (!stat) {
		bpf_map_update_elem(&irqs, &key, &no_irqs, BPF_NOEXIST);
		stat = bpf_map_lookup_elem(&irqs, &key);
		if (!stat) {
			cpu->lost_irqs++;
			return 0;
		}
	}
	stat->count++;
	stat->time += bpf_ktime_get_ns() - start;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
