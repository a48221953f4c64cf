// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

//go:build ignore

/*
 * Level 2, windows: which entry of the indirection table each packet of a device belongs
 * to, what it is, and which flows are big.
 *
 * The device's own hash tells the entry best, but some drivers leave none; then the
 * headers are read and hashed here as the device does. Every hook below is where a driver
 * hands a packet over, before GRO merges and RPS moves it; no packet passes two of them
 * for one device.
 *
 * An object of its own and not part of the latency program: a bucket window is short and
 * asked for at once, latency runs for long at a low rate. Together they would cost the
 * longer one a test per packet, apart they cost a second trampoline (20 ns) only while
 * both run.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <stdbool.h>
#include "spread.h"

/* Set by Go: 0 is off, and a greater number each time it is switched on. Devices, configs
 * and tables change only while it is off. */
volatile __u32 on;
volatile __u32 every; /* one packet in so many is looked at; 0 and 1: all */
volatile __u32 rate;  /* of these, one in so many is sampled for flows; 0 none */

/* For their types to reach Go. */
const enum class *of_class __attribute__((unused));
const enum flow_type *of_flow_type __attribute__((unused));

volatile const __u32 slots;   /* of configs */
volatile const __u32 entries; /* of tables */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16); /* set by Go */
	__type(key, struct device_key);
	__type(value, __u32); /* slot */
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16); /* slots */
	__type(key, __u32);
	__type(value, struct config);
} configs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024); /* entries */
	__type(key, __u32);
	__type(value, __u32); /* rx queue, or NO_QUEUE */
} tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1024); /* CPUs × entries, so that each CPU has its own */
	__type(key, __u32);
	__type(value, struct load);
} buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16); /* CPUs × slots */
	__type(key, __u32);
	__type(value, struct device_stat);
} stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs */
	__type(key, __u32);
	__type(value, struct spread_cpu);
} spread_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384); /* set by Go */
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

static const struct flow no_packets = {.bucket = NO_BUCKET};

/* What the prototype calls an sk_buff. Go takes the call out where the kernel refuses it
 * in tracepoints (before Linux 6.12). */
struct __sk_buff {
	__u32 len;
};
extern int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags,
			       struct bpf_dynptr *ptr) __ksym __weak;

/* 0, but the verifier does not know it. */
static volatile __u32 none;

/* blurred returns x. The verifier looks at what follows once for each set of constants
 * with which it can be reached; where it need not tell them apart, dozens of ways to a
 * place are one from there on. A sum: of an xor with what they do not know Linux 5.10
 * and 6.1 forget that the upper half is 0, and refuse it as an index. */
static __always_inline __u32 blurred(__u32 x)
{
	return x + none;
}

/* header copies a header from off bytes behind data; false if the packet ends before or
 * it cannot be read. */
static __noinline __u32 header(struct sk_buff *skb, __u32 off, void *to, const __u32 size)
{
	struct bpf_dynptr all;
	__u32 read = 0;

	if (off + size <= skb->len - skb->data_len)
		read = !bpf_probe_read_kernel(to, size, skb->data + off);
	else if (off + size <= skb->len &&
		 !bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &all))
		read = !bpf_dynptr_read(to, size, &all, off, 0);
	return blurred(read);
}

#define ETH_P_IP	0x0800
#define ETH_P_IPV6	0x86dd
#define ETH_P_8021Q	0x8100
#define ETH_P_8021AD	0x88a8
#define ETH_P_PPP_SES	0x8864
#define IP_MF_OR_OFFSET 0x3fff

#define IPPROTO_HOPOPTS	 0
#define IPPROTO_IPIP	 4
#define IPPROTO_TCP	 6
#define IPPROTO_UDP	 17
#define IPPROTO_IPV6	 41
#define IPPROTO_ROUTING	 43
#define IPPROTO_FRAGMENT 44
#define IPPROTO_GRE	 47
#define IPPROTO_AH	 51
#define IPPROTO_DSTOPTS	 60
#define IPPROTO_SCTP	 132
#define IPPROTO_MH	 135

#define VXLAN_PORT     4789
#define VXLAN_OLD_PORT 8472 /* Linux' before the IANA's, still its default */
#define GENEVE_PORT    6081

struct vlan_hdr {
	__be16 tci;
	__be16 protocol;
};

struct iphdr {
	__u8 version_ihl; /* IHL: words, low nibble */
	__u8 tos;
	__be16 tot_len;
	__be16 id;
	__be16 frag_off;
	__u8 ttl;
	__u8 protocol;
	__u16 check;
	__be32 src;
	__be32 dst;
};

