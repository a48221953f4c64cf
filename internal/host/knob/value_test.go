package knob

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/ethtool"
)

func TestHoldsDeltaUndo(t *testing.T) {
	now := Fields(map[string]any{"adaptive-rx": true, "rx-usecs": 3, "tx-usecs": 8})
	for _, tt := range []struct {
		name      string
		now, want Value
		holds     bool
		delta     string
		undo      string
	}{
		{"part of a group that agrees", now, Fields(map[string]any{"rx-usecs": 3}), true, "{}", "{}"},
		{"part of a group that differs", now, Fields(map[string]any{"rx-usecs": 50, "tx-usecs": 8}), false, `{"rx-usecs":50}`, `{"rx-usecs":3}`},
		{"attribute the device lacks", now, Fields(map[string]any{"rx-frames": 1}), false, `{"rx-frames":1}`, "{}"},
		{"group against a number", now, Int(3), false, "3", now.JSON()},
		{"numbers", Int(3), Int(3), true, "3", "3"},
		{"sets however written", Set(cpuset.Of(0, 1, 2, 8)), Text("0-2,8"), true, `"0-2,8"`, `"0-2,8"`},
		{"any table may be the driver's", List([]int{0, 1}), DefaultTable(), true, "[]", "[0,1]"},
		{"a default table is not a certain one", DefaultTable(), List([]int{0, 1}), false, "[0,1]", "[]"},
		{"absent holds absent", Absent("a"), Absent("b"), true, "", ""},
		{"unknown holds nothing", Unknown("x"), Unknown("x"), false, "", ""},
		{"an empty group asks for nothing that could hold", now, Fields(nil), false, "{}", "{}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Holds(tt.now, tt.want); got != tt.holds {
				t.Errorf("Holds = %v, want %v", got, tt.holds)
			}
			if got := Delta(tt.now, tt.want).JSON(); got != tt.delta {
				t.Errorf("Delta = %s, want %s", got, tt.delta)
			}
			if got := Undo(tt.now, tt.want).JSON(); got != tt.undo {
				t.Errorf("Undo = %s, want %s", got, tt.undo)
			}
		})
	}
}

