package hosttest

import (
	"fmt"

	"github.com/rxsteer/rxsteer/internal/ethtool"
)

// Presets: devices as their drivers show them. Names and numbers of vectors follow
// what real machines print; numbers of queues, tables and rings the drivers' sources.

// key40 is a hash key of the usual length (TOEPLITZ_KEY_LEN of most drivers).
func key40() []byte {
	k := make([]byte, 40)
	for i := range k {
		k[i] = byte(0x6d + 29*i)
	}
	return k
}

func offloads(lro bool) map[string]bool {
	return map[string]bool{
		"rx-checksum": true, "rx-gro": true, "rx-lro": lro, "rx-hashing": true, "rx-vlan-hw-parse": true,
		"tx-tcp-segmentation": true, "tx-udp-segmentation": false,
	}
}

// rules adds the switch of ntuple rules, off as drivers have it.
func rules(features map[string]bool) map[string]bool {
	features["rx-ntuple-filter"] = false
	return features
}

// IGB is an 82576: up to 8 queues; with at most 4 each direction has its own vector,
// beyond that they share (IGB_FLAG_QUEUE_PAIRS in igb_main.c; seen in the lab).
func IGB(name string, queues int) NIC {
	return NIC{
		Name: name, Driver: "igb", Bus: "0000:01:00.0", SpeedMb: 1000, NAPI: true, NAPIIRQ: false,
		Channels:    ethtool.Group{"combined": uint32(queues), "other": 1},
		MaxChannels: ethtool.Group{"combined": 8, "other": 1},
		Vectors:     []Vector{{Name: "{if}", For: "control"}, {Name: "{if}-TxRx-{n}", For: "combined"}},
		Few:         []Vector{{Name: "{if}", For: "control"}, {Name: "{if}-rx-{n}", For: "rx"}, {Name: "{if}-tx-{n}", For: "tx"}}, FewMax: 4,
		// igb_setup_mrqc rewrites the table when the number of queues is another than it was
		// made for: entry j is j*queues/128.
		Table: 128, LosesUserTable: true, Blocks: true, Function: "toeplitz", FixedHash: true,
		HashFields:  map[string]string{"tcp4": "sdfn", "udp4": "sd", "tcp6": "sdfn", "udp6": "sd"},
		HashChoices: []string{"udp4 sd", "udp4 sdfn", "udp6 sd", "udp6 sdfn"},
		Rings:       ethtool.Group{"rx": 256, "tx": 256}, MaxRings: ethtool.Group{"rx": 4096, "tx": 4096}, RingStep: 8,
		Coalesce: ethtool.Group{"rx-usecs": 3, "tx-usecs": 3}, PairedUsecs: true,
		Features: offloads(false), Fixed: []string{"rx-lro"},
		Pause: ethtool.Group{"autoneg": 1, "rx": 1, "tx": 0},
		Flags: map[string]bool{"legacy-rx": false},
	}
}

// IXGBE is an 82599: 63 queues, RSS reaches 16 of them.
func IXGBE(name string, queues int) NIC {
	return NIC{
		Name: name, Driver: "ixgbe", Bus: "0000:04:00.0", SpeedMb: 10000, NAPI: true, NAPIIRQ: true,
		Channels:    ethtool.Group{"combined": uint32(queues), "other": 1},
		MaxChannels: ethtool.Group{"combined": 63, "other": 1},
		Vectors:     []Vector{{Name: "{if}-TxRx-{n}", For: "combined"}, {Name: "{if}", For: "control"}},
		Table:       128, LosesUserTable: true, Key: key40(), Function: "toeplitz",
		HashFields:  map[string]string{"tcp4": "sdfn", "udp4": "sd", "tcp6": "sdfn", "udp6": "sd"},
		HashChoices: []string{"udp4 sd", "udp4 sdfn", "udp6 sd", "udp6 sdfn"},
		Rings:       ethtool.Group{"rx": 512, "tx": 512}, MaxRings: ethtool.Group{"rx": 4096, "tx": 4096}, RingStep: 8,
		Coalesce: ethtool.Group{"rx-usecs": 1, "tx-usecs": 0},
		Features: rules(offloads(false)),
		// ixgbe_fix_features clears LRO with GRO; seen on one card of another make: off turned LRO on.
		Pause: ethtool.Group{"autoneg": 0, "rx": 1, "tx": 1},
	}
}

