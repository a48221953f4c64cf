package truth

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// guest is what a small igb guest leaves, in the shapes of ethtool 6.1.
func guest() map[string][]byte {
	out := map[string][]byte{}
	for name, text := range map[string]string{
		"ethtool-i":      "driver: igb\nversion: 6.12.1\nbus-info: 0000:01:00.0\n",
		"mtu":            "1500\n",
		"node":           "1\n",
		"ethtool-l":      "Channel parameters for eth0:\nPre-set maximums:\nRX:\t\tn/a\nTX:\t\tn/a\nOther:\t\t1\nCombined:\t8\nCurrent hardware settings:\nRX:\t\tn/a\nTX:\t\tn/a\nOther:\t\t1\nCombined:\t2\n",
		"ethtool-g":      "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t4096\nRX Mini:\tn/a\nTX:\t\t4096\nCurrent hardware settings:\nRX:\t\t512\nRX Mini:\tn/a\nTX:\t\t256\n",
		"ethtool-c":      "Coalesce parameters for eth0:\nAdaptive RX: n/a  TX: n/a\n\nrx-usecs: 55\nrx-frames: n/a\ntx-usecs: 3\n",
		"ethtool-x":      "RX flow hash indirection table for eth0 with 2 RX ring(s):\n    0:      0     1     1     0\nRSS hash key:\nOperation not supported\n",
		"ethtool-k":      "Features for eth0:\nrx-checksumming: on\ntx-checksumming: on\n\ttx-checksum-ipv4: off [fixed]\ngeneric-receive-offload: off\nlarge-receive-offload: off [fixed]\n",
		"ethtool-n-udp4": "UDP over IPV4 flows use these fields for computing Hash flow key:\nIP SA\nIP DA\nL4 bytes 0 & 1 [TCP/UDP src port]\nL4 bytes 2 & 3 [TCP/UDP dst port]\n\n",
		"ethtool-n-tcp4": "TCP over IPV4 flows use these fields for computing Hash flow key:\nIP SA\nIP DA\n",
		"rps":            "0 6\n1 0\n",
		"xps":            "0 00000000,00000005\n1 0\n",
		"irqs":           "27 eth0 0-3 1\n28 eth0-TxRx-0 2 2\n29 eth0-TxRx-1 0-3 3\n",
		"status.json": `{"nics":[{"name":"eth0","driver":"igb","bus":"0000:01:00.0","node":1,"mtu":1500,
"queues":[{"rx":0,"tx":0,"irq":28,"vector":"eth0-TxRx-0","affinity":"2","effective":"2","rps":"1-2","xps":"0,2"},
 {"rx":1,"tx":1,"irq":29,"vector":"eth0-TxRx-1","affinity":"0-3","effective":"3","rps":"","xps":""}],
"control":[{"irq":27,"name":"eth0"}],"table":[0,1,1,0],
"settings":{"channels":{"combined":2,"other":1},"channels-max":{"combined":8,"other":1},"rings":{"rx":512,"tx":256},"rings-max":{"rx":4096,"tx":4096},
 "coalesce":{"rx-usecs":55,"tx-usecs":3},"rss-key":{"absent":"the device does not tell its hash key"},
 "features":{"rx-checksum":true,"rx-gro":false},"features-fixed":{"tx-checksum-ipv4":false,"rx-lro":false}},
"parts":{"udp4":{"rss-hash-fields":"sdfn"},"tcp4":{"rss-hash-fields":"sd"}}}]}`,
	} {
		out[name] = []byte(text)
	}
	return out
}

func TestCompareFindsNoDifferenceInATrueMap(t *testing.T) {
	n, diffs, err := Compare(guest())
	if err != nil || len(diffs) > 0 {
		t.Fatalf("%v: %s", err, strings.Join(diffs, "\n"))
	}
	if n < 40 {
		t.Errorf("only %d things were compared", n)
	}
}

