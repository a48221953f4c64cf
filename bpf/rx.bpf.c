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
 *
 * With detail (level 2) softirq_raise is attached as well, and the same clocks
 * tell how a run came about. While there are NAPI threads, so is sched_switch.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "rx.h"
#include "bucket.h"

/* Set by Go: 0 is off, until the last program is attached, for a half-attached set
 * would count ends without beginnings. It grows each time measuring is switched on, so
 * that marks of an earlier time are known for it. */
volatile __u32 on;
/* One softirq run, one interrupt and one poll outside NET_RX in so many is looked at,
 * the rest only passed by: half the cost of being looked at or less. A run is looked at
 * as a whole, so that its figures fit together. Set by Go. */
volatile __u32 rate = 1;
/* Whether runs are recorded. Set by Go. */
volatile __u32 detail;

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

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set by Go */
	__type(key, struct napi_key);
	__type(value, struct run_stat);
} runs SEC(".maps");

/* New map entries are copied from these: too big for the stack. */
static const struct napi_stat no_polls;
static const struct irq_stat no_irqs;
static const struct run_stat no_runs;

/* counting returns this CPU's counters, 0 while switched off. */
static __always_inline struct cpu_stat *counting(void)
{
	__u32 id = bpf_get_smp_processor_id();
	__u32 now_on = on;
	struct cpu_stat *cpu;

	if (!now_on)
		return 0;
	cpu = bpf_map_lookup_elem(&cpus, &id);
	if (!cpu)
		return 0; /* never: the array holds all possible CPUs */
	if (cpu->on != now_on) {
		cpu->on = now_on;
		cpu->known = 0;
		cpu->start = 0;
		cpu->mark = 0;
		cpu->passing = 0;
		cpu->streak = 0;
		cpu->follow = 0;
		cpu->irq_start = 0;
		cpu->handling = 0;
		cpu->raised = 0;
		cpu->thread = 0;
		cpu->since = bpf_ktime_get_ns();
	}
	return cpu;
}

/* passed_by says whether an event is left out, of which one in n is not; skip counts
 * down to the next of these. */
static __always_inline __u32 passed_by(struct cpu_stat *cpu, __u32 *skip, __u32 n)
{
	if (*skip && *skip < 2 * n) { /* else drawn for a greater rate */
		--*skip;
		return 1;
	}
	*skip = 0;
	if (n > 1)
		*skip = draw(&cpu->seed, n);
	return 0;
}

/* run_passed_by is the same of NET_RX runs. With detail they are looked at in pairs, to
 * see how long a NAPI was not polled: half as many pairs as there would be runs. */
static __always_inline __u32 run_passed_by(struct cpu_stat *cpu)
{
	__u32 n = rate;

	if (!detail || n <= 1)
		return passed_by(cpu, &cpu->skip_rx, n);
	if (cpu->pair) {
		cpu->pair = 0;
		return 0;
	}
	if (passed_by(cpu, &cpu->skip_rx, 2 * n - 1))
		return 1;
	cpu->pair = 1;
	return 0;
}

/* starts returns whether comm begins with so many characters of name. */
static __always_inline __u32 starts(const char *comm, const char *name, __u32 n)
{
#pragma unroll
	for (__u32 i = 0; i < n; i++)
		if (comm[i] != name[i])
			return 0;
	return 1;
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
	if (starts(comm, ksoftirqd, sizeof(ksoftirqd) - 1))
		cpu->last_context = IN_KSOFTIRQD;
	return cpu->last_context;
}

