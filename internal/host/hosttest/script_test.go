package hosttest

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/testnet"
)

var update = flag.Bool("update", false, "write the changes sections of testdata")

// parseSpec reads the spec section of a script: kernel, cpus, isolated, vectors,
// remapping, and devices by preset ("igb eth0 4"); managed and xsk are of the devices
// that follow.
func parseSpec(t *testing.T, text string) Spec {
	t.Helper()
	var s Spec
	var managed bool
	var xsk []int
	num := func(w string) int {
		n, err := strconv.Atoi(w)
		if err != nil {
			t.Fatalf("spec: %q is no number", w)
		}
		return n
	}
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		var n NIC
		switch w[0] {
		case "kernel":
			s.Kernel = w[1]
		case "cpus":
			s.CPUs = Small(num(w[1]))
		case "isolated":
			set, err := cpuset.ParseList(w[1])
			if err != nil {
				t.Fatal(err)
			}
			s.CPUs.Isolated = set
		case "remapping":
			s.Remapping = true
		case "vectors":
			s.VectorsPerCPU = num(w[1])
		case "managed":
			managed = true
		case "xsk":
			xsk = append(xsk, num(w[1]))
		case "igb":
			n = IGB(w[1], num(w[2]))
		case "mlx5":
			n = MLX5(w[1], num(w[2]))
		case "virtio":
			n = Virtio(w[1], "virtio0", num(w[2]))
		case "e1000e":
			n = E1000E(w[1])
		case "vmxnet3":
			n = VMXNET3(w[1], num(w[2]))
		case "veth":
			n = Veth(w[1], num(w[2]), num(w[3]))
		default:
			t.Fatalf("spec: unknown word %q", w[0])
		}
		if n.Name != "" {
			n.Managed, n.XSK = managed, xsk
			s.NICs = append(s.NICs, n)
		}
	}
	return s
}

func section(a *txtar.Archive, name string) (string, int) {
	i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == name })
	if i < 0 {
		return "", i
	}
	return string(a.Files[i].Data), i
}

func scripts(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	if err != nil || len(list) == 0 {
		t.Fatalf("no scripts in testdata/%s: %v", dir, err)
	}
	return list
}

func TestScriptsOnTheFake(t *testing.T) {
	for _, dir := range []string{"fake", "both", "lab"} {
		for _, file := range scripts(t, dir) {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
				a, err := txtar.ParseFile(file)
				if err != nil {
					t.Fatal(err)
				}
				spec, _ := section(a, "spec")
				h := New(t, parseSpec(t, spec))
				before := h.Dump()
				Run(t, Target{FS: h, Ethtool: h.Ethtool(), Fake: h}, string(a.Comment))
				want, i := section(a, "changes")
				if i < 0 {
					return
				}
				got := changes(before, h.Dump())
				if *update {
					a.Files[i].Data = []byte(got)
					if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
						t.Fatal(err)
					}
					return
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("what differs in the whole state (-want +got):\n%s", d)
				}
			})
		}
	}
}

// changes is the lines of two dumps that differ, long tables cut short.
func changes(before, after string) string {
	var b strings.Builder
	old, now := strings.Split(before, "\n"), strings.Split(after, "\n")
	write := func(mark, line string) {
		if i := strings.IndexByte(line, '['); i >= 0 {
			if f := strings.Fields(line[i:]); len(f) > 4 {
				line = line[:i] + strings.Join(f[:4], " ") + " …]"
			}
		}
		b.WriteString(mark + line + "\n")
	}
	for _, l := range old {
		if !slices.Contains(now, l) {
			write("-", l)
		}
	}
	for _, l := range now {
		if !slices.Contains(old, l) {
			write("+", l)
		}
	}
	return b.String()
}

// TestScriptsOnTheKernel runs the scripts of testdata/both on a veth of this kernel, which
// shows that the fake does not lie there.
func TestScriptsOnTheKernel(t *testing.T) {
	testnet.NeedRoot(t)
	if runtime.NumCPU() < 2 {
		t.Skip("needs two CPUs: the scripts write masks of both")
	}
	for _, file := range scripts(t, "both") {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := section(a, "spec")
			spec := parseSpec(t, text).NICs[0]
			ns := testnet.New(t)
			most := strconv.Itoa(int(spec.MaxChannels["rx"]))
			if err := ns.IP("link", "add", spec.Name, "numtxqueues", most, "numrxqueues", most, "type", "veth", "peer", "name", "peer0", "numtxqueues", most, "numrxqueues", most); err != nil {
				t.Fatal(err)
			}
			var c *ethtool.Client
			if err := ns.Do(func() (err error) { c, err = ethtool.New(); return err }); err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if most != "1" {
				// A new veth uses one queue of each kind unless told otherwise.
				if err := c.SetChannels(spec.Name, spec.Channels); err != nil {
					t.Fatal(err)
				}
			}
			Run(t, Target{FS: ns.FS(), Ethtool: c}, string(a.Comment))
		})
	}
}
