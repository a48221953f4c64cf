/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every type that crosses from the programs to Go. Go's copies are generated
 * from the objects' BTF (see gen.go), never written by hand. All counters are
 * cumulative since load, all times are nanoseconds of CLOCK_MONOTONIC.
 */
#ifndef RXSTEER_RX_H
#define RXSTEER_RX_H

#define SOFTIRQS       10 /* NR_SOFTIRQS, include/linux/interrupt.h */
#define SOFTIRQ_NET_RX 3
#define TIME_BUCKETS   32 /* bucket i: 2^(i-1) <= v < 2^i, the last one all above */
#define WORK_BUCKETS   16 /* the same, of packets per poll */

/* Over what a NET_RX run took the CPU. */
enum context {
	OVER_TASK,
	OVER_IDLE,
	IN_KSOFTIRQD,
	CONTEXTS,
};

/*
 * All that tells one NAPI instance from another is in the key, so that an
 * address which the kernel uses again never mixes two devices' counters.
 */
struct napi_key {
	__u64 napi;    /* address of the napi_struct */
	__u32 netns;   /* inode of the device's network namespace, 0 for the backlog */
	__u32 ifindex; /* 0 for the backlog */
	__u32 napi_id; /* 0 for the backlog and tun */
	__u32 cpu;
};

struct napi_stat {
	__u64 polls;	   /* in a NET_RX softirq */
	__u64 packets;	   /* sum of work, of timed and of busy polls */
	__u64 time;	   /* of polls */
	__u64 full_budget; /* polls that used all their budget */
	__u64 empty;	   /* polls that found nothing */
	__u64 busy_polls;  /* polls outside NET_RX (busy, threaded, netpoll): not timed */
	__u64 time_hist[TIME_BUCKETS];
	__u64 work_hist[WORK_BUCKETS];
	char name[16]; /* of the device when the entry was made */
};

struct irq_key {
	__u32 irq;
	__u32 cpu;
};

struct irq_stat {
	__u64 count; /* handlers run: one per action of a shared line */
	__u64 time;
};

/* One cache line multiple per CPU; only that CPU writes it. */
struct cpu_stat {
	__u64 start;	 /* when the softirq running now began, 0: none seen */
	__u64 mark;	 /* NET_RX: when it began or last finished a poll, 0: not in it */
	__u64 irq_start; /* when the irq handler running now began, 0: none seen */
	__u32 known;	 /* `on` when a softirq boundary was seen: mark can be trusted */
	enum context context; /* of the NET_RX run now */
	__u32 last_pid;	      /* task whose context was looked up last, 0: none */
	enum context last_context;
	__u64 runs[SOFTIRQS];
	__u64 time[SOFTIRQS];
	__u64 tail; /* NET_RX time after the last poll of a run */
	__u64 runs_in[CONTEXTS];
	__u64 time_in[CONTEXTS];
	__u64 lost_polls;     /* no room for the {NAPI, CPU} in the map */
	__u64 lost_poll_time; /* of these */
	__u64 lost_irqs;      /* no room for the {irq, CPU} in the map */
	__u32 irq_known;      /* `on` when irq_start was set */
	__u32 passing;	      /* in a run that is left out */
	__u32 skip;	      /* runs until the next that is timed */
	__u32 irq_skip;	      /* interrupts, likewise */
	__u32 busy_skip;      /* polls outside NET_RX, likewise */
	__u32 pad32;
	__u64 busy_polls; /* polls outside NET_RX, all of them */
	__u64 pad[1];
};
_Static_assert(sizeof(struct cpu_stat) % 64 == 0, "CPUs must not share cache lines");

#endif
