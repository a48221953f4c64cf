package procfs

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/cpuset"
)

func TestParseInterruptsRowShapes(t *testing.T) {
	tests := []struct {
		name string
		row  string
		want Interrupt
	}{
		{"x86 with hwirq", " 41:   7   3   PCI-MSI 524289-edge      eth0-TxRx-0",
			Interrupt{IRQ: 41, Counts: []uint64{7, 3}, Chip: "PCI-MSI", HWIRQ: "524289", Trigger: "edge", Actions: []string{"eth0-TxRx-0"}}},
		{"x86 per-device domain", "41: 7 3 IR-PCI-MSIX-0000:3b:00.1    2-edge      ice-ens2f1-TxRx-1",
			Interrupt{IRQ: 41, Counts: []uint64{7, 3}, Chip: "IR-PCI-MSIX-0000:3b:00.1", HWIRQ: "2", Trigger: "edge", Actions: []string{"ice-ens2f1-TxRx-1"}}},
		{"x86 before hwirq", " 16:   7   3   IO-APIC-fasteoi   uhci_hcd:usb3, eth1",
			Interrupt{IRQ: 16, Counts: []uint64{7, 3}, Chip: "IO-APIC", Trigger: "fasteoi", Actions: []string{"uhci_hcd:usb3", "eth1"}}},
		{"x86 free interrupt", "  7:   7   3  IR-IO-APIC-edge    ",
			Interrupt{IRQ: 7, Counts: []uint64{7, 3}, Chip: "IR-IO-APIC", Trigger: "edge"}},
		{"chip with blanks, hwirq above 32 bits", " 26:   7   3  Hyper-V PCIe MSI 4138200989699-edge      mana_q1@pci:7870:00:00.0",
			Interrupt{IRQ: 26, Counts: []uint64{7, 3}, Chip: "Hyper-V PCIe MSI", HWIRQ: "4138200989699", Trigger: "edge", Actions: []string{"mana_q1@pci:7870:00:00.0"}}},
		{"xen joined", "100:   7   3   xen-dyn-event     vif0-q0-tx",
			Interrupt{IRQ: 100, Counts: []uint64{7, 3}, Chip: "xen-dyn", Trigger: "event", Actions: []string{"vif0-q0-tx"}}},
		{"xen split", "100:   7   3   xen-pirq    -msi-x     eth0-Tx-Rx-3",
			Interrupt{IRQ: 100, Counts: []uint64{7, 3}, Chip: "xen-pirq", Trigger: "msi-x", Actions: []string{"eth0-Tx-Rx-3"}}},
		{"xen joined msi-x", "100:   7   3   xen-pirq-msi-x     eth0-Tx-Rx-3",
			Interrupt{IRQ: 100, Counts: []uint64{7, 3}, Chip: "xen-pirq", Trigger: "msi-x", Actions: []string{"eth0-Tx-Rx-3"}}},
		{"chip that ends like a flow", " 48:   7   3   brcm-msi 3 Edge      eth0",
			Interrupt{IRQ: 48, Counts: []uint64{7, 3}, Chip: "brcm-msi", HWIRQ: "3", Trigger: "Edge", Actions: []string{"eth0"}}},
		{"arm level", " 48:   7   3     GICv2 189 Level     VCHIQ doorbell",
			Interrupt{IRQ: 48, Counts: []uint64{7, 3}, Chip: "GICv2", HWIRQ: "189", Trigger: "Level", Actions: []string{"VCHIQ doorbell"}}},
		{"arm level and flow name", " 48:   7   3     GICv2 189 Level   -fasteoi   eth0",
			Interrupt{IRQ: 48, Counts: []uint64{7, 3}, Chip: "GICv2", HWIRQ: "189", Trigger: "Level-fasteoi", Actions: []string{"eth0"}}},
		{"arm free interrupt", " 48:   7   3   ITS-MSI 65537 Edge    ",
			Interrupt{IRQ: 48, Counts: []uint64{7, 3}, Chip: "ITS-MSI", HWIRQ: "65537", Trigger: "Edge"}},
		{"no flow type, action begins with digits", " 37:   7   3       GIC  37  2400000.ipu",
			Interrupt{IRQ: 37, Counts: []uint64{7, 3}, Chip: "GIC", HWIRQ: "37", Actions: []string{"2400000.ipu"}}},
		{"no flow type, action of digits and words", "151:   7   3  intel-gpio  139  ELAN0001:00",
			Interrupt{IRQ: 151, Counts: []uint64{7, 3}, Chip: "intel-gpio", HWIRQ: "139", Actions: []string{"ELAN0001:00"}}},
		{"chip with blank and no flow type", " 12:   7   3  AR71XX PCI   1  ath9k",
			Interrupt{IRQ: 12, Counts: []uint64{7, 3}, Chip: "AR71XX PCI", HWIRQ: "1", Actions: []string{"ath9k"}}},
		{"chip with blank and joined flow", " 73:   7   3     DB1200 CPLD-level     eth0",
			Interrupt{IRQ: 73, Counts: []uint64{7, 3}, Chip: "DB1200 CPLD", Trigger: "level", Actions: []string{"eth0"}}},
		{"flow of mips", " 73:   7   3     Alchemy-IC0-riseedge  timer",
			Interrupt{IRQ: 73, Counts: []uint64{7, 3}, Chip: "Alchemy-IC0", Trigger: "riseedge", Actions: []string{"timer"}}},
		{"chip and action only", "  5:   7   3            MIPS  timer 0",
			Interrupt{IRQ: 5, Counts: []uint64{7, 3}, Chip: "MIPS", Actions: []string{"timer 0"}}},
		{"blank chip and action only", "  5:   7   3            AR71XX MISC  ohci 1",
			Interrupt{IRQ: 5, Counts: []uint64{7, 3}, Chip: "AR71XX MISC", Actions: []string{"ohci 1"}}},
		{"no chip at all", "  5:   7   3     None   ",
			Interrupt{IRQ: 5, Counts: []uint64{7, 3}, Chip: "None"}},
		{"long chip next to the counts", " 29:          0          7  rockchip_gpio_irq  24 Level     rk805",
			Interrupt{IRQ: 29, Counts: []uint64{0, 7}, Chip: "rockchip_gpio_irq", HWIRQ: "24", Trigger: "Level", Actions: []string{"rk805"}}},
		{"action with blank and parentheses", " 57:   7   3   PCI-MSI-edge      eth2 (queue 17)",
			Interrupt{IRQ: 57, Counts: []uint64{7, 3}, Chip: "PCI-MSI", Trigger: "edge", Actions: []string{"eth2 (queue 17)"}}},
		{"action with double blanks", " 57:   7   3   PCI-MSI-edge      a  b",
			Interrupt{IRQ: 57, Counts: []uint64{7, 3}, Chip: "PCI-MSI", Trigger: "edge", Actions: []string{"a  b"}}},
		{"collapsed blanks", "210: 7 3 xen-pirq -msi-x ena-mgmnt@pci:0000:00:03.0",
			Interrupt{IRQ: 210, Counts: []uint64{7, 3}, Chip: "xen-pirq", Trigger: "msi-x", Actions: []string{"ena-mgmnt@pci:0000:00:03.0"}}},
		{"counts wider than the column", "30:18446744073709551 12345678901234   PCI-MSI-edge      eth0",
			Interrupt{IRQ: 30, Counts: []uint64{18446744073709551, 12345678901234}, Chip: "PCI-MSI", Trigger: "edge", Actions: []string{"eth0"}}},
		{"architecture row", "NMI:   7   3   Non-maskable interrupts",
			Interrupt{IRQ: None, Label: "NMI", Counts: []uint64{7, 3}, Text: "Non-maskable interrupts"}},
		{"glued counter", "IPI0:2768808081 2844211768       Rescheduling interrupts",
			Interrupt{IRQ: None, Label: "IPI0", Counts: []uint64{2768808081, 2844211768}, Text: "Rescheduling interrupts"}},
		{"label with slash, no text", "I/O:   7   3",
			Interrupt{IRQ: None, Label: "I/O", Counts: []uint64{7, 3}}},
		{"s390 class", "QAI:   7   3   [I/O] QDIO Adapter Interrupt",
			Interrupt{IRQ: None, Label: "QAI", Counts: []uint64{7, 3}, Text: "[I/O] QDIO Adapter Interrupt"}},
		{"one figure for the machine", "ERR:   9",
			Interrupt{IRQ: None, Label: "ERR", Counts: []uint64{9}}},
		{"text without counts", "FIQ:              fiq_glue",
			Interrupt{IRQ: None, Label: "FIQ", Counts: []uint64{}, Text: "fiq_glue"}},
		{"not UTF-8", " 57:   7   3   PCI-MSI-edge      eth\xff-rx-0",
			Interrupt{IRQ: 57, Counts: []uint64{7, 3}, Chip: "PCI-MSI", Trigger: "edge", Actions: []string{"eth\xff-rx-0"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseInterrupts("interrupts", []byte("           CPU0       CPU1       \n"+tt.row+"\r\n"))
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Problems) > 0 {
				t.Errorf("problems: %v", got.Problems)
			}
			tt.want.Line = 2
			if d := cmp.Diff([]Interrupt{tt.want}, got.Rows); d != "" {
				t.Errorf("rows (-want +got):\n%s", d)
			}
		})
	}
}

