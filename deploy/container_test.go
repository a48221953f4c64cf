package deploy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

// hidden and fixed are what Kubernetes has a runtime hide from, and keep from the writes of, containers that are not
// privileged (defaultMaskedPaths and defaultReadonlyPaths in pkg/securitycontext/util.go of kubernetes; /proc/interrupts
// since 1.31.12, 1.32.8 and 1.33.4).
var (
	hidden = []string{"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"}
	fixed = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

type object = map[string]any

// bundle is the container of a DaemonSet as a runtime is given it, with a namespace for the node's network. The node's /sys
// is one of that namespace, for sysfs shows the interfaces of where it was mounted.
func bundle(t *testing.T, r *rendered, daemon, netns string, args ...string) string {
	t.Helper()
	d, c, _ := r.agent(t, daemon)
	dir := t.TempDir()
	buildAgent(t, dir+"/rootfs/rxsteer")
	var caps []string
	for _, name := range c.SecurityContext.Capabilities.Add {
		caps = append(caps, "CAP_"+string(name))
	}
	mounts := []object{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755", "size=65536k"}},
		{"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": []string{"nosuid", "noexec", "nodev", "ro"}},
	}
	for _, m := range c.VolumeMounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		mount := object{"destination": m.MountPath, "type": "bind", "options": []string{"rbind", "rprivate", mode}}
		for _, v := range d.Spec.Template.Spec.Volumes {
			switch {
			case v.Name != m.Name:
			case v.ConfigMap != nil:
				source := filepath.Join(dir, v.Name)
				for _, cm := range r.maps {
					if cm.Name == v.ConfigMap.Name {
						writeFile(t, filepath.Join(source, "rxsteer.yaml"), cm.Data["rxsteer.yaml"])
					}
				}
				mount["source"] = source
			case v.HostPath.Path == "/sys":
				mount = object{"destination": m.MountPath, "type": "sysfs", "source": "sysfs", "options": []string{mode}}
			case v.HostPath.Path == "/run/rxsteer": // this machine's own journal is none of a test's business
				mount["source"] = dir + "/run"
				if err := os.Mkdir(dir+"/run", 0o755); err != nil {
					t.Fatal(err)
				}
			default:
				mount["source"] = v.HostPath.Path
			}
		}
		mounts = append(mounts, mount)
	}
	var env []string
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil {
			value = "10.99.0.2"
		}
		env = append(env, e.Name+"="+value)
	}
	if len(args) == 0 {
		for _, a := range c.Args {
			args = append(args, strings.ReplaceAll(a, "$(NODE_IP)", "10.99.0.2"))
		}
	}
	text, err := json.Marshal(object{
		"ociVersion": "1.0.2",
		"process": object{"cwd": "/", "args": append([]string{"/rxsteer"}, args...), "env": env, "noNewPrivileges": !*c.SecurityContext.AllowPrivilegeEscalation,
			"user": object{"uid": *c.SecurityContext.RunAsUser, "gid": 0}, "capabilities": object{"bounding": caps, "effective": caps, "permitted": caps}},
		"root":   object{"path": "rootfs", "readonly": *c.SecurityContext.ReadOnlyRootFilesystem},
		"mounts": mounts,
		"linux": object{"maskedPaths": hidden, "readonlyPaths": fixed,
			"namespaces": []object{{"type": "pid"}, {"type": "ipc"}, {"type": "mount"}, {"type": "network", "path": "/run/netns/" + netns}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		if err := os.MkdirAll(filepath.Join(dir, "rootfs", m["destination"].(string)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, dir+"/config.json", string(text))
	return dir
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// container is the command that runs a bundle.
func container(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Skip("needs runc (Debian: runc)")
	}
	cmd := exec.CommandContext(t.Context(), runc, "--root", dir+"/state", "run", "--bundle", dir, "rxsteer-"+filepath.Base(filepath.Dir(dir)))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// TestContainerRights: with the capabilities and mounts of the chart and what a runtime hides, an agent that watches can
// measure everything and write nothing, and one that steers can also write.
func TestContainerRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	text, err := render(t, "canary: {enabled: true, mode: auto}\n"+named)
	if err != nil {
		t.Fatal(err)
	}
	for daemon, steers := range map[string]bool{"rxsteer": false, "rxsteer-canary": true} {
		t.Run(daemon, func(t *testing.T) {
			ns := testnet.New(t)
			cmd := container(t, bundle(t, decode(t, text), daemon, ns.Name, "doctor", "-o", "json"))
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, stderr.String())
			}
			var doc struct {
				Live   bool
				Checks []struct {
					Area, Name, Why string
					OK              bool
				}
			}
			if err := json.Unmarshal(out, &doc); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if !doc.Live {
				t.Error("no live measurement")
			}
			seen := map[string]int{}
			for _, c := range doc.Checks {
				want := true
				switch {
				case c.Area == "netlink", strings.HasSuffix(c.Name, "netdev_budget"): // what lo and a namespace lack
					continue
				case c.Area == "change":
					want = steers
				}
				if seen[c.Area]++; c.OK != want {
					t.Errorf("%s %s: %v, want %v (%s)", c.Area, c.Name, c.OK, want, c.Why)
				}
			}
			if seen["measure"] < 10 || seen["files"] < 5 || seen["change"] < 2 {
				t.Errorf("looked at %v", seen)
			}
		})
	}
}

// TestContainer: the agent of the chart's defaults, run by a runtime, serves what it measures where its probes ask.
func TestContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	text, err := render(t, "")
	if err != nil {
		t.Fatal(err)
	}
	ns, peer := testnet.New(t), testnet.New(t)
	if err := testnet.Connect(peer, ns, testnet.Veth{A: "a0", B: "b0", AddrA: "10.99.0.1/24", AddrB: "10.99.0.2/24", NAPI: true, StaticNeigh: true}); err != nil {
		t.Fatal(err)
	}
	rendered := decode(t, text)
	_, c, _ := rendered.agent(t, "rxsteer")
	cmd := container(t, bundle(t, rendered, "rxsteer", ns.Name))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
		if t.Failed() {
			t.Logf("the container said:\n%s", out.String())
		}
	})
	r := &rig{t: t, ns: ns, client: clientIn(ns)}
	at := func(path string) string { return fmt.Sprintf("http://10.99.0.2:%d%s", c.Ports[0].ContainerPort, path) }
	for _, p := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe} {
		r.await(p.HTTPGet.Path, func() (bool, error) {
			_, err := r.get(at(p.HTTPGet.Path))
			return err == nil, err
		})
	}
	r.await("packets of b0 and interrupts", func() (bool, error) {
		if err := peer.Run("bash", "-c", "for i in {1..20}; do echo >/dev/udp/10.99.0.2/9; done"); err != nil {
			return false, err
		}
		text, err := r.get(at("/metrics"))
		return strings.Contains(text, `rxsteer_napi_packets_total{`) && strings.Contains(text, `device="b0"`) && strings.Contains(text, `rxsteer_interrupts_total{`) &&
			strings.Contains(text, `rxsteer_loop_mode{device="",mode="off"} 1`), err
	})
}
