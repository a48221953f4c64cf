// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

/*
 * Level 2: where a packet waits.
 *
 * One packet in `rate` is sampled where its driver hands it over: it gets a
 * slot in a direct-mapped table, and the programs further along find it there by
 * the address of its skb. An address comes again, so the skb's head must be the
 * same too, and whoever sees the address handed over anew clears the slot. GRO
 * keeps the first packet of those it merges, so what arrives further along are
 * GRO's heads.
 *
 * Each program costs about 20 ns per packet whatever it does; looking at the
 * table costs few more, for its keys are 8 KiB and seldom written.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <stdbool.h>
#include "packet.h"
#include "bucket.h"

/* Set by Go: 0 is off. It grows each time measuring is switched on, so that what
 * was begun before is known for it. */
volatile __u32 on;
/* One packet in so many is sampled. Set by Go. */
volatile __u32 rate = 1024;
/* Whether UDP's reads are told by consume_skb. Since Linux 6.18 a read skb is freed
 * later, or by no traced way; there sk_data_ready and sock_recv_length tell. Set by Go.
 */
volatile __u32 by_consume = 1;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* page-aligned: CPUs do not share lines */
	__uint(max_entries, 1);		   /* possible CPUs, set by Go */
	__type(key, __u32);
	__type(value, struct packet_cpu);
} packet_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096); /* set by Go */
	__type(key, struct stage_key);
	__type(value, struct stage_stat);
} stages SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct xdp_key);
	__type(value, __u64);
} xdps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024); /* set by Go */
	__type(key, struct drop_key);
	__type(value, __u64);
} drops SEC(".maps");

/* Whether the tracepoint kfree_skb tells why (since Linux 5.17). Set by Go. */
volatile const __u32 reasons;

static const struct stage_stat no_stage;

extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

#define SLOTS 1024

enum place {
	AT_DRIVER,
	AT_STACK,
	AT_SOCKET,
};

/* slot is a sampled packet under way. Two CPUs may fill one at once: then its
 * head or its generation is most likely wrong, and it is given up. */
struct slot {
	__u64 head; /* of the skb */
	__u64 at;   /* when the driver handed it over */
	__u64 mark; /* when it came to where it is now */
	__u32 on;   /* the generation it was sampled in */
	enum place place;
	__u32 from; /* CPU where the driver handed it over */
	__u32 cpu;  /* CPU where it came to where it is now */
	__u32 netns;
	__u32 ifindex;
	__u32 queue;
	__u32 napi_id;
	__u32 due; /* the how manieth read of its UDP socket will take it */
	__u64 sk;  /* that socket, 0: none seen */
	char name[16];
};

static __u64 keys[SLOTS]; /* address of the skb in each slot, 0: none */
static struct slot slots[SLOTS];

/* index_of tells the slot of an skb. Shifts of a pointer are refused, so its low
 * half becomes a number by a move of its own. skbs lie 256 bytes apart. */
static __always_inline __u32 index_of(const struct sk_buff *skb)
{
	__u32 low;

	asm volatile("%0 = %1" : "=w"(low) : "w"((__u32)(__u64)skb));
	return (low >> 8 ^ low >> 18) & (SLOTS - 1);
}

static __always_inline struct packet_cpu *counting(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	if (!on)
		return 0;
	return bpf_map_lookup_elem(&packet_cpus, &cpu);
}

/* chosen says whether this packet is the one in `rate`. */
static __always_inline __u32 chosen(struct packet_cpu *cpu)
{
	if (cpu->skip) {
		cpu->skip--;
		return 0;
	}
	cpu->skip = draw(&cpu->seed, rate);
	return 1;
}

