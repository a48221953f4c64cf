#!/bin/sh
# deb: remove, or upgrade NEW; rpm: 0 (last) or 1 (upgrade). An upgrade leaves the agent running until the new one starts.
set -e
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then systemctl stop rxsteer-agent.socket rxsteer-agent.service || :; fi
# The host as found: nothing of ours comes back at the next boot, and each value of this boot that still is ours is put back.
/usr/bin/rxsteer persist --remove || echo "rxsteer: what was persisted could not be removed" >&2
if [ -e /run/rxsteer/journal.jsonl ]; then
	/usr/bin/rxsteer rollback --original || echo "rxsteer: the values listed above were left as they are" >&2
fi
