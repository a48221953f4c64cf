#!/bin/sh
# deb: configure [OLD]; rpm: 1 (first) or 2 (upgrade).
set -e
first=no
case "$1" in
configure) [ -n "$2" ] || first=yes ;;
1) first=yes ;;
2) ;;
*) exit 0 ;;
esac
command -v systemctl >/dev/null || exit 0
# What the distribution's presets say: enabled on Debian, not on Fedora and its kin.
if [ $first = yes ]; then systemctl preset rxsteer-agent.service || :; fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
if systemctl -q is-enabled rxsteer-agent.service; then
	systemctl restart rxsteer-agent.service || echo "rxsteer: the agent did not start; see: journalctl -u rxsteer-agent" >&2
else
	systemctl try-restart rxsteer-agent.service || :
fi
