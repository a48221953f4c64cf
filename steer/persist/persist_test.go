package persist

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// host is a snapshot of one device with two queues, whose vectors have the numbers given.
type host struct {
	boot, kernel, driver string
	queues               int
	irqs                 []int // of rx-0, rx-1
	mask, affinity       []string
	budget               int64
	gone                 bool
}

func (h host) snapshot() *knob.Snapshot {
	s := &knob.Snapshot{Host: knob.Identity{BootID: h.boot, Netns: 42, Kernel: h.kernel, CPUs: "0-3"}}
	if !h.gone {
		s.Devices = []knob.Device{{Name: "eth0", IfIndex: 2 + len(h.boot), Driver: h.driver, Bus: "0000:00:03.0", RXQueues: h.queues, TXQueues: h.queues}}
		for q := range h.queues {
			s.Settings = append(s.Settings, knob.Setting{Ref: knob.Ref{Knob: knob.RPSCPUs, Target: knob.On("eth0", "rx-%d", q)}, Value: knob.Text(h.mask[q])})
		}
		for i, n := range h.irqs {
			s.Settings = append(s.Settings, knob.Setting{Ref: knob.Ref{Knob: knob.IRQAffinity, Target: knob.On("eth0", "irq-%d", n)}, Value: knob.Text(h.affinity[i])})
		}
	}
	s.Settings = append(s.Settings, knob.Setting{Ref: knob.Ref{Knob: knob.NetdevBudget, Target: knob.Host}, Value: knob.Int(h.budget)})
	s.Sort()
	return s
}

func (h host) vectors(string) (map[int]string, error) {
	out := map[int]string{}
	for q, n := range h.irqs {
		out[n] = fmt.Sprintf("rx-%d tx-%d", q, q)
	}
	return out, nil
}

var (
	fresh  = host{boot: "a", kernel: "6.12", driver: "igb", queues: 2, irqs: []int{28, 29}, mask: []string{"", ""}, affinity: []string{"0-3", "0-3"}, budget: 300}
	tuned  = host{boot: "a", kernel: "6.12", driver: "igb", queues: 2, irqs: []int{28, 29}, mask: []string{"1-3", ""}, affinity: []string{"1", "2"}, budget: 600}
	reboot = host{boot: "bb", kernel: "6.12", driver: "igb", queues: 2, irqs: []int{31, 30}, mask: []string{"", ""}, affinity: []string{"0-3", "0-3"}, budget: 300}
)

func change(k knob.Kind, target knob.Target, from, to knob.Value) plan.Change {
	return plan.Change{Knob: k, Target: target, From: from, To: to, Risk: plan.Reorder}
}

// kept are the transactions of a boot whose net effect is tuned.
func kept() []apply.Transaction {
	id := plan.Identity{BootID: "a", Netns: 42, Kernel: "6.12", Devices: []plan.Device{plan.Of(fresh.snapshot().Devices[0])}}
	tx := func(n string, state apply.State, changes ...plan.Change) apply.Transaction {
		return apply.Transaction{ID: n, State: state, Plan: &plan.Plan{Version: 1, Goal: plan.Balanced, Identity: id, Changes: changes}}
	}
	return []apply.Transaction{
		tx("1", apply.Kept, change(knob.RPSCPUs, "eth0 rx-0", knob.Text(""), knob.Text("2")), change(knob.IRQAffinity, "eth0 irq-28", knob.Text("0-3"), knob.Text("1"))),
		tx("2", apply.RolledBack, change(knob.NetdevBudget, "host", knob.Int(300), knob.Int(900))),
		tx("3", apply.Kept, change(knob.RPSCPUs, "eth0 rx-0", knob.Text("2"), knob.Text("1-3")), change(knob.IRQAffinity, "eth0 irq-29", knob.Text("0-3"), knob.Text("2")), change(knob.NetdevBudget, "host", knob.Int(300), knob.Int(600))),
		tx("4", apply.Kept, change(knob.RPSCPUs, "eth0 rx-1", knob.Text(""), knob.Text("3"))),
		tx("5", apply.Kept, change(knob.RPSCPUs, "eth0 rx-1", knob.Text("3"), knob.Text(""))), // and back
	}
}

