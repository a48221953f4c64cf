// Package traffic is the lab's load: open-loop senders of many flows over
// UDP, TCP and ready-made frames, and a receiver that counts what arrived of
// each flow and how late.
//
// Open loop means that what is due is decided by the clock alone: a slow
// receiver does not slow the sender down, and what the sender itself could not
// send is reported (refused by the socket, skipped for want of CPU), never
// silently left out. Every run ends by time or by count.
//
// Each packet carries a Header: flow, sequence number and a CLOCK_MONOTONIC
// stamp, so one-way times hold between processes of one machine; between
// machines use Probe, which takes round trips.
package traffic
