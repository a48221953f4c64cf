// Package record keeps what was measured and what was set in a file, and reads it
// again anywhere: the same samples, the same settings, so the same answers.
//
// A recording is a row of gzip members (RFC 1952), one per frame: each has a checksum of its own and
// is on disk when the next begins, so that a recording cut off by a kill, a full disk or a power loss
// loses its last frame at most. A frame is one line of JSON, so that "zcat FILE | jq" reads it too:
//
//	{"format":"rxsteer recording","header":{…}}  first: version, program, host, what was asked for
//	{"state":{…}}                                interfaces, topology and settings; again when they change
//	{"sample":{…},"instances":[…]}               one interval
//	{"end":{…}}                                  last: without it the recording was cut off
//
// It refuses to guess: a damaged frame ends the reading, and what a reader got until then says so.
package record