static __always_inline void sample(const struct sk_buff *skb, struct packet_cpu *cpu,
				   __u32 napi_id)
{
	__u32 i = index_of(skb);
	struct slot *slot = &slots[i];
	struct net_device *dev = skb->dev;

	if (!dev)
		return;
	if (keys[i])
		cpu->overwritten++;
	keys[i] = 0;
	barrier();
	slot->head = (__u64)skb->head;
	slot->on = on;
	slot->place = AT_DRIVER;
	slot->sk = 0;
	slot->from = bpf_get_smp_processor_id();
	slot->cpu = slot->from;
	slot->netns = dev->nd_net.net->ns.inum;
	slot->ifindex = dev->ifindex;
	slot->queue = skb->queue_mapping;
	slot->napi_id = napi_id;
#pragma unroll
	for (__u32 c = 0; c < sizeof(slot->name); c++)
		slot->name[c] = dev->name[c];
	slot->at = bpf_ktime_get_ns();
	slot->mark = slot->at;
	barrier();
	keys[i] = (__u64)skb;
	cpu->sampled++;
}

/* handed is a packet that its driver hands over. */
static __always_inline void handed(const struct sk_buff *skb, struct packet_cpu *cpu,
				   __u32 napi_id)
{
	__u32 i = index_of(skb);

	if (keys[i] == (__u64)skb) {
		keys[i] = 0;
		cpu->reused++;
	}
	if (chosen(cpu))
		sample(skb, cpu, napi_id);
}

SEC("tp_btf/napi_gro_receive_entry")
int BPF_PROG(napi_gro_receive_entry, const struct sk_buff *skb)
{
	struct packet_cpu *cpu = counting();

	if (!cpu)
		return 0;
	cpu->events.gro++;
	handed(skb, cpu, skb->napi_id);
	return 0;
}

SEC("tp_btf/napi_gro_frags_entry")
int BPF_PROG(napi_gro_frags_entry, const struct sk_buff *skb)
{
	struct packet_cpu *cpu = counting();

	if (!cpu)
		return 0;
	cpu->events.gro++;
	handed(skb, cpu, skb->napi_id);
	return 0;
}

/* What passes no GRO is handed over here: lo, tun and veth without NAPI, tunnels. */
SEC("tp_btf/netif_rx")
int BPF_PROG(netif_rx, const struct sk_buff *skb)
{
	struct packet_cpu *cpu = counting();

	if (!cpu)
		return 0;
	cpu->events.netif_rx++;
	handed(skb, cpu, 0); /* its napi_id may be a sender's CPU */
	return 0;
}

/* find returns the slot of a sampled skb, if it has one. */
static __always_inline struct slot *find(const struct sk_buff *skb)
{
	__u32 i = index_of(skb);
	struct slot *slot = &slots[i];

	if (keys[i] != (__u64)skb)
		return 0;
	if (slot->head == (__u64)skb->head && slot->on == on)
		return slot;
	keys[i] = 0; /* another packet at the same address, or of an earlier time */
	return 0;
}

static __always_inline void forget(const struct sk_buff *skb)
{
	keys[index_of(skb)] = 0;
}

static __always_inline void passed(struct packet_cpu *cpu, const struct slot *slot,
				   enum packet_stage stage, __u32 from, __u64 ns)
{
	struct stage_key key = {
		.netns = slot->netns,
		.ifindex = slot->ifindex,
		.queue = slot->queue,
		.napi_id = slot->napi_id,
		.stage = stage,
		.cpu = bpf_get_smp_processor_id(),
		.from = from,
	};
	struct stage_stat *stat = bpf_map_lookup_elem(&stages, &key);

	if (!stat) {
		bpf_map_update_elem(&stages, &key, &no_stage, BPF_NOEXIST);
		stat = bpf_map_lookup_elem(&stages, &key);
		if (!stat) {
			cpu->lost++;
			return;
		}
#pragma unroll
		for (__u32 c = 0; c < sizeof(stat->name); c++)
			stat->name[c] = slot->name[c];
	}
	/* A process may be interrupted between reading and writing on its own CPU. */
	__sync_fetch_and_add(&stat->count, 1);
	__sync_fetch_and_add(&stat->sum, ns);
	__sync_fetch_and_add(&stat->hist[bucket(ns, TIME_BUCKETS - 1)], 1);
}

/* came has a sampled packet come from one place to the next by this stage. It returns its
 * slot, 0 if it is not sampled or is elsewhere. */
static __always_inline struct slot *came(const struct sk_buff *skb,
					 struct packet_cpu *cpu, enum place from,
					 enum packet_stage stage)
{
	struct slot *slot = find(skb);
	__u64 now;

