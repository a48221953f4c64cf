/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every type that crosses from profile.bpf.c to Go; see rx.h. */
#ifndef RXSTEER_PROFILE_H
#define RXSTEER_PROFILE_H

#define STACK_DEPTH 127 /* PERF_MAX_STACK_DEPTH, include/uapi/linux/perf_event.h */

/* Over what a receive poll had the CPU when it was sampled. */
enum profile_context {
	PROFILE_TASK,	   /* NET_RX over a task */
	PROFILE_IDLE,	   /* NET_RX over the idle task */
	PROFILE_KSOFTIRQD, /* NET_RX in ksoftirqd */
	PROFILE_THREAD,	   /* a NAPI thread */
};

/* What a sample is counted under. All but stack, cpu and context are 0 after a run's last
 * poll. */
struct profile_key {
	__u64 napi;    /* address of the napi_struct */
	__u32 netns;   /* inode of the device's network namespace, 0 for the backlog */
	__u32 ifindex; /* 0 for the backlog */
	__u32 napi_id; /* 0 for the backlog and tun */
	__u32 cpu;
	__u32 stack; /* in the map of stacks */
	enum profile_context context;
	char name[16]; /* of the device */
};

/* One per CPU, cumulative since load. */
struct profile_cpu {
	__u64 pending[4]; /* samples of the poll now, 0 free: 1 + stack | context << 32 */
	__u32 in;	  /* in NET_RX */
	__u32 pad;
	__u64 samples;	    /* taken in receive */
	__u64 lost_stacks;  /* of these: no room for the stack */
	__u64 lost_pending; /* of these: more in one poll than pending holds */
	__u64 lost_keys;    /* of these: no room for the key */
};

#endif
