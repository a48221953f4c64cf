/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every type that crosses from the programs of level 2 to Go, as rx.h for those
 * of level 1. Go's copies are generated from the object's BTF (see gen.go).
 */
#ifndef RXSTEER_PACKET_H
#define RXSTEER_PACKET_H

#include "rx.h"

/* Of a sampled packet's way, from one clock to the next. */
enum packet_stage {
	TO_STACK,  /* driver hands it over → protocol layer */
	TO_SOCKET, /* protocol layer → TCP socket */
	TO_READ,   /* TCP socket, else protocol layer → read by the application */
	IN_ALL,	   /* driver hands it over → read by the application */
	PACKET_STAGES,
};

struct stage_key {
	__u32 netns; /* of the device that received it */
	__u32 ifindex;
	__u32 queue;   /* rx queue + 1, 0 not told */
	__u32 napi_id; /* of the NAPI that handed it over, 0: none */
	enum packet_stage stage;
	__u32 cpu;  /* where the stage ended */
	__u32 from; /* where it began */
};

struct stage_stat {
	__u64 count;
	__u64 sum; /* ns */
	__u64 hist[TIME_BUCKETS];
	char name[16]; /* of the device when the entry was made */
};

/* What XDP did, as far as the kernel has tracepoints for it. */
enum xdp_outcome {
	XDP_RAISED, /* aborted, or an action that the driver does not know or could not do
		     */
	XDP_REDIRECTED,	    /* to a device, a CPU or an AF_XDP socket */
	XDP_NOT_REDIRECTED, /* an error */
};

struct xdp_key {
	__u32 netns;
	__u32 ifindex; /* of the device that received it */
	enum xdp_outcome outcome;
	__u32 cpu;
};

/* Packets the kernel threw away, of those that its tracepoint tells. */
struct drop_key {
	__u32 reason;	/* enum skb_drop_reason; 0: the kernel tells none */
	__u32 received; /* it had come to the protocol layer; 0: not yet, or is being sent
			 */
	__u32 cpu;
};

/* How often each program ran: what it cost. */
struct packet_events {
	__u64 gro; /* napi_gro_receive_entry, napi_gro_frags_entry */
	__u64 netif_rx;
	__u64 stack;   /* netif_receive_skb */
	__u64 socket;  /* tcp_probe */
	__u64 copy;    /* skb_copy_datagram_iovec */
	__u64 consume; /* consume_skb */
	__u64 free;    /* kfree_skb */
	__u64 ready;   /* sk_data_ready */
	__u64 recv;    /* sock_recv_length */
	__u64 xdp;     /* xdp_exception, xdp_redirect, xdp_redirect_err */
};

/* One cache line multiple per CPU; only that CPU writes it. */
struct packet_cpu {
	__u32 skip; /* packets until the next one is sampled */
	__u32 seed; /* of that, 0: not yet drawn */
	struct packet_events events;
	__u64 sampled;
	__u64 overwritten; /* samples that gave way to another in their slot */
	__u64 reused;  /* samples whose skb came again before they arrived: merged by GRO,
			  or passed on to another device */
	__u64 dropped; /* samples that the kernel dropped */
	__u64 unread;  /* samples freed on another way than by an application that read
			  them */
	__u64 lost;    /* stages for which stages or xdps have no room */
	__u64 lost_drops; /* for whose reason drops has no room */
	__u64 pad[6];
};
_Static_assert(sizeof(struct packet_cpu) % 64 == 0, "CPUs must not share cache lines");

#endif
