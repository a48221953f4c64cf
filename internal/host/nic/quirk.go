package nic

import "slices"

// The quirk table: what is known of drivers, one row per fact, each with its
// source. Code elsewhere asks for a fact and never for a driver by name.

// FactKind says what a fact is about.
type FactKind string

const (
	// IndexPerFunction: the number in a vector's name restarts at each PCI
	// function, while one interface may span several.
	IndexPerFunction FactKind = "index-per-function"
	// XSKDoubles: sysfs shows N more rx queues than channels, for AF_XDP.
	XSKDoubles FactKind = "xsk-doubles-rx-queues"
	// PairsWithVF: the synthetic half of a VF pair.
	PairsWithVF FactKind = "pairs-with-vf"
	// VmbusChannels: queues are vmbus channels.
	VmbusChannels FactKind = "vmbus-channels"
	// NoIRQ: the device has no interrupt of its own in /proc/interrupts; Text says where they count.
	NoIRQ FactKind = "no-irq"
	// TableSize: entries of the indirection table, N; several rows where generations differ.
	TableSize FactKind = "table-size"
	// TableLimit: the table can name only the first N queues.
	TableLimit FactKind = "table-limit"
	// TableIgnored: a table is accepted and traffic does not follow it.
	TableIgnored FactKind = "table-ignored"
	// RingDrops: Text is a counter of ethtool -S that counts packets lost for want of
	// a free receive descriptor; %d is the queue. Scope says whose drops it counts. More
	// kinds of counters are in counter.go.
	RingDrops FactKind = "ring-drops"
	// DynamicUsecs: rx-usecs N means dynamic moderation, not N µs; Text is DefaultUsecs where the
	// driver starts with it.
	DynamicUsecs FactKind = "dynamic-usecs"
	// MaxUsecs: rx-usecs above N have no further effect.
	MaxUsecs FactKind = "max-usecs"
	// TiedUsecs: where a vector serves receive and transmit, rx-usecs is that of both and tx-usecs is refused.
	TiedUsecs FactKind = "tied-usecs"
	// NoEffect: a write of the setting named by Text succeeds and changes nothing.
	NoEffect FactKind = "no-effect"
	// Flaps: a write of the setting named by Text takes the link down.
	Flaps FactKind = "flaps"
	// ResetsAffinity: reconfiguring (channels, rings, MTU, down/up) puts the driver's affinity back.
	ResetsAffinity FactKind = "resets-affinity"
	// KeepsIRQs: interrupts of queues that were given up stay requested.
	KeepsIRQs FactKind = "keeps-irqs"
	// HostChooses: the hypervisor or its backend picks the rx queue.
	HostChooses FactKind = "host-chooses-queue"
	// OneQueue: the hardware cannot spread receive.
	OneQueue FactKind = "one-queue"
	// TableBlocksShrink: fewer channels than a user's table names is refused; EINVAL.
	TableBlocksShrink FactKind = "table-blocks-shrink"
	// VectorNames: how the driver names its interrupts; internal/host/vector reads them. N is
	// the queue, {if} the interface, {bdf} the PCI function.
	VectorNames FactKind = "vector-names"
	// ReceiveNAPIs: the NAPIs with an id are those of rx queues, added in queue order.
	ReceiveNAPIs FactKind = "receive-napis"
	// PercpuIRQ: one interrupt line that every CPU has its own copy of.
	PercpuIRQ FactKind = "percpu-irq"
)

// DefaultUsecs marks the row of DynamicUsecs that a driver starts with.
const DefaultUsecs = "default"

// Scope is whose packets a counter counts.
type Scope string

const (
	ScopeQueue    Scope = "queue"
	ScopePort     Scope = "port"     // the physical port or the function, all queues together
	ScopeProvider Scope = "provider" // shaping by the cloud provider: no fault of this host
)

// Fact is one row.
type Fact struct {
	Driver string
	Kind   FactKind
	Text   string
	N      int
	Scope  Scope
	Source string // kernel file or document
}

var facts = slices.Concat(driverFacts, counterFacts)