struct ipv6hdr {
	__be32 version_flow;
	__be16 payload_len;
	__u8 nexthdr;
	__u8 hop_limit;
	__be32 src[4];
	__be32 dst[4];
};

struct packet {
	struct flow_key flow;
	enum flow_type type;
	enum class class;
	__u32 vlan;
};

/* transport reads the ports at off and names type and class of what is not a fragment. */
static __always_inline bool transport(struct sk_buff *skb, struct packet *p, __u32 off)
{
	__u32 six = p->flow.family == 6;
	struct {
		__be16 src, dst;
	} ports;

	off = blurred(off);
	p->type = six ? FLOW_IP6 : FLOW_IP4;
	p->class = six ? CLASS_IP6 : CLASS_IP4;
	switch (p->flow.protocol) {
	case IPPROTO_TCP:
		p->type = six ? FLOW_TCP6 : FLOW_TCP4;
		p->class = six ? CLASS_TCP6 : CLASS_TCP4;
		break;
	case IPPROTO_UDP:
		p->type = six ? FLOW_UDP6 : FLOW_UDP4;
		p->class = six ? CLASS_UDP6 : CLASS_UDP4;
		break;
	case IPPROTO_SCTP:
		p->type = six ? FLOW_SCTP6 : FLOW_SCTP4;
		break;
	case IPPROTO_GRE:
		p->class = CLASS_GRE;
		return true;
	case IPPROTO_IPIP:
	case IPPROTO_IPV6:
		p->class = CLASS_IPIP;
		return true;
	default:
		return true;
	}
	if (!header(skb, off, &ports, sizeof(ports)))
		return false;
	p->flow.sport = ports.src;
	p->flow.dport = ports.dst;
	if (p->flow.protocol == IPPROTO_UDP) {
		if (ports.dst == bpf_htons(VXLAN_PORT) ||
		    ports.dst == bpf_htons(VXLAN_OLD_PORT))
			p->class = CLASS_VXLAN;
		else if (ports.dst == bpf_htons(GENEVE_PORT))
			p->class = CLASS_GENEVE;
	}
	return true;
}

static __always_inline bool ipv4(struct sk_buff *skb, struct packet *p, __u32 off)
{
	struct iphdr ip;
	__u32 size;

	off = blurred(off);
	if (!header(skb, off, &ip, sizeof(ip)))
		return false;
	size = (ip.version_ihl & 15) * 4;
	if (ip.version_ihl >> 4 != 4 || size < sizeof(ip))
		return false;
	p->flow.family = 4;
	p->flow.protocol = ip.protocol;
	p->flow.src[0] = ip.src;
	p->flow.dst[0] = ip.dst;
	if (ip.frag_off & bpf_htons(IP_MF_OR_OFFSET)) {
		p->type = FLOW_IP4; /* the first one has ports, the others do not */
		p->class = CLASS_FRAGMENT;
		return true;
	}
	return transport(skb, p, off + size);
}

static __always_inline bool ipv6(struct sk_buff *skb, struct packet *p, __u32 off)
{
	struct ipv6hdr ip;
	struct {
		__u8 next, size;
	} ext;
	__u8 next;

	off = blurred(off);
	if (!header(skb, off, &ip, sizeof(ip)))
		return false;
	if ((bpf_ntohl(ip.version_flow) >> 28) != 6)
		return false;
	p->flow.family = 6;
#pragma unroll
	for (__u32 i = 0; i < 4; i++) {
		p->flow.src[i] = ip.src[i];
		p->flow.dst[i] = ip.dst[i];
	}
	next = ip.nexthdr;
	off += sizeof(ip);
	/* A chain longer than this is no traffic anyone spreads: counted as plain IPv6.
	 */
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < 4; i++) {
		if (next == IPPROTO_FRAGMENT)
			break;
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING &&
		    next != IPPROTO_DSTOPTS && next != IPPROTO_MH && next != IPPROTO_AH)
			break;
		off = blurred(off);
		if (!header(skb, off, &ext, sizeof(ext)))
			return false;
		off += next == IPPROTO_AH ? ((__u32)ext.size + 2) * 4
					  : ((__u32)ext.size + 1) * 8;
		next = ext.next;
	}
	p->flow.protocol = next;
	if (next == IPPROTO_FRAGMENT) {
		if (!header(skb, off, &ext, sizeof(ext)))
			return false;
		p->flow.protocol = ext.next;
		p->type = FLOW_IP6;
		p->class = CLASS_FRAGMENT;
		return true;
	}
	return transport(skb, p, off);
}

