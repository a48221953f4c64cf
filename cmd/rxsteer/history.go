package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/plan"
)

func historyCommand(e *env) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "history",
		Short: "List the changes made in this boot",
		Long: `List the changes made in this boot, oldest first, with their state: kept, rolled
back, unconfirmed, applying (a run is at it, or died: rxsteer rollback undoes it)
or partial (not everything could be put back).`,
		Example: `  rxsteer history
  rxsteer history -o json | jq '.[] | {id, state}'`,
		GroupID: groupSteer,
		Args:    cobra.NoArgs,
	}
	addStateDir(c, &dir)
	out := addOutput(c, "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := out.check(); err != nil {
			return err
		}
		txs, boot, err := apply.History(dir)
		if err != nil {
			return applyFailure(err)
		}
		if current := e.bootID(); boot != "" && current != "" && boot != current {
			txs = nil // of an earlier boot: its settings died with it
		}
		if out.format == "json" {
			if txs == nil {
				txs = []apply.Transaction{}
			}
			return printJSON(e.stdout, txs)
		}
		printHistory(e.stdout, txs, e.now(), e.palette(), e.textWidth())
		return nil
	}
	return c
}

func (e *env) bootID() string {
	text, err := e.fs.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func printHistory(w io.Writer, txs []apply.Transaction, now time.Time, p palette, width int) {
	if len(txs) == 0 {
		fmt.Fprintln(w, "No change was made in this boot.")
		return
	}
	t := newTable("", ">ID", "begun", "by", "state", ">changes", "of", "why")
	for _, x := range txs {
		t.row(x.ID, ago(now.Sub(x.Begun)), clip(x.By, 16), string(x.State), fmt.Sprint(len(x.Plan.Changes)), targets(x.Plan), clip(x.Why, 40))
	}
	t.print(w, p)
	for _, x := range txs {
		for _, l := range x.Left {
			wrap(w, width, "! ", "  ", fmt.Sprintf("transaction %s: %s is %s, was %s: %s", x.ID, l.Ref, shown(l.Is), shown(l.Want), l.Why))
		}
	}
}

// targets names the devices of a plan.
func targets(pl *plan.Plan) string {
	var out []string
	for _, c := range pl.Changes {
		name := c.Target.Device()
		if name == "" {
			name = "host"
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return clip(strings.Join(out, ", "), 24)
}

func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days ago", int(d.Hours()/24))
	}
}

// journalChecks is what doctor says of the journal.
func (e *env) journalChecks() []check {
	txs, boot, err := apply.History(apply.DefaultDir)
	if err != nil {
		c := check{Area: areaState, Name: "journal in " + apply.DefaultDir, Why: err.Error(), Lost: "apply, rollback and history"}
		if errors.Is(err, apply.ErrNewer) {
			c.Grant = "the rxsteer that wrote it finishes or undoes what is under way: rxsteer rollback"
		}
		return []check{c}
	}
	if current := e.bootID(); boot != current && boot != "" {
		txs = nil
	}
	return stateChecks(txs)
}

func stateChecks(txs []apply.Transaction) []check {
	var out []check
	for _, t := range txs {
		switch t.State {
		case apply.Kept, apply.RolledBack:
			continue
		case apply.Unconfirmed:
			out = append(out, check{Area: areaState, Name: "transaction " + t.ID, Why: "it waits to be confirmed", Grant: "rxsteer confirm " + t.ID + ", or: rxsteer rollback " + t.ID})
		case apply.Partial:
			out = append(out, check{Area: areaState, Name: "transaction " + t.ID, Why: fmt.Sprintf("%s could not be put back", plural(len(t.Left), "setting")), Grant: "rxsteer history shows them"})
		default:
			out = append(out, check{Area: areaState, Name: "transaction " + t.ID, Why: "a run is at it, or died in the middle", Grant: "rxsteer rollback " + t.ID})
		}
	}
	if len(out) == 0 {
		out = append(out, check{Area: areaState, Name: "no unfinished transaction", OK: true})
	}
	return out
}