var driverFacts = []Fact{
	// Where vectors are and what they are called.
	{Driver: "mlx5_core", Kind: IndexPerFunction, Text: "the number of mlx5_compN counts within one function, so names tell no queue there", Source: "Documentation/networking/multi-pf-netdev.rst"},
	{Driver: "mlx5_core", Kind: XSKDoubles, Text: "the upper half exists for AF_XDP", Source: "kernels 5.3 to 6.0; scylladb/seastar commit 0a2d8409c"},
	{Driver: "hv_netvsc", Kind: PairsWithVF, Source: "netvsc_vf_join, drivers/net/hyperv/netvsc_drv.c"},
	{Driver: "hv_netvsc", Kind: VmbusChannels, Source: "Documentation/ABI/stable/sysfs-bus-vmbus"},
	{Driver: "hv_netvsc", Kind: NoIRQ, Text: "vmbus interrupts count in the HYP row of /proc/interrupts", Source: "arch/x86/kernel/irq.c"},
	{Driver: "hv_netvsc", Kind: HostChooses, Text: "the host sends by its own table", Source: "netvsc_send_table, drivers/net/hyperv/netvsc.c"},
	{Driver: "qeth", Kind: NoIRQ, Text: "QDIO adapter interrupts count in the QAI row of /proc/interrupts; there is none per queue", Source: "arch/s390/kernel/irq.c"},
	{Driver: "qeth_l2", Kind: NoIRQ, Text: "QDIO adapter interrupts count in the QAI row of /proc/interrupts; there is none per queue", Source: "arch/s390/kernel/irq.c"},
	{Driver: "qeth_l3", Kind: NoIRQ, Text: "QDIO adapter interrupts count in the QAI row of /proc/interrupts; there is none per queue", Source: "arch/s390/kernel/irq.c"},
	{Driver: "mvneta", Kind: PercpuIRQ, Text: "one interrupt line, a copy on each CPU", Source: "mvneta_percpu_isr, drivers/net/ethernet/marvell/mvneta.c"},
	{Driver: "mlx5_core", Kind: KeepsIRQs, Source: "seastar issue 503; completion vectors live as long as the function, drivers/net/ethernet/mellanox/mlx5/core/pci_irq.c"},
	{Driver: "mana", Kind: KeepsIRQs, Source: "mana_gd_setup_irqs, drivers/net/ethernet/microsoft/mana/gdma_main.c"},
	{Driver: "gve", Kind: KeepsIRQs, Source: "gve_alloc_notify_blocks, drivers/net/ethernet/google/gve/gve_main.c"},
	{Driver: "virtio_net", Kind: ReceiveNAPIs, Text: "also of queues not in use, which come last; those of tx queues have no id", Source: "virtnet_alloc_queues, drivers/net/virtio_net.c"},
	{Driver: "vmxnet3", Kind: ReceiveNAPIs, Text: "they clean tx too, or its own interrupt does", Source: "vmxnet3_probe_device and vmxnet3_msix_tx, drivers/net/vmxnet3/vmxnet3_drv.c"},

	// Names of vectors: internal/host/vector holds the grammar.
	{Driver: "igb", Kind: VectorNames, Text: "{if}-TxRx-N or {if}-rx-N and {if}-tx-N; {if} is the link vector", Source: "seen on machines"},
	{Driver: "igc", Kind: VectorNames, Text: "{if}-TxRx-N; {if} is the link vector", Source: "seen on machines"},
	{Driver: "ixgbe", Kind: VectorNames, Text: "{if}-TxRx-N; {if} is the link vector", Source: "seen on machines"},
	{Driver: "e1000e", Kind: VectorNames, Text: "{if}, or {if}-rx-0, {if}-tx-0 and {if}", Source: "seen on machines"},
	{Driver: "i40e", Kind: VectorNames, Text: "i40e-{if}-TxRx-N; i40e-{bdf}:misc and :fdir-TxRx-0 are control", Source: "seen on machines"},
	{Driver: "iavf", Kind: VectorNames, Text: "iavf-{if}-TxRx-N; iavf-{bdf}:mbx is control", Source: "seen on machines"},
	{Driver: "ice", Kind: VectorNames, Text: "ice-{if}-TxRx-N; ice-{bdf}:misc and :ctrl-TxRx-N are control", Source: "seen on machines"},
	{Driver: "idpf", Kind: VectorNames, Text: "idpf-{if}-TxRx-N", Source: "a public report"},
	{Driver: "mlx5_core", Kind: VectorNames, Text: "mlx5_compN@pci:{bdf}; mlx5_async0, mlx5_{pages,cmd,async}_eq are control", Source: "seen on machines"},
	{Driver: "mlx4_core", Kind: VectorNames, Text: "{if}-N, or mlx4-N@{bdf} counted from 1; mlx4-async and mlx4-comp-N are control", Source: "seen on machines"},
	{Driver: "bnxt_en", Kind: VectorNames, Text: "{if}-TxRx-N; before September 2024 cut to 17 characters", Source: "seen on machines"},
	{Driver: "bnx2x", Kind: VectorNames, Text: "{if}-fp-N; {if} is the slow path", Source: "seen on machines"},
	{Driver: "qede", Kind: VectorNames, Text: "{if}-fp-N", Source: "seen on machines"},
	{Driver: "bnx2", Kind: VectorNames, Text: "{if}-N", Source: "seen on machines"},
	{Driver: "be2net", Kind: VectorNames, Text: "{if}-rx-N; {if}-tx-0 is all of transmit and rx queue 0", Source: "seen on machines"},
	{Driver: "qlcnic", Kind: VectorNames, Text: "{if}-rx-N; {if}-tx-0-rx-3 is two queues", Source: "seen on machines"},
	{Driver: "tg3", Kind: VectorNames, Text: "{if}-rx-N and {if}-txrx-N, counted from 1 (rx-1 is rx queue 0 by inference)", Source: "seen on machines"},
	{Driver: "sfc", Kind: VectorNames, Text: "{if}-N; {if}-rx-N, {if}-tx-N, {if}-xdp-N when split", Source: "request_irq of the driver's source"},
	{Driver: "cxgb4", Kind: VectorNames, Text: "{if} (queue N)", Source: "seen on machines"},
	{Driver: "enic", Kind: VectorNames, Text: "interface cut to 11 characters, then -rx-N, -tx-N, -err, -notify", Source: "request_irq of the driver's source"},
	{Driver: "liquidio", Kind: VectorNames, Text: "LiquidIO<id>-pf<n>-rxtx-N", Source: "request_irq of the driver's source"},
	{Driver: "ena", Kind: VectorNames, Text: "{if}-Tx-Rx-N; ena-mgmnt@pci:{bdf} is control", Source: "seen on machines"},
	{Driver: "gve", Kind: VectorNames, Text: "gve-ntfy-blkN@pci:{bdf}, before 6.3 eth%d-ntfy-block.N: of the blocks the lower half transmit, the upper half receive", Source: "seen on machines"},
	{Driver: "mana", Kind: VectorNames, Text: "mana_qN@pci:{bdf}, shared by the function's ports; mana_hwc is control", Source: "seen on machines"},
	{Driver: "virtio_net", Kind: VectorNames, Text: "virtioV-input.N, virtioV-output.N, or one virtioV-virtqueues; virtioV-config is control", Source: "seen on machines"},
	{Driver: "vmxnet3", Kind: VectorNames, Text: "{if}-rxtx-N, or -rx-N and -tx-N; {if}-event-N is control", Source: "seen on machines"},
	{Driver: "xen_netfront", Kind: VectorNames, Text: "vifV-qN-rx and vifV-qN-tx", Source: "seen on machines"},
	{Driver: "r8125", Kind: VectorNames, Text: "{if}-N, 32 whatever the number of queues", Source: "seen on machines"},
	{Driver: "atlantic", Kind: VectorNames, Text: "{if} repeated; the last ones are service vectors", Source: "seen on machines"},
	{Driver: "stmmac", Kind: VectorNames, Text: "{if} repeated, or {if}:rx-N, {if}:tx-N; :mac, :wol, :lpi, :sfty are control", Source: "seen on machines"},
	{Driver: "fec", Kind: VectorNames, Text: "the platform device, four times: queues 0 to 2, then PPS", Source: "seen on machines"},
	{Driver: "mtk_eth_soc", Kind: VectorNames, Text: "the platform device, twice: transmit, receive; shared by its interfaces", Source: "seen on machines"},
	{Driver: "bcmgenet", Kind: VectorNames, Text: "{if} twice: the default ring, the priority rings", Source: "seen on machines"},
	{Driver: "hns3", Kind: VectorNames, Text: "hns3-{bdf}-TxRx-N; hns3-{bdf}-misc is control", Source: "seen on machines"},
	{Driver: "ibmvnic", Kind: VectorNames, Text: "ibmvnic-<unit>-rxN, -txN", Source: "seen on machines"},
	{Driver: "am65-cpsw-nuss", Kind: VectorNames, Text: "the platform device, with -txN", Source: "seen on machines"},
	{Driver: "ipqess", Kind: VectorNames, Text: "the platform device with :txqN", Source: "seen on machines"},
	{Driver: "thunder-nicvf", Kind: VectorNames, Text: "{if}-rxtx-N though ethtool -l tells separate channels; rbdr and qset-err are control", Source: "seen on machines"},
	{Driver: "iwlwifi", Kind: VectorNames, Text: "iwlwifi:queue_N, iwlwifi:default_queue; :exception is control", Source: "seen on machines"},
	{Driver: "r8152", Kind: VectorNames, Text: "none of its own: that of the USB host controller", Source: "seen on machines"},

	// Indirection tables.
	{Driver: "igb", Kind: TableSize, N: 128, Source: "IGB_RETA_SIZE, drivers/net/ethernet/intel/igb/igb.h"},
	{Driver: "igc", Kind: TableSize, N: 128, Source: "IGC_RETA_SIZE, drivers/net/ethernet/intel/igc/igc.h"},
	{Driver: "ixgbe", Kind: TableSize, N: 128, Source: "ixgbe_rss_indir_tbl_entries, drivers/net/ethernet/intel/ixgbe/ixgbe_main.c (82599, X540)"},
	{Driver: "ixgbe", Kind: TableSize, N: 512, Source: "ixgbe_rss_indir_tbl_entries (X550)"},
	{Driver: "ixgbe", Kind: TableLimit, N: 16, Text: "82599 RSS is four bits wide", Source: "IXGBE_MAX_RSS_INDICES, drivers/net/ethernet/intel/ixgbe/ixgbe.h"},
	{Driver: "i40e", Kind: TableSize, N: 512, Source: "I40E_HLUT_ARRAY_SIZE, drivers/net/ethernet/intel/i40e/i40e_txrx.h"},
	{Driver: "iavf", Kind: TableSize, N: 64, Source: "IAVF_HLUT_ARRAY_SIZE, drivers/net/ethernet/intel/iavf/iavf.h"},
	{Driver: "ice", Kind: TableSize, N: 2048, Source: "the PF table, drivers/net/ethernet/intel/ice/ice_adminq_cmd.h"},
	{Driver: "ice", Kind: TableSize, N: 512, Source: "the global table, same"},
	{Driver: "mlx5_core", Kind: TableSize, N: 128, Source: "older kernels; seen"},
	{Driver: "mlx5_core", Kind: TableSize, N: 256, Source: "mlx5e_rqt_size, drivers/net/ethernet/mellanox/mlx5/core/en/rqt.c: grows with the channels"},
	{Driver: "ena", Kind: TableSize, N: 128, Source: "ENA_RX_RSS_TABLE_SIZE, drivers/net/ethernet/amazon/ena/ena_netdev.h"},
	{Driver: "bnxt_en", Kind: TableSize, N: 128, Source: "HW_HASH_INDEX_SIZE, drivers/net/ethernet/broadcom/bnxt/bnxt.h"},
	{Driver: "sfc", Kind: TableSize, N: 128, Source: "rx_indir_table of struct efx_rss_context, drivers/net/ethernet/sfc/net_driver.h"},
	{Driver: "mtk_eth_soc", Kind: TableSize, N: 128, Source: "frank-w/BPI-Router-Linux issue 156"},
	{Driver: "fsl_enetc", Kind: TableSize, N: 64, Source: "enetc_get_rxfh_indir_size, drivers/net/ethernet/freescale/enetc/enetc_ethtool.c; 64 seen"},
	{Driver: "vmxnet3", Kind: TableSize, N: 32, Source: "VMXNET3_RSS_IND_TABLE_SIZE, drivers/net/vmxnet3/vmxnet3_defs.h"},
	{Driver: "vmxnet3", Kind: TableSize, N: 128, Source: "same, since VMXNET3_DEVICE_MAX_RX_QUEUES is 32"},
	{Driver: "virtio_net", Kind: TableSize, N: 128, Source: "rss_max_indirection_table_length, told by the device (QEMU: 128)"},
	{Driver: "hv_netvsc", Kind: TableSize, N: 128, Source: "ITAB_NUM, drivers/net/hyperv/hyperv_net.h"},
	{Driver: "mana", Kind: TableSize, N: 64, Source: "MANA_INDIRECT_TABLE_SIZE, include/net/mana/mana.h"},
	{Driver: "vmxnet3", Kind: TableIgnored, Text: "QEMU's vmxnet3 accepts a table and receives on queue 0", Source: "seen in the lab"},
	{Driver: "i40e", Kind: TableBlocksShrink, Text: "a table set by the user survives growing and blocks shrinking", Source: "i40e_set_channels and netif_is_rxfh_configured; intel-wired-lan 2022-10-17"},

	// Drops for want of a descriptor, and whose they are.
	{Driver: "igb", Kind: RingDrops, Text: "rx_queue_%d_drops", Scope: ScopeQueue, Source: "igb_update_stats reads RQDPC per ring, drivers/net/ethernet/intel/igb/igb_main.c"},
	{Driver: "igb", Kind: RingEmpty, Text: "rx_no_buffer_count", Scope: ScopePort, Source: "RNBC, same"},
	{Driver: "igb", Kind: RingDrops, Text: "rx_missed_errors", Scope: ScopePort, Source: "MPC, same"},
	{Driver: "igc", Kind: RingDrops, Text: "rx_queue_%d_drops", Scope: ScopeQueue, Source: "igc_update_stats, drivers/net/ethernet/intel/igc/igc_main.c"},
	{Driver: "igc", Kind: RingDrops, Text: "rx_missed_errors", Scope: ScopePort, Source: "MPC, same"},
	{Driver: "e1000e", Kind: RingDrops, Text: "rx_missed_errors", Scope: ScopePort, Source: "MPC, drivers/net/ethernet/intel/e1000e/netdev.c"},
	{Driver: "e1000e", Kind: RingEmpty, Text: "rx_no_buffer_count", Scope: ScopePort, Source: "RNBC, same"},
	{Driver: "ixgbe", Kind: RingDrops, Text: "rx_no_dma_resources", Scope: ScopePort, Source: "sum of QPRDC over queues, ixgbe_update_stats"},
	{Driver: "ixgbe", Kind: RingDrops, Text: "rx_missed_errors", Scope: ScopePort, Source: "sum of MPC, ixgbe_update_stats"},
	{Driver: "i40e", Kind: RingDrops, Text: "port.rx_dropped", Scope: ScopePort, Source: "I40E_GLPRT_RDPC, i40e_update_pf_stats; X710 counts per port only"},
	{Driver: "i40e", Kind: RingDrops, Text: "rx_dropped", Scope: ScopePort, Source: "eth_stats.rx_discards of the VSI, i40e_update_vsi_stats"},
	{Driver: "iavf", Kind: RingDrops, Text: "rx_discards", Scope: ScopePort, Source: "virtchnl_eth_stats of the VF, drivers/net/ethernet/intel/iavf/iavf_ethtool.c"},
	{Driver: "ice", Kind: RingDrops, Text: "rx_dropped.nic", Scope: ScopePort, Source: "GLPRT_RDPC, ice_update_pf_stats"},
	{Driver: "ice", Kind: RingDrops, Text: "rx_dropped", Scope: ScopePort, Source: "eth_stats.rx_discards of the VSI"},
	{Driver: "mlx5_core", Kind: RingDrops, Text: "rx_out_of_buffer", Scope: ScopePort, Source: "q_counter of the function, Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst"},
	{Driver: "mlx5_core", Kind: RingDrops, Text: "rx_discards_phy", Scope: ScopePort, Source: "same: lack of buffers at the port"},
	{Driver: "mlx4_core", Kind: RingDrops, Text: "rx%d_dropped", Scope: ScopeQueue, Source: "mlx4_en_get_strings, drivers/net/ethernet/mellanox/mlx4/en_ethtool.c"},
	{Driver: "mlx4_core", Kind: RingDrops, Text: "rx_dropped", Scope: ScopePort, Source: "same"},
	{Driver: "bnxt_en", Kind: RingDrops, Text: "[%d]: rx_discards", Scope: ScopeQueue, Source: "bnxt_ring_rx_stats_str, drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c"},
	{Driver: "bnxt_en", Kind: RingDrops, Text: "[%d]: rx_hw_discards", Scope: ScopeQueue, Source: "isc-projects/ethq: newer driver versions"},
	{Driver: "bnxt_en", Kind: RingDrops, Text: "[%d]: rx_drops", Scope: ScopeQueue, Source: "same, before 5.9"},
	{Driver: "bnx2x", Kind: RingDrops, Text: "[%d]: rx_discards", Scope: ScopeQueue, Source: "bnx2x_q_stats_arr, drivers/net/ethernet/broadcom/bnx2x/bnx2x_ethtool.c"},
	{Driver: "bnx2", Kind: RingDrops, Text: "rx_ftq_discards", Scope: ScopePort, Source: "bnx2_stats_str_arr, drivers/net/ethernet/broadcom/bnx2.c"},
	{Driver: "bnx2", Kind: RingDrops, Text: "rx_fw_discards", Scope: ScopePort, Source: "same"},
	{Driver: "tg3", Kind: RingDrops, Text: "rx_discards", Scope: ScopePort, Source: "ethtool_stats_keys, drivers/net/ethernet/broadcom/tg3.c"},
	{Driver: "r8169", Kind: RingDrops, Text: "rx_missed", Scope: ScopePort, Source: "rtl8169_gstrings, drivers/net/ethernet/realtek/r8169_main.c"},
	{Driver: "sfc", Kind: RingDrops, Text: "port_rx_nodesc_drops", Scope: ScopePort, Source: "EF10_OTHER_STAT, drivers/net/ethernet/sfc/ef10.c; also grows while the port starts"},
	{Driver: "sfc", Kind: RingDrops, Text: "port_rx_dp_di_dropped_packets", Scope: ScopePort, Source: "same"},
	{Driver: "be2net", Kind: RingDrops, Text: "rx_drops_no_pbuf", Scope: ScopePort, Source: "et_stats, drivers/net/ethernet/emulex/benet/be_ethtool.c"},
	{Driver: "be2net", Kind: RingDrops, Text: "rx_input_fifo_overflow_drop", Scope: ScopePort, Source: "same"},
	{Driver: "be2net", Kind: RingDrops, Text: "rxq%d: rx_drops_no_frags", Scope: ScopeQueue, Source: "et_rx_stats, same"},
	{Driver: "fsl_dpaa2_eth", Kind: RingDrops, Text: "[hw] rx nobuffer discards", Scope: ScopePort, Source: "dpaa2_ethtool_stats, drivers/net/ethernet/freescale/dpaa2/dpaa2-ethtool.c"},
	{Driver: "vmxnet3", Kind: RingDrops, Text: "Rx Queue#%d pkts rx OOB", Scope: ScopeQueue, Source: "vmxnet3_rq_dev_stats, drivers/net/vmxnet3/vmxnet3_ethtool.c"},
	{Driver: "virtio_net", Kind: RingDrops, Text: "rx_queue_%d_drops", Scope: ScopeQueue, Source: "virtnet_rq_stats_desc, drivers/net/virtio_net.c: drops in the guest; those of a full ring count in the host"},
	{Driver: "gve", Kind: RingDrops, Text: "rx_no_buffers_posted[%d]", Scope: ScopeQueue, Source: "gve_gstrings_rx_stats, drivers/net/ethernet/google/gve/gve_ethtool.c"},
	{Driver: "ena", Kind: RingDrops, Text: "rx_drops", Scope: ScopePort, Source: "keep-alive rx_drops, ena_keep_alive_wd, drivers/net/ethernet/amazon/ena/ena_netdev.c"},
	{Driver: "ena", Kind: Shaping, Text: "bw_in_allowance_exceeded", Scope: ScopeProvider, Source: "ena_eni_metrics, drivers/net/ethernet/amazon/ena/ena_ethtool.c"},
	{Driver: "ena", Kind: Shaping, Text: "pps_allowance_exceeded", Scope: ScopeProvider, Source: "same"},
	{Driver: "ena", Kind: Shaping, Text: "conntrack_allowance_exceeded", Scope: ScopeProvider, Source: "same"},

	// What an XDP program did, by those that count it.
	{Driver: "veth", Kind: XDPSeen, Text: "rx_queue_%d_xdp_packets", Scope: ScopeQueue, Source: "veth_rq_stats_desc, drivers/net/veth.c: all that its NAPI polls"},
	{Driver: "veth", Kind: XDPDropped, Text: "rx_queue_%d_xdp_drops", Scope: ScopeQueue, Source: "same"},
	{Driver: "veth", Kind: XDPSent, Text: "rx_queue_%d_xdp_tx", Scope: ScopeQueue, Source: "same"},
	{Driver: "veth", Kind: XDPRedirected, Text: "rx_queue_%d_xdp_redirect", Scope: ScopeQueue, Source: "same"},
	{Driver: "veth", Kind: RingDrops, Text: "rx_queue_%d_drops", Scope: ScopeQueue, Source: "same"},
	{Driver: "virtio_net", Kind: XDPSeen, Text: "rx_queue_%d_xdp_packets", Scope: ScopeQueue, Source: "virtnet_rq_stats_desc, drivers/net/virtio_net.c, before 6.10"},
	{Driver: "virtio_net", Kind: XDPDropped, Text: "rx_queue_%d_xdp_drops", Scope: ScopeQueue, Source: "same"},
	{Driver: "virtio_net", Kind: XDPSent, Text: "rx_queue_%d_xdp_tx", Scope: ScopeQueue, Source: "same"},
	{Driver: "virtio_net", Kind: XDPRedirected, Text: "rx_queue_%d_xdp_redirects", Scope: ScopeQueue, Source: "same"},
	{Driver: "virtio_net", Kind: XDPSeen, Text: "rx%d_xdp_packets", Scope: ScopeQueue, Source: "virtnet_get_stats_string, same, since 6.10"},
	{Driver: "virtio_net", Kind: XDPDropped, Text: "rx%d_xdp_drops", Scope: ScopeQueue, Source: "same"},
	{Driver: "virtio_net", Kind: XDPSent, Text: "rx%d_xdp_tx", Scope: ScopeQueue, Source: "same"},
	{Driver: "virtio_net", Kind: XDPRedirected, Text: "rx%d_xdp_redirects", Scope: ScopeQueue, Source: "same"},
	{Driver: "virtio_net", Kind: RingDrops, Text: "rx%d_drops", Scope: ScopeQueue, Source: "same"},
	{Driver: "ena", Kind: XDPPassed, Text: "queue_%d_rx_xdp_pass", Scope: ScopeQueue, Source: "ena_stats_rx_strings, drivers/net/ethernet/amazon/ena/ena_ethtool.c"},
	{Driver: "ena", Kind: XDPDropped, Text: "queue_%d_rx_xdp_drop", Scope: ScopeQueue, Source: "same"},
	{Driver: "ena", Kind: XDPSent, Text: "queue_%d_rx_xdp_tx", Scope: ScopeQueue, Source: "same"},
	{Driver: "ena", Kind: XDPRedirected, Text: "queue_%d_rx_xdp_redirect", Scope: ScopeQueue, Source: "same"},
	{Driver: "gve", Kind: XDPPassed, Text: "rx_xdp_pass[%d]", Scope: ScopeQueue, Source: "gve_gstrings_rx_stats, drivers/net/ethernet/google/gve/gve_ethtool.c"},
	{Driver: "gve", Kind: XDPDropped, Text: "rx_xdp_drop[%d]", Scope: ScopeQueue, Source: "same"},
	{Driver: "gve", Kind: XDPSent, Text: "rx_xdp_tx[%d]", Scope: ScopeQueue, Source: "same"},
	{Driver: "gve", Kind: XDPRedirected, Text: "rx_xdp_redirect[%d]", Scope: ScopeQueue, Source: "same"},
	{Driver: "mlx5_core", Kind: XDPDropped, Text: "rx%d_xdp_drop", Scope: ScopeQueue, Source: "Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst"},
	{Driver: "mlx5_core", Kind: XDPSent, Text: "rx%d_xdp_tx_xmit", Scope: ScopeQueue, Source: "same"},
	{Driver: "mlx5_core", Kind: XDPRedirected, Text: "rx%d_xdp_redirect", Scope: ScopeQueue, Source: "same"},

	// Moderation.
	{Driver: "igb", Kind: DynamicUsecs, N: 1, Source: "igb_set_coalesce: 1 is dynamic, drivers/net/ethernet/intel/igb/igb_ethtool.c"},
	{Driver: "igb", Kind: DynamicUsecs, N: 3, Text: DefaultUsecs, Source: "igb_set_coalesce: 3 is dynamic conservative"},
	{Driver: "ixgbe", Kind: DynamicUsecs, N: 1, Text: DefaultUsecs, Source: "ixgbe_set_coalesce, drivers/net/ethernet/intel/ixgbe/ixgbe_ethtool.c"},
	{Driver: "ixgbevf", Kind: DynamicUsecs, N: 1, Text: DefaultUsecs, Source: "ixgbevf_set_coalesce, drivers/net/ethernet/intel/ixgbevf/ethtool.c"},
	{Driver: "e1000e", Kind: DynamicUsecs, N: 1, Source: "e1000_set_coalesce, drivers/net/ethernet/intel/e1000e/ethtool.c"},
	{Driver: "e1000e", Kind: DynamicUsecs, N: 3, Text: DefaultUsecs, Source: "same"},
	{Driver: "igb", Kind: TiedUsecs, Text: "of paired queues rx-usecs is for both, tx-usecs is refused", Source: "IGB_FLAG_QUEUE_PAIRS in igb_set_coalesce"},
	{Driver: "igc", Kind: TiedUsecs, Text: "of paired queues rx-usecs is for both, tx-usecs is refused", Source: "IGC_FLAG_QUEUE_PAIRS in igc_ethtool_set_coalesce, drivers/net/ethernet/intel/igc/igc_ethtool.c"},
	{Driver: "ixgbe", Kind: TiedUsecs, Text: "of mixed vectors rx-usecs is for both, tx-usecs is refused", Source: "ixgbe_set_coalesce"},
	{Driver: "ixgbevf", Kind: TiedUsecs, Text: "of mixed vectors rx-usecs is for both, tx-usecs is refused", Source: "ixgbevf_set_coalesce"},
	{Driver: "ena", Kind: MaxUsecs, N: 64, Source: "amzn-drivers issues 60, 159: no effect above"},
	{Driver: "virtio_net", Kind: NoEffect, Text: "queue-coalesce", Source: "QEMU without VIRTIO_NET_F_VQ_NOTF_COAL: the set answers success (6.12, seen in the lab)"},

	// What a write costs, and what it undoes.
	{Driver: "igb", Kind: Flaps, Text: "channels", Source: "igb_set_channels reinitialises the queues; link down 1–1.5 s in the lab"},
	{Driver: "igb", Kind: Flaps, Text: "rings", Source: "igb_set_ringparam goes down and up; same"},
	{Driver: "ionic", Kind: ResetsAffinity, Source: "commit d458d4b4fd43 (6.11)"},
	{Driver: "igb", Kind: ResetsAffinity, Source: "channels change requests new vectors, igb_reinit_queues"},

	// Who chooses the queue.
	{Driver: "virtio_net", Kind: HostChooses, Text: "without VIRTIO_NET_F_RSS the backend picks the queue", Source: "virtio specification 5.1.6.5.5; SUSE KB 000021267"},
	{Driver: "xen_netfront", Kind: HostChooses, Text: "the backend picks the queue unless it offers a hash", Source: "drivers/net/xen-netfront.c"},
	{Driver: "e1000e", Kind: OneQueue, Text: "82574 has two rx queues in hardware, the driver uses one", Source: "drivers/net/ethernet/intel/e1000e/netdev.c"},
	{Driver: "r8125", Kind: OneQueue, Text: "receive hashing is off in this build of the driver (ENABLE_RSS_SUPPORT), only vector 0 is used", Source: "the vendor's Makefile; orangepi-xunlong/openwrt issue 46"},
	{Driver: "r8169", Kind: OneQueue, Text: "the driver uses one queue", Source: "drivers/net/ethernet/realtek/r8169_main.c"},
}