/* dissect says what a packet is; false if its headers do not tell. */
static __always_inline bool dissect(struct sk_buff *skb, struct packet *p)
{
	__be16 protocol = skb->protocol;
	struct vlan_hdr tag;
	__u32 off = 0;

#pragma unroll
	for (__u32 i = 0; i < sizeof(p->flow) / 4; i++)
		((__u32 *)&p->flow)[i] = blurred(0);
	p->type = FLOW_TYPES;
	p->class = CLASS_OTHER;
	p->vlan = skb->vlan_proto != 0;
#pragma unroll
	for (__u32 i = 0; i < 2; i++) {
		if (protocol != bpf_htons(ETH_P_8021Q) &&
		    protocol != bpf_htons(ETH_P_8021AD))
			break;
		if (!header(skb, off, &tag, sizeof(tag)))
			return false;
		off += sizeof(tag);
		protocol = tag.protocol;
		p->vlan = 1;
	}
	switch (protocol) {
	case bpf_htons(ETH_P_IP):
		return ipv4(skb, p, off);
	case bpf_htons(ETH_P_IPV6):
		return ipv6(skb, p, off);
	case bpf_htons(ETH_P_PPP_SES):
		p->class = CLASS_PPPOE;
	}
	return true;
}

/* transform does to a field of source and destination what the device does first. */
static __always_inline void transform(const struct config *c, __u32 *src, __u32 *dst)
{
	__u32 x = *src ^ *dst;

	if (c->xfrm == XFRM_SYMMETRIC_XOR)
		*src = x;
	else if (c->xfrm == XFRM_SYMMETRIC_OR_XOR)
		*src |= *dst;
	if (c->xfrm != XFRM_NONE)
		*dst = x;
}

/* hash is what the device makes of a flow; a field left out counts as 0. */
static __noinline __u32 hash(const struct config *c, const struct flow_key *f,
			     __u32 fields)
{
	__u32 addrs = f->family == 4 ? 1 : 4, words = 2 * addrs, sum = 0, in[9] = {};

#pragma unroll
	for (__u32 i = 0; i < 4; i++) {
		__u32 src = fields & HASH_SRC ? bpf_ntohl(f->src[i]) : 0;
		__u32 dst = fields & HASH_DST ? bpf_ntohl(f->dst[i]) : 0;

		transform(c, &src, &dst);
		in[i] = src;
		in[i + 4] = dst;
	}
	if (addrs == 1)
		in[1] = in[4];
	if (fields & (HASH_SPORT | HASH_DPORT)) {
		__u32 src = fields & HASH_SPORT ? bpf_ntohs(f->sport) : 0;
		__u32 dst = fields & HASH_DPORT ? bpf_ntohs(f->dport) : 0;

		transform(c, &src, &dst);
		if (addrs == 1)
			in[2] = src << 16 | dst;
		else
			in[8] = src << 16 | dst;
		words++;
	}
	words = blurred(words);
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < 9; i++) {
		__u32 v = in[i];

		if (i >= words)
			break;
#pragma unroll
		for (__u32 n = 0; n < 8; n++)
			sum ^= c->toeplitz[8 * i + n][v >> (28 - 4 * n) & 15];
	}
	return sum;
}

/* distance to the next of what is sampled one in n times. A fixed one would pick the same
 * place of every poll. Mean: n. */
static __always_inline __u32 distance(__u32 n)
{
	return 1 + bpf_get_prandom_u32() % (2 * n - 1);
}

/* sample counts one packet in rate for its flow. */
static __always_inline void sample(struct spread_cpu *cpu, struct flow_key *key,
				   __u32 bytes, __u32 bucket)
{
	__u32 every = rate;
	struct flow *flow;

	if (!every)
		return;
	if (cpu->countdown > 1) {
		cpu->countdown--;
		return;
	}
	cpu->countdown = distance(every);
	flow = bpf_map_lookup_elem(&flows, key);
	if (!flow) {
		struct flow fresh = no_packets;

		fresh.born = bpf_ktime_get_ns();
		bpf_map_update_elem(&flows, key, &fresh, BPF_NOEXIST);
		flow = bpf_map_lookup_elem(&flows, key);
		if (!flow) {
			cpu->lost++;
			cpu->sampled++;
			return;
		}
	}
	flow->packets++;
	flow->bytes += bytes;
	flow->last = bpf_ktime_get_ns();
	flow->bucket = bucket;
	cpu->sampled++; /* after the flow: Go never finds one missing that is under way */
}

