/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What crosses from the reference programs to Go. Counters are cumulative since load. */
#ifndef RXSTEER_REF_H
#define RXSTEER_REF_H

/* Per CPU, so that only one CPU writes each. */
struct tally {
	__u64 polls;	 /* returns of __napi_poll */
	__u64 poll_time; /* ns between its entry and its return */
	__u64 entered;	 /* when the poll running now began, 0: none seen */
	__u64 packets;	 /* packets burnt for */
	__u64 burnt;	 /* ns of CPU burnt for them, by the clock */
};

#endif