// Names under which one driver appears: the module or PCI driver name of
// sysfs and the name ethtool prints.
var aliases = map[string]string{
	"mlx4_en":      "mlx4_core",
	"vif":          "xen_netfront",
	"xen-netfront": "xen_netfront",
	"mtk_soc_eth":  "mtk_eth_soc",
}

// CanonicalDriver is the name facts and the support table use for a driver.
func CanonicalDriver(driver string) string {
	if c, ok := aliases[driver]; ok {
		return c
	}
	return driver
}

// Facts lists what is known of a driver.
func Facts(driver string) []Fact {
	driver = CanonicalDriver(driver)
	var out []Fact
	for _, f := range facts {
		if f.Driver == driver {
			out = append(out, f)
		}
	}
	return out
}

// fact returns the first fact of a kind, nil none.
func fact(driver string, kind FactKind) *Fact {
	driver = CanonicalDriver(driver)
	i := slices.IndexFunc(facts, func(f Fact) bool { return f.Driver == driver && f.Kind == kind })
	if i < 0 {
		return nil
	}
	return &facts[i]
}

// Has reports whether a driver has a fact of a kind, and its first row.
func Has(driver string, kind FactKind) (Fact, bool) {
	if f := fact(driver, kind); f != nil {
		return *f, true
	}
	return Fact{}, false
}