	if (!slot || slot->place != from)
		return 0;
	now = bpf_ktime_get_ns();
	passed(cpu, slot, stage, slot->cpu, now - slot->mark);
	slot->mark = now;
	slot->cpu = bpf_get_smp_processor_id();
	slot->place = from + 1;
	return slot;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(netif_receive_skb, struct sk_buff *skb)
{
	struct packet_cpu *cpu = counting();

	if (!cpu)
		return 0;
	cpu->events.stack++;
	came(skb, cpu, AT_DRIVER, TO_STACK); /* once: a bond, bridge or VLAN is later */
	return 0;
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(tcp_probe, struct sock *sk, const struct sk_buff *skb)
{
	struct packet_cpu *cpu = counting();

	if (!cpu)
		return 0;
	cpu->events.socket++;
	came(skb, cpu, AT_STACK, TO_SOCKET); /* once: a socket's twin is later */
	return 0;
}

static __always_inline void arrived(struct packet_cpu *cpu, struct slot *slot)
{
	__u64 now = bpf_ktime_get_ns();

	passed(cpu, slot, TO_READ, slot->cpu, now - slot->mark);
	passed(cpu, slot, IN_ALL, slot->from, now - slot->at);
}

/* TCP's reads, and UDP's of data that lie in more than one piece. */
SEC("tp_btf/skb_copy_datagram_iovec")
int BPF_PROG(skb_copy_datagram_iovec, const struct sk_buff *skb, int len)
{
	struct packet_cpu *cpu = counting();
	struct slot *slot;

	if (!cpu)
		return 0;
	cpu->events.copy++;
	slot = find(skb);
	if (!slot)
		return 0;
	if (slot->place != AT_DRIVER && skb->skb_iif)
		arrived(cpu, slot);
	/* else never arrived, and its address is another's now */
	forget(skb);
	return 0;
}

/* in_udp_queue says whether an skb is or was in the queue of a UDP socket: lengths
 * stand where its device was. On little-endian machines the topmost byte of these
 * is 0 or 1 and a kernel address is negative; on big-endian s390x the topmost bit
 * is set and addresses are positive. */
static __always_inline __u32 in_udp_queue(const struct sk_buff *skb)
{
	long scratch = (long)skb->dev;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return scratch > 0;
#else
	return scratch < 0;
#endif
}

/* UDP's reads end here before Linux 6.18. */
SEC("tp_btf/consume_skb")
int BPF_PROG(consume_skb, struct sk_buff *skb)
{
	struct packet_cpu *cpu = counting();
	struct slot *slot;

	if (!cpu)
		return 0;
	cpu->events.consume++;
	slot = find(skb);
	if (!slot)
		return 0;
	if (by_consume && slot->place == AT_STACK && in_udp_queue(skb))
		arrived(cpu, slot);
	else
		cpu->unread++;
	forget(skb);
	return 0;
}

#define IPPROTO_UDP 17
#define AF_INET	    2
#define AF_INET6    10
#define READERS	    256
#define PENDING	    16

/* reader is a UDP socket that holds samples. It is read in the order it was filled in, so
 * counting its reads tells when a sample's turn is. */
struct reader {
	__u64 sk;
	__u32 on;
	__u32 reads;		/* so far */
	__u32 pending[PENDING]; /* by due % PENDING: the sample's slot + 1, 0: none */
};

static struct reader readers[READERS];

static __always_inline struct reader *reader_of(const struct sock *sk)
{
	__u32 low;

	asm volatile("%0 = %1" : "=w"(low) : "w"((__u32)(__u64)sk));
	return &readers[(low >> 7 ^ low >> 15) & (READERS - 1)];
}

static __always_inline __u32 is_udp(const struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	return (family == AF_INET || family == AF_INET6) &&
	       sk->sk_protocol == IPPROTO_UDP;
}

/* A UDP socket got a packet: the last of its queue, unless the reader was faster. */
SEC("tp_btf/sk_data_ready")
int BPF_PROG(sk_data_ready, const struct sock *sk)
{
	struct packet_cpu *cpu = counting();
	const struct udp_sock *udp;
	const struct sk_buff *skb;
	struct reader *reader;
	struct slot *slot;
	__u32 due;

	if (!cpu)
		return 0;
	cpu->events.ready++;
	if (by_consume || !is_udp(sk))
		return 0;
	skb = sk->sk_receive_queue.prev;
	if (!skb)
		return 0;
	slot = came(skb, cpu, AT_STACK, TO_SOCKET);
	if (!slot)
		return 0;
	slot->sk = (__u64)sk;
	reader = reader_of(sk);
	if (reader->sk != (__u64)sk || reader->on != on) {
		reader->sk = (__u64)sk;
		reader->on = on;
		reader->reads = 0;
#pragma unroll
		for (__u32 i = 0; i < PENDING; i++)
			reader->pending[i] = 0;
	}
	udp = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct udp_sock));
	due = reader->reads + sk->sk_receive_queue.qlen + udp->reader_queue.qlen;
	slot->due = due;
	reader->pending[due & (PENDING - 1)] = 1 + index_of(skb);
	return 0;
}

