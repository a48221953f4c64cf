package vector

// form is one way a driver spells a vector.
//
// Elements of pattern: {if} interface name, {bdf} PCI address, {n} queue index, {t}
// transmit queue index where it differs from {n}, {d} a number that is no queue, {w} a word,
// {virtio} {usb} {vif} bus devices, {addr} platform device. The first
// form that fits wins, so narrower ones come first.
type form struct {
	pattern string
	kind    Kind
	sure    Confidence // Exact where empty
	drivers []string   // whose form it is; empty: told by the pattern, or many
	only    bool       // it means this with drivers only
	// exactFor are the drivers with which an Inferred form is Exact.
	exactFor []string
	first    int  // number of queue 0; below it is a control vector
	length   int  // the name was cut to that many bytes, 0 any
	plain    bool // {if} must look like an interface when the interfaces are not known
	bare     bool // says the device only: see Table
	zero     bool // queue 0 without saying so
	whole    bool // Other, unless a known interface hangs on it: then it is all of its interrupts
}

// grammar: names from the drivers' request_irq calls, most of them also seen on machines.
var grammar = []form{
	// Control vectors that look like queues.
	{pattern: "{if}-fdir-TxRx-{d}", kind: Control},
	{pattern: "i40e-{if}-fdir", kind: Control},
	{pattern: "{if}-fdir", kind: Control},
	{pattern: "i40e-{if}:fdir-TxRx-{d}", kind: Control},
	{pattern: "{if}-event-{d}", kind: Control, plain: true},    // vmxnet3
	{pattern: "{if}-rbdr-{d}", kind: Control, plain: true},     // thunder-nicvf: buffer refill
	{pattern: "{if}-qset-err-{d}", kind: Control, plain: true}, // thunder-nicvf
	{pattern: "{if}-err", kind: Control, drivers: []string{"enic"}, plain: true},
	{pattern: "{if}-notify", kind: Control, drivers: []string{"enic"}, plain: true},
	{pattern: "{if}:lsc", kind: Control, plain: true}, // ixgbe before 3.x
	{pattern: "{if}-lsc", kind: Control, plain: true},
	{pattern: "{if}:mac", kind: Control, plain: true}, // stmmac
	{pattern: "{if}:wol", kind: Control, plain: true},
	{pattern: "{if}:lpi", kind: Control, plain: true},
	{pattern: "{if}:sfty", kind: Control, plain: true},
	{pattern: "{if}:sfty-ce", kind: Control, plain: true},
	{pattern: "{if}:sfty-ue", kind: Control, plain: true},

	// Intel.
	{pattern: "i40e-{bdf}:{w}", kind: Control}, // misc, fdir-TxRx-0
	{pattern: "iavf-{bdf}:{w}", kind: Control}, // mbx
	{pattern: "i40evf-{bdf}:{w}", kind: Control},
	{pattern: "ice-{bdf}:{w}", kind: Control}, // misc, ctrl-TxRx-0
	{pattern: "idpf-{bdf}:{w}", kind: Control},
	{pattern: "idpf-Mailbox-{w}", kind: Control},
	{pattern: "idpf-{if}-Mailbox-{d}", kind: Control},
	{pattern: "i40e-{if}-TxRx-{n}", kind: TXRX},
	{pattern: "i40evf-{if}-TxRx-{n}", kind: TXRX},
	{pattern: "iavf-{if}-TxRx-{n}", kind: TXRX},
	{pattern: "ice-{if}-TxRx-{n}", kind: TXRX},
	{pattern: "idpf-{if}-TxRx-{n}", kind: TXRX},
	{pattern: "i40e-{if}-rx-{n}", kind: RX},
	{pattern: "i40e-{if}-tx-{n}", kind: TX},
	{pattern: "iavf-{if}-rx-{n}", kind: RX},
	{pattern: "iavf-{if}-tx-{n}", kind: TX},
	{pattern: "ice-{if}-rx-{n}", kind: RX},
	{pattern: "ice-{if}-tx-{n}", kind: TX},
	{pattern: "idpf-{if}-Rx-{n}", kind: RX},
	{pattern: "idpf-{if}-Tx-{n}", kind: TX},

	// Named after the function only. mlx5 and mana number the vectors of the
	// function, which is the queue unless several functions or ports make one
	// netdev (Documentation/networking/multi-pf-netdev.rst).
	{pattern: "mlx5_comp{n}@pci:{bdf}", kind: TXRX, sure: Inferred},
	{pattern: "mlx5_{w}@pci:{bdf}", kind: Control}, // async0, pages_eq, cmd_eq, async_eq
	{pattern: "mlx4-async@pci:{bdf}", kind: Control},
	{pattern: "mlx4-comp-{d}@pci:{bdf}", kind: Control},               // shared EQs of RDMA, not the netdev's
	{pattern: "mlx4-{n}@{bdf}", kind: TXRX, sure: Inferred, first: 1}, // EQ 0 is the async one (mlx4/eq.c)
	{pattern: "mlx4-{n}@pci:{bdf}", kind: TXRX, sure: Inferred, first: 1},
	{pattern: "mana_hwc@pci:{bdf}", kind: Control},
	{pattern: "mana_q{n}@pci:{bdf}", kind: TXRX, sure: Inferred},
	{pattern: "ena-mgmnt@pci:{bdf}", kind: Control},
	{pattern: "gve-mgmnt@pci:{bdf}", kind: Control},
	{pattern: "gve-ntfy-blk{d}@pci:{bdf}", kind: Other, sure: Unsure}, // tx or rx: see Table
	{pattern: "eth%d-mgmnt", kind: Control},                           // gve before 6.3, requested before the netdev had a name
	{pattern: "eth%d-ntfy-block.{d}", kind: Other, sure: Unsure},
	{pattern: "{if}-mgmnt", kind: Control, plain: true},
	{pattern: "{if}-ntfy-block.{d}", kind: Other, sure: Unsure, plain: true},
	{pattern: "hns3-{bdf}-TxRx-{n}", kind: TXRX},
	{pattern: "hns3-{bdf}-Rx-{n}", kind: RX},
	{pattern: "hns3-{bdf}-Tx-{n}", kind: TX},
	{pattern: "hns3-{bdf}-{w}", kind: Control},
	{pattern: "hclge-{w}-{bdf}", kind: Control},
	{pattern: "hclgevf-{w}-{bdf}", kind: Control},
	{pattern: "LiquidIO{d}-pf{d}-rxtx-{n}", kind: TXRX, sure: Inferred},
	{pattern: "LiquidIO{d}-vf{d}-rxtx-{n}", kind: TXRX, sure: Inferred},
	{pattern: "LiquidIO{w}", kind: Control},
	{pattern: "ibmvnic-{w}-rx{n}", kind: RX},
	{pattern: "ibmvnic-{w}-tx{n}", kind: TX},

	// ionic: "%.5s-%.16s-%.8s" of "ionic", interface or address, and "L0-rx3"; the receive
	// vector serves transmit too unless the channels are split (ionic_lif.c).
	{pattern: "ionic-{if}-L{d}-rx{n}", kind: TXRX, sure: Inferred},
	{pattern: "ionic-{if}-L{d}-tx{n}", kind: TX},
	{pattern: "ionic-{if}-L{d}-{w}", kind: Control},
	{pattern: "ionic-{bdf}-{w}", kind: Control},

	// Wireless: the queue numbers are the receive queues of the MAC.
	{pattern: "iwlwifi:default_queue", kind: RX, sure: Inferred, zero: true},
	{pattern: "iwlwifi: default queue", kind: RX, sure: Inferred, zero: true},
	{pattern: "iwlwifi:queue_{n}", kind: RX, sure: Inferred},
	{pattern: "iwlwifi: queue {n}", kind: RX, sure: Inferred},
	{pattern: "iwlwifi:exception", kind: Control},
	{pattern: "iwlwifi: exception", kind: Control},

	// Virtual buses.
	{pattern: "{virtio}-input.{n}", kind: RX},
	{pattern: "{virtio}-output.{n}", kind: TX},
	{pattern: "{virtio}-config", kind: Control},
	{pattern: "{virtio}-control", kind: Control},
	{pattern: "{virtio}-virtqueues", kind: Other, sure: Unsure, whole: true}, // one vector for all queues
	{pattern: "{virtio}", kind: Other, sure: Unsure, whole: true},            // INTx
	{pattern: "{virtio}-{w}", kind: Other, sure: Unsure},                     // disk, console, …
	{pattern: "{vif}-q{n}-rx", kind: RX},
	{pattern: "{vif}-q{n}-tx", kind: TX},
	{pattern: "{vif}-rx", kind: RX, sure: Inferred, zero: true},
	{pattern: "{vif}-tx", kind: TX, sure: Inferred, zero: true},
	{pattern: "{w}:{usb}", kind: Other, sure: Unsure, whole: true}, // host controller of a USB NIC

	// Platform devices.
	{pattern: "{addr}:txq{n}", kind: TX}, // ipqess
	{pattern: "{addr}:rxq{n}", kind: RX},
	{pattern: "{addr}-tx{n}", kind: TX}, // am65-cpsw
	{pattern: "{addr}-rx{n}", kind: RX},
	{pattern: "{addr}", kind: Other, sure: Unsure, bare: true}, // fec, mtk_eth_soc, ag71xx, cpsw

	// Named after the interface.
	{pattern: "{if}-Tx-Rx-{n}", kind: TXRX},                    // ena
	{pattern: "{if}-TxRx-{n}", kind: TXRX},                     // igb igc ixgbe ixgbevf ngbe txgbe bnxt_en fm10k fbnic amd-xgbe
	{pattern: "{w}-{if}-TxRx-{n}", kind: TXRX, sure: Inferred}, // some driver's own prefix
	{pattern: "{if}-tx-{t}-rx-{n}", kind: TXRX},
	{pattern: "{if}-txrx-{n}", kind: TXRX, only: true, drivers: []string{"tg3"}, sure: Inferred, first: 1},
	{pattern: "{if}-rx-{n}", kind: RX, only: true, drivers: []string{"tg3"}, sure: Inferred, first: 1},
	{pattern: "{if}-{d}", kind: Control, only: true, drivers: []string{"tg3"}}, // vector 0 has no rings then
	{pattern: "{if}-rx-{n}", kind: RX, only: true, drivers: []string{"be2net"}, sure: Inferred},
	{pattern: "{if}-tx-{n}", kind: TXRX, only: true, drivers: []string{"be2net"}, sure: Inferred},
	{pattern: "{if}-txrx-{n}", kind: TXRX},
	{pattern: "{if}-rxtx-{n}", kind: TXRX}, // vmxnet3 thunder-nicvf octeontx2 nfp
	{pattern: "{if}-rxtx{n}", kind: TXRX},  // enetc
	{pattern: "{if}-fp-{n}", kind: TXRX},   // bnx2x qede
	{pattern: "{if}-xdp-{d}", kind: TX},    // sfc: transmit for XDP only, no queue of the stack
	{pattern: "{if}-rx-{n}", kind: RX},
	{pattern: "{if}-tx-{n}", kind: TX},
	{pattern: "{if}:rx-{n}", kind: RX}, // stmmac
	{pattern: "{if}:tx-{n}", kind: TX},
	{pattern: "{if} (queue {n})", kind: TXRX, sure: Inferred, exactFor: []string{"cxgb4"}}, // cxgb3 counts from its port's first set
	{pattern: "{if}-Rx{n}", kind: RX, drivers: []string{"cxgb4"}, plain: true},
	{pattern: "{if}_qp{n}", kind: TXRX, drivers: []string{"hinic"}, plain: true},
	{pattern: "{if}_g{d}_rx", kind: RX, drivers: []string{"gianfar"}, sure: Inferred, plain: true},
	{pattern: "{if}_g{d}_tx", kind: TX, drivers: []string{"gianfar"}, sure: Inferred, plain: true},
	{pattern: "{if}_g{d}_er", kind: Control, drivers: []string{"gianfar"}, plain: true},
	{pattern: "{if}-{n}", kind: TXRX, sure: Inferred, exactFor: []string{"mlx4_en", "mlx4_core", "bnx2", "sfc"}, plain: true},

	// Cut by a short buffer: bnxt_en 17 bytes and tg3 15 until 2024, tg3 21 in between.
	{pattern: "{if}-TxRx-", kind: TXRX, sure: Inferred, length: 17},
	{pattern: "{if}-TxRx", kind: TXRX, sure: Inferred, length: 17},
	{pattern: "{if}-TxR", kind: TXRX, sure: Inferred, length: 17},
	{pattern: "{if}-rx-", kind: RX, sure: Inferred, length: 17},
	{pattern: "{if}-tx-", kind: TX, sure: Inferred, length: 17},
	{pattern: "{if}-txrx-", kind: TXRX, sure: Inferred, length: 15},
	{pattern: "{if}-txrx", kind: TXRX, sure: Inferred, length: 15},
	{pattern: "{if}-txr", kind: TXRX, sure: Inferred, length: 15},
	{pattern: "{if}-rx-", kind: RX, sure: Inferred, length: 15},
	{pattern: "{if}-tx-", kind: TX, sure: Inferred, length: 15},
	{pattern: "{if}-txrx-", kind: TXRX, sure: Inferred, length: 21},

	{pattern: "{if}", kind: Other, sure: Unsure, bare: true, plain: true},
}