func TestParseInterruptsColumnsAreOnlineCPUs(t *testing.T) {
	got, err := ParseInterrupts("interrupts", []byte("   CPU0   CPU2   CPU70   CPU300\n 9:  1 2 3 4  IO-APIC-edge  x\n\nERR: 0\n"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{0, 2, 70, 300}, got.CPUs); d != "" {
		t.Errorf("CPUs (-want +got):\n%s", d)
	}
	if total := got.Rows[0].Total(); total != 10 {
		t.Errorf("Total = %d, want 10", total)
	}
	if a, b := got.Rows[0].Name(), got.Rows[1].Name(); a != "9" || b != "ERR" {
		t.Errorf("names = %q, %q, want 9, ERR", a, b)
	}
}

func TestParseInterruptsNamesWhatItCannotRead(t *testing.T) {
	const head = "   CPU0   CPU1\n"
	tests := []struct {
		name, text string
		problems   []string
		rows       int
		err        string
	}{
		{"empty", "", nil, 0, "parse f: empty"},
		{"blank", "\n \n", nil, 0, "parse f: empty"},
		{"prose", "hello\n", nil, 0, "parse f:1: no header line of CPU columns"},
		{"binary", "\x00\xff\x00\n", nil, 0, "parse f:1: no header line of CPU columns"},
		{"strange header", "CPU0 CPUx\n", nil, 0, "parse f:1: header holds something other than CPU columns"},
		{"huge CPU", "CPU0 CPU4294967295\n", nil, 0, "parse f:1: CPU number too large in the header"},
		{"unordered header", "CPU1 CPU0\n", nil, 0, "parse f:1: CPU columns are not in ascending order"},
		{"no header", "9: 1 2 PCI-MSI-edge eth0\n10: 3 4 PCI-MSI-edge eth1\n", []string{"parse f:1: no header line: CPUs 0-1 assumed"}, 2, ""},
		{"cut in the counts", head + "9: 1 2 PCI-MSI-edge eth0\n10: 3", []string{"parse f:3: 1 counts, the header has 2 CPUs"}, 2, ""},
		{"cut after the counts", head + "9: 1 2 PCI-MSI-edge eth0\n10: 3 4", []string{"parse f:3: cut off after the counts"}, 2, ""},
		{"a CPU came online between the rows", head + "9: 1 2 3 PCI-MSI 7-edge eth0\n", []string{"parse f:2: more counts than the 2 CPUs of the header"}, 1, ""},
		{"no label", head + "garbage\n", []string{"parse f:2: row without a label"}, 0, ""},
		{"overflow", head + "9: 1 99999999999999999999999 PCI-MSI-edge eth0\n", []string{"parse f:2: a count does not fit 64 bits"}, 1, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseInterrupts("f", []byte(tt.text))
			if text := fmt.Sprint(err); err != nil && text != tt.err || err == nil && tt.err != "" {
				t.Fatalf("error = %v, want %q", err, tt.err)
			}
			if err != nil {
				return
			}
			var problems []string
			for _, p := range got.Problems {
				problems = append(problems, p.Error())
			}
			if d := cmp.Diff(tt.problems, problems); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
			if len(got.Rows) != tt.rows {
				t.Errorf("%d rows, want %d", len(got.Rows), tt.rows)
			}
		})
	}
}

