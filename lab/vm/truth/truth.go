// Package truth holds `rxsteer status -o json` of a lab guest against what ethtool(8), /proc
// and /sys say of the same NIC at the same moment. It shares no parser with rxsteer.
package truth

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed guest.sh
var script string

// Tests are what a guest runs before it is compared.
type Tests struct {
	Knobs   bool   // the tests of every knob
	Scripts string // the fake host's scripts for this NIC, "" none
}

// Script is what a guest runs for Compare: the tests, then it sets what the NIC lets it set away
// from the defaults and leaves the texts of both sides in /share.
func Script(t Tests) string {
	return fmt.Sprintf("export KNOBS=%v RXSTEER_NIC=%s\n%s", t.Knobs, t.Scripts, script)
}

// TestFailures returns, for each test program that failed in the guest, the end of its log.
func TestFailures(files map[string][]byte) []string {
	var out []string
	for _, name := range []string{"knobs", "scripts"} {
		rc, ok := files[name+".rc"]
		if ok && strings.TrimSpace(string(rc)) != "0" {
			lines := strings.Split(strings.TrimSpace(string(files[name+".log"])), "\n")
			out = append(out, name+" on the driver: "+strings.Join(lines[max(0, len(lines)-12):], "\n    "))
		}
	}
	return out
}

// Written is the kinds of settings that the knobs' test wrote, read back and undid on the driver, sorted.
func Written(files map[string][]byte) []string {
	_, rest, _ := strings.Cut(string(files["knobs.log"]), "written and undone: map[")
	list, _, _ := strings.Cut(rest, "]")
	var out []string
	for _, w := range strings.Fields(list) {
		kind, _, _ := strings.Cut(w, ":")
		out = append(out, kind)
	}
	slices.Sort(out)
	return out
}

// Driver is the driver of eth0, by ethtool -i.
func Driver(files map[string][]byte) string {
	for line := range strings.Lines(string(files["ethtool-i"])) {
		if d, ok := strings.CutPrefix(line, "driver:"); ok {
			return strings.TrimSpace(d)
		}
	}
	return ""
}

// status is the part of rxsteer's document that is compared.
type status struct {
	NICs []struct {
		Name    string                                `json:"name"`
		Driver  string                                `json:"driver"`
		Bus     string                                `json:"bus"`
		Node    *int                                  `json:"node"`
		MTU     int                                   `json:"mtu"`
		Queues  []queue                               `json:"queues"`
		Control []vector                              `json:"control"`
		Table   []int                                 `json:"table"`
		Set     map[string]json.RawMessage            `json:"settings"`
		Parts   map[string]map[string]json.RawMessage `json:"parts"`
	} `json:"nics"`
}

type queue struct {
	RX        *int   `json:"rx"`
	TX        *int   `json:"tx"`
	IRQ       *int   `json:"irq"`
	Vector    string `json:"vector"`
	Affinity  string `json:"affinity"`
	Effective string `json:"effective"`
	RPS       string `json:"rps"`
	XPS       string `json:"xps"`
}

type vector struct {
	IRQ  int    `json:"irq"`
	Name string `json:"name"`
}

// comparison collects what was compared and what differs.
type comparison struct {
	files   map[string][]byte
	checked int
	diffs   []string
}

// equal compares one thing; truth first.
func (c *comparison) equal(what string, truth, got any) {
	c.checked++
	if t, g := fmt.Sprint(truth), fmt.Sprint(got); t != g {
		c.diffs = append(c.diffs, fmt.Sprintf("%s: it is %s, status says %s", what, t, g))
	}
}

func (c *comparison) text(name string) string { return string(c.files[name]) }

// Compare returns how many things were compared and each difference. files are those that
// Script left.
func Compare(files map[string][]byte) (checked int, diffs []string, err error) {
	var s status
	if err := json.Unmarshal(files["status.json"], &s); err != nil {
		return 0, nil, fmt.Errorf("read status: %w: %s", err, files["status.err"])
	}
	if len(s.NICs) != 1 {
		return 0, nil, fmt.Errorf("read status: %d NICs, want eth0", len(s.NICs))
	}
	n := s.NICs[0]
	c := &comparison{files: files}
	c.equal("name", "eth0", n.Name)
	driver := colonFields(c.text("ethtool-i"))
	c.equal("driver", driver["driver"], n.Driver)
	bus := driver["bus-info"]
	c.equal("bus", bus, n.Bus)
	c.equal("mtu", strings.TrimSpace(c.text("mtu")), n.MTU)
	node := "-1"
	if n.Node != nil {
		node = strconv.Itoa(*n.Node)
	}
	c.equal("node", strings.TrimSpace(c.text("node")), node)

	max, now := sections(c.text("ethtool-l"))
	c.group("channels", now, n.Set["channels"], map[string]string{"RX": "rx", "TX": "tx", "Other": "other", "Combined": "combined"})
	c.group("channels-max", max, n.Set["channels-max"], map[string]string{"RX": "rx", "TX": "tx", "Other": "other", "Combined": "combined"})
	max, now = sections(c.text("ethtool-g"))
	c.group("rings", now, n.Set["rings"], map[string]string{"RX": "rx", "TX": "tx", "RX Mini": "rx-mini", "RX Jumbo": "rx-jumbo"})
	c.group("rings-max", max, n.Set["rings-max"], map[string]string{"RX": "rx", "TX": "tx", "RX Mini": "rx-mini", "RX Jumbo": "rx-jumbo"})
	coalesce := colonFields(c.text("ethtool-c"))
	same := map[string]string{}
	for k := range coalesce {
		if strings.HasPrefix(k, "rx-") || strings.HasPrefix(k, "tx-") {
			same[k] = strings.Replace(k, "-frame-", "-frames-", 1)
		}
	}
	c.group("coalesce", coalesce, n.Set["coalesce"], same)
	c.table(n.Table, n.Set["rss-key"])
	for _, flow := range []string{"udp4", "tcp4", "udp6", "tcp6"} {
		c.equal("hash fields of "+flow, hashFields(c.text("ethtool-n-"+flow)), textOf(n.Parts[flow]["rss-hash-fields"]))
	}
	c.features(n.Set["features"], n.Set["features-fixed"])
	c.queues(n.Queues, n.Control)
	return c.checked, c.diffs, nil
}

