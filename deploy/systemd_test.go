package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// exposure is what README.md tells: systemd-analyze security of systemd 252, 0 (nothing) … 10.
var exposure = map[string]string{"": "2.2", "steer.conf": "2.6", "profile.conf": "2.7"}

// unitIn installs the agent's units with one drop-in into a folder of their own.
func unitIn(t *testing.T, dropIn string) (service, socket string) {
	t.Helper()
	dir := t.TempDir()
	put := func(from, to string) string {
		b, err := os.ReadFile(filepath.Join("systemd", from))
		if err != nil {
			t.Fatal(err)
		}
		// The program is not installed where the tests run.
		b = []byte(strings.ReplaceAll(string(b), "/usr/bin/rxsteer", "/bin/true"))
		file := filepath.Join(dir, to)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	service, socket = put("rxsteer-agent.service", "rxsteer-agent.service"), put("rxsteer-agent.socket", "rxsteer-agent.socket")
	if dropIn != "" {
		put(dropIn, "rxsteer-agent.service.d/"+dropIn)
	}
	return service, socket
}

func analyze(t *testing.T, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze (Debian: systemd)")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "SYSTEMD_EMOJI=0", "SYSTEMD_COLORS=0", "COLUMNS=200")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("systemd-analyze %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestUnitsAreValid(t *testing.T) {
	for dropIn := range exposure {
		service, socket := unitIn(t, dropIn)
		if out := analyze(t, "verify", "--man=no", service, socket); strings.Contains(out, "rxsteer") {
			t.Errorf("with %q: %s", dropIn, out)
		}
	}
}

func TestTheSandboxStaysAsTight(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	score := regexp.MustCompile(`Overall exposure level for rxsteer-agent\.service: ([0-9.]+)`)
	for dropIn, want := range exposure {
		service, _ := unitIn(t, dropIn)
		out := analyze(t, "security", "--offline=true", "--no-pager", service)
		m := score.FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("no score in:\n%s", out)
		}
		if m[1] != want {
			t.Errorf("with %q: exposure %s, want %s\n%s", dropIn, m[1], want, out)
		}
		name := dropIn
		if name == "" {
			name = "as shipped"
		}
		if line := "| " + name + " | " + want + " |"; !strings.Contains(string(readme), line) {
			t.Errorf("deploy/README.md does not say %q", line)
		}
	}
}

// Without a drop-in the unit has no capability that writes, and nothing of the host is writable to it.
func TestTheUnitAsShippedOnlyMeasures(t *testing.T) {
	b, err := os.ReadFile("systemd/rxsteer-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"CapabilityBoundingSet=CAP_BPF CAP_PERFMON", "ProtectKernelTunables=yes", "ProtectSystem=strict", "ProtectControlGroups=yes"} {
		if !strings.Contains(string(b), "\n"+line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	if regexp.MustCompile(`(?m)^(ReadWritePaths|AmbientCapabilities)=`).Match(b) {
		t.Error("it may write or hand on more than it should")
	}
}

// Go ends with 2 what panics or what the watchdog aborts: a unit that takes 2 for a wrong command line leaves it dead.
func TestUnitsStartAgainAfterACrash(t *testing.T) {
	for _, unit := range []string{"rxsteer-agent.service", "rxsteer-persist.service"} {
		b, err := os.ReadFile(filepath.Join("systemd", unit))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), "\nRestart=on-failure\n") || regexp.MustCompile(`(?m)^RestartPreventExitStatus=(.* )?2( |$)`).Match(b) {
			t.Errorf("%s does not start again", unit)
		}
	}
}