func TestCommandsAPersonWouldType(t *testing.T) {
	equal := make([]int, 8)
	third := make([]int, 8)
	for i := range equal {
		equal[i], third[i] = i%4, 2+i%2
	}
	for _, tt := range []struct {
		ref   Ref
		value Value
		want  string
	}{
		{Ref{Channels, "eth0"}, Fields(map[string]any{"combined": 4}), "ethtool -L eth0 combined 4"},
		{Ref{Rings, "eth0"}, Fields(map[string]any{"rx": 4096, "tx": 512}), "ethtool -G eth0 rx 4096 tx 512"},
		{Ref{Rings, "eth0"}, Fields(map[string]any{"tcp-data-split": 2}), "ethtool -G eth0 tcp-data-split on"},
		{Ref{Coalesce, "eth0"}, Fields(map[string]any{"adaptive-rx": false, "rx-usecs": 50}), "ethtool -C eth0 adaptive-rx off rx-usecs 50"},
		{Ref{Coalesce, "eth0"}, Fields(map[string]any{"rx-profile-1-usecs": 8, "rx-profile-1-frames": 64, "rx-usecs": 3}),
			"ethtool -C eth0 rx-profile n,n,n_8,64,n_n,n,n_n,n,n_n,n,n rx-usecs 3"},
		{Ref{QueueCoal, "eth0 queue-5"}, Fields(map[string]any{"rx-usecs": 50}), "ethtool -Q eth0 queue_mask 0x20 --coalesce rx-usecs 50"},
		{Ref{RSSTable, "eth0"}, List(equal), "ethtool -X eth0 equal 4"},
		{Ref{RSSTable, "eth0"}, List(third), "ethtool -X eth0 start 2 equal 2"},
		{Ref{RSSTable, "eth0"}, List([]int{0, 0, 0, 1}), "ethtool -X eth0 weight 3 1"},
		{Ref{RSSTable, "eth0"}, List([]int{1, 0, 0, 0}), "ethtool -X eth0 weight 3 1 # the same shares; ethtool cannot type this order of buckets"},
		{Ref{RSSTable, "eth0"}, DefaultTable(), "ethtool -X eth0 default"},
		{Ref{RSSTable, "eth0 context-2"}, List([]int{1}), "ethtool -X eth0 start 1 equal 1 context 2"},
		{Ref{RSSKey, "eth0"}, Text("6d:5a"), "ethtool -X eth0 hkey 6d:5a"},
		{Ref{RSSFunction, "eth0"}, Text("xor"), "ethtool -X eth0 hfunc xor"},
		{Ref{RSSHashFields, "eth0 udp4"}, Text("sdfn"), "ethtool -N eth0 rx-flow-hash udp4 sdfn"},
		{Ref{RSSHashFields, "eth0 udp4"}, Text(""), ""},
		{Ref{NtupleRule, "eth0 rule-9"}, Fields(map[string]any{"flow": "tcp4", "dst-port": "443", "dst-ip": "10.0.0.0/255.0.0.0", "queue": 2}),
			"ethtool -N eth0 flow-type tcp4 dst-ip 10.0.0.0 m 0.255.255.255 dst-port 443 action 2 loc 9"},
		{Ref{NtupleRule, "eth0 rule-9"}, Absent(""), "ethtool -N eth0 delete 9"},
		{Ref{Features, "eth0"}, Fields(map[string]any{"rx-gro": false}), "ethtool -K eth0 rx-gro off"},
		{Ref{Pause, "eth0"}, Fields(map[string]any{"rx": false}), "ethtool -A eth0 rx off"},
		{Ref{PrivateFlags, "eth0"}, Fields(map[string]any{"legacy rx": true}), "ethtool --set-priv-flags eth0 'legacy rx' on"},
		{Ref{FEC, "eth0"}, Fields(map[string]any{"auto": false, "modes": "rs"}), "ethtool --set-fec eth0 encoding rs"},
		{Ref{MTU, "eth0"}, Int(9000), "ip link set dev eth0 mtu 9000"},
		{Ref{IRQAffinity, "eth0 irq-28"}, Set(cpuset.Of(2, 3)), "echo 2-3 > /proc/irq/28/smp_affinity_list"},
		{Ref{RPSCPUs, "eth0 rx-3"}, Set(cpuset.Of(0, 1, 32)), "echo 1,00000003 > /sys/class/net/eth0/queues/rx-3/rps_cpus"},
		{Ref{RPSCPUs, "eth0 rx-3"}, Set(cpuset.Set{}), "echo 0 > /sys/class/net/eth0/queues/rx-3/rps_cpus"},
		{Ref{RPSFlowCnt, "eth0 rx-3"}, Int(4096), "echo 4096 > /sys/class/net/eth0/queues/rx-3/rps_flow_cnt"},
		{Ref{XPSCPUs, "eth0 tx-0"}, Set(cpuset.Of(1)), "echo 2 > /sys/class/net/eth0/queues/tx-0/xps_cpus"},
		{Ref{XPSRXQs, "eth0 tx-0"}, Text("0,2"), "echo 5 > /sys/class/net/eth0/queues/tx-0/xps_rxqs"},
		{Ref{Threaded, "eth0"}, Int(1), "echo 1 > /sys/class/net/eth0/threaded"},
		{Ref{DeferHardIRQs, "eth0 napi-257"}, Int(2), `ynl --family netdev --do napi-set --json '{"id": 257, "defer-hard-irqs": 2}'`},
		{Ref{NetdevBudget, Host}, Int(600), "sysctl -w net.core.netdev_budget=600"},
		{Ref{RPSDefaultMask, Host}, Set(cpuset.Of(0)), "sysctl -w net.core.rps_default_mask=1"},
		// What cannot be typed, or is no knob.
		{Ref{ChannelsMax, "eth0"}, Fields(map[string]any{"combined": 4}), ""},
		{Ref{RPSCPUs, "eth0 rx-3"}, Unknown("x"), ""},
		{Ref{RPSCPUs, "eth0 rx-3"}, Absent("x"), ""},
		{Ref{RPSCPUs, "../etc rx-3"}, Set(cpuset.Of(0)), ""},
		{Ref{RPSCPUs, "eth0 rx-03"}, Set(cpuset.Of(0)), ""},
		{Ref{Channels, "eth0 rx-3"}, Fields(map[string]any{"combined": 4}), ""},
		{Ref{"nonsense", "eth0"}, Int(1), ""},
	} {
		if got := Command(tt.ref, tt.value); got != tt.want {
			t.Errorf("%s %s:\n got %s\nwant %s", tt.ref, tt.value, got, tt.want)
		}
	}
}

