package qemu

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Neither needs a guest: what is missing is told before anything is installed.
func TestWithoutRootOrTunIsTheLabsFailure(t *testing.T) {
	if os.Getenv("RXSTEER_LAB_OPEN") != "" {
		_, err := OpenCache()
		if err == nil {
			os.Exit(0)
		}
		os.Stderr.WriteString(err.Error())
		os.Exit(ExitCode(err))
	}
	if os.Geteuid() != 0 {
		_, err := OpenCache()
		if ExitCode(err) != ExitLab || !strings.Contains(err.Error(), "needs root") {
			t.Fatalf("got %v, want exit %d and what is needed", err, ExitLab)
		}
		t.Skip("needs root: the rest hides /dev/net/tun in a mount namespace")
	}
	self := os.Args[0] + " -test.run '^TestWithoutRootOrTunIsTheLabsFailure$'"
	for name, c := range map[string]struct{ command, want string }{
		"no tun":  {"mount --bind /dev/null /dev/net/tun; exec " + self, "open /dev/net/tun"},
		"no root": {"chmod 755 $(dirname " + os.Args[0] + "); exec setpriv --reuid 65534 --regid 65534 --clear-groups " + self, "needs root"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("unshare", "-m", "sh", "-c", c.command)
			cmd.Env = append(os.Environ(), "RXSTEER_LAB_OPEN=1", "RXSTEER_LAB_DIR="+t.TempDir())
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != ExitLab || !strings.Contains(string(out), c.want) || strings.Count(string(out), "\n") > 0 {
				t.Errorf("exit %d (%v), %q; want %d and one line with %q", code, err, out, ExitLab, c.want)
			}
		})
	}
}