// MLX5 is a ConnectX: vectors of the function without the interface's name, table that
// keeps a user's setting, per-queue moderation.
func MLX5(name string, queues int) NIC {
	coal := ethtool.Group{"adaptive-rx": 1, "adaptive-tx": 1, "rx-usecs": 8, "rx-frames": 128, "tx-usecs": 8, "tx-frames": 128}
	return NIC{
		Name: name, Driver: "mlx5_core", Bus: "0000:81:00.0", SpeedMb: 100000, NAPI: true, NAPIIRQ: true,
		Channels:    ethtool.Group{"combined": uint32(queues)},
		MaxChannels: ethtool.Group{"combined": 64},
		Vectors:     []Vector{{Name: "mlx5_async0@pci:{bdf}", For: "control"}, {Name: "mlx5_comp{n}@pci:{bdf}", For: "combined"}},
		Table:       256, Key: key40(), Function: "toeplitz", Contexts: true,
		HashFields: map[string]string{"tcp4": "sdfn", "udp4": "sdfn", "tcp6": "sdfn", "udp6": "sdfn"},
		Rings:      ethtool.Group{"rx": 1024, "tx": 1024}, MaxRings: ethtool.Group{"rx": 8192, "tx": 8192},
		Coalesce: coal, QueueCoalesce: true,
		Features: rules(offloads(false)),
		Pause:    ethtool.Group{"autoneg": 0, "rx": 1, "tx": 1},
		Flags:    map[string]bool{"rx_cqe_moder": true, "rx_striding_rq": true},
		FEC:      &ethtool.FEC{Auto: true, Modes: "rs", Active: "rs"},
	}
}

// MLX4 names vectors by interface and number.
func MLX4(name string, queues int) NIC {
	return NIC{
		Name: name, Driver: "mlx4_core", Bus: "0000:05:00.0", SpeedMb: 40000, NAPI: true,
		Channels:    ethtool.Group{"rx": uint32(queues), "tx": uint32(queues)},
		MaxChannels: ethtool.Group{"rx": 128, "tx": 32},
		Vectors:     []Vector{{Name: "mlx4-async@pci:{bdf}", For: "control"}, {Name: "{if}-{n}", For: "combined"}},
		Table:       queues, Key: key40(), Function: "toeplitz",
		Rings: ethtool.Group{"rx": 1024, "tx": 512}, MaxRings: ethtool.Group{"rx": 8192, "tx": 8192},
		Coalesce: ethtool.Group{"adaptive-rx": 1, "rx-usecs": 16, "rx-frames": 44},
		Features: rules(offloads(false)),
	}
}

// Virtio is virtio-net of QEMU with mq=on,rss=on: receive and transmit have their own
// vectors, which sit on the parent PCI function.
func Virtio(name, device string, queues int) NIC {
	return NIC{
		Name: name, Driver: "virtio_net", Bus: "0000:00:03.0", Virtio: device, SpeedMb: 0, Node: -1, NAPI: true,
		Channels:    ethtool.Group{"combined": uint32(queues)},
		MaxChannels: ethtool.Group{"combined": 8},
		Vectors:     []Vector{{Name: "{virtio}-config", For: "control"}, {Name: "{virtio}-input.{n}", For: "rx"}, {Name: "{virtio}-output.{n}", For: "tx"}},
		Table:       128, Key: key40(), Function: "toeplitz",
		HashFields:  map[string]string{"tcp4": "sdfn", "udp4": "sdfn", "tcp6": "sdfn", "udp6": "sdfn"},
		HashChoices: []string{"tcp4 sd", "tcp4 sdfn", "udp4 sd", "udp4 sdfn", "tcp6 sd", "tcp6 sdfn", "udp6 sd", "udp6 sdfn"},
		Rings:       ethtool.Group{"rx": 256, "tx": 256}, MaxRings: ethtool.Group{"rx": 256, "tx": 256},
		Coalesce: ethtool.Group{"rx-frames": 1, "tx-frames": 1}, QueueCoalesce: true, QueueNoEffect: true,
		Features: offloads(false), Fixed: []string{"rx-checksum"},
	}
}

// ENA is Amazon's: table settable, key and function not.
func ENA(name string, queues int) NIC {
	return NIC{
		Name: name, Driver: "ena", Bus: "0000:00:05.0", NAPI: true, NAPIIRQ: true,
		Channels:    ethtool.Group{"combined": uint32(queues)},
		MaxChannels: ethtool.Group{"combined": 32},
		Vectors:     []Vector{{Name: "ena-mgmnt@pci:{bdf}", For: "control"}, {Name: "{if}-Tx-Rx-{n}", For: "combined"}},
		Table:       128, Key: key40(), Function: "toeplitz", FixedHash: true,
		HashFields: map[string]string{"tcp4": "sdfn", "udp4": "sdfn", "tcp6": "sdfn", "udp6": "sdfn"}, HashChoices: []string{},
		Rings: ethtool.Group{"rx": 1024, "tx": 1024}, MaxRings: ethtool.Group{"rx": 16384, "tx": 1024},
		Coalesce: ethtool.Group{"adaptive-rx": 0, "rx-usecs": 0, "tx-usecs": 64},
		Features: offloads(false),
	}
}

// VMXNET3 takes a table and (under QEMU) receives on queue 0 anyway.
func VMXNET3(name string, queues int) NIC {
	return NIC{
		Name: name, Driver: "vmxnet3", Bus: "0000:0b:00.0", SpeedMb: 10000, NAPI: true,
		Channels:    ethtool.Group{"combined": uint32(queues)},
		MaxChannels: ethtool.Group{"combined": uint32(queues)}, FixedChannels: true, // no set_channels in vmxnet3_ethtool_ops
		Vectors: []Vector{{Name: "{if}-rxtx-{n}", For: "combined"}, {Name: fmt.Sprintf("{if}-event-%d", queues), For: "control"}},
		Table:   128, Function: "toeplitz", FixedHash: true, // the key is not told
		Rings: ethtool.Group{"rx": 1024, "tx": 512, "rx-mini": 128, "rx-jumbo": 512}, MaxRings: ethtool.Group{"rx": 4096, "tx": 4096, "rx-mini": 2048, "rx-jumbo": 4096},
		Features: offloads(true),
		// One card turned LRO on when GRO went off (steering design, TencentOS-kernel PR 301).
		Flips: map[string]string{"rx-gro=off": "rx-lro=on"},
	}
}

