package hosttest

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host"
)

// Target is a host that a script runs on: a fake one or a real kernel.
type Target struct {
	FS      host.FS
	Ethtool EthtoolClient
	Fake    *Host // nil on a real kernel: then interrupt, online and offline are errors
	// Traffic makes a real device raise interrupts, for tick; nil: tick is an error.
	Traffic func() error
}

// EthtoolClient is what scripts use of an ethtool client.
type EthtoolClient interface {
	Channels(dev string) (now, limit ethtool.Group, err error)
	SetChannels(dev string, changed ethtool.Group) error
	Rings(dev string) (now, limit ethtool.Group, err error)
	SetRings(dev string, changed ethtool.Group) error
	Coalesce(dev string) (ethtool.Group, error)
	SetCoalesce(dev string, changed ethtool.Group) error
	RSS(dev string) ([]ethtool.RSS, error)
	SetRSS(dev string, context uint32, change ethtool.RSSChange) error
	HashFields(dev, flow string) (string, error)
	SetHashFields(dev, flow, fields string) error
	Features(dev string) (ethtool.Features, error)
	SetFeatures(dev string, changed map[string]bool) error
}

// Run runs a script, in which {over} is the mask of the first CPU the kernel
// cannot have and {wide} a mask of one group of 32 bits too many; one command a line; "#" starts a comment. A command that ends with
// "-> EINVAL" must fail with that errno, any other must succeed.
//
//	write PATH TEXT…           read PATH TEXT…        (text of the file, blanks trimmed)
//	is-mask PATH 3             absent PATH            (the same set, whatever its width)
//	channels DEV rx=1 tx=1     is-channels DEV rx=1   (the same for rings, coalesce)
//	table DEV 0 1 2 3|default  is-table DEV 0*2 1*2   (repeats to the table's size)
//	hash DEV udp4 sdfn         is-hash DEV udp4 sdfn
//	feature DEV rx-gro=off     is-feature DEV rx-lro=on
//	affinity ACTION 0-3        is-affinity ACTION 0-3
//	is-effective ACTION 2
//	tick                       (every interrupt once; on a real device, traffic)
//	interrupt ACTION           offline CPU      online CPU        (fake only)
func Run(t testing.TB, target Target, script string) {
	t.Helper()
	possible, err := target.FS.ReadFile("/sys/devices/system/cpu/possible")
	if err != nil {
		t.Fatal(err)
	}
	cpus, err := cpuset.ParseList(string(possible))
	if err != nil {
		t.Fatal(err)
	}
	beyond := cpus.Last() + 1
	words := strings.NewReplacer("{over}", cpuset.Of(beyond).Mask(0), "{wide}", strings.Repeat("0,", (beyond+31)/32)+"1")
	n := 0
	for line := range strings.Lines(words.Replace(script)) {
		n++
		line, _, _ = strings.Cut(line, "#")
		line, want, fails := strings.Cut(line, "->")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		err := target.do(words[0], words[1:])
		var no syscall.Errno
		switch {
		case !fails && err != nil:
			t.Errorf("line %d: %s: %v", n, strings.TrimSpace(line), err)
		case fails && err == nil:
			t.Errorf("line %d: %s: succeeded, want %s", n, strings.TrimSpace(line), strings.TrimSpace(want))
		case fails && (!errors.As(err, &no) || errnoName(no) != strings.TrimSpace(want)):
			t.Errorf("line %d: %s: %v, want %s", n, strings.TrimSpace(line), err, strings.TrimSpace(want))
		}
	}
}

var errnoNames = map[syscall.Errno]string{
	syscall.EINVAL: "EINVAL", syscall.EIO: "EIO", syscall.EPERM: "EPERM", syscall.ENOSPC: "ENOSPC",
	syscall.EBUSY: "EBUSY", syscall.EOPNOTSUPP: "EOPNOTSUPP", syscall.ENOENT: "ENOENT", syscall.ERANGE: "ERANGE",
	syscall.EOVERFLOW: "EOVERFLOW", syscall.ENODEV: "ENODEV", syscall.EACCES: "EACCES",
}

func errnoName(no syscall.Errno) string {
	if n, ok := errnoNames[no]; ok {
		return n
	}
	return no.Error()
}

