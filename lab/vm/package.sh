# The package's life in a booted Debian: installed, killed, upgraded, removed; then the host is as it was found.
export DEBIAN_FRONTEND=noninteractive
fail() { echo "NOT SO: $*"; journalctl -u rxsteer-agent --no-pager | tail -40; systemctl status rxsteer-agent --no-pager -l | head -20; exit 1; }
wait_for() { n=$1 what=$2; shift 2; until "$@"; do n=$((n-1)); [ $n -gt 0 ] || fail "$what"; sleep 1; done; echo "== $what"; }
ready() { curl -sf http://127.0.0.1:9742/readyz >/dev/null; }
pid() { systemctl show -p MainPID --value rxsteer-agent; }
state() {
  ethtool -x eth0 | sed -n '/^ *[0-9]*:/p'
  ethtool -c eth0 | sed -n 's/^rx-usecs:/rx-usecs/p'
  awk '$NF ~ "^eth0-(rx|TxRx|rxtx)-?[0-9]+$" {sub(":","",$1); print $NF, $1}' /proc/interrupts | while read -r name irq; do
    echo "$name $(cat /proc/irq/$irq/smp_affinity_list)"
  done
  grep . /sys/class/net/eth0/queues/rx-*/rps_cpus
}
files() { find / -xdev \( -path /proc -o -path /sys -o -path /share -o -path /tmp -o -path /var/log -o -path /var/lib/dpkg -o -path /var/lib/systemd -o -path /var/cache \) -prune -o -print | sort; }
same() { state >/tmp/is; cmp -s /tmp/state0 /tmp/is; }
[ "$(cat /proc/1/comm)" = systemd ] || fail "systemd is process 1"
state >/tmp/state0; files >/tmp/files0

dpkg -i /share/old.deb || fail "installing"
wait_for 60 "installed: the agent is started and ready" ready
systemctl -q is-enabled rxsteer-agent || fail "it is enabled"
[ "$(curl -s http://127.0.0.1:9742/metrics | grep -c '^rxsteer_')" -gt 10 ] || fail "it serves metrics"
rxsteer version | tee /tmp/version; grep -q 'v0.0.1 (commit ' /tmp/version || fail "the version names the commit"
grep -E '^Cap(Eff|Bnd)' /proc/$(pid)/status
[ "$(awk '/^CapEff/{print $2}' /proc/$(pid)/status)" = 000000c000000000 ] || fail "its capabilities are CAP_PERFMON and CAP_BPF"
for f in /sys/class/net/eth0/queues/rx-0/rps_cpus /proc/sys/net/core/netdev_budget; do
  nsenter -t $(pid) -m sh -c "echo 0 >$f" 2>/dev/null && fail "as shipped $f is not writable to it"
done
echo "== as shipped it has CAP_BPF and CAP_PERFMON and can write no setting"
same || fail "installing changes no setting"
[ "$(systemctl show -p Type --value rxsteer-agent)" = notify ] || fail "Type=notify"
journalctl -u rxsteer-agent -o cat | grep -q 'msg=serving' || fail "its log is in the journal"

# One that hangs is killed by the watchdog and started again.
mkdir -p /run/systemd/system/rxsteer-agent.service.d
printf '[Service]\nWatchdogSec=20s\n' >/run/systemd/system/rxsteer-agent.service.d/watchdog.conf
systemctl daemon-reload && systemctl restart rxsteer-agent || fail "starting with a shorter watchdog"
was=$(pid); sleep 45
[ "$(pid)" = "$was" ] || fail "while it works the watchdog is fed"
kill -STOP "$was"
wait_for 120 "stopped: the watchdog had it started again" sh -c "p=\$(systemctl show -p MainPID --value rxsteer-agent); [ \$p != 0 ] && [ \$p != $was ]"
journalctl -u rxsteer-agent | grep -qi 'watchdog timeout' || fail "the watchdog did it"
rm -r /run/systemd/system/rxsteer-agent.service.d; systemctl daemon-reload

# The socket unit holds the port, and the first scrape starts the agent.
systemctl stop rxsteer-agent; systemctl start rxsteer-agent.socket || fail "starting the socket"
[ "$(pid)" = 0 ] || fail "only the socket runs"
curl -sf --max-time 120 http://127.0.0.1:9742/healthz >/dev/null || fail "the first request starts it"
[ "$(pid)" != 0 ] || fail "started by its socket"
systemctl stop rxsteer-agent.socket; systemctl restart rxsteer-agent || fail "without the socket again"
wait_for 60 "watchdog and socket: as they should, ready again" ready
again() { systemctl reset-failed rxsteer-agent; } # what is killed here often is no unit that fails by itself
again

was=$(pid); kill -9 "$was"
wait_for 60 "killed: started again" sh -c "p=\$(systemctl show -p MainPID --value rxsteer-agent); [ \$p != 0 ] && [ \$p != $was ]"
wait_for 60 "and ready" ready

# Something dies in the middle of a change; then the agent is killed, and ExecStopPost undoes it.
cp /etc/rxsteer/rxsteer.yaml /tmp/shipped.yaml
printf 'devices:\n- {name: eth0, mode: auto}\n' >/etc/rxsteer/rxsteer.yaml
lacks() { curl -sf http://127.0.0.1:9742/readyz >/tmp/readyz && grep -q "^steering: .*$1" /tmp/readyz; }
again; systemctl restart rxsteer-agent || fail "starting as shipped with a configuration that steers"
wait_for 60 "asked to steer with the unit as shipped: it is ready, and names the drop-in it lacks" lacks 'CAP_NET_ADMIN.*steer.conf grants it'
mkdir -p /etc/systemd/system/rxsteer-agent.service.d
cp /usr/share/rxsteer/systemd/steer.conf /etc/systemd/system/rxsteer-agent.service.d/
again; systemctl daemon-reload && systemctl restart rxsteer-agent || fail "starting with steer.conf"
wait_for 60 "with steer.conf ready" ready
lacks . && { cat /tmp/readyz; fail "with steer.conf it may steer"; }
cp /tmp/shipped.yaml /etc/rxsteer/rxsteer.yaml
again; systemctl restart rxsteer-agent || fail "starting as it was configured"
wait_for 60 "and to advise again" ready
same || fail "in that moment it changed nothing"
RXSTEER_PLAN=/tmp/plan.yaml rxapplytest -test.run '^TestPlanOnTheDriver$' || fail "a plan"
rxsteer apply /tmp/plan.yaml --yes --level 0 --for 20s >/tmp/apply.log 2>&1 & apply=$!
n=120; while same; do n=$((n-1)); [ $n -gt 0 ] || { cat /tmp/apply.log; fail "it changes something"; }; sleep 1; done
kill -9 $apply; wait $apply 2>/dev/null
same && fail "it died in the middle"
was=$(pid); kill -9 "$was"
wait_for 90 "the agent is killed: what was under way is undone" same
rxsteer history
wait_for 60 "and it is ready again" ready

# A change that is kept outlives an upgrade, and not the removal.
rxsteer apply /tmp/plan.yaml --yes --level 0 --for 0 | tail -2
state >/tmp/kept; same && fail "the plan is kept"
echo "# edited by the administrator" >>/etc/rxsteer/rxsteer.yaml
was=$(pid)
dpkg -i /share/new.deb || fail "upgrading"
wait_for 60 "upgraded: ready" ready
[ "$(pid)" != "$was" ] || fail "the new program runs"
rxsteer version | grep -q 'v0.0.2' || fail "the new version"
tail -1 /etc/rxsteer/rxsteer.yaml | grep -q edited || fail "the configuration is the administrator's"
state >/tmp/is; cmp -s /tmp/kept /tmp/is || fail "an upgrade leaves settings alone"
echo "== upgraded: configuration and settings are kept"

dpkg -r rxsteer || fail "removing"
same || { diff /tmp/state0 /tmp/is; fail "removed: every setting is as it was found"; }
pgrep rxsteer && fail "removed: nothing runs"
[ -e /etc/rxsteer/rxsteer.yaml ] || fail "removed: the configuration stays until it is purged"
dpkg -i /share/new.deb || fail "installing again"
wait_for 60 "installed again: ready, as it was configured" ready
dpkg -P rxsteer || fail "purging"
files >/tmp/files1
diff /tmp/files0 /tmp/files1 | grep '^[<>]' | grep -v -e '> /run/' && fail "purged: no file is left"
find /run -name '*rxsteer*' | grep -v -e /run/systemd/units && fail "purged: nothing is left in /run"
same || fail "purged: every setting is as it was found"
systemctl list-units --all --no-legend 'rxsteer*' | grep -v not-found && fail "purged: no unit is left"
echo "== removed and purged: the host is as it was found"
