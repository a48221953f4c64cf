package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
)

// statusDoc is the JSON of status; docs/json.md describes it.
type statusDoc struct {
	Host     knob.Identity            `json:"host"`
	CPUs     []statusCPU              `json:"cpus"`
	NICs     []statusNIC              `json:"nics"`
	Settings map[knob.Kind]knob.Value `json:"settings"` // of the host: sysctls
	Owners   []knob.Owner             `json:"owners"`
	Problems []string                 `json:"problems"`
	hidden   []string                 // interfaces that were not asked for and say little
}

type statusCPU struct {
	ID       int  `json:"id"`
	Node     *int `json:"node"`
	Core     int  `json:"core"`
	LLC      *int `json:"llc"`
	Online   bool `json:"online"`
	Isolated bool `json:"isolated"`
}

type statusNIC struct {
	Name     string                              `json:"name"`
	IfIndex  int                                 `json:"ifindex"`
	Kind     nic.Kind                            `json:"kind"`
	Driver   string                              `json:"driver"`
	Version  string                              `json:"driver_version"`
	Firmware string                              `json:"firmware"`
	Bus      string                              `json:"bus"`
	Node     *int                                `json:"node"`
	Up       bool                                `json:"up"`
	MTU      int                                 `json:"mtu"`
	SpeedMb  *int                                `json:"speed_mbit"`
	Master   string                              `json:"master"`
	Lower    []string                            `json:"lower"`
	Tenant   *nic.Tenant                         `json:"tenant"`
	Queues   []statusQueue                       `json:"queues"`
	Control  []nic.Vector                        `json:"control"`
	Table    []int                               `json:"table"`
	Settings map[knob.Kind]knob.Value            `json:"settings"` // of the device
	Parts    map[string]map[knob.Kind]knob.Value `json:"parts"`    // of its queues, vectors, NAPIs, flow types
	Problems []string                            `json:"problems"`
	Notes    []string                            `json:"notes"`
}

type statusQueue struct {
	RX        *int       `json:"rx"`
	TX        *int       `json:"tx"`
	NAPI      *uint32    `json:"napi"`
	IRQ       *int       `json:"irq"`
	Vector    string     `json:"vector"`
	Node      *int       `json:"node"`
	Affinity  string     `json:"affinity"`
	Effective string     `json:"effective"`
	RPS       string     `json:"rps"`
	XPS       string     `json:"xps"`
	XSK       bool       `json:"xsk"`
	Thread    *int       `json:"thread"`
	Function  string     `json:"function"`
	KnownBy   nic.Source `json:"known_by"`
	NAPIBy    nic.Source `json:"napi_by,omitempty"`
}

func statusCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "status [IFACE…]",
		Short: "Show the map: queues, NAPIs, interrupts, CPUs and what is set",
		Long: `Show, for each interface, which queue is served by which NAPI, interrupt and
CPU, how each link of that map is known, and what is set: queue counts, rings,
indirection table, hash fields, interrupt moderation, offloads, RPS, XPS, RFS.

Uses no BPF and writes nothing. Without root it shows what can be read and says
what cannot. Interfaces that are down, and lo, are left out unless named.`,
		Example: `  rxsteer status
  rxsteer status eth0 eth1
  rxsteer status -o json | jq '.nics[].queues[] | {rx, irq, effective}'`,
		GroupID:           groupLook,
		ValidArgsFunction: e.completeInterfaces,
	}
	out := addOutput(c, "json")
	var m measureFlags
	addFrom(c, &m)
	c.RunE = func(c *cobra.Command, names []string) error {
		if err := out.check(); err != nil {
			return err
		}
		doc, err := e.status(c.Context(), m.from, names)
		if err != nil {
			return err
		}
		if out.format == "json" {
			return printJSON(e.stdout, doc)
		}
		return printStatus(e.stdout, doc, e.palette(), e.textWidth())
	}
	return c
}

