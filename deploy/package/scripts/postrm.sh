#!/bin/sh
# deb: remove, purge …; rpm: 0 (last) or 1 (upgrade).
set -e
case "$1" in
remove) ;;
purge) rm -rf /etc/rxsteer /var/lib/rxsteer ;;
0) ;;
*) exit 0 ;;
esac
# A package that is removed and not purged comes back as it was: enabled, with its configuration.
if [ "$1" != remove ]; then
	rm -rf /run/rxsteer /etc/systemd/system/rxsteer-agent.service.d
	rm -f /etc/systemd/system/multi-user.target.wants/rxsteer-agent.service /etc/systemd/system/sockets.target.wants/rxsteer-agent.socket
fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
