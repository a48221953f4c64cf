// Package plan chooses settings: from findings, what is set, the host's
// topology and a policy it makes an ordered list of changes, each with what
// it serves, its risk, the command a person would type and its undo. Nothing
// is written to the host; a plan is text that can be read, edited and kept.
//
// It refuses changes that no finding asks for: "nothing to do" is an answer,
// with its reason.
package plan