func TestEveryKindIsKnown(t *testing.T) {
	for _, k := range []Kind{Channels, ChannelsMax, Rings, RingsMax, Coalesce, QueueCoal, RSSTable, RSSKey, RSSFunction, RSSXfrm, RSSHashFields,
		NtupleRule, Features, FeaturesFixed, FeaturesWanted, Pause, PrivateFlags, FEC, LinkState, MTU, IRQAffinity, IRQEffective, IRQHint, IRQManaged,
		RPSCPUs, RPSFlowCnt, XPSCPUs, XPSRXQs, Threaded, DeferHardIRQs, GROFlushTimeout, IRQSuspendTimeout,
		RPSSockFlowEntries, RPSDefaultMask, NetdevBudget, NetdevBudgetUsecs, NetdevMaxBacklog, DevWeight, BusyPoll, BusyRead, FlowLimitCPUs, FlowLimitTableLen} {
		f, ok := familyOf(k)
		if !ok || f.read == nil || Writable(k) && (f.write == nil || f.command == nil) {
			t.Errorf("%s: incomplete", k)
		}
	}
	if Writable("nonsense") || Writable(IRQEffective) || !Writable(RPSCPUs) {
		t.Error("Writable is wrong")
	}
}

func TestMeanings(t *testing.T) {
	refusal := func(no syscall.Errno) error { return &ethtool.Error{Op: "set", Errno: no} }
	for _, tt := range []struct {
		kind Kind
		err  error
		want string
	}{
		{RPSCPUs, syscall.EINVAL, "isolated"},
		{RPSCPUs, ErrMoved, "someone else"},
		{RPSCPUs, syscall.EROFS, "read-only"},
		{IRQAffinity, syscall.ENOSPC, "choose another CPU"},
		{IRQAffinity, syscall.EIO, "permanent"},
		{IRQAffinity, syscall.EPERM, "permanent"},
		{IRQAffinity, syscall.EINVAL, "online"},
		{IRQAffinity, errNotOurs, "read the map again"},
		{Channels, refusal(syscall.EINVAL), "user-set RSS table"},
		{Channels, refusal(syscall.EBUSY), "AF_XDP"},
		{Channels, ethtool.ErrBusy, "AF_XDP"},
		{Rings, refusal(syscall.EINVAL), "maximum"},
		{Coalesce, refusal(syscall.EOPNOTSUPP), "permanent"},
		{RSSTable, refusal(syscall.EOPNOTSUPP), "RPS"},
		{RSSTable, refusal(syscall.EINVAL), "queue that does not exist"},
		{RSSHashFields, refusal(syscall.EINVAL), "cannot hash"},
		{NtupleRule, refusal(syscall.ENOSPC), "full"},
		{Features, refusal(syscall.EPERM), "needs root"},
		{MTU, syscall.EINVAL, "limits"},
		{XPSCPUs, syscall.ENOENT, "single tx queue"},
		{FlowLimitTableLen, syscall.EINVAL, "power of two"},
		{ChannelsMax, ErrReadOnly, "cannot be set"},
		{RPSCPUs, nil, ""},
		{RPSCPUs, errors.New("x"), ""},
	} {
		got := Meaning(Ref{tt.kind, "eth0"}, tt.err)
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s, %v: %q, want %q", tt.kind, tt.err, got, tt.want)
		}
	}
}

