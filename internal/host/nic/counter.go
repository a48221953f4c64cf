package nic

import (
	"slices"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/ethtool"
)

// Kinds of counters of ethtool -S, beside RingDrops: Text is the name, %d in it the queue, and
// Scope whose packets it counts.
const (
	// RingEmpty: no descriptor was free when a frame came; it may still have been received from the
	// device's own buffer.
	RingEmpty FactKind = "ring-empty"
	// NoMemory: the driver got no memory for a receive buffer.
	NoMemory FactKind = "no-memory"
	// PauseSent: the device asked its peer to stop sending; PauseReceived: it was asked.
	PauseSent     FactKind = "pause-sent"
	PauseReceived FactKind = "pause-received"
	// CRCErrors: frames with a bad check sum; SymbolErrors: of the wire's code; LengthErrors: frames
	// longer than the device takes.
	CRCErrors    FactKind = "crc-errors"
	SymbolErrors FactKind = "symbol-errors"
	LengthErrors FactKind = "length-errors"
	// FECUncorrected and FECCorrected: blocks of forward error correction.
	FECUncorrected FactKind = "fec-uncorrected"
	FECCorrected   FactKind = "fec-corrected"
	// LinkDowns: how often the link was lost.
	LinkDowns FactKind = "link-downs"
	// Shaping: packets over what the cloud provider allows the instance.
	Shaping FactKind = "shaping"
	// XDPSeen: packets an XDP program was shown; XDPPassed, XDPDropped, XDPSent and XDPRedirected: what it did with
	// them: went on to the stack, thrown away, sent back out of the device, handed to another device, CPU or AF_XDP socket.
	XDPSeen       FactKind = "xdp-seen"
	XDPPassed     FactKind = "xdp-passed"
	XDPDropped    FactKind = "xdp-dropped"
	XDPSent       FactKind = "xdp-sent"
	XDPRedirected FactKind = "xdp-redirected"
)

// counterKinds are all kinds whose rows name a counter.
var counterKinds = []FactKind{RingDrops, RingEmpty, NoMemory, PauseSent, PauseReceived, CRCErrors, SymbolErrors,
	LengthErrors, FECUncorrected, FECCorrected, LinkDowns, Shaping, XDPSeen, XDPPassed, XDPDropped, XDPSent, XDPRedirected}