// status is of this host, or of a capture.
func (e *env) status(ctx context.Context, from string, names []string) (*statusDoc, error) {
	if from == "" {
		h, err := e.openHost()
		if err != nil {
			return nil, err
		}
		defer h.close()
		return readStatus(ctx, h, names)
	}
	c, err := e.openCapture(from)
	if err != nil {
		return nil, err
	}
	if err := checkInterfaces(c.nics, names); err != nil {
		return nil, err
	}
	return viewStatus(c.nics, chosenNICs(c.nics, names), names, c.topology, c.snapshot, c.snapshot.Owners), nil
}

// chosenNICs are those named; without names those that are up.
func chosenNICs(nics []nic.NIC, names []string) []string {
	var chosen []string
	for i := range nics {
		n := &nics[i]
		if slices.Contains(names, n.Name) || len(names) == 0 && n.Kind != nic.Loopback && n.Up {
			chosen = append(chosen, n.Name)
		}
	}
	return chosen
}

func readStatus(ctx context.Context, h *hostRooms, names []string) (*statusDoc, error) {
	nics, err := h.inventory(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkInterfaces(nics, names); err != nil {
		return nil, err
	}
	chosen := chosenNICs(nics, names)
	// Reading waits for the kernel's locks more than it computes: side by side.
	var top *topo.Topology
	var snap *knob.Snapshot
	var owners []knob.Owner
	var tenants map[int]nic.Tenant
	var noTenants error // a gap, no failure
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) { top, err = h.topology(); return err })
	group.Go(func() (err error) { owners, err = h.owners(ctx, nics); return err })
	group.Go(func() error { tenants, noTenants = h.tenants(); return nil })
	group.Go(func() (err error) {
		if snap, err = h.machine.Snapshot(ctx, chosen...); err != nil {
			err = fmt.Errorf("read settings: %w", err)
		}
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	doc := viewStatus(nics, chosen, names, top, snap, owners)
	for i := range doc.NICs {
		if t, ok := tenants[doc.NICs[i].IfIndex]; ok {
			doc.NICs[i].Tenant = &t
		}
	}
	if noTenants != nil {
		doc.Problems = append(doc.Problems, noTenants.Error())
	}
	return doc, nil
}

func viewStatus(nics []nic.NIC, chosen, names []string, top *topo.Topology, snap *knob.Snapshot, owners []knob.Owner) *statusDoc {
	doc := &statusDoc{
		Host:     snap.Host,
		CPUs:     []statusCPU{},
		NICs:     []statusNIC{},
		Settings: map[knob.Kind]knob.Value{},
		Owners:   append([]knob.Owner{}, owners...),
		Problems: append([]string{}, top.Unmeasured...),
	}
	for _, c := range top.CPUs {
		doc.CPUs = append(doc.CPUs, statusCPU{c.ID, orNull(c.Node, topo.None), c.Core, orNull(c.LLC, topo.None), c.Online, c.Isolated})
	}
	parts := settingsByPart(snap)
	for _, s := range snap.Settings {
		if s.Target.Device() == "" {
			doc.Settings[s.Knob] = s.Value
		}
	}
	for i := range nics {
		n := &nics[i]
		if !slices.Contains(chosen, n.Name) {
			if len(names) == 0 {
				doc.hidden = append(doc.hidden, n.Name)
			}
			continue
		}
		doc.NICs = append(doc.NICs, viewNIC(n, parts[n.Name]))
	}
	return doc
}

// settingsByPart is the settings of interfaces: device → part ("" the device itself) → knob.
func settingsByPart(snap *knob.Snapshot) map[string]map[string]map[knob.Kind]knob.Value {
	parts := map[string]map[string]map[knob.Kind]knob.Value{}
	for _, s := range snap.Settings {
		dev, p := s.Target.Device(), s.Target.Part()
		if dev == "" {
			continue
		}
		if parts[dev] == nil {
			parts[dev] = map[string]map[knob.Kind]knob.Value{"": {}}
		}
		if parts[dev][p] == nil {
			parts[dev][p] = map[knob.Kind]knob.Value{}
		}
		parts[dev][p][s.Knob] = s.Value
	}
	return parts
}

func viewNIC(n *nic.NIC, parts map[string]map[knob.Kind]knob.Value) statusNIC {
	v := statusNIC{
		Name: n.Name, IfIndex: n.IfIndex, Kind: n.Kind, Driver: n.Driver, Version: n.Version, Firmware: n.Firmware,
		Bus: n.Bus, Node: orNull(n.Node, nic.None), Up: n.Up, MTU: n.MTU, SpeedMb: orNull(n.SpeedMb, 0),
		Master: n.Master, Lower: append([]string{}, n.Lower...), Queues: []statusQueue{}, Control: append([]nic.Vector{}, n.Control...),
		Settings: map[knob.Kind]knob.Value{}, Parts: map[string]map[knob.Kind]knob.Value{},
		Problems: append([]string{}, n.Problems...), Notes: append([]string{}, n.Notes...),
	}
	for part, settings := range parts {
		if part == "" {
			v.Settings = settings
		} else {
			v.Parts[part] = settings
		}
	}
	for _, q := range n.Queues {
		v.Queues = append(v.Queues, statusQueue{
			RX: orNull(q.RX, nic.None), TX: orNull(q.TX, nic.None), NAPI: orNull(q.NAPI, 0), IRQ: orNull(q.IRQ, nic.None),
			Vector: q.Vector, Node: orNull(q.Node, nic.None), Affinity: q.Affinity.String(), Effective: q.Effective.String(),
			RPS: q.RPS.String(), XPS: q.XPS.String(), XSK: q.XSK, Thread: orNull(q.Thread, 0), Function: q.Function, KnownBy: q.KnownBy, NAPIBy: q.NAPIBy,
		})
	}
	if t := v.Settings[knob.RSSTable]; t.Known() {
		if err := t.Decode(&v.Table); err != nil {
			v.Problems = append(v.Problems, err.Error())
		}
	}
	return v
}

// orNull is nil where a number means that there is none.
func orNull[T comparable](v, none T) *T {
	if v == none {
		return nil
	}
	return &v
}

func cell[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

func printStatus(w io.Writer, doc *statusDoc, p palette, width int) error {
	printCPUs(w, doc, p, width)
	for i := range doc.NICs {
		fmt.Fprintln(w)
		printNIC(w, &doc.NICs[i], p, width)
	}
	if len(doc.NICs) == 0 {
		fmt.Fprintln(w, "\nNo interface is up.")
	}
	if len(doc.Owners) > 0 {
		fmt.Fprintln(w)
		fmt.Fprintln(w, p.bold("Others who set these things"))
		for _, o := range doc.Owners {
			text := o.Name
			if o.Device != "" {
				text += " on " + o.Device
			}
			if o.Detail != "" {
				text += ": " + o.Detail
			}
			wrap(w, width, "  ", "    ", text)
			for _, line := range o.Settle {
				fmt.Fprintln(w, "    → "+line)
			}
		}
	}
	if len(doc.hidden) > 0 {
		fmt.Fprintln(w)
		wrap(w, width, "Not shown (down, or loopback; name them to see them): ", "  ", strings.Join(doc.hidden, ", "))
	}
	for _, x := range doc.Problems {
		wrap(w, width, p.yellow("! "), "  ", x)
	}
	return nil
}

func printCPUs(w io.Writer, doc *statusDoc, p palette, width int) {
	var online, isolated []int
	nodes, llcs, cores := map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, c := range doc.CPUs {
		if c.Online {
			online = append(online, c.ID)
			cores[c.Core] = true
			if c.Node != nil {
				nodes[*c.Node] = true
			}
			if c.LLC != nil {
				llcs[*c.LLC] = true
			}
		}
		if c.Isolated {
			isolated = append(isolated, c.ID)
		}
	}
	text := fmt.Sprintf("CPUs %s on %s", setOf(online), plural(len(cores), "core"))
	if len(llcs) > 0 {
		text += ", " + plural(len(llcs), "last-level cache")
	}
	if len(nodes) > 0 {
		text += ", " + plural(len(nodes), "node")
	}
	if len(isolated) > 0 {
		text += "; isolated " + setOf(isolated)
	}
	if doc.Host.Kernel != "" {
		text += "; kernel " + doc.Host.Kernel
	}
	wrap(w, width, "", "  ", text)
	var set []string
	for _, k := range []knob.Kind{knob.RPSSockFlowEntries, knob.NetdevBudget, knob.NetdevBudgetUsecs, knob.NetdevMaxBacklog, knob.DevWeight, knob.BusyPoll} {
		if v, ok := doc.Settings[k]; ok && v.Known() {
			set = append(set, string(k)+" "+v.String())
		}
	}
	if len(set) > 0 {
		wrap(w, width, "", "  ", strings.Join(set, "; "))
	}
}

func printNIC(w io.Writer, n *statusNIC, p palette, width int) {
	facts := []string{}
	add := func(s string) {
		if s != "" {
			facts = append(facts, s)
		}
	}
	add(strings.TrimSpace(n.Driver + " " + n.Version))
	add(n.Bus)
	if n.Kind != nic.Physical {
		add(string(n.Kind))
	}
	if n.Node != nil {
		add("node " + cell(n.Node))
	}
	add(map[bool]string{true: "up", false: "down"}[n.Up])
	if n.SpeedMb != nil {
		add(speed(*n.SpeedMb))
	}
	add("MTU " + strconv.Itoa(n.MTU))
	if n.Master != "" {
		add("part of " + n.Master)
	}
	if len(n.Lower) > 0 {
		add("over " + strings.Join(n.Lower, ", "))
	}
	if n.Tenant != nil {
		add(tenant(n.Tenant))
	}
	fmt.Fprintln(w, p.bold(n.Name)+"  "+printable(strings.Join(facts, ", ")))
	if len(n.Queues) > 0 {
		printQueues(w, n, p)
	}
	printSettings(w, n, p, width)
	for _, x := range n.Problems {
		wrap(w, width, "  "+p.yellow("! "), "    ", x)
	}
	for _, x := range n.Notes {
		wrap(w, width, "  · ", "    ", x)
	}
}

// tenant names who lives at the other end, in as many words as tell it apart.
func tenant(t *nic.Tenant) string {
	if t.Pod != "" {
		return "of pod " + t.Pod
	}
	return "of container " + t.Container[:12] // as runtimes print it
}

func printQueues(w io.Writer, n *statusNIC, p palette) {
	t := newTable("  ", ">rx", ">tx", ">NAPI", ">IRQ", "vector", "wanted", "runs on", "RPS", "XPS", "known by")
	extra := slices.ContainsFunc(n.Queues, func(q statusQueue) bool { return q.XSK || q.Thread != nil || q.Function != "" })
	if extra {
		t.head = append(t.head, "also")
	}
	for _, q := range n.Queues {
		cells := []string{cell(q.RX), cell(q.TX), cell(q.NAPI), cell(q.IRQ), q.Vector, q.Affinity, q.Effective, q.RPS, q.XPS, string(q.KnownBy)}
		if extra {
			var also []string
			if q.XSK {
				also = append(also, "AF_XDP")
			}
			if q.Thread != nil {
				also = append(also, "thread "+cell(q.Thread))
			}
			if q.Function != "" {
				also = append(also, q.Function)
			}
			cells = append(cells, strings.Join(also, ", "))
		}
		t.row(cells...)
	}
	t.print(w, p)
	if len(n.Control) > 0 {
		var names []string
		for _, v := range n.Control {
			names = append(names, fmt.Sprintf("%s (%d)", v.Name, v.IRQ))
		}
		fmt.Fprintln(w, "  no queue: "+printable(strings.Join(names, ", ")))
	}
}

// settingLines are what status says of a device's settings, in this order.
var settingLines = []struct {
	label string
	knob  knob.Kind
	text  func(n *statusNIC, v knob.Value) string
}{
	{"channels", knob.Channels, func(n *statusNIC, v knob.Value) string { return ofMax(v, n.Settings[knob.ChannelsMax]) }},
	{"rings", knob.Rings, func(n *statusNIC, v knob.Value) string { return ofMax(v, n.Settings[knob.RingsMax]) }},
	{"RSS table", knob.RSSTable, func(n *statusNIC, v knob.Value) string { return tableText(n.Table) }},
	{"RSS hash", knob.RSSFunction, func(n *statusNIC, v knob.Value) string { return v.String() }},
	{"hash of", knob.RSSHashFields, nil}, // per flow type, below
	{"coalesce", knob.Coalesce, func(n *statusNIC, v knob.Value) string { return nonZero(v) }},
	{"offloads", knob.Features, func(n *statusNIC, v knob.Value) string { return offloads(v, n.Settings[knob.FeaturesFixed]) }},
	{"pause", knob.Pause, func(n *statusNIC, v knob.Value) string { return v.String() }},
	{"RFS", knob.RPSFlowCnt, nil}, // per queue, below
	{"NAPI", knob.Threaded, napiText},
}

// napiText is the device's settings of its NAPI instances.
func napiText(n *statusNIC, threaded knob.Value) string {
	text := "polled in softirq"
	switch threaded.String() {
	case "1":
		text = "polled by threads"
	case "2":
		text = "polled by busy-polling threads"
	}
	if v := n.Settings[knob.DeferHardIRQs]; v.Known() {
		text += ", defers interrupts for " + v.String() + " empty polls"
	}
	if v := n.Settings[knob.GROFlushTimeout]; v.Known() {
		text += ", flushes GRO after " + v.String() + " ns"
	}
	return text
}

const labelWidth = 12

func printSettings(w io.Writer, n *statusNIC, p palette, width int) {
	indent := strings.Repeat(" ", 2+labelWidth)
	line := func(label, text string) {
		wrap(w, width, "  "+p.dim(fmt.Sprintf("%-*s", labelWidth, label)), indent, text)
	}
	type gap struct{ label, reason string }
	missing := map[gap][]string{} // → settings
	var gaps []gap
	for _, l := range settingLines {
		if l.text == nil {
			if text := partText(n, l.knob); text != "" {
				line(l.label, text)
			}
			continue
		}
		v, ok := n.Settings[l.knob]
		switch {
		case !ok:
		case v.Known():
			line(l.label, l.text(n, v))
		default:
			g := gap{"not read", v.Reason()}
			if v.IsAbsent() {
				g.label = "not here"
			}
			if missing[g] == nil {
				gaps = append(gaps, g)
			}
			missing[g] = append(missing[g], l.label)
		}
	}
	for _, g := range gaps {
		line(g.label, strings.Join(missing[g], ", ")+": "+g.reason)
	}
}

// partText joins one knob of all parts ("udp4 sd, tcp4 sdfn"), equal values of numbered parts
// once ("rx-0…rx-3 4096").
func partText(n *statusNIC, k knob.Kind) string {
	values := map[string][]string{}
	var order []string
	for _, part := range sortedParts(n.Parts) {
		v, ok := n.Parts[part][k]
		if !ok || !v.Known() || v.String() == "" || k == knob.RPSFlowCnt && v.String() == "0" {
			continue
		}
		if values[v.String()] == nil {
			order = append(order, v.String())
		}
		values[v.String()] = append(values[v.String()], part)
	}
	var out []string
	for _, v := range order {
		parts := values[v]
		if k == knob.RPSFlowCnt && len(parts) > 2 {
			parts = []string{parts[0] + " … " + parts[len(parts)-1]}
		}
		out = append(out, strings.Join(parts, " ")+": "+v)
	}
	return strings.Join(out, "; ")
}

func sortedParts[V any](m map[string]V) []string {
	parts := make([]string, 0, len(m))
	for p := range m {
		parts = append(parts, p)
	}
	slices.SortFunc(parts, compareNatural)
	return parts
}

// compareNatural orders rx-2 before rx-10: shorter numbers first where the text before is the same.
func compareNatural(a, b string) int {
	pa, na := splitNumber(a)
	pb, nb := splitNumber(b)
	if pa != pb {
		return strings.Compare(pa, pb)
	}
	return na - nb
}

func splitNumber(s string) (string, int) {
	head := strings.TrimRight(s, "0123456789")
	n, err := strconv.Atoi(s[len(head):])
	if err != nil {
		return s, 0
	}
	return head, n
}

func group(v knob.Value) map[string]any {
	var m map[string]any
	if err := v.Decode(&m); err != nil {
		return nil
	}
	return m
}

// ofMax shows "rx 256 of 4096, tx 256 of 4096"; what the device has none of is left out.
func ofMax(v, limit knob.Value) string {
	now, most := group(v), group(limit)
	var out []string
	for _, k := range sortedParts(now) {
		if now[k] == false {
			continue
		}
		text := fmt.Sprintf("%s %v", k, now[k])
		if m, ok := most[k]; ok {
			if fmt.Sprint(m) == "0" && fmt.Sprint(now[k]) == "0" {
				continue
			}
			text += fmt.Sprintf(" of %v", m)
		} else if fmt.Sprint(now[k]) == "0" {
			continue
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func nonZero(v knob.Value) string {
	m := group(v)
	var out []string
	for _, k := range sortedParts(m) {
		if t := fmt.Sprint(m[k]); t != "0" && t != "false" {
			out = append(out, k+" "+t)
		}
	}
	if len(out) == 0 {
		return "all 0"
	}
	return strings.Join(out, ", ")
}

// shownOffloads are the features that decide how packets are received and spread.
var shownOffloads = []string{"rx-gro", "rx-gro-hw", "rx-gro-list", "rx-udp-gro-forwarding", "rx-lro", "rx-hashing", "rx-ntuple-filter", "rx-checksum", "tx-tcp-segmentation", "tx-udp-segmentation", "tx-generic-segmentation"}

func offloads(v, fixed knob.Value) string {
	m, f := group(v), group(fixed)
	var on, off []string
	for _, name := range shownOffloads {
		state, ok := m[name]
		if !ok {
			if state, ok = f[name]; !ok {
				continue
			}
		}
		if state == true {
			on = append(on, name)
		} else {
			off = append(off, name)
		}
	}
	var out []string
	if len(on) > 0 {
		out = append(out, "on "+strings.Join(on, " "))
	}
	if len(off) > 0 {
		out = append(out, "off "+strings.Join(off, " "))
	}
	return strings.Join(out, "; ")
}

// tableText says how many entries of the indirection table each queue has.
func tableText(table []int) string {
	count := map[int]int{}
	for _, q := range table {
		count[q]++
	}
	queues := make([]int, 0, len(count))
	for q := range count {
		queues = append(queues, q)
	}
	slices.Sort(queues)
	var parts []string
	for i := 0; i < len(queues); {
		j := i
		for j+1 < len(queues) && queues[j+1] == queues[j]+1 && count[queues[j+1]] == count[queues[i]] {
			j++
		}
		name := strconv.Itoa(queues[i])
		if j > i {
			name += "-" + strconv.Itoa(queues[j])
		}
		parts = append(parts, fmt.Sprintf("%s: %d", name, count[queues[i]]))
		i = j + 1
	}
	return fmt.Sprintf("%s; entries per queue %s", plural(len(table), "entry"), strings.Join(parts, ", "))
}

func speed(mbit int) string {
	if mbit >= 1000 {
		return strconv.FormatFloat(float64(mbit)/1000, 'g', -1, 64) + " Gbit/s"
	}
	return strconv.Itoa(mbit) + " Mbit/s"
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	if head, ok := strings.CutSuffix(word, "y"); ok {
		return fmt.Sprintf("%d %sies", n, head)
	}
	return fmt.Sprintf("%d %ss", n, word)
}