func TestParseInterruptsKeepsNamesOfRowsWithOddCounts(t *testing.T) {
	got, err := ParseInterrupts("f", []byte("CPU0 CPU1\n9: 1 2 3 PCI-MSI 7-edge eth0\n10: 1 PCI-MSI 8-edge eth1\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Interrupt{
		{Line: 2, IRQ: 9, Chip: "PCI-MSI", HWIRQ: "7", Trigger: "edge", Actions: []string{"eth0"}},
		{Line: 3, IRQ: 10, Chip: "PCI-MSI", HWIRQ: "8", Trigger: "edge", Actions: []string{"eth1"}},
	}
	if d := cmp.Diff(want, got.Rows); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}
}

func TestParseSoftirqs(t *testing.T) {
	got, err := ParseSoftirqs("softirqs", []byte(`                    CPU0       CPU1       CPU5
          HI:          0          1          0
      NET_RX:     917115    1150152          0
BLOCK_IOPOLL:          0          3          0
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Softirqs{CPUs: []int{0, 1, 5}, Rows: []Softirq{
		{"HI", []uint64{0, 1, 0}}, {"NET_RX", []uint64{917115, 1150152, 0}}, {"IRQ_POLL", []uint64{0, 3, 0}},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("softirqs (-want +got):\n%s", d)
	}
	if got.Row("NET_RX")[1] != 1150152 || got.Row("RCU") != nil {
		t.Errorf("Row does not find its vector")
	}
}

func TestParseSoftnet(t *testing.T) {
	const zeros = " 00000000 00000000 00000000 00000000 00000000"
	text := "00000010 00000001 00000002" + zeros + " 00000003\n" + // 9: 2.6.23
		"ffffffff 00000001 00000002" + zeros + " 00000000 00000004\n" + // 10
		"00000010 00000001 00000002" + zeros + " 00000000 00000004 00000005\n" + // 11
		"00000010 00000001 00000002" + zeros + " 00000000 00000004 00000005 00000006 00000130\n" + // 13
		"00000010 00000001 00000002" + zeros + " 00000000 00000004 00000005 00000006 00000131 00000007 00000008\n" + // 15
		"00000010 00000001 00000002" + zeros + " 00000000 00000004 00000005 00000006 00000132 00000007 00000008 00000009\n" // to come
	got, err := ParseSoftnet("softnet_stat", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []Softnet{
		{CPU: None, Columns: 9, Processed: 16, Dropped: 1, Squeezed: 2, Collision: 3},
		{CPU: None, Columns: 10, Processed: 1<<32 - 1, Dropped: 1, Squeezed: 2, ReceivedRPS: 4},
		{CPU: None, Columns: 11, Processed: 16, Dropped: 1, Squeezed: 2, ReceivedRPS: 4, FlowLimit: 5},
		{CPU: 304, Columns: 13, Processed: 16, Dropped: 1, Squeezed: 2, ReceivedRPS: 4, FlowLimit: 5, Backlog: 6},
		{CPU: 305, Columns: 15, Processed: 16, Dropped: 1, Squeezed: 2, ReceivedRPS: 4, FlowLimit: 5, Backlog: 6, InputQueue: 7, ProcessQ: 8},
		{CPU: 306, Columns: 16, Processed: 16, Dropped: 1, Squeezed: 2, ReceivedRPS: 4, FlowLimit: 5, Backlog: 6, InputQueue: 7, ProcessQ: 8},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("softnet_stat (-want +got):\n%s", d)
	}
	if AssignCPUs(got, cpuset.Range(0, 4)) {
		t.Errorf("AssignCPUs took 5 CPUs for 6 rows")
	}
	if !AssignCPUs(got, cpuset.Of(0, 2, 4, 304, 305, 306)) || got[1].CPU != 2 || got[3].CPU != 304 {
		t.Errorf("AssignCPUs gave %d, %d, want 2, 304", got[1].CPU, got[3].CPU)
	}
}

func TestParseStat(t *testing.T) {
	got, err := ParseStat("stat", []byte(`cpu  1184 0 2024 13200 0 0 0 0 0 0
cpu0 592 1 1012 6600 4 5 6 7 8 9
cpu70 1 2 3 4
intr 199292 120 3 0 0 0
ctxt 22848221062
btime 1605316999
softirq 229245889 94 60001584
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Stat{BootTime: 1605316999, CPUs: []CPUTime{
		{CPU: 0, User: 592, Nice: 1, System: 1012, Idle: 6600, IOWait: 4, IRQ: 5, SoftIRQ: 6, Steal: 7, Guest: 8, GuestNice: 9},
		{CPU: 70, User: 1, Nice: 2, System: 3, Idle: 4},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("stat (-want +got):\n%s", d)
	}
}

func TestErrorsNameFileAndLine(t *testing.T) {
	softirqs := func(s string) error { _, err := ParseSoftirqs("f", []byte(s)); return err }
	softnet := func(s string) error { _, err := ParseSoftnet("f", []byte(s)); return err }
	stat := func(s string) error { _, err := ParseStat("f", []byte(s)); return err }
	tests := []struct {
		parse      func(string) error
		text, want string
	}{
		{softirqs, "", "parse f: empty"},
		{softirqs, "HI: 1\n", "parse f:1: no header line of CPU columns"},
		{softirqs, "CPU0 CPU1\nHI: 1\n", "parse f:2: not one count for each of the 2 CPUs of the header"},
		{softirqs, "CPU0\nHI: 1 2\n", "parse f:2: not one count for each of the 1 CPUs of the header"},
		{softirqs, "CPU0\nHI 1\n", "parse f:2: row without a label"},
		{softnet, "\n", "parse f: empty"},
		{softnet, "00015c73 00020e76 F0000769 00000000\n", "parse f:1: 4 columns, at least 9 are expected"},
		{softnet, "0 0 0 0 0 0 0 0 0\n0 0 0 0 0 0 0 0 x\n", "parse f:2: column 9 is not a 32-bit hexadecimal number"},
		{softnet, "0 0 0 0 0 0 0 0 123456789\n", "parse f:1: column 9 is not a 32-bit hexadecimal number"},
		{softnet, strings.Repeat("0 ", 33), "parse f:1: more than 32 columns"},
		{softnet, "0 0 0 0 0 0 0 0 0 0 0 0 ffffffff\n", "parse f:1: CPU number 4294967295 is too large"},
		{stat, "ctxt 1\n", "parse f: no cpu lines"},
		{stat, "cpu0 1 2 3\n", "parse f:1: cpu0 has no 4 to 16 numbers"},
		{stat, "cpu0 1 2 3 4\ncpu0 1 2 3 4\n", "parse f:2: CPUs are not in ascending order"},
		{stat, "cpu99999999999 1 2 3 4\n", "parse f:1: CPU number too large"},
		{stat, "cpu0 1 2 3 x\n", "parse f:1: cpu0 has no 4 to 16 numbers"},
		{stat, "btime x\n", "parse f:1: btime is not a number"},
	}
	for _, tt := range tests {
		if err := tt.parse(tt.text); err == nil || err.Error() != tt.want {
			t.Errorf("%q: error = %v, want %s", tt.text, err, tt.want)
		}
	}
}

// table is /proc/interrupts of a host with that many CPUs and MSI-X vectors.
func table(cpus, vectors int) []byte {
	var b strings.Builder
	b.WriteString("      ")
	for c := range cpus {
		fmt.Fprintf(&b, "CPU%-8d", c)
	}
	b.WriteByte('\n')
	for v := range vectors {
		fmt.Fprintf(&b, "%4d:", 30+v)
		for c := range cpus {
			n := 0
			if c == v%cpus {
				n = 4000000000 + v
			}
			fmt.Fprintf(&b, "%10d ", n)
		}
		fmt.Fprintf(&b, " IR-PCI-MSIX-0000:%02x:00.0 %4d-edge      eth%d-TxRx-%d\n", v/64, v%64+1, v/64, v%64)
	}
	return []byte(b.String())
}

func TestParseInterruptsAllocatesLittle(t *testing.T) {
	const cpus, rows = 512, 256
	text := table(cpus, rows)
	allocs := testing.AllocsPerRun(3, func() {
		if _, err := ParseInterrupts("f", text); err != nil {
			t.Fatal(err)
		}
	})
	if perRow := allocs / rows; perRow >= 4 {
		t.Errorf("%.1f allocations per row, want < 4", perRow)
	}
}

func TestParseInterruptsBoundsItsRows(t *testing.T) {
	got, err := ParseInterrupts("f", []byte("CPU0\n"+strings.Repeat("1:1 x\n", maxRows+5)))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != maxRows || len(got.Problems) != 1 || got.Problems[0].Error() != "parse f:65538: more than 65536 rows, the rest is left out" {
		t.Errorf("%d rows, problems %v", len(got.Rows), got.Problems)
	}
}

func TestParseInterruptsBoundsItsMemory(t *testing.T) {
	// Every row claims all 65536 CPUs of the header and holds almost none.
	var b strings.Builder
	for c := range cpuset.Limit {
		fmt.Fprintf(&b, "CPU%d ", c)
	}
	for range 50000 {
		b.WriteString("\n1:1 2 x")
	}
	text := []byte(b.String())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := ParseInterrupts("f", text); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(64*len(text)); got > limit {
		t.Errorf("%d bytes allocated for %d of text, limit %d", got, len(text), limit)
	}
}

func BenchmarkParseInterrupts(b *testing.B) {
	text := table(512, 1024)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseInterrupts("interrupts", text); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(table(3, 2))
	f.Add([]byte("           CPU0       CPU2\n  7:   17   0  IR-IO-APIC-edge    \n 48:   1  2  GICv2 189 Level     a, b\nIPI0:2768808080 1 x\nERR: 0\n"))
	f.Add([]byte("9: 1 2 xen-dyn    -event     vif0-q0-tx"))
	f.Add([]byte("00015c73 00020e76 F0000769 00000000 0 0 0 0 0 0 0 0 1 2 3\n"))
	f.Add([]byte("cpu0 592 1 1012 6600 4 5 6 7 8 9\nbtime 12\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, err := ParseInterrupts("f", text); err == nil {
			for _, r := range got.Rows {
				if len(r.Counts) > len(got.CPUs) {
					t.Errorf("line %d: %d counts for %d CPUs", r.Line, len(r.Counts), len(got.CPUs))
				}
				if (r.IRQ == None) == (r.Label == "") {
					t.Errorf("line %d: IRQ %d and label %q", r.Line, r.IRQ, r.Label)
				}
			}
		}
		if got, err := ParseSoftirqs("f", text); err == nil {
			for _, r := range got.Rows {
				if len(r.Counts) != len(got.CPUs) {
					t.Errorf("%s: %d counts for %d CPUs", r.Name, len(r.Counts), len(got.CPUs))
				}
			}
		}
		if got, err := ParseSoftnet("f", text); err == nil {
			for _, r := range got {
				if r.Columns < 9 || (r.CPU == None) != (r.Columns < 13) {
					t.Errorf("CPU %d of %d columns", r.CPU, r.Columns)
				}
			}
		}
		if _, err := ParseStat("f", text); err != nil && !strings.HasPrefix(err.Error(), "parse f") {
			t.Errorf("error without a file name: %v", err)
		}
	})
}