// colonFields reads "name: value" lines.
func colonFields(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			out[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	return out
}

// sections parts `ethtool -l` and `-g` into maxima and current settings.
func sections(text string) (max, now map[string]string) {
	m, n, _ := strings.Cut(text, "Current hardware settings:")
	return colonFields(m), colonFields(n)
}

// group compares a group of numbers; "n/a" of ethtool is absence here. ethtool also prints
// n/a or 0 for what the driver does not fill in; rxsteer leaves it out.
func (c *comparison) group(what string, truth map[string]string, raw json.RawMessage, names map[string]string) {
	var got map[string]any
	if json.Unmarshal(raw, &got) != nil {
		got = map[string]any{}
	}
	for printed, ours := range names {
		want := truth[printed]
		v, ok := got[ours]
		if want == "n/a" || want == "" || want == "0" && !ok {
			want = ""
		}
		have := ""
		if ok {
			have = fmt.Sprint(v)
		}
		if want == "" && have == "" {
			continue
		}
		c.equal(what+" "+ours, want, have)
	}
}

var (
	tableLine = regexp.MustCompile(`(?m)^ *[0-9]+:((?: +[0-9]+)+)$`)
	keyLine   = regexp.MustCompile(`(?m)^[0-9a-f]{2}(:[0-9a-f]{2}){15,}$`)
)

func (c *comparison) table(got []int, key json.RawMessage) {
	text := c.text("ethtool-x")
	var want []int
	for _, m := range tableLine.FindAllStringSubmatch(text, -1) {
		for f := range strings.FieldsSeq(m[1]) {
			n, err := strconv.Atoi(f)
			if err != nil {
				c.diffs = append(c.diffs, "read ethtool -x: "+err.Error())
				return
			}
			want = append(want, n)
		}
	}
	c.equal("table", want, got)
	have := textOf(key)
	if strings.HasPrefix(have, "{") {
		have = "" // absent or unknown
	}
	c.equal("key", keyLine.FindString(text), have)
}

// hashFields turns `ethtool -n DEV rx-flow-hash TYPE` into ethtool -N's letters.
func hashFields(text string) string {
	var b strings.Builder
	for _, f := range []struct{ letter, text string }{
		{"m", "L2DA"}, {"v", "VLAN tag"}, {"t", "L3 proto"}, {"s", "IP SA"}, {"d", "IP DA"},
		{"f", "L4 bytes 0 & 1"}, {"n", "L4 bytes 2 & 3"},
	} {
		if strings.Contains(text, "\n"+f.text) {
			b.WriteString(f.letter)
		}
	}
	return b.String()
}

// textOf is a JSON string's text, "" for what is absent, else the JSON.
func textOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var o map[string]string
	if json.Unmarshal(raw, &o) == nil && o["absent"] != "" {
		return ""
	}
	return string(raw)
}

// legacy names that ethtool prints for features of another name in the kernel
// (ethtool's common.c, off_flag_def), and groups, which stand for several.
var (
	legacy = map[string]string{
		"rx-checksumming": "rx-checksum", "generic-segmentation-offload": "tx-generic-segmentation",
		"generic-receive-offload": "rx-gro", "large-receive-offload": "rx-lro", "rx-vlan-offload": "rx-vlan-hw-parse",
		"tx-vlan-offload": "tx-vlan-hw-insert", "ntuple-filters": "rx-ntuple-filter", "receive-hashing": "rx-hashing",
	}
	groups = []string{"tx-checksumming", "scatter-gather", "tcp-segmentation-offload", "udp-fragmentation-offload"}
)