static __always_inline int spread(struct sk_buff *skb)
{
	__u32 id = bpf_get_smp_processor_id(), now_on, i, ifindex, bytes,
	      bucket = NO_BUCKET, sum = 0, known = 0;
	struct net_device *dev = skb->dev;
	struct device_stat *stat;
	struct spread_cpu *cpu;
	struct packet p;
	struct config *c;
	struct net *net;
	bool read;

	now_on = on;
	if (!now_on || !dev)
		return 0;
	cpu = bpf_map_lookup_elem(&spread_cpus, &id);
	if (!cpu)
		return 0; /* never: the array holds all possible CPUs */
	if (cpu->on != now_on) {
		cpu->on = now_on;
		cpu->net = 0; /* devices may be others now */
		cpu->skip = every ? 1 + bpf_get_prandom_u32() % every : 0;
		cpu->countdown = rate ? 1 + bpf_get_prandom_u32() % rate : 0;
	}
	if (cpu->skip > 1) {
		cpu->skip--;
		return 0;
	}
	if (every > 1)
		cpu->skip = distance(every);
	net = dev->nd_net.net;
	ifindex = dev->ifindex;
	if (cpu->net != (__u64)net || cpu->ifindex != ifindex) {
		struct device_key key = {.netns = net->ns.inum, .ifindex = ifindex};
		__u32 *slot = bpf_map_lookup_elem(&devices, &key);

		cpu->net = (__u64)net;
		cpu->ifindex = key.ifindex;
		cpu->slot = slot ? *slot : NO_SLOT;
	}
	if (cpu->slot >= slots)
		return 0; /* nobody asked for this device */
	c = bpf_map_lookup_elem(&configs, &cpu->slot);
	i = id * slots + cpu->slot;
	stat = bpf_map_lookup_elem(&stats, &i);
	if (!c || !stat)
		return 0; /* never: slots is their size */
	bytes = skb->len + (__u32)(skb->data - skb->head) - skb->mac_header;
	stat->seen.packets++;
	stat->seen.bytes += bytes;

	read = dissect(skb, &p);
	p.type = blurred(p.type);
	p.class = blurred(p.class);
	p.vlan = blurred(p.vlan);
	p.flow.family = blurred(p.flow.family);
	if (!read) {
		stat->unseen++;
	} else if (p.class < CLASSES) {
		struct load *l = &stat->classes[p.class][p.vlan & 1];

		l->packets++;
		l->bytes += bytes;
	}
	if (c->size) {
		if (c->rxhash) {
			sum = skb->hash;
			known = sum && !BPF_CORE_READ_BITFIELD(skb, sw_hash);
			stat->by_nic += known;
		}
		if (!known && read && p.type < FLOW_TYPES && c->fields[p.type]) {
			sum = hash(c, &p.flow, c->fields[p.type]);
			known = 1;
			stat->by_sum++;
		}
	}
	p.flow.queue = skb->queue_mapping;
	if (known) {
		__u32 *queue;
		struct load *l;

		bucket = c->mask ? sum & c->mask : sum % c->size;
		i = c->base + bucket;
		queue = bpf_map_lookup_elem(&tables, &i);
		if (queue && *queue != NO_QUEUE && p.flow.queue) {
			stat->compared++;
			stat->agreed += *queue == p.flow.queue - 1u;
		}
		i += id * entries;
		l = bpf_map_lookup_elem(&buckets, &i);
		if (l) {
			l->packets++;
			l->bytes += bytes;
		}
	}
	if (read && p.flow.family) {
		p.flow.netns = net->ns.inum;
		p.flow.ifindex = ifindex;
		p.flow.cpu = id;
		sample(cpu, &p.flow, bytes, bucket);
	}
	return 0;
}

SEC("tp_btf/napi_gro_receive_entry")
int BPF_PROG(napi_gro_receive_entry, struct sk_buff *skb)
{
	return spread(skb);
}

SEC("tp_btf/napi_gro_frags_entry")
int BPF_PROG(napi_gro_frags_entry, struct sk_buff *skb)
{
	return spread(skb);
}

SEC("tp_btf/netif_receive_skb_entry")
int BPF_PROG(netif_receive_skb_entry, struct sk_buff *skb)
{
	return spread(skb);
}

SEC("tp_btf/netif_receive_skb_list_entry")
int BPF_PROG(netif_receive_skb_list_entry, struct sk_buff *skb)
{
	return spread(skb);
}

SEC("tp_btf/netif_rx_entry")
int BPF_PROG(netif_rx_entry, struct sk_buff *skb)
{
	return spread(skb);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
