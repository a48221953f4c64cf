package deploy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/steer/control"
)

var update = flag.Bool("update", false, "rewrite what is made from other files: deploy/kubernetes and the chart's copies")

const chartDir = "helm/rxsteer"

// render is what Helm makes of the chart with these values (YAML), without a cluster.
func render(t *testing.T, values string) (string, error) {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	v, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: "rxsteer", Namespace: "rxsteer", IsInstall: true}, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return "", err
	}
	var docs []string
	for _, name := range []string{"daemonset.yaml", "monitoring.yaml"} {
		docs = append(docs, files["rxsteer/templates/"+name])
	}
	return strings.Join(docs, "\n---\n"), nil
}

// rendered are the objects of a rendering, each read strictly into its own type.
type rendered struct {
	daemons  []*apps.DaemonSet
	maps     []*core.ConfigMap
	accounts []*core.ServiceAccount
	services []*core.Service
	monitors []*monitoring.ServiceMonitor
	rules    []*monitoring.PrometheusRule
	policies []*networking.NetworkPolicy
}

func strictly[T any](t *testing.T, to *[]*T, doc string) {
	t.Helper()
	o := new(T)
	if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
		t.Fatalf("%v in:\n%s", err, doc)
	}
	*to = append(*to, o)
}

func decode(t *testing.T, text string) *rendered {
	t.Helper()
	r := &rendered{}
	for doc := range strings.SplitSeq(text, "\n---") {
		var kind struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatalf("%v in:\n%s", err, doc)
		}
		switch kind.APIVersion + " " + kind.Kind {
		case " ":
		case "apps/v1 DaemonSet":
			strictly(t, &r.daemons, doc)
		case "v1 ConfigMap":
			strictly(t, &r.maps, doc)
		case "v1 ServiceAccount":
			strictly(t, &r.accounts, doc)
		case "v1 Service":
			strictly(t, &r.services, doc)
		case "monitoring.coreos.com/v1 ServiceMonitor":
			strictly(t, &r.monitors, doc)
		case "monitoring.coreos.com/v1 PrometheusRule":
			strictly(t, &r.rules, doc)
		case "networking.k8s.io/v1 NetworkPolicy":
			strictly(t, &r.policies, doc)
		default:
			t.Fatalf("an object nobody expected: %s %s", kind.APIVersion, kind.Kind)
		}
	}
	return r
}

// agent is the container of a DaemonSet and the policy that it is given.
func (r *rendered) agent(t *testing.T, daemon string) (*apps.DaemonSet, *core.Container, *control.Config) {
	t.Helper()
	i := slices.IndexFunc(r.daemons, func(d *apps.DaemonSet) bool { return d.Name == daemon })
	if i < 0 {
		t.Fatalf("no DaemonSet %s", daemon)
	}
	d := r.daemons[i]
	pod := &d.Spec.Template
	for k, v := range d.Spec.Selector.MatchLabels {
		if pod.Labels[k] != v {
			t.Errorf("%s selects %s=%s, which its pods do not have", daemon, k, v)
		}
	}
	c := &pod.Spec.Containers[0]
	volumes := map[string]core.Volume{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = v
	}
	var config *control.Config
	for _, m := range c.VolumeMounts {
		v, ok := volumes[m.Name]
		if !ok {
			t.Errorf("%s mounts %s, which is no volume", daemon, m.Name)
		}
		delete(volumes, m.Name)
		if v.ConfigMap == nil {
			continue
		}
		i := slices.IndexFunc(r.maps, func(m *core.ConfigMap) bool { return m.Name == v.ConfigMap.Name })
		if i < 0 || !slices.Contains(c.Args, "--config="+m.MountPath+"/rxsteer.yaml") {
			t.Fatalf("%s: no map %s, or it is not where %v looks", daemon, v.ConfigMap.Name, c.Args)
		}
		var err error
		if config, err = control.Parse("rxsteer.yaml", []byte(r.maps[i].Data["rxsteer.yaml"]), cpuset.Set{}); err != nil {
			t.Fatalf("the agent refuses its policy: %v\n%s", err, r.maps[i].Data["rxsteer.yaml"])
		}
	}
	if len(volumes) > 0 || config == nil {
		t.Errorf("%s: volumes that nothing mounts: %v; policy %v", daemon, volumes, config)
	}
	return d, c, config
}

// rights are what a container may do to its node, in words.
func rights(c *core.Container) []string {
	out := []string{}
	for _, cap := range c.SecurityContext.Capabilities.Add {
		out = append(out, string(cap))
	}
	for _, m := range c.VolumeMounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		out = append(out, m.MountPath+" "+mode)
	}
	return out
}

var (
	observing = []string{"BPF", "PERFMON", "SYSLOG", "/host/proc ro", "/host/sys ro", "/etc/rxsteer ro"}
	steering  = []string{"BPF", "PERFMON", "SYSLOG", "NET_ADMIN", "/host/proc rw", "/host/sys rw", "/etc/rxsteer ro", "/run/rxsteer rw"}
)

