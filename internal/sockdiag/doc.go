// Package sockdiag asks the kernel about TCP connections over sock_diag netlink: what bounds
// each of them, its windows, round trips and retransmissions.
//
// It reads established connections of the caller's network namespace only, no more than it is
// told to, and changes nothing.
package sockdiag