// E1000E has one queue and moderation only.
func E1000E(name string) NIC {
	return NIC{
		Name: name, Driver: "e1000e", Bus: "0000:00:1f.6", SpeedMb: 1000, NAPI: true, Queues: 1,
		Vectors: []Vector{{Name: "{if}-rx-0", For: "control"}, {Name: "{if}-tx-0", For: "control"}, {Name: "{if}", For: "control"}},
		Rings:   ethtool.Group{"rx": 256, "tx": 256}, MaxRings: ethtool.Group{"rx": 4096, "tx": 4096}, RingStep: 8,
		Coalesce:   ethtool.Group{"rx-usecs": 3},
		HashFields: map[string]string{"tcp4": "sdfn"}, HashChoices: []string{},
		Features: offloads(false), Fixed: []string{"rx-lro"},
		Pause: ethtool.Group{"autoneg": 1, "rx": 1, "tx": 1},
	}
}

// BNXT with names cut short by a buffer of 17 characters (before 2024) when the
// interface name is long enough.
func BNXT(name string, queues int) NIC {
	vector := name + "-TxRx-{n}"
	if len(name)+len("-TxRx-0") > 17 {
		vector = (name + "-TxRx-")[:17]
	}
	return NIC{
		Name: name, Driver: "bnxt_en", Bus: "0000:41:00.0", SpeedMb: 25000, NAPI: true, NAPIIRQ: false,
		Channels:    ethtool.Group{"combined": uint32(queues)},
		MaxChannels: ethtool.Group{"combined": 64, "rx": 64, "tx": 64},
		Vectors:     []Vector{{Name: vector, For: "combined"}},
		Table:       128, Key: key40(), Function: "toeplitz",
		HashFields: map[string]string{"tcp4": "sdfn", "udp4": "sd", "tcp6": "sdfn", "udp6": "sd"}, HashChoices: []string{"udp4 sd", "udp4 sdfn", "udp6 sd", "udp6 sdfn"},
		Rings: ethtool.Group{"rx": 511, "tx": 511}, MaxRings: ethtool.Group{"rx": 2047, "tx": 2047},
		Coalesce: ethtool.Group{"adaptive-rx": 0, "rx-usecs": 10, "rx-frames": 15},
		Features: rules(offloads(true)),
		FEC:      &ethtool.FEC{Auto: true, Modes: "rs baser", Active: "rs"},
	}
}

// NetVSC is the synthetic device of Hyper-V with its virtual function: same MAC,
// the function below the synthetic device.
func NetVSC(name, function string, queues int) []NIC {
	vf := MLX5(function, queues)
	vf.Bus, vf.MAC = "4ea0:00:02.0", "00:0d:3a:01:02:03"
	return []NIC{{
		Name: name, Driver: "hv_netvsc", Vmbus: true, Bus: "000d3a01-0203-000d-3a01-0203000d3a01", MAC: vf.MAC, SpeedMb: 50000, Node: -1,
		Channels: ethtool.Group{"combined": uint32(queues)}, MaxChannels: ethtool.Group{"combined": 64},
		Table: 128, Key: key40(), Function: "toeplitz",
		HashFields: map[string]string{"tcp4": "sdfn", "udp4": "sd", "tcp6": "sdfn", "udp6": "sd"},
		Rings:      ethtool.Group{"rx": 8192, "tx": 192}, MaxRings: ethtool.Group{"rx": 18811, "tx": 2560},
		Features: offloads(false),
		Lower:    []string{function},
	}, vf}
}

// Bond is two devices under one bond.
func Bond(name string, a, b NIC) []NIC {
	return []NIC{a, b, {Name: name, Driver: "bonding", Devtype: "bond", Queues: 16, Lower: []string{a.Name, b.Name}, Features: offloads(false)}}
}

// Veth is a virtual Ethernet device with queues and no table: channels can be set,
// nothing else (veth_ethtool_ops in drivers/net/veth.c).
func Veth(name string, queues, most int) NIC {
	return NIC{
		Name: name, Driver: "veth", SpeedMb: 10000,
		Channels:    ethtool.Group{"rx": uint32(queues), "tx": uint32(queues)},
		MaxChannels: ethtool.Group{"rx": uint32(most), "tx": uint32(most)},
		Features:    offloads(false),
	}
}

// Small is one node, n CPUs.
func Small(n int) CPUs { return CPUs{Cores: n} }

// Large is two nodes of 64 cores with two threads each: 256 CPUs, four caches a node.
func Large() CPUs { return CPUs{Nodes: 2, Cores: 64, Threads: 2, LLCs: 4} }