const named = "devices: [{name: eth0, policy: {cpus: 0-7}}, {name: eth1, mode: advise}]\n"

func TestChart(t *testing.T) {
	for name, tc := range map[string]struct {
		values string
		modes  map[string]control.Mode // of the DaemonSets
		rights map[string][]string
		check  func(t *testing.T, r *rendered)
	}{
		"observe, which is the default": {"", map[string]control.Mode{"rxsteer": control.Off}, map[string][]string{"rxsteer": observing},
			func(t *testing.T, r *rendered) {
				if n := len(r.services) + len(r.monitors) + len(r.rules) + len(r.policies); n > 0 {
					t.Errorf("%d objects that nobody asked for, some of kinds a cluster may not have", n)
				}
			}},
		"advise": {"mode: advise\nconfig: {interval: 30s, limits: {gain: 20%}, change_hours: [{from: '22:00', to: '06:00'}]}\n" + named,
			map[string]control.Mode{"rxsteer": control.Advise}, map[string][]string{"rxsteer": observing},
			func(t *testing.T, r *rendered) {
				_, _, c := r.agent(t, "rxsteer")
				if d, ok := c.For("eth0"); !ok || d.Policy.CPUs.String() != "0-7" || c.Limits.Gain != 0.2 || len(c.Change) != 1 || c.OnStop != control.Restore {
					t.Errorf("the policy lost something: %+v", c)
				}
			}},
		"auto on canaries": {"canary: {enabled: true, mode: auto}\n" + named,
			map[string]control.Mode{"rxsteer": control.Off, "rxsteer-canary": control.Auto}, map[string][]string{"rxsteer": observing, "rxsteer-canary": steering},
			func(t *testing.T, r *rendered) {
				for daemon, operator := range map[string]core.NodeSelectorOperator{"rxsteer": core.NodeSelectorOpDoesNotExist, "rxsteer-canary": core.NodeSelectorOpExists} {
					d, _, _ := r.agent(t, daemon)
					got := d.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
					want := []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{{Key: "rxsteer.io/canary", Operator: operator}}}}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s: a node may have two agents, or none (-want +got):\n%s", daemon, diff)
					}
				}
				_, _, c := r.agent(t, "rxsteer-canary")
				if d, _ := c.For("eth1"); d.Mode != control.Advise {
					t.Errorf("eth1 is %s", d.Mode)
				}
			}},
		"halted by one value": {"halt: true\nmode: auto\ncanary: {enabled: true, mode: auto}\n" + named,
			map[string]control.Mode{"rxsteer": control.Off, "rxsteer-canary": control.Off}, map[string][]string{"rxsteer": observing, "rxsteer-canary": observing},
			func(t *testing.T, r *rendered) {
				for _, daemon := range []string{"rxsteer", "rxsteer-canary"} {
					if _, _, c := r.agent(t, daemon); len(c.Devices) > 0 {
						t.Errorf("%s still names %v", daemon, c.Devices)
					}
				}
			}},
		"TLS": {"web: {scheme: https, secret: rxsteer-web, port: 9743}\nprobes: {httpHeaders: [{name: Authorization, value: Basic x}]}\nserviceMonitor: {enabled: true, tlsConfig: {ca: {secret: {name: ca, key: ca.crt}}}, basicAuth: {username: {name: p, key: u}, password: {name: p, key: p}}}",
			map[string]control.Mode{"rxsteer": control.Off}, map[string][]string{"rxsteer": append(slices.Clone(observing), "/etc/rxsteer-web ro")},
			func(t *testing.T, r *rendered) {
				_, c, _ := r.agent(t, "rxsteer")
				if !slices.Contains(c.Args, "--web.config.file=/etc/rxsteer-web/web.yaml") || c.LivenessProbe.HTTPGet.Scheme != "HTTPS" || len(c.ReadinessProbe.HTTPGet.HTTPHeaders) != 1 {
					t.Errorf("not served or probed by TLS: %v %v", c.Args, c.LivenessProbe)
				}
				if e := r.monitors[0].Spec.Endpoints[0]; e.Scheme == nil || *e.Scheme != "https" || e.TLSConfig == nil || e.BasicAuth == nil {
					t.Errorf("scraped without TLS: %+v", e)
				}
			}},
		"everything beside it": {"serviceMonitor: {enabled: true, labels: {release: prom}, metricRelabelings: [{sourceLabels: [__name__], regex: rxsteer_napi_poll_.*, action: drop}]}\nprometheusRule: {enabled: true}\ndashboard: {enabled: true}\nnetworkPolicy: {enabled: true}\nextraCapabilities: [SYS_RESOURCE]\npriorityClassName: system-node-critical\nimagePullSecrets: [{name: pull}]\nmaxUnavailable: 1",
			map[string]control.Mode{"rxsteer": control.Off}, map[string][]string{"rxsteer": slices.Insert(slices.Clone(observing), 3, "SYS_RESOURCE")},
			func(t *testing.T, r *rendered) {
				d, _, _ := r.agent(t, "rxsteer")
				for k, v := range r.services[0].Spec.Selector {
					if d.Spec.Template.Labels[k] != v {
						t.Errorf("the service selects %s=%s", k, v)
					}
				}
				if m := r.monitors[0]; m.Labels["release"] != "prom" || len(m.Spec.Endpoints[0].MetricRelabelConfigs) != 1 || m.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != "rxsteer" {
					t.Errorf("monitor: %+v", m)
				}
				var rules int
				for _, p := range r.rules {
					for _, g := range p.Spec.Groups {
						rules += len(g.Rules)
					}
				}
				if rules < 25 {
					t.Errorf("%d rules", rules)
				}
				i := slices.IndexFunc(r.maps, func(m *core.ConfigMap) bool { return m.Name == "rxsteer-dashboards" })
				shipped, err := os.ReadFile("grafana/rxsteer.json")
				if err != nil {
					t.Fatal(err)
				}
				if r.maps[i].Data["rxsteer.json"] != string(shipped) || !json.Valid(shipped) {
					t.Error("the dashboard is not the one that is tested")
				}
				if p := r.policies[0].Spec; p.Ingress[0].Ports[0].Port.IntValue() != 9742 || len(p.Egress) != 0 || len(p.PolicyTypes) != 2 {
					t.Errorf("network policy: %+v", p)
				}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := render(t, tc.values)
			if err != nil {
				t.Fatal(err)
			}
			r := decode(t, text)
			if len(r.daemons) != len(tc.modes) {
				t.Errorf("%d DaemonSets, want %d", len(r.daemons), len(tc.modes))
			}
			for daemon, mode := range tc.modes {
				d, c, config := r.agent(t, daemon)
				if config.Mode != mode {
					t.Errorf("%s is %s, want %s", daemon, config.Mode, mode)
				}
				if diff := cmp.Diff(tc.rights[daemon], rights(c)); diff != "" {
					t.Errorf("%s may do other things to its node (-want +got):\n%s", daemon, diff)
				}
				pod, s := d.Spec.Template.Spec, c.SecurityContext
				if !pod.HostNetwork || pod.HostPID || *pod.AutomountServiceAccountToken || *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
					s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
					t.Errorf("%s: %+v %+v", daemon, pod, s)
				}
				if !slices.ContainsFunc(pod.Tolerations, func(o core.Toleration) bool {
					return o.Operator == core.TolerationOpExists && o.Key == "" && o.Effect == ""
				}) {
					t.Errorf("%s leaves tainted nodes out: %v", daemon, pod.Tolerations)
				}
			}
			tc.check(t, r)
		})
	}
}