func TestDifferencesForPeople(t *testing.T) {
	was, is := make([]int, 128), make([]int, 128)
	for i := range was {
		was[i], is[i] = i%4, i%4
		if i%10 == 5 {
			is[i] = 3
		}
	}
	at := func(s *Snapshot, k Kind, t Target, v Value) {
		s.Settings = append(s.Settings, Setting{Ref{k, t}, v})
	}
	a, b := &Snapshot{}, &Snapshot{}
	at(a, RPSCPUs, "eth0 rx-10", Set(cpuset.Of(0, 1)))
	at(b, RPSCPUs, "eth0 rx-10", Set(cpuset.Set{}))
	at(a, RPSCPUs, "eth0 rx-2", Set(cpuset.Of(0, 1)))
	at(b, RPSCPUs, "eth0 rx-2", Set(cpuset.Of(2)))
	at(a, Coalesce, "eth0", Fields(map[string]any{"adaptive-rx": true, "rx-usecs": 3, "tx-usecs": 8}))
	at(b, Coalesce, "eth0", Fields(map[string]any{"adaptive-rx": false, "rx-usecs": 50, "tx-usecs": 8, "rx-frames": 64}))
	at(a, RSSTable, "eth0", List(was))
	at(b, RSSTable, "eth0", List(is))
	at(a, MTU, "eth1", Int(1500))
	at(a, NetdevBudget, Host, Int(300))
	at(b, NetdevBudget, Host, Unknown("needs root"))
	at(a, Threaded, "eth0 napi-257", Int(0))
	at(b, Threaded, "eth0 napi-300", Int(0))
	b.Host.BootID = "another"
	got := DiffText(Diff(a, b))
	want := `coalesce of eth0: adaptive-rx on → off
coalesce of eth0: rx-frames - → 64
coalesce of eth0: rx-usecs 3 → 50
rss-table of eth0: 7 of 128 buckets moved: 5: 1 → 3, 25: 1 → 3, 45: 1 → 3, 65: 1 → 3, 85: 1 → 3, 105: 1 → 3, 125: 1 → 3
rps-cpus of eth0 rx-2: 0-1 → 2
rps-cpus of eth0 rx-10: 0-1 → none
mtu of eth1: 1500 → -
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if d := Diff(a, a); len(d) != 0 {
		t.Errorf("a snapshot differs from itself: %v", d)
	}
}

func TestSnapshotIsWrittenCanonically(t *testing.T) {
	s := &Snapshot{
		Version: SnapshotVersion, Taken: time.Unix(1700000000, 0).UTC(),
		Host:    Identity{BootID: "b", Netns: 4026531840, Kernel: "6.12.0", CPUs: "0-3"},
		Devices: []Device{{Name: "eth1"}, {Name: "eth0", IfIndex: 2, Driver: "igb", RXQueues: 4, TXQueues: 4, Table: 128}},
		Settings: []Setting{
			{Ref{RSSTable, "eth0"}, List([]int{0, 1})},
			{Ref{NetdevBudget, Host}, Int(300)},
			{Ref{MTU, "eth0"}, Unknown("needs root")},
			{Ref{FEC, "eth0"}, Absent("driver igb does not offer it")},
			{Ref{Coalesce, "eth0"}, Fields(map[string]any{"rx-usecs": 3, "adaptive-rx": true})},
		},
	}
	var one bytes.Buffer
	if _, err := s.WriteTo(&one); err != nil {
		t.Fatal(err)
	}
	back, err := ReadSnapshot(bytes.NewReader(one.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var two bytes.Buffer
	if _, err := back.WriteTo(&two); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(one.String(), two.String()); diff != "" {
		t.Errorf("written, read and written again (-first +second)\n%s", diff)
	}
	if v := back.Get(Ref{MTU, "eth0"}); v.Known() || v.IsAbsent() || v.Reason() != "needs root" {
		t.Errorf("unknown came back as %v", v)
	}
	if d := Diff(s, back); len(d) != 0 {
		t.Errorf("it differs from itself: %s", DiffText(d))
	}
	if back.Settings[0].Target != Host || back.Devices[0].Name != "eth0" {
		t.Errorf("order: %v", back.Settings)
	}
}

func TestSnapshotsThatAreRefused(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`{"version": 2}`, "version 2 is newer than 1"},
		{`{}`, "not a snapshot"},
		{`{"version": 0}`, "not a snapshot"},
		{``, "unexpected end"},
		{"{\n\"version\": 1,\n\"settings\": [{]\n}", "line 3"},
		{`{"version": 1, "devices": 3}`, "line 1"},
		{`{"version": 1, "settings": [{"knob":"mtu","target":"eth0","value":null}]}`, "null is not a setting"},
		{`{"version": 1, "settings": [{"knob":"mtu","target":"eth0","value":1},{"knob":"mtu","target":"eth0","value":2}]}`, "mtu of eth0 is there twice"},
	} {
		_, err := ReadSnapshot(strings.NewReader(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "read snapshot: ") {
			t.Errorf("%s: %v, want %q", tt.text, err, tt.want)
		}
	}
}

func FuzzReadSnapshot(f *testing.F) {
	f.Add([]byte(`{"version":1,"taken":"2026-01-01T00:00:00Z","host":{},"devices":[],"settings":[{"knob":"mtu","target":"eth0","value":{"unknown":"x"}},{"knob":"coalesce","target":"eth0","value":{"a":1}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ReadSnapshot(bytes.NewReader(b))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if _, err := s.WriteTo(&out); err != nil {
			var m *json.MarshalerError
			if errors.As(err, &m) {
				return // a time that JSON cannot say
			}
			t.Fatal(err)
		}
		again, err := ReadSnapshot(&out)
		if err != nil {
			t.Fatalf("not read back: %v", err)
		}
		for _, x := range s.Settings {
			if v := again.Get(x.Ref); x.Value.Known() && !v.Equal(x.Value) {
				t.Fatalf("%s was %s, is %s", x.Ref, x.Value.JSON(), v.JSON())
			}
			Command(x.Ref, x.Value)
		}
		DiffText(Diff(s, again))
	})
}

func TestWordsInActionNames(t *testing.T) {
	for _, tt := range []struct {
		action, dev string
		want        bool
	}{
		{"eth1-rx-0", "eth1", true}, {"eth10-rx-0", "eth1", false}, {"mlx-eth1", "eth1", true}, {"xeth1-0", "eth1", false},
		{"eth1", "eth1", true}, {"i40e-enp1s0f0np0-TxRx-3", "enp1s0f0np0", true}, {"i40e-enp1s0f0np0-TxRx-3", "enp1s0f0", false},
		{"eth1.100-rx", "eth1", false}, {"", "eth1", false}, {"eth10:eth1", "eth1", true},
	} {
		if got := hasWord(tt.action, tt.dev); got != tt.want {
			t.Errorf("hasWord(%q, %q) = %v", tt.action, tt.dev, got)
		}
	}
}

func TestWhatAdaptiveModerationMovesIsNoDrift(t *testing.T) {
	at := func(f map[string]any) *Snapshot {
		return &Snapshot{Settings: []Setting{{Ref{Coalesce, "eth0"}, Fields(f)}}}
	}
	for _, tt := range []struct {
		was, is map[string]any
		differ  bool
	}{
		{map[string]any{"adaptive-rx": true, "rx-usecs": 8}, map[string]any{"adaptive-rx": true, "rx-usecs": 64}, false},
		{map[string]any{"adaptive-rx": false, "rx-usecs": 8}, map[string]any{"adaptive-rx": false, "rx-usecs": 64}, true},
		{map[string]any{"adaptive-rx": true, "tx-usecs": 8}, map[string]any{"adaptive-rx": true, "tx-usecs": 64}, true},
		{map[string]any{"adaptive-rx": true, "rx-usecs": 8}, map[string]any{"adaptive-rx": false, "rx-usecs": 8}, true},
	} {
		if got := len(Diff(at(tt.was), at(tt.is))) > 0; got != tt.differ {
			t.Errorf("%v, %v: differ %v, want %v", tt.was, tt.is, got, tt.differ)
		}
	}
}

func TestFollows(t *testing.T) {
	for _, tt := range []struct {
		written, other Ref
		want           bool
	}{
		{Ref{Threaded, "eth0"}, Ref{Threaded, "eth0 napi-1"}, true},
		{Ref{Threaded, "eth0"}, Ref{Threaded, "eth1 napi-1"}, false},
		{Ref{Threaded, "eth0 napi-1"}, Ref{Threaded, "eth0 napi-2"}, false},
		{Ref{Threaded, "eth0"}, Ref{GROFlushTimeout, "eth0 napi-1"}, false},
		{Ref{Coalesce, "eth0"}, Ref{QueueCoal, "eth0 queue-1"}, true},
		{Ref{QueueCoal, "eth0 queue-1"}, Ref{QueueCoal, "eth0 queue-2"}, false},
		{Ref{Channels, "eth0"}, Ref{RSSTable, "eth0"}, true},
		{Ref{Channels, "eth0"}, Ref{RSSTable, "eth0 context-1"}, false},
		{Ref{Features, "eth0"}, Ref{Coalesce, "eth0"}, false},
	} {
		if got := Follows(tt.written, tt.other); got != tt.want {
			t.Errorf("Follows(%s, %s) = %v", tt.written, tt.other, got)
		}
	}
}

func TestBeside(t *testing.T) {
	f := func(kv ...any) Value {
		m := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i].(string)] = kv[i+1]
		}
		return Fields(m)
	}
	for _, tt := range []struct {
		name         string
		from, to, by Value
		want         string // "" nothing
	}{
		{"only what was asked for", f("gro", true, "lro", false), f("gro", false, "lro", false), f("gro", false), ""},
		{"another attribute too", f("gro", true, "lro", false), f("gro", false, "lro", true), f("gro", false), "x: lro off → on"},
		{"adaptive moderation's own", f("adaptive-rx", true, "rx-usecs", 3, "tx-usecs", 4), f("adaptive-rx", true, "rx-usecs", 9, "tx-usecs", 8), f("tx-usecs", 8), ""},
		{"no group", Int(1), Int(2), Int(2), ""},
	} {
		d, ok := Beside(Difference{Ref: Ref{Features, "x"}, From: tt.from, To: tt.to}, tt.by)
		got := ""
		if ok {
			got = strings.TrimPrefix(d.Text(), "features of ")
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