func list(p *plan.Plan) (out []string) {
	for _, c := range p.Changes {
		out = append(out, fmt.Sprintf("%s: %q → %q", c.Ref(), c.From, c.To))
	}
	return out
}

func make1(t *testing.T) *File {
	t.Helper()
	f, err := Make(kept(), tuned.snapshot(), nil, tuned.vectors, time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	text, err := f.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse("persist.json", text)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

func TestMakeTakesTheNetEffect(t *testing.T) {
	f := make1(t)
	want := []string{`irq-affinity of eth0 irq-28: "0-3" → "1"`, `rps-cpus of eth0 rx-0: "" → "1-3"`, `irq-affinity of eth0 irq-29: "0-3" → "2"`, `netdev-budget of host: "300" → "600"`}
	if diff := cmp.Diff(want, list(f.Plan)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if f.Vectors["eth0 irq-29"] != "rx-1 tx-1" || f.Queues["eth0"] != (Queues{2, 2}) {
		t.Errorf("%+v", f)
	}
}

func TestMakeRefuses(t *testing.T) {
	moved := tuned
	moved.mask = []string{"2", ""}
	for _, test := range []struct {
		name string
		txs  []apply.Transaction
		now  host
		want *plan.Plan
		is   error
	}{
		{"nothing was kept", kept()[1:2], tuned, nil, ErrNothing},
		{"one waits to be confirmed", append(kept(), apply.Transaction{ID: "6", State: apply.Unconfirmed, Plan: kept()[0].Plan}), tuned, nil, ErrUnconfirmed},
		{"somebody changed it since", kept(), moved, nil, ErrUnconfirmed},
		{"a plan that was not applied", kept(), tuned, &plan.Plan{Changes: []plan.Change{change(knob.RPSCPUs, "eth0 rx-0", knob.Text(""), knob.Text("0"))}}, ErrUnconfirmed},
	} {
		if _, err := Make(test.txs, test.now.snapshot(), test.want, test.now.vectors, time.Now()); !errors.Is(err, test.is) {
			t.Errorf("%s: %v, want %v", test.name, err, test.is)
		}
	}
	f, err := Make(kept(), tuned.snapshot(), &plan.Plan{Changes: []plan.Change{change(knob.RPSCPUs, "eth0 rx-0", knob.Text("2"), knob.Text("1-3"))}}, tuned.vectors, time.Now())
	if err != nil || len(f.Plan.Changes) != 1 {
		t.Errorf("part of it: %+v, %v", f, err)
	}
}

// After a reboot vectors have other numbers and the device another index: the same queues get the same CPUs.
func TestAgain(t *testing.T) {
	f := make1(t)
	p, left := f.Again(reboot.snapshot(), reboot.vectors)
	want := []string{`irq-affinity of eth0 irq-31: "0-3" → "1"`, `rps-cpus of eth0 rx-0: "" → "1-3"`, `irq-affinity of eth0 irq-30: "0-3" → "2"`, `netdev-budget of host: "300" → "600"`}
	if diff := cmp.Diff(want, list(p)); diff != "" || len(left) > 0 {
		t.Errorf("(-want +got):\n%s%v", diff, left)
	}
	if p.Identity.BootID != "bb" || p.Identity.Devices[0].IfIndex != 4 {
		t.Errorf("%+v", p.Identity)
	}
	if p, left := f.Again(tuned.snapshot(), tuned.vectors); len(p.Changes) > 0 || len(left) > 0 {
		t.Errorf("where all is as it should be: %v, %v", list(p), left)
	}
}

func TestAgainRefuses(t *testing.T) {
	f := make1(t)
	for _, test := range []struct {
		name string
		edit func(*host)
		is   error
		say  string
		rest int // changes that are made all the same
	}{
		{"another kernel", func(h *host) { h.kernel = "6.13" }, ErrDiffers, "kernel 6.13, was confirmed on 6.12", 0},
		{"another driver", func(h *host) { h.driver = "e1000e" }, ErrDiffers, "eth0 has driver e1000e, was confirmed with igb", 1},
		{"another queue count", func(h *host) { h.queues, h.mask = 3, []string{"", "", ""} }, ErrDiffers, "eth0 has queues 3 rx 3 tx, was confirmed with 2 rx 2 tx", 1},
		{"the device is not there yet", func(h *host) { h.gone = true }, ErrAbsent, "eth0: no such device yet", 1},
		{"a vector is gone", func(h *host) { h.irqs, h.affinity = h.irqs[:1], h.affinity[:1] }, ErrDiffers, "no one vector of eth0 serves rx-1 tx-1", 3},
	} {
		h := reboot
		test.edit(&h)
		p, left := f.Again(h.snapshot(), h.vectors)
		if len(left) != 1 || !errors.Is(left[0], test.is) || !strings.Contains(left[0].Error(), test.say) || len(p.Changes) != test.rest {
			t.Errorf("%s: %v, %v", test.name, list(p), left)
		}
	}
}

func TestHealth(t *testing.T) {
	if err := (*Health)(nil).May("b"); err != nil {
		t.Error(err)
	}
	if err := (&Health{BootID: "a", Healthy: true}).May("b"); err != nil {
		t.Error(err)
	}
	if err := (&Health{BootID: "b"}).May("b"); err != nil {
		t.Errorf("a restart in the same boot: %v", err)
	}
	if err := (&Health{BootID: "a"}).May("b"); !errors.Is(err, ErrUnhealthy) || !strings.Contains(err.Error(), "rxsteer persist --remove") {
		t.Error(err)
	}
}

func TestParseRefuses(t *testing.T) {
	text, err := make1(t).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string][2]string{
		"newer":            {`"version": 1,`, `"version": 2,`},
		"unknown field":    {`"confirmed"`, `"confrmed"`},
		"unknown setting":  {`"netdev-budget"`, `"netdev-bugdet"`},
		"over the ceiling": {`"to": 600`, `"to": 600000`},
		"vector unknown":   {`"eth0 irq-28": "rx-0 tx-0"`, `"eth0 irq-27": "rx-0 tx-0"`},
		"cut off":          {"\n}\n", ""},
		"no changes":       {string(text), `{"version":1}`},
	} {
		bad := strings.Replace(string(text), edit[0], edit[1], 1)
		if bad == string(text) {
			t.Fatalf("%s: the edit did nothing", name)
		}
		if f, err := Parse("persist.json", []byte(bad)); err == nil || !strings.Contains(err.Error(), "persist.json") {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
}

func TestOutputs(t *testing.T) {
	out, err := make1(t).Outputs("/usr/local/bin/rxsteer", true)
	if err != nil {
		t.Fatal(err)
	}
	text := map[string]string{}
	for _, o := range out {
		text[o.Path] = o.Text + o.Link
	}
	if !strings.HasSuffix(text[sysctlFile], "\nnet.core.netdev_budget=600\n") {
		t.Errorf("%s", text[sysctlFile])
	}
	if !strings.Contains(text[banScript], "for d in eth0;") || !strings.Contains(text[banDropIn], "--policyscript="+banScript) || text[WantsFile] != UnitFile {
		t.Errorf("%v", text)
	}
	for p := range text {
		found := false
		for _, a := range All() {
			found = found || a == p
		}
		if !found {
			t.Errorf("--remove would leave %s", p)
		}
	}
	f := make1(t)
	f.Plan.Changes = f.Plan.Changes[1:2] // no vector, no sysctl
	if out, err = f.Outputs("/x", true); err != nil || len(out) != 3 {
		t.Errorf("%+v, %v", out, err)
	}
}
