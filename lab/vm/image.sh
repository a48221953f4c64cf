# The image of the Dockerfile, built and run without a network: image.sh STORE ROOT.TAR, in the sources.
# The name of the public base image is given to one that is made here: a Debian of the host's apt sources and the host's Go.
set -eu
store=$1 root=$2 commit=$(git rev-parse HEAD)
fail() { echo "NOT SO: $*"; exit 1; }
tool() { t=$1; shift; "$t" --root "$store/images" --runroot "$store/run" "$@"; }
base=$(sed -n 's/^FROM \(.*\) AS build$/\1/p' Dockerfile)
go mod download
c=$(tool buildah from scratch)
tool buildah add -q "$c" "$root" / >/dev/null
tool buildah copy -q "$c" "$(go env GOROOT)" /usr/local/go >/dev/null
tool buildah config --env PATH=/usr/local/go/bin:/usr/bin:/bin --env GOPATH=/go --env GOTOOLCHAIN=local "$c"
tool buildah commit -q --rm "$c" "$base" >/dev/null
echo "== made $base of $(. /etc/os-release; echo "$VERSION_CODENAME") and $(go env GOVERSION)"
export -f tool fail
export store commit
# What follows has a loopback and nothing else: neither pulls nor downloads can succeed.
exec unshare -n bash -eu <<'OFFLINE'
ip link set lo up
log=$(mktemp); trap 'rm -f $log' EXIT
tool buildah build --pull=never --network host --isolation chroot --volume "$(go env GOMODCACHE):/go/pkg/mod:ro" --volume "$(go env GOCACHE):/root/.cache/go-build" \
  --build-arg VERSION=v0.0.1 --build-arg "COMMIT=$commit" -t localhost/rxsteer:lab . >"$log" 2>&1 || { cat "$log"; fail "the image is built"; }
echo "== built $(tool buildah images --format '{{.Size}}' localhost/rxsteer:lab)"
# runc, for crun 1.8 refuses hosts with both versions of cgroups; limits of its own, for the default may be above this process's.
run() { tool podman --cgroup-manager cgroupfs run --runtime runc --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 --privileged --pid=host --network=host "$@"; }
said=$(run --rm localhost/rxsteer:lab version)
echo "== $said"
case $said in "rxsteer v0.0.1 (commit ${commit:0:12}, "*) ;; *) fail "the version names the commit" ;; esac
run --rm localhost/rxsteer:lab status lo | grep '^lo ' || fail "status shows the host's interface"
name=rxsteer-lab-$$
trap 'rm -f $log; tool podman --cgroup-manager cgroupfs rm -f -t 5 $name >/dev/null' EXIT
run -d --name $name localhost/rxsteer:lab agent >/dev/null
get() { curl -sf --max-time 10 "http://127.0.0.1:9742$1"; }
n=120; until get /healthz >/dev/null && get /readyz >"$log"; do n=$((n-1)); [ $n -gt 0 ] || { tool podman logs $name; fail "the agent is healthy and ready"; }; sleep 1; done
echo "== the agent: $(head -1 "$log")"
n=60; until get /metrics >"$log" && grep -q '^rxsteer_interrupts_total{' "$log"; do n=$((n-1)); [ $n -gt 0 ] || fail "it serves what it measures"; sleep 1; done
echo "== it serves $(grep -c '^rxsteer_' "$log") series"
OFFLINE
