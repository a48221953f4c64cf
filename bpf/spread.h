/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What spread.bpf.c counts and how Go tells it a device's RSS settings. Go's copies are
 * generated, as those of rx.h are. Counters are cumulative since the last Configure.
 */
#ifndef RXSTEER_SPREAD_H
#define RXSTEER_SPREAD_H

/* Flow types, as ethtool -n has hash fields for: indices into config.fields. */
enum flow_type {
	FLOW_TCP4,
	FLOW_UDP4,
	FLOW_SCTP4,
	FLOW_IP4,
	FLOW_TCP6,
	FLOW_UDP6,
	FLOW_SCTP6,
	FLOW_IP6,
	FLOW_TYPES, /* also: none of them, nothing to hash */
};

/* What a packet is, by what can be hashed of it. */
enum class {
	CLASS_TCP4,
	CLASS_UDP4,
	CLASS_TCP6,
	CLASS_UDP6,
	CLASS_IP4,
	CLASS_IP6,
	CLASS_FRAGMENT,
	CLASS_GRE,
	CLASS_VXLAN,
	CLASS_GENEVE,
	CLASS_IPIP,
	CLASS_PPPOE,
	CLASS_OTHER,
	CLASSES,
};

/* Bits of config.fields: what of a flow is hashed. */
enum {
	HASH_SRC = 1,
	HASH_DST = 2,
	HASH_SPORT = 4,
	HASH_DPORT = 8,
};

/* toeplitz.Transform. */
enum xfrm {
	XFRM_NONE,
	XFRM_SYMMETRIC_XOR,
	XFRM_SYMMETRIC_OR_XOR,
};

#define NO_BUCKET 0xffffffff
#define NO_QUEUE  0xffffffff
/* Nibbles of the longest input: two IPv6 addresses and two ports. */
#define NIBBLES 72

struct device_key {
	__u32 netns; /* inode */
	__u32 ifindex;
};

/* How a device hashes. */
struct config {
	__u32 base;   /* its first entry in tables and, per CPU, in buckets */
	__u32 size;   /* entries of its indirection table, 0: it has none */
	__u32 mask;   /* size - 1 where size is a power of two, else 0 */
	__u32 rxhash; /* skb->hash may be the device's */
	enum xfrm xfrm;
	__u8 fields[FLOW_TYPES]; /* 0: not hashed */
	/* Toeplitz is linear: the hash is the sum (xor) of what each nibble of the input
	 * gives at its place, most significant first. */
	__u32 toeplitz[NIBBLES][16];
};

struct load {
	__u64 packets;
	__u64 bytes; /* with the link layer header */
};

struct device_stat {
	struct load seen;
	__u64 by_nic;	/* bucket by the device's hash */
	__u64 by_sum;	/* by our own */
	__u64 unseen;	/* headers could not be read */
	__u64 agreed;	/* arrived in the queue the table names for their bucket */
	__u64 compared; /* of these whose queue and bucket are known */
	__u64 pad;
	struct load classes[CLASSES][2]; /* [1]: under a VLAN tag */
};

/* The packets of a flow that one CPU took from one queue. */
struct flow_key {
	__be32 src[4]; /* IPv4: the first */
	__be32 dst[4];
	__be16 sport; /* 0 where there is none */
	__be16 dport;
	__u32 netns;
	__u32 ifindex;
	__u32 cpu;
	__u16 queue; /* + 1; 0: not told */
	__u8 protocol;
	__u8 family; /* 4 or 6 */
};

struct flow {
	__u64 packets; /* sampled */
	__u64 bytes;
	__u64 born; /* CLOCK_MONOTONIC; tells an entry from a later one of the same key */
	__u64 last;
	__u32 bucket; /* of the last packet, or NO_BUCKET */
	__u32 pad;
};

/* One CPU's state; only that CPU writes it. */
struct spread_cpu {
	__u64 net; /* the device looked up last: address of its namespace, ifindex … */
	__u32 ifindex;
	__u32 on;	 /* … and the time it was switched on */
	__u32 slot;	 /* of config, or NO_SLOT */
	__u32 countdown; /* packets until the next is sampled */
	__u64 sampled;	 /* packets for flows */
	__u64 lost;	 /* of these, for which the map had no room */
	__u32 skip;	 /* packets until the next is looked at */
	__u32 pad[5];
};
_Static_assert(sizeof(struct spread_cpu) == 64, "CPUs must not share cache lines");
#define NO_SLOT 0xffffffff

#endif
