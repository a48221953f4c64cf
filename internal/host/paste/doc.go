// Package paste reads what people paste into tickets: the text of /proc and of
// ethtool, ip and dmesg, in a folder or archive, at one or two points in time. It turns them into
// the types the rest of rxsteer works on: topology, NICs, snapshot and sample.
//
// Nothing is required. What is missing or not understood is a note that names file and line,
// never a failure; memory is bounded whatever the files hold. It refuses to guess
// settings: what the texts do not show is unknown.
package paste
