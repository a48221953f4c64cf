/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel as the programs here see it: CO-RE stubs of only the fields they
 * read. Offsets come from the running kernel's BTF when the programs load.
 */
#ifndef RXSTEER_KERNEL_H
#define RXSTEER_KERNEL_H

/* <linux/types.h> does not build for target bpf everywhere; libbpf needs these. */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

/* include/uapi/linux/bpf.h: what libbpf's headers and the maps here need of it. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
};
enum {
	BPF_NOEXIST = 1,
	BPF_F_MMAPABLE = 1U << 10,
};

struct bpf_dynptr {
	__u64 opaque[2];
} __attribute__((aligned(8)));

#define __core __attribute__((preserve_access_index))

struct ns_common {
	unsigned int inum; /* inode of the namespace, as in /proc/self/ns/net */
} __core;

struct net {
	struct ns_common ns;
} __core;

typedef struct {
	struct net *net;
} __core possible_net_t;

struct net_device {
	char name[16];	       /* IFNAMSIZ; changes when the device is renamed */
	int ifindex;	       /* unique in its namespace */
	possible_net_t nd_net; /* changes when the device moves to another namespace */
} __core;

struct napi_struct {
	struct net_device
		*dev; /* NULL for the per-CPU backlog (net/core/dev.c net_dev_init) */
	unsigned int napi_id; /* 0 for the backlog and NAPI_STATE_NO_BUSY_POLL (tun) */
} __core;

struct irqaction; /* never looked into */

struct sk_buff {
	/* Of an skb in a UDP socket's queue the kernel keeps lengths in dev's place
	 * (struct udp_dev_scratch, net/ipv4/udp.c). */
	struct net_device *dev;
	unsigned char *head;
	unsigned char *data;
	unsigned int len;      /* without what lies before data */
	unsigned int data_len; /* of it, what is in pages and not at data */
	__u32 hash;	       /* 0: none */
	__u8 sw_hash : 1;      /* hash is the stack's, not the device's */
	__u16 queue_mapping;   /* of a received one: its rx queue + 1, 0 not told */
	__be16 protocol;       /* of what data points at, once a driver hands it over */
	__be16 vlan_proto;     /* of the tag the device took off, 0: none */
	__u16 mac_header;      /* from head */
	unsigned int napi_id;  /* 0 where the NAPI has none */
	int skb_iif;	       /* ifindex it was received on, 0 of one that was not */
} __core;

struct task_struct {
	char comm[16]; /* TASK_COMM_LEN */
} __core;

struct sk_buff_head {
	struct sk_buff *prev; /* the last in the queue; itself where it is empty */
	__u32 qlen;
} __core;

struct sock_common {
	unsigned short skc_family;
} __core;

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	__u16 sk_protocol; /* 16 bits since Linux 5.6 */
} __core;

struct udp_sock {
	struct sk_buff_head
		reader_queue; /* what the reader took out of sk_receive_queue at once */
} __core;

#endif
