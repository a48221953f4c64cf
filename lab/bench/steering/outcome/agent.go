package outcome

import "fmt"

// The resident agent's files in the guest.
const (
	AgentFile = "/tmp/agent.yaml"
	AgentLog  = "/tmp/agent.log"
	AgentPID  = "/tmp/agent.pid"
)

// AgentConfig is the agent's configuration. Reading the counters of an emulated card takes a hundred times as long as a real
// one's: it may take half a CPU.
func AgentConfig(mode string) string {
	return "mode: " + mode + "\nlevel: 1\noverhead: 50%\ninterval: 5s\nprofile: false\ndevices:\n- name: eth0\n"
}

// Prepare is bash that starts an agent which only advises, and stops it (as one stops a process) when it knows the host: what
// is compared is a host that has one, not the loading of its programs on an emulated CPU beside other arms.
func Prepare() string {
	return fmt.Sprintf(`printf '%%s' '%s' >%s
rxsteer agent --config %s --state-dir /tmp/agent-journal --web.listen-address 127.0.0.1:9742 >%s 2>&1 &
echo $! >%s
n=600; until wget -q -O - http://127.0.0.1:9742/metrics 2>/dev/null | grep -q '^rxsteer_loop_phase{device="eth0"'; do n=$((n-1)); [ $n -gt 0 ] || { cat %s; exit 73; }; usleep 100000; done
kill -STOP $(cat %s)`, AgentConfig("advise"), AgentFile, AgentFile, AgentLog, AgentPID, AgentLog, AgentPID)
}