// counterFacts are names that mean the same in every driver that has them; a driver's own rows go before.
var counterFacts = []Fact{
	{Kind: PauseSent, Text: "tx_flow_control_xoff", Scope: ScopePort, Source: "igb, igc, e1000e, ixgbe: XOFFTXC"},
	{Kind: PauseSent, Text: "port.link_xoff_tx", Scope: ScopePort, Source: "i40e_gstrings_stats, ice_gstrings_pf_stats"},
	{Kind: PauseSent, Text: "link_xoff_tx.nic", Scope: ScopePort, Source: "i40e_gstrings_stats, ice_gstrings_pf_stats"},
	{Kind: PauseSent, Text: "tx_pause_ctrl_phy", Scope: ScopePort, Source: "mlx5 counters.rst: 802.3 pause"},
	{Kind: PauseSent, Text: "tx_global_pause", Scope: ScopePort, Source: "mlx5 counters.rst: 802.3 pause"},
	{Kind: PauseSent, Text: "tx_pause", Scope: ScopePort, Source: "mlx4, sfc"},
	{Kind: PauseSent, Text: "port_tx_pause", Scope: ScopePort, Source: "mlx4, sfc"},
	{Kind: PauseSent, Text: "tx_pause_frames", Scope: ScopePort, Source: "bnxt_en, bnx2x, qede, cxgb4"},
	{Kind: PauseSent, Text: "tx_pfc_frames", Scope: ScopePort, Source: "bnxt_en, bnx2x, qede, cxgb4"},
	{Kind: PauseSent, Text: "pfc_frames_sent", Scope: ScopePort, Source: "bnxt_en, bnx2x, qede, cxgb4"},
	{Kind: PauseSent, Text: "tx_xoff_frames", Scope: ScopePort, Source: "bnx2, tg3"},
	{Kind: PauseSent, Text: "tx_xoff_sent", Scope: ScopePort, Source: "bnx2, tg3"},
	{Kind: PauseSent, Text: "tx_pauseframes", Scope: ScopePort, Source: "et_stats of be2net"},
	{Kind: PauseSent, Text: "tx_priority_pauseframes", Scope: ScopePort, Source: "et_stats of be2net"},
	{Kind: PauseSent, Text: "mmc_tx_pause_frame", Scope: ScopePort, Source: "stmmac, fec, hns3, ionic, dpaa2"},
	{Kind: PauseSent, Text: "IEEE_tx_fdxfc", Scope: ScopePort, Source: "stmmac, fec, hns3, ionic, dpaa2"},
	{Kind: PauseSent, Text: "mac_tx_mac_pause_num", Scope: ScopePort, Source: "stmmac, fec, hns3, ionic, dpaa2"},
	{Kind: PauseSent, Text: "frames_tx_pause", Scope: ScopePort, Source: "stmmac, fec, hns3, ionic, dpaa2"},
	{Kind: PauseSent, Text: "[mac] tx b-pause", Scope: ScopePort, Source: "stmmac, fec, hns3, ionic, dpaa2"},
	{Kind: PauseReceived, Text: "rx_flow_control_xoff", Scope: ScopePort, Source: "igb, igc, e1000e, ixgbe: XOFFRXC"},
	{Kind: PauseReceived, Text: "port.link_xoff_rx", Scope: ScopePort, Source: "i40e_gstrings_stats, ice_gstrings_pf_stats"},
	{Kind: PauseReceived, Text: "link_xoff_rx.nic", Scope: ScopePort, Source: "i40e_gstrings_stats, ice_gstrings_pf_stats"},
	{Kind: PauseReceived, Text: "rx_pause_ctrl_phy", Scope: ScopePort, Source: "mlx5 counters.rst"},
	{Kind: PauseReceived, Text: "rx_global_pause", Scope: ScopePort, Source: "mlx5 counters.rst"},
	{Kind: PauseReceived, Text: "rx_pause", Scope: ScopePort, Source: "mlx4, sfc"},
	{Kind: PauseReceived, Text: "port_rx_pause", Scope: ScopePort, Source: "mlx4, sfc"},
	{Kind: PauseReceived, Text: "rx_pause_frames", Scope: ScopePort, Source: "bnxt_en, bnx2x, qede, cxgb4, be2net"},
	{Kind: PauseReceived, Text: "rx_pfc_frames", Scope: ScopePort, Source: "bnxt_en, bnx2x, qede, cxgb4, be2net"},
	{Kind: PauseReceived, Text: "pfc_frames_received", Scope: ScopePort, Source: "bnxt_en, bnx2x, qede, cxgb4, be2net"},
	{Kind: PauseReceived, Text: "rx_priority_pause_frames", Scope: ScopePort, Source: "bnxt_en, bnx2x, qede, cxgb4, be2net"},
	{Kind: PauseReceived, Text: "rx_xoff_frames", Scope: ScopePort, Source: "bnx2, tg3"},
	{Kind: PauseReceived, Text: "rx_xoff_pause_rcvd", Scope: ScopePort, Source: "bnx2, tg3"},
	{Kind: PauseReceived, Text: "mmc_rx_pause_frame", Scope: ScopePort, Source: "stmmac, fec, hns3, ionic, dpaa2"},
	{Kind: PauseReceived, Text: "IEEE_rx_fdxfc", Scope: ScopePort, Source: "stmmac, fec, hns3, ionic, dpaa2"},
	{Kind: PauseReceived, Text: "mac_rx_mac_pause_num", Scope: ScopePort, Source: "stmmac, fec, hns3, ionic, dpaa2"},
	{Kind: PauseReceived, Text: "frames_rx_pause", Scope: ScopePort, Source: "stmmac, fec, hns3, ionic, dpaa2"},
	{Kind: PauseReceived, Text: "[mac] rx pause", Scope: ScopePort, Source: "stmmac, fec, hns3, ionic, dpaa2"},
	{Kind: CRCErrors, Text: "rx_crc_errors", Scope: ScopePort, Source: "rtnl_link_stats64 and drivers of that name"},
	{Kind: CRCErrors, Text: "port.rx_crc_errors", Scope: ScopePort, Source: "rtnl_link_stats64 and drivers of that name"},
	{Kind: CRCErrors, Text: "rx_crc_errors.nic", Scope: ScopePort, Source: "rtnl_link_stats64 and drivers of that name"},
	{Kind: CRCErrors, Text: "rx_crc_errors_phy", Scope: ScopePort, Source: "rtnl_link_stats64 and drivers of that name"},
	{Kind: CRCErrors, Text: "rx_fcs_errors", Scope: ScopePort, Source: "rtnl_link_stats64 and drivers of that name"},
	{Kind: CRCErrors, Text: "rx_fcs_err_frames", Scope: ScopePort, Source: "rtnl_link_stats64 and drivers of that name"},
	{Kind: CRCErrors, Text: "mac_rx_fcs_err_pkt_num", Scope: ScopePort, Source: "rtnl_link_stats64 and drivers of that name"},
	{Kind: CRCErrors, Text: "frames_rx_bad_fcs", Scope: ScopePort, Source: "rtnl_link_stats64 and drivers of that name"},
	{Kind: CRCErrors, Text: "mmc_rx_crc_error", Scope: ScopePort, Source: "rtnl_link_stats64 and drivers of that name"},
	{Kind: CRCErrors, Text: "IEEE_rx_crc", Scope: ScopePort, Source: "rtnl_link_stats64 and drivers of that name"},
	{Kind: CRCErrors, Text: "rx_align_errors", Scope: ScopePort, Source: "alignment errors: at 10 and 100 Mbit/s, with a bad check sum"},
	{Kind: CRCErrors, Text: "align_errors", Scope: ScopePort, Source: "alignment errors: at 10 and 100 Mbit/s, with a bad check sum"},
	{Kind: CRCErrors, Text: "[mac] rx align errors", Scope: ScopePort, Source: "alignment errors: at 10 and 100 Mbit/s, with a bad check sum"},
	{Kind: SymbolErrors, Text: "rx_symbol_err_phy", Scope: ScopePort, Source: "mlx5 counters.rst, bnxt_en, be2net"},
	{Kind: SymbolErrors, Text: "rx_pcs_symbol_err", Scope: ScopePort, Source: "mlx5 counters.rst, bnxt_en, be2net"},
	{Kind: SymbolErrors, Text: "rx_alignment_symbol_errors", Scope: ScopePort, Source: "mlx5 counters.rst, bnxt_en, be2net"},
	{Kind: FECUncorrected, Text: "rx_fec_uncorrectable_blocks", Scope: ScopePort, Source: "bnxt_en, sfc: blocks that could not be mended"},
	{Kind: FECUncorrected, Text: "fec_uncorrected_errors", Scope: ScopePort, Source: "bnxt_en, sfc: blocks that could not be mended"},
	{Kind: FECCorrected, Text: "rx_fec_corrected_blocks", Scope: ScopePort, Source: "same: blocks mended, normal at 25 Gbit/s and above"},
	{Kind: FECCorrected, Text: "fec_corrected_errors", Scope: ScopePort, Source: "same: blocks mended, normal at 25 Gbit/s and above"},
	{Kind: LengthErrors, Text: "rx_long_length_errors", Scope: ScopePort, Source: "igb, igc, e1000e, ixgbe: ROC"},
	{Kind: LengthErrors, Text: "port.rx_oversize", Scope: ScopePort, Source: "i40e, ice, mlx5, bnx2x, bnx2, bnxt_en, dpaa2"},
	{Kind: LengthErrors, Text: "rx_oversize.nic", Scope: ScopePort, Source: "i40e, ice, mlx5, bnx2x, bnx2, bnxt_en, dpaa2"},
	{Kind: LengthErrors, Text: "rx_oversize_pkts_phy", Scope: ScopePort, Source: "i40e, ice, mlx5, bnx2x, bnx2, bnxt_en, dpaa2"},
	{Kind: LengthErrors, Text: "rx_oversize_packets", Scope: ScopePort, Source: "i40e, ice, mlx5, bnx2x, bnx2, bnxt_en, dpaa2"},
	{Kind: LengthErrors, Text: "rx_ovrsz_frames", Scope: ScopePort, Source: "i40e, ice, mlx5, bnx2x, bnx2, bnxt_en, dpaa2"},
	{Kind: LengthErrors, Text: "rx_mtu_err_frames", Scope: ScopePort, Source: "i40e, ice, mlx5, bnx2x, bnx2, bnxt_en, dpaa2"},
	{Kind: LengthErrors, Text: "[mac] rx oversized", Scope: ScopePort, Source: "i40e, ice, mlx5, bnx2x, bnx2, bnxt_en, dpaa2"},
	{Kind: LinkDowns, Text: "link_down_events_phy", Scope: ScopePort, Source: "mlx5 counters.rst, bnxt_en"},
	{Kind: LinkDowns, Text: "link_down_events", Scope: ScopePort, Source: "mlx5 counters.rst, bnxt_en"},
	{Kind: LinkDowns, Text: "carrier_down_count", Scope: ScopePort, Source: "/sys/class/net/IF, Documentation/ABI/testing/sysfs-class-net"},
	{Kind: NoMemory, Text: "rx_queue_%d_alloc_failed", Scope: ScopeQueue, Source: "igb, igc, ice"},
	{Kind: NoMemory, Text: "queue_%d_rx_page_alloc_fail", Scope: ScopeQueue, Source: "ena, mlx5"},
	{Kind: NoMemory, Text: "rx%d_buff_alloc_err", Scope: ScopeQueue, Source: "ena, mlx5"},
	{Kind: NoMemory, Text: "alloc_rx_page_failed", Scope: ScopePort, Source: "ixgbe, e1000e, mlx5"},
	{Kind: NoMemory, Text: "alloc_rx_buff_failed", Scope: ScopePort, Source: "ixgbe, e1000e, mlx5"},
	{Kind: NoMemory, Text: "rx_buff_alloc_err", Scope: ScopePort, Source: "ixgbe, e1000e, mlx5"},
}