func (g Target) do(word string, args []string) error {
	need := func(n int) error {
		if len(args) < n {
			return fmt.Errorf("%s takes %d arguments", word, n)
		}
		return nil
	}
	switch word {
	case "tick":
		switch {
		case g.Fake != nil:
			g.Fake.Tick()
		case g.Traffic != nil:
			return g.Traffic()
		default:
			return errors.New("tick needs traffic")
		}
		return nil
	}
	if err := need(1); err != nil {
		return err
	}
	switch word {
	case "write":
		return g.FS.WriteFile(args[0], []byte(strings.Join(args[1:], " ")))
	case "read":
		b, err := g.FS.ReadFile(args[0])
		if err != nil {
			return err
		}
		return same(strings.Join(strings.Fields(string(b)), " "), strings.Join(args[1:], " "))
	case "is-mask":
		if err := need(2); err != nil {
			return err
		}
		b, err := g.FS.ReadFile(args[0])
		if err != nil {
			return err
		}
		got, err := cpuset.ParseMask(string(b))
		if err != nil {
			return err
		}
		want, err := cpuset.ParseMask(args[1])
		if err != nil {
			return err
		}
		return same(got.String(), want.String())
	case "absent":
		if _, err := g.FS.ReadFile(args[0]); !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("%s: %v, want no such file", args[0], err)
		}
		return nil
	case "interrupt", "offline", "online":
		return g.fakeOnly(word, args[0])
	}
	if err := need(2); err != nil {
		return err
	}
	dev, rest := args[0], args[1:]
	switch word {
	case "channels", "rings", "coalesce":
		change, err := group(rest)
		if err != nil {
			return err
		}
		return map[string]func(string, ethtool.Group) error{"channels": g.Ethtool.SetChannels, "rings": g.Ethtool.SetRings, "coalesce": g.Ethtool.SetCoalesce}[word](dev, change)
	case "is-channels", "is-rings", "is-coalesce":
		want, err := group(rest)
		if err != nil {
			return err
		}
		var now ethtool.Group
		switch word {
		case "is-channels":
			now, _, err = g.Ethtool.Channels(dev)
		case "is-rings":
			now, _, err = g.Ethtool.Rings(dev)
		default:
			now, err = g.Ethtool.Coalesce(dev)
		}
		if err != nil {
			return err
		}
		for k, v := range want {
			if now[k] != v {
				return fmt.Errorf("%s is %d, want %d", k, now[k], v)
			}
		}
		return nil
	case "table":
		if rest[0] == "default" {
			return g.Ethtool.SetRSS(dev, 0, ethtool.RSSChange{Default: true})
		}
		all, err := g.Ethtool.RSS(dev)
		if err != nil {
			return err
		}
		pattern, err := ints(rest)
		if err != nil {
			return err
		}
		return g.Ethtool.SetRSS(dev, 0, ethtool.RSSChange{Table: repeat(pattern, len(all[0].Table))})
	case "is-table":
		all, err := g.Ethtool.RSS(dev)
		if err != nil {
			return err
		}
		pattern, err := ints(rest)
		if err != nil {
			return err
		}
		return same(fmt.Sprint(all[0].Table), fmt.Sprint(repeat(pattern, len(all[0].Table))))
	case "hash":
		return g.Ethtool.SetHashFields(dev, rest[0], strings.Join(rest[1:], ""))
	case "is-hash":
		fields, err := g.Ethtool.HashFields(dev, rest[0])
		if err != nil {
			return err
		}
		return same(fields, strings.Join(rest[1:], ""))
	case "feature", "is-feature":
		want := map[string]bool{}
		for _, w := range rest {
			k, v, _ := strings.Cut(w, "=")
			want[k] = v == "on"
		}
		if word == "feature" {
			return g.Ethtool.SetFeatures(dev, want)
		}
		f, err := g.Ethtool.Features(dev)
		if err != nil {
			return err
		}
		for k, v := range want {
			if f.Active[k] != v {
				return fmt.Errorf("%s is %s", k, onOff(f.Active[k]))
			}
		}
		return nil
	case "affinity", "is-affinity", "is-effective":
		irq, err := g.irq(dev)
		if err != nil {
			return err
		}
		file := path.Join("/proc/irq", irq, "smp_affinity_list")
		if word == "is-effective" {
			file = path.Join("/proc/irq", irq, "effective_affinity_list")
		}
		if word == "affinity" {
			return g.FS.WriteFile(file, []byte(rest[0]))
		}
		b, err := g.FS.ReadFile(file)
		if err != nil {
			return err
		}
		return same(strings.TrimSpace(string(b)), rest[0])
	}
	return fmt.Errorf("unknown command %q", word)
}

func (g Target) fakeOnly(word, arg string) error {
	if g.Fake == nil {
		return fmt.Errorf("%s needs a fake host", word)
	}
	if word == "interrupt" {
		irq, err := g.irq(arg)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(irq)
		if err != nil {
			return err
		}
		g.Fake.Interrupt(n)
		return nil
	}
	cpu, err := strconv.Atoi(arg)
	if err != nil {
		return err
	}
	g.Fake.SetOnline(cpu, word == "online")
	return nil
}

// irq finds an interrupt by the name of its action.
func (g Target) irq(action string) (string, error) {
	list, err := g.FS.ReadDir("/proc/irq")
	if err != nil {
		return "", err
	}
	for _, e := range list {
		actions, err := g.FS.ReadDir(path.Join("/proc/irq", e.Name()))
		if err != nil {
			continue
		}
		for _, a := range actions {
			if a.Name() == action {
				return e.Name(), nil
			}
		}
	}
	return "", fmt.Errorf("no interrupt %s", action)
}

func same(got, want string) error {
	if got != want {
		return fmt.Errorf("is %q, want %q", got, want)
	}
	return nil
}

func group(words []string) (ethtool.Group, error) {
	g := ethtool.Group{}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is no name=number", w)
		}
		g[k] = uint32(n)
	}
	return g, nil
}

func ints(words []string) ([]int, error) {
	var out []int
	for _, w := range words {
		w, times, many := strings.Cut(w, "*")
		n, err := strconv.Atoi(w)
		if err != nil {
			return nil, err
		}
		k := 1
		if many {
			if k, err = strconv.Atoi(times); err != nil {
				return nil, err
			}
		}
		out = append(out, slices.Repeat([]int{n}, k)...)
	}
	return out, nil
}

func repeat(pattern []int, n int) []int {
	if len(pattern) == 0 {
		return nil
	}
	return slices.Repeat(pattern, n/len(pattern)+1)[:n]
}