func (c *comparison) features(changeable, fixed json.RawMessage) {
	got := map[string]string{}
	for suffix, raw := range map[string]json.RawMessage{"": changeable, " [fixed]": fixed} {
		var m map[string]bool
		if json.Unmarshal(raw, &m) != nil {
			c.diffs = append(c.diffs, "features: status has none")
			return
		}
		for k, v := range m {
			got[k] = map[bool]string{true: "on", false: "off"}[v] + suffix
		}
	}
	for name, value := range colonFields(c.text("ethtool-k")) {
		if name == "Features for eth0" || slices.Contains(groups, name) {
			continue
		}
		if k, ok := legacy[name]; ok {
			name = k
		}
		value = strings.Replace(value, " [requested on]", "", 1)
		value = strings.Replace(value, " [requested off]", "", 1)
		c.equal("feature "+name, value, got[name])
	}
}

// A queue's vector by the driver's own naming, which the test does not take from rxsteer:
// igb eth0-rx-N, eth0-tx-N or eth0-TxRx-N; virtio virtioK-input.N and -output.N; vmxnet3
// eth0-rxtx-N; e1000e eth0-rx-0 and eth0-tx-0, or eth0 alone.
var (
	rxVector = regexp.MustCompile(`^(?:eth0-(?:rx|TxRx|rxtx)-|virtio[0-9]+-input\.)([0-9]+)$`)
	txVector = regexp.MustCompile(`^(?:eth0-(?:tx|TxRx|rxtx)-|virtio[0-9]+-output\.)([0-9]+)$`)
	mine     = regexp.MustCompile(`^eth0($|-)|^virtio`)
)

// queues compares each queue: its vector, the vector's CPUs, RPS and XPS; and that
// every other vector of the device is a control vector.
func (c *comparison) queues(queues []queue, control []vector) {
	irqs := map[int][3]string{} // irq → action, wanted, effective
	for line := range strings.Lines(c.text("irqs")) {
		f := strings.Fields(line)
		n, err := strconv.Atoi(f[0])
		if err != nil || len(f) != 4 {
			c.diffs = append(c.diffs, "read irqs: "+line)
			return
		}
		irqs[n] = [3]string{f[1], f[2], f[3]}
	}
	rx, tx := map[int]int{}, map[int]int{} // queue → irq
	other := map[int]string{}
	for irq, v := range irqs {
		if !mine.MatchString(v[0]) {
			continue
		}
		r, t := rxVector.FindStringSubmatch(v[0]), txVector.FindStringSubmatch(v[0])
		switch {
		case r == nil && t == nil:
			other[irq] = v[0]
		default:
			if r != nil {
				rx[number(r[1])] = irq
			}
			if t != nil {
				tx[number(t[1])] = irq
			}
		}
	}
	if len(rx) == 0 && len(other) == 1 { // one vector for all
		for irq := range other {
			rx[0], tx[0] = irq, irq
		}
		other = nil
	}
	for _, side := range []struct {
		name string
		irq  map[int]int
		of   func(queue) *int
		file string
		mask func(queue) string
	}{
		{"rx", rx, func(q queue) *int { return q.RX }, "rps", func(q queue) string { return q.RPS }},
		{"tx", tx, func(q queue) *int { return q.TX }, "xps", func(q queue) string { return q.XPS }},
	} {
		masks := map[int]string{}
		for line := range strings.Lines(c.text(side.file)) {
			f := strings.Fields(line)
			mask := ""
			if len(f) > 1 {
				mask = listOf(f[1])
			}
			masks[number(f[0])] = mask
		}
		seen := 0
		for _, q := range queues {
			i := side.of(q)
			if i == nil {
				continue
			}
			seen++
			what := fmt.Sprintf("%s-%d", side.name, *i)
			irq, ok := side.irq[*i]
			if !ok || q.IRQ == nil {
				c.diffs = append(c.diffs, fmt.Sprintf("%s: vector known to the test: %v, to status: %v", what, ok, q.IRQ != nil))
				continue
			}
			c.equal(what+" irq", irq, *q.IRQ)
			c.equal(what+" vector", irqs[irq][0], q.Vector)
			c.equal(what+" affinity", irqs[irq][1], q.Affinity)
			c.equal(what+" effective affinity", irqs[irq][2], q.Effective)
			c.equal(what+" "+side.file, masks[*i], side.mask(q))
		}
		c.equal("number of "+side.name+" queues", len(masks), seen)
	}
	got := map[int]string{}
	for _, v := range control {
		got[v.IRQ] = v.Name
	}
	if other == nil {
		other = map[int]string{}
	}
	c.equal("control vectors", other, got)
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return -1
	}
	return n
}

// listOf turns a sysfs mask of at most 64 CPUs ("f", "00000000,0000000c") into list text.
func listOf(mask string) string {
	v, err := strconv.ParseUint(strings.ReplaceAll(mask, ",", ""), 16, 64)
	if err != nil {
		return "mask " + mask
	}
	var parts []string
	for i := 0; i < 64; i++ {
		if v>>i&1 == 0 {
			continue
		}
		j := i
		for j < 63 && v>>(j+1)&1 == 1 {
			j++
		}
		if i == j {
			parts = append(parts, strconv.Itoa(i))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", i, j))
		}
		i = j
	}
	return strings.Join(parts, ",")
}