// Counter is a statistic of a driver whose meaning is known.
type Counter struct {
	Name  string   // as ethtool -S prints it
	Kind  FactKind // what it counts
	Scope Scope    // whose
	Queue int      // the rx queue where Scope is ScopeQueue, else None
	Value uint64
}

// Counters takes those of known meaning out of a driver's statistics, in its order. Where the driver
// is not known (""), a name counts by what it means in the drivers that have it.
func Counters(driver string, stats []ethtool.Stat) []Counter {
	m := newMeanings(driver)
	var out []Counter
	section := "" // vmxnet3 heads each queue's counters, whose names repeat, by "Rx Queue#: 3"
	for _, s := range stats {
		name := strings.TrimSpace(s.Name)
		if head := strings.TrimSuffix(name, ":"); head == "Rx Queue#" || head == "Tx Queue#" {
			section = head + strconv.FormatUint(s.Value, 10) + " "
			continue
		}
		f, queue, ok := m.of(name)
		if !ok && section != "" {
			name = section + name
			f, queue, ok = m.of(name)
		}
		if ok {
			out = append(out, Counter{Name: name, Kind: f.Kind, Scope: f.Scope, Queue: queue, Value: s.Value})
		}
	}
	return out
}

// meanings finds the row of a counter's name.
type meanings struct {
	exact    map[string]Fact
	numbered []Fact
}

func newMeanings(driver string) meanings {
	driver = CanonicalDriver(driver)
	m := meanings{exact: map[string]Fact{}}
	for _, f := range facts {
		if !slices.Contains(counterKinds, f.Kind) || f.Driver != driver && f.Driver != "" && driver != "" {
			continue
		}
		// Many drivers print the stack's own rx_dropped under this name.
		if driver == "" && f.Text == "rx_dropped" {
			continue
		}
		if strings.Contains(f.Text, "%d") {
			m.numbered = append(m.numbered, f)
		} else if _, ok := m.exact[f.Text]; !ok {
			m.exact[f.Text] = f
		}
	}
	return m
}

func (m meanings) of(name string) (Fact, int, bool) {
	if f, ok := m.exact[name]; ok {
		return f, None, true
	}
	for _, f := range m.numbered {
		before, after, _ := strings.Cut(f.Text, "%d")
		n, found := strings.CutPrefix(name, before)
		if !found {
			continue
		}
		n, found = strings.CutSuffix(n, after)
		if q, err := strconv.ParseUint(n, 10, 31); found && err == nil {
			return f, int(q), true
		}
	}
	return Fact{}, None, false
}