/* A socket was read: length or errno. */
SEC("tp_btf/sock_recv_length")
int BPF_PROG(sock_recv_length, const struct sock *sk, int length, int flags)
{
	const int MSG_PEEK = 2;
	struct packet_cpu *cpu = counting();
	struct reader *reader;
	struct slot *slot;
	__u32 reads, i;

	if (!cpu)
		return 0;
	cpu->events.recv++;
	reader = reader_of(sk);
	if (reader->sk != (__u64)sk || length < 0 || flags & MSG_PEEK)
		return 0;
	reads = ++reader->reads;
	i = reader->pending[reads & (PENDING - 1)];
	if (!i)
		return 0;
	i = (i - 1) & (SLOTS - 1);
	slot = &slots[i];
	if (!keys[i] || slot->on != on || slot->sk != (__u64)sk || slot->due != reads)
		return 0; /* of an earlier round, or another's by now */
	reader->pending[reads & (PENDING - 1)] = 0;
	arrived(cpu, slot);
	keys[i] = 0;
	return 0;
}

/* count adds one to what map has for a key with this CPU in it; false: there is no room.
 * Process context and softirq may do so at once. */
static __always_inline bool count(void *map, const void *key)
{
	const __u64 first = 1;
	__u64 *n = bpf_map_lookup_elem(map, key);

	if (!n)
		return !bpf_map_update_elem(map, key, &first, BPF_NOEXIST);
	__sync_fetch_and_add(n, 1);
	return true;
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(kfree_skb, struct sk_buff *skb)
{
	struct packet_cpu *cpu = counting();
	struct drop_key key = {.received = skb->skb_iif != 0,
			       .cpu = bpf_get_smp_processor_id()};

	if (!cpu)
		return 0;
	cpu->events.free++;
	if (reasons)
		key.reason = ctx[2];
	if (!count(&drops, &key))
		cpu->lost_drops++;
	if (!find(skb))
		return 0;
	cpu->dropped++;
	forget(skb);
	return 0;
}

static __always_inline int xdp(const struct net_device *dev, enum xdp_outcome outcome)
{
	struct packet_cpu *cpu = counting();
	struct xdp_key key = {.outcome = outcome, .cpu = bpf_get_smp_processor_id()};

	if (!cpu)
		return 0;
	cpu->events.xdp++;
	key.netns = dev->nd_net.net->ns.inum;
	key.ifindex = dev->ifindex;
	if (!count(&xdps, &key))
		cpu->lost++;
	return 0;
}

SEC("tp_btf/xdp_exception")
int BPF_PROG(xdp_exception, const struct net_device *dev)
{
	return xdp(dev, XDP_RAISED);
}

SEC("tp_btf/xdp_redirect")
int BPF_PROG(xdp_redirect, const struct net_device *dev)
{
	return xdp(dev, XDP_REDIRECTED);
}

SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(xdp_redirect_err, const struct net_device *dev)
{
	return xdp(dev, XDP_NOT_REDIRECTED);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