func TestCompareFindsEachLie(t *testing.T) {
	for name, c := range map[string]struct{ file, old, new, want string }{
		"queues swapped":       {"irqs", "28 eth0-TxRx-0", "28 eth0-TxRx-9", "rx-0: vector known to the test: false, to status: true"},
		"effective affinity":   {"irqs", "0-3 3", "0-3 2", "rx-1 effective affinity: it is 2, status says 3"},
		"rps mask":             {"rps", "0 6", "0 2", "rx-0 rps: it is 1, status says 1-2"},
		"table entry":          {"ethtool-x", "0     1     1     0", "0     1     1     1", "table: it is [0 1 1 1], status says [0 1 1 0]"},
		"key":                  {"ethtool-x", "Operation not supported", strings.Repeat("6d:", 39) + "5a", "key: it is " + strings.Repeat("6d:", 39) + "5a, status says "},
		"hash fields":          {"ethtool-n-tcp4", "IP DA\n", "IP DA\nL4 bytes 0 & 1 [TCP/UDP src port]\n", "hash fields of tcp4: it is sdf, status says sd"},
		"coalescing":           {"ethtool-c", "rx-usecs: 55", "rx-usecs: 3", "coalesce rx-usecs: it is 3, status says 55"},
		"absent in status":     {"ethtool-c", "rx-frames: n/a", "rx-frames: 7", "coalesce rx-frames: it is 7, status says "},
		"channels":             {"ethtool-l", "Combined:\t2", "Combined:\t4", "channels combined: it is 4, status says 2"},
		"feature":              {"ethtool-k", "generic-receive-offload: off", "generic-receive-offload: on", "feature rx-gro: it is on, status says off"},
		"feature fixed":        {"ethtool-k", "large-receive-offload: off [fixed]", "large-receive-offload: off", "feature rx-lro: it is off, status says off [fixed]"},
		"a control vector too": {"irqs", "27 eth0 0-3 1\n", "27 eth0 0-3 1\n30 eth0-event-4 0-3 1\n", "control vectors: it is map[27:eth0 30:eth0-event-4], status says map[27:eth0]"},
		"a queue too few":      {"rps", "1 0\n", "1 0\n2 0\n", "number of rx queues: it is 3, status says 2"},
		"node":                 {"node", "1", "-1", "node: it is -1, status says 1"},
	} {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(guest())
			text := strings.Replace(string(files[c.file]), c.old, c.new, 1)
			if text == string(files[c.file]) {
				t.Fatalf("%s has no %q", c.file, c.old)
			}
			files[c.file] = []byte(text)
			_, diffs, err := Compare(files)
			if err != nil {
				t.Fatal(err)
			}
			if len(diffs) == 0 || diffs[0] != c.want {
				t.Errorf("got %q, want %q first", diffs, c.want)
			}
		})
	}
}

func TestOneVectorForAllQueues(t *testing.T) {
	files := guest()
	files["irqs"] = []byte("27 eth0 0-3 1\n")
	files["rps"], files["xps"] = []byte("0 0\n"), []byte("0\n")
	files["status.json"] = []byte(strings.NewReplacer(
		`{"rx":0,"tx":0,"irq":28,"vector":"eth0-TxRx-0","affinity":"2","effective":"2","rps":"1-2","xps":"0,2"},`, `{"rx":0,"tx":0,"irq":27,"vector":"eth0","affinity":"0-3","effective":"1","rps":"","xps":""}`,
		`{"rx":1,"tx":1,"irq":29,"vector":"eth0-TxRx-1","affinity":"0-3","effective":"3","rps":"","xps":""}`, "",
		`[{"irq":27,"name":"eth0"}]`, "[]").Replace(string(files["status.json"])))
	if _, diffs, err := Compare(files); err != nil || len(diffs) > 0 {
		t.Errorf("%v: %s", err, strings.Join(diffs, "\n"))
	}
}

func TestMaskToList(t *testing.T) {
	got := map[string]string{}
	want := map[string]string{"0": "", "1": "0", "f": "0-3", "00000000,00000005": "0,2", "ffffffff,ffffffff": "0-63", "00000001,80000000": "31-32", "zz": "mask zz"}
	for m := range want {
		got[m] = listOf(m)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFailuresOfTestsInTheGuest(t *testing.T) {
	files := map[string][]byte{"knobs.rc": []byte("1\n"), "knobs.log": []byte("--- FAIL: X\nFAIL\n"), "scripts.rc": []byte("0\n"), "scripts.log": []byte("PASS\n")}
	want := []string{"knobs on the driver: --- FAIL: X\n    FAIL"}
	if diff := cmp.Diff(want, TestFailures(files)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := TestFailures(map[string][]byte{}); got != nil {
		t.Errorf("no test ran: got %v", got)
	}
}
