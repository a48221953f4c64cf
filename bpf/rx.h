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
	__u64 packets;	   /* sum of work, of these and of busy and thread polls */
	__u64 time;	   /* of polls */
	__u64 full_budget; /* polls that used all their budget */
	__u64 empty;	   /* polls that found nothing */
	__u64 busy_polls;  /* polls outside NET_RX (busy, threaded, netpoll): not timed */
	__u64 thread_polls; /* polls of its NAPI thread while sched_switch is attached */
	__u64 thread_time;  /* of these */
	__u64 begun;	    /* when its last poll on this CPU began */
	__u32 thread;	    /* pid of its NAPI thread, 0: none seen */
	__u32 irq; /* that raised the runs in which it was polled first, by vote; with
		      detail only */
	__u32 irq_votes; /* for it, less those against */
	__u32 irq_against;
	__u64 time_hist[TIME_BUCKETS];
	__u64 work_hist[WORK_BUCKETS];
	char name[16]; /* of the device when the entry was made */
};

struct irq_key {
	__u32 irq;
	__u32 cpu;
};

/* Gaps between interrupts: bucket 1+4o+q counts 2^(10+o) (1+q/4) ns and more up to
 * the next one's, bucket 0 all below, the last one all above. */
#define GAP_BUCKETS 64
#define GAP_LOW	    10

struct irq_stat {
	__u64 count; /* handlers run: one per action of a shared line */
	__u64 time;
	__u64 last;		 /* when it was handled last */
	__u32 gaps[GAP_BUCKETS]; /* wrap */
};

struct latency {
	__u64 count;
	__u64 sum; /* ns */
	__u64 hist[TIME_BUCKETS];
};

/* Of NET_RX runs, from one clock to the next. */
struct run_stat {
	struct latency to_raise;   /* interrupt handler entered → NET_RX raised */
	struct latency to_run;	   /* NET_RX raised → running */
	struct latency first_poll; /* NET_RX running → the first poll done */
	struct latency ring_wait;  /* the NAPI's last poll begun → this one done */
};

/* One cache line multiple per CPU; only that CPU writes it. */
struct cpu_stat {
	__u64 start;	 /* when the softirq running now began, 0: none seen */
	__u64 mark;	 /* NET_RX: when it began or last finished a poll, 0: not in it */
	__u64 irq_start; /* when the irq handler running now began, 0: none seen */
	__u64 since;	 /* when this CPU was first seen since it was switched on */
	__u64 streak; /* when the first NET_RX run began since which none was left out */
	__u64 raised; /* when NET_RX was raised, 0: not, or not timed */
	__u64 irq_wait; /* handler entered → raised, 0: by no handler, or not timed */
	__u64 run_wait; /* raised → running, of the run now */
	__u64 thread;	/* when the NAPI thread running began or last polled, 0: none */
	__u32 on;	/* the generation that all these marks are of */
	__u32 known;	/* in it a softirq boundary was seen: mark can be trusted */
	enum context context; /* of the NET_RX run now */
	__u32 last_pid;	      /* task whose context was looked up last, 0: none */
	enum context last_context;
	__u32 first;	   /* the next poll is the first of its run */
	__u32 passing;	   /* in a run that is left out */
	__u32 irq_passing; /* in an interrupt that is left out */
	__u32 handling;	   /* the line handled now + 1, 0: none */
	__u32 follow;	   /* the line last looked at + 1, 0: it was followed */
	__u32 raiser;	   /* the line whose handler raised NET_RX + 1, 0: none */
	__u32 skip_rx;	   /* NET_RX runs until the next that is looked at */
	__u32 skip;	   /* other softirqs, likewise */
	__u32 irq_skip;	   /* interrupts, likewise */
	__u32 busy_skip;   /* polls outside NET_RX, likewise */
	__u32 pair;	   /* the NET_RX run before was looked at for itself */
	__u32 seed;	   /* of the skips, 0: not yet drawn */
	__u32 pad32;
	__u64 busy_polls; /* polls outside NET_RX and NAPI threads, all of them */
	__u64 runs[SOFTIRQS];
	__u64 time[SOFTIRQS];
	__u64 tail; /* NET_RX time after the last poll of a run */
	__u64 runs_in[CONTEXTS];
	__u64 time_in[CONTEXTS];
	__u64 thread_tail;    /* time of NAPI threads outside polls */
	__u64 raises;	      /* of any softirq, seen with detail only */
	__u64 switches;	      /* of tasks, seen while there are NAPI threads */
	__u64 lost_polls;     /* no room for the {NAPI, CPU} in the map */
	__u64 lost_poll_time; /* of these */
	__u64 lost_irqs;      /* no room for the {irq, CPU} in the map */
	__u64 lost_runs;      /* no room for the {NAPI, CPU} in runs */
	__u64 pad[3];
};
_Static_assert(sizeof(struct cpu_stat) % 64 == 0, "CPUs must not share cache lines");

#endif