// TestChartRefuses: what would be wrong on a thousand nodes is refused before it is sent to any.
func TestChartRefuses(t *testing.T) {
	for values, want := range map[string]string{
		"mode: on":                               "mode",
		"halted: true":                           "halted",
		"mode: auto":                             "give devices",
		"devices: [{name: eth0, mode: auto}]":    "devices",
		"devices: [{name: 'eth 0'}]":             "devices",
		"config: {devices: []}":                  "devices",
		"config: {mode: auto}":                   "mode",
		"config: {on_stop: keep}":                "on_stop",
		"config: {baseline: /x}":                 "baseline",
		"config: {allow: [flap]}":                "allow",
		"extraCapabilities: [SYS_ADMIN]":         "extraCapabilities",
		"web: {port: 0}":                         "port",
		"canary: {enabled: 'yes'}":               "canary",
		"image: {repository: ''}":                "repository",
		"serviceMonitor: {enabled: true, x: {}}": "x",
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that names %s", values, err, want)
		}
	}
}

// generated holds one file to what it is made from.
func generated(t *testing.T, file string, want []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what it is made from (%v): go -C deploy test -run %s -update", file, err, t.Name())
	}
}

// TestChartCarriesWhatIsTested: rules and dashboard of the chart are those of deploy/prometheus and deploy/grafana, byte for byte.
func TestChartCarriesWhatIsTested(t *testing.T) {
	for copied, from := range map[string]string{"rules.yaml": "prometheus/rules.yaml", "fleet.yaml": "prometheus/fleet.yaml", "rxsteer.json": "grafana/rxsteer.json"} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		generated(t, chartDir+"/files/"+copied, text)
	}
	files, err := os.ReadDir(chartDir + "/files")
	if err != nil || len(files) != 3 {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// TestPlainManifest: the plain DaemonSet is the chart with its defaults.
func TestPlainManifest(t *testing.T) {
	text, err := render(t, "")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("# rxsteer on every node, watching only. Made from deploy/helm/rxsteer by its test; docs/fleet.md leads through it.\n")
	for line := range strings.Lines(strings.TrimSuffix(strings.TrimSpace(text), "\n---") + "\n") {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	generated(t, "kubernetes/rxsteer.yaml", []byte(b.String()))
}