SEC("tp_btf/softirq_raise")
int BPF_PROG(softirq_raise, unsigned int vec)
{
	struct cpu_stat *cpu = counting();

	if (!cpu)
		return 0;
	cpu->raises++;
	if (vec != SOFTIRQ_NET_RX || cpu->raised || (cpu->skip_rx && !cpu->pair))
		return 0; /* raised already, or for a run that will be left out */
	cpu->raised = bpf_ktime_get_ns();
	cpu->irq_wait = 0;
	cpu->raiser = cpu->handling;
	if (cpu->irq_start)
		cpu->irq_wait = cpu->raised - cpu->irq_start;
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry, unsigned int vec)
{
	struct cpu_stat *cpu = counting();
	__u64 raised;

	if (!cpu)
		return 0;
	cpu->known = 1;
	raised = vec == SOFTIRQ_NET_RX ? cpu->raised : 0;
	if (vec == SOFTIRQ_NET_RX)
		cpu->raised = 0;
	cpu->passing = vec == SOFTIRQ_NET_RX ? run_passed_by(cpu)
					     : passed_by(cpu, &cpu->skip, rate);
	cpu->start = 0;
	cpu->mark = 0;
	if (cpu->passing) {
		if (vec == SOFTIRQ_NET_RX)
			cpu->streak = 0;
		return 0;
	}
	cpu->start = bpf_ktime_get_ns();
	if (vec != SOFTIRQ_NET_RX)
		return 0;
	if (!cpu->streak)
		cpu->streak = cpu->start;
	cpu->mark = cpu->start;
	cpu->first = 1;
	cpu->run_wait = raised ? cpu->start - raised : 0;
	cpu->context = context(cpu);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit, unsigned int vec)
{
	struct cpu_stat *cpu = counting();
	__u64 start, mark, now, ran;
	__u32 in;

	if (!cpu)
		return 0;
	cpu->known = 1;
	start = cpu->start;
	mark = cpu->mark;
	cpu->start = 0;
	cpu->mark = 0;
	cpu->passing = 0;
	if (!start || vec >= SOFTIRQS) {
		if (cpu->thread)
			cpu->thread =
				bpf_ktime_get_ns(); /* the thread under it stood still */
		return 0; /* left out, or began before we were on */
	}
	now = bpf_ktime_get_ns();
	if (cpu->thread)
		cpu->thread = now;
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

static __always_inline void key_of(struct napi_key *key, struct napi_struct *napi)
{
	struct net_device *dev = napi->dev;

	key->napi = (__u64)napi;
	key->netns = 0;
	key->ifindex = 0;
	key->napi_id = napi->napi_id;
	key->cpu = bpf_get_smp_processor_id();
	if (dev) {
		key->ifindex = dev->ifindex;
		key->netns = dev->nd_net.net->ns.inum;
	}
}

static __always_inline struct napi_stat *stat_of(struct napi_key *key,
						 struct napi_struct *napi)
{
	struct net_device *dev = napi->dev;
	struct napi_stat *stat;

	stat = bpf_map_lookup_elem(&napis, key);
	if (stat)
		return stat;
	bpf_map_update_elem(&napis, key, &no_polls, BPF_NOEXIST);
	stat = bpf_map_lookup_elem(&napis, key);
	if (stat && dev)
#pragma unroll
		for (__u32 i = 0; i < sizeof(stat->name); i++)
			stat->name[i] = dev->name[i];
	return stat;
}

static __always_inline void took(struct latency *l, __u64 ns)
{
	l->count++;
	l->sum += ns;
	l->hist[bucket(ns, TIME_BUCKETS - 1)]++;
}

/* outside counts a poll that ran in no NET_RX. */
static __always_inline void outside(struct napi_stat *stat)
{
	static const char napi[] = "napi/", backlog[] = "backlog_napi/";
	char comm[16];

	/* A NAPI thread is known by its name (napi_kthread_create, net/core/dev.c), and
	 * seldom looked for: busy polling spins here 330,000 times a second. */
	if (!(stat->busy_polls & 1023) && !bpf_get_current_comm(comm, sizeof(comm)) &&
	    (starts(comm, napi, sizeof(napi) - 1) ||
	     starts(comm, backlog, sizeof(backlog) - 1)))
		stat->thread = bpf_get_current_pid_tgid();
	stat->busy_polls++;
}

/* threaded counts a poll of a NAPI thread that sched_switch saw coming. */
static __always_inline void threaded(struct cpu_stat *cpu, struct napi_stat *stat)
{
	__u64 now = bpf_ktime_get_ns(), ns = now - cpu->thread;

	cpu->thread = now;
	if (!stat->thread) /* as yet known on another CPU only */
		stat->thread = bpf_get_current_pid_tgid();
	stat->thread_polls++;
	stat->thread_time += ns;
	stat->time_hist[bucket(ns, TIME_BUCKETS - 1)]++;
}

/* record notes how the run came about, and how long the NAPI was not looked at. */
static __always_inline void record(struct cpu_stat *cpu, struct napi_key *key,
				   struct napi_stat *stat, __u32 first, __u64 ns,
				   __u64 ring)
{
	struct run_stat *run = bpf_map_lookup_elem(&runs, key);

	if (!run) {
		bpf_map_update_elem(&runs, key, &no_runs, BPF_NOEXIST);
		run = bpf_map_lookup_elem(&runs, key);
		if (!run) {
			cpu->lost_runs++;
			return;
		}
	}
	if (ring)
		took(&run->ring_wait, ring);
	if (!first)
		return;
	took(&run->first_poll, ns);
	if (!cpu->run_wait)
		return;
	took(&run->to_run, cpu->run_wait);
	if (!cpu->raiser)
		return;
	if (cpu->irq_wait)
		took(&run->to_raise, cpu->irq_wait);
	/* Whose NAPI this interrupt raises is voted on: a line that had the majority
	 * stays. */
	if (stat->irq + 1 == cpu->raiser) {
		stat->irq_votes++;
	} else if (!stat->irq_votes) {
		stat->irq = cpu->raiser - 1;
		stat->irq_votes = 1;
		stat->irq_against = 0;
	} else {
		stat->irq_votes--;
		stat->irq_against++;
	}
}

SEC("tp_btf/napi_poll")
int BPF_PROG(napi_poll, struct napi_struct *napi, int work, int budget)
{
	struct cpu_stat *cpu = counting();
	struct napi_stat *stat;
	struct napi_key key;
	__u64 mark, now, ns, ring = 0;
	__u32 packets = work < 0 ? 0 : work;
	__u32 first;

	if (!cpu)
		return 0;
	if (!cpu->known)
		return 0; /* this run may have begun before we were on */
	if (cpu->passing)
		return 0; /* with its run */
	mark = cpu->mark;
	if (!mark && !cpu->thread) {
		cpu->busy_polls++;
		if (passed_by(cpu, &cpu->busy_skip, rate))
			return 0;
	}
	key_of(&key, napi);
	stat = stat_of(&key, napi);
	if (!mark) {
		if (!stat) {
			cpu->lost_polls++;
			return 0;
		}
		stat->packets += packets;
		if (cpu->thread)
			threaded(cpu, stat);
		else
			outside(stat);
		return 0;
	}
	first = cpu->first;
	cpu->first = 0;
	now = bpf_ktime_get_ns();
	ns = now - mark;
	cpu->mark = now;
	if (!stat) {
		cpu->lost_polls++;
		cpu->lost_poll_time += ns;
		return 0;
	}
	/* A run that was left out since may have polled it. */
	if (packets && stat->begun >= cpu->streak)
		ring = now - stat->begun;
	stat->begun = mark;
	stat->polls++;
	stat->packets += packets;
	stat->time += ns;
	stat->time_hist[bucket(ns, TIME_BUCKETS - 1)]++;
	stat->work_hist[bucket(packets, WORK_BUCKETS - 1)]++;
	if (!packets)
		stat->empty++;
	else if (work >= budget)
		stat->full_budget++;
	if (detail && (first || ring))
		record(cpu, &key, stat, first, ns, ring);
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_entry, int irq)
{
	struct cpu_stat *cpu = counting();

	if (!cpu)
		return 0;
	cpu->handling = irq + 1;
	cpu->irq_start = 0;
	cpu->irq_passing = passed_by(cpu, &cpu->irq_skip, rate);
	/* One that is looked at and the one that follows it make a gap. */
	if (cpu->irq_passing && cpu->follow != cpu->handling)
		return 0;
	cpu->irq_start = bpf_ktime_get_ns();
	return 0;
}

/* gap returns the bucket of a gap between interrupts. */
static __always_inline __u32 gap(__u64 ns)
{
	__u32 octave, i;

	if (ns < 1 << GAP_LOW)
		return 0;
	octave = bucket(ns, 32) - 1; /* floor(log2(ns)), 31 for all above */
	i = 1 + 4 * (octave - GAP_LOW) + (ns >> (octave - 2) & 3);
	return ns >> 32 || i >= GAP_BUCKETS ? GAP_BUCKETS - 1 : i;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_handler_exit, int irq)
{
	struct irq_key key = {.irq = irq, .cpu = bpf_get_smp_processor_id()};
	struct cpu_stat *cpu = counting();
	struct irq_stat *stat;
	__u64 start;
	__u32 follows;

	if (!cpu)
		return 0;
	start = cpu->irq_start;
	cpu->irq_start = 0;
	cpu->handling = 0;
	if (!start)
		return 0; /* left out, or began before we were on */
	follows = cpu->follow == key.irq + 1 || rate == 1;
	cpu->follow = cpu->irq_passing ? 0 : key.irq + 1;
	stat = bpf_map_lookup_elem(&irqs, &key);
	if (!stat) {
		bpf_map_update_elem(&irqs, &key, &no_irqs, BPF_NOEXIST);
		stat = bpf_map_lookup_elem(&irqs, &key);
		if (!stat) {
			cpu->lost_irqs++;
			return 0;
		}
	}
	if (follows && stat->last > cpu->since)
		stat->gaps[gap(start - stat->last) & (GAP_BUCKETS - 1)]++;
	stat->last = start;
	if (cpu->irq_passing)
		return 0;
	stat->count++;
	stat->time += bpf_ktime_get_ns() - start;
	return 0;
}

/* Attached only while there are NAPI threads: they run in no softirq, so that their
 * first poll begins when they get the CPU. */
SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, _Bool preempt, struct task_struct *prev,
	     struct task_struct *next)
{
	static const char napi[] = "napi/", backlog[] = "backlog_napi/";
	struct cpu_stat *cpu = counting();
	__u64 now = 0;

	if (!cpu)
		return 0;
	cpu->switches++;
	if (cpu->thread) {
		now = bpf_ktime_get_ns();
		cpu->thread_tail += now - cpu->thread;
		cpu->thread = 0;
	}
	if (starts(next->comm, napi, sizeof(napi) - 1) ||
	    starts(next->comm, backlog, sizeof(backlog) - 1))
		cpu->thread = now ? now : bpf_ktime_get_ns();
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
