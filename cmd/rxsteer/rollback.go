package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/steer/apply"
)

func confirmCommand(e *env) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "confirm [ID]",
		Short: "Keep a change that waits to be confirmed",
		Long: `Keep a change made with apply --confirm-within. Without ID it is the last one that
waits. When its time ran out it is undone and cannot be confirmed.`,
		Example: `  rxsteer apply fix.yaml --confirm-within 60s
  rxsteer confirm`,
		GroupID:           groupSteer,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeTransactions(&dir, apply.Unconfirmed),
	}
	addStateDir(c, &dir)
	out := addOutput(c, "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		return e.withEngine(c.Context(), dir, func(engine *apply.Engine) error {
			res, err := engine.Confirm(first(args))
			if err != nil {
				return &failure{exitFailed, err, []string{"rxsteer history lists the transactions"}}
			}
			res.State = apply.Kept
			if out.format == "json" {
				return printJSON(e.stdout, applyDoc{Result: res})
			}
			_, err = fmt.Fprintf(e.stdout, "Transaction %s is kept; undo it with: rxsteer rollback %s\n", res.ID, res.ID)
			return err
		})
	}
	return c
}

func rollbackCommand(e *env) *cobra.Command {
	var dir string
	var original, interrupted bool
	c := &cobra.Command{
		Use:   "rollback [ID]",
		Short: "Undo a change: each value that still is ours is put back exactly",
		Long: `Undo a change: each value it set is put back to what it was, if it still is the
value that was set; what somebody else has changed since is left alone and
listed. Without ID it is the last change. --original undoes every change of this
boot, newest first. A run that was killed in the middle is undone the same way;
--interrupted undoes nothing else, and is what the agent's unit runs after it ended.

Exit status 4 says that something could not be put back.`,
		Example: `  rxsteer rollback
  rxsteer rollback 3
  rxsteer rollback --original
  rxsteer rollback --interrupted`,
		GroupID:           groupSteer,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeTransactions(&dir, apply.Kept, apply.Unconfirmed, apply.Partial, apply.Applying),
	}
	addStateDir(c, &dir)
	out := addOutput(c, "json")
	c.Flags().BoolVar(&original, "original", false, "undo every change of this boot")
	c.Flags().BoolVar(&interrupted, "interrupted", false, "undo only what a killed run left in the middle")
	c.MarkFlagsMutuallyExclusive("original", "interrupted")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		switch {
		case original && len(args) > 0:
			return usage("--original undoes all: it takes no ID")
		case interrupted && len(args) > 0:
			return usage("--interrupted takes no ID: what was killed is undone whole")
		}
		if interrupted { // a sandbox that steers nothing can keep no journal, and has nothing to undo
			txs, _, err := apply.History(dir)
			if err != nil {
				return applyFailure(err)
			}
			if !slices.ContainsFunc(txs, func(t apply.Transaction) bool { return t.InFlight() }) {
				if out.format == "json" {
					return printJSON(e.stdout, []applyDoc{})
				}
				return nil
			}
		}
		return e.rollback(c.Context(), dir, first(args), original, interrupted, out.format == "json")
	}
	return c
}

func (e *env) rollback(ctx context.Context, dir, id string, original, interrupted, asJSON bool) error {
	h, err := e.openHost()
	if err != nil {
		return err
	}
	defer h.close()
	engine, err := apply.Open(ctx, apply.Config{Dir: dir, Host: h.machine, Now: e.now})
	if err != nil {
		return applyFailure(err)
	}
	// What a killed run left is undone first, and counts: asked for or not, it must not stay.
	results, err := engine.Recover()
	recovered := slices.ContainsFunc(results, func(r *apply.Result) bool { return id == "" || r.ID == id })
	switch {
	case err != nil || interrupted:
	case original:
		var more []*apply.Result
		more, err = engine.RollbackOriginal()
		results = append(results, more...)
	case !recovered:
		var res *apply.Result
		if res, err = engine.Rollback(id); res != nil {
			results = append(results, res)
		}
	}
	err = errors.Join(err, engine.Close())
	if asJSON {
		docs := make([]applyDoc, len(results))
		for i, r := range results {
			docs[i] = applyDoc{Result: r}
		}
		err = errors.Join(err, printJSON(e.stdout, docs))
	} else {
		for _, r := range results {
			fmt.Fprintf(e.stdout, "Transaction %s\n", r.ID)
			printResult(e.stdout, &applyDoc{Result: r}, e.palette(), e.textWidth())
		}
		if original && len(results) == 0 && err == nil {
			fmt.Fprintln(e.stdout, "Nothing to undo: no change was made in this boot.")
		}
	}
	if err != nil {
		f := applyFailure(err)
		if errors.Is(err, apply.ErrNoSuch) {
			f = &failure{exitFailed, err, []string{"rxsteer history lists the transactions"}}
		}
		return f
	}
	if slices.ContainsFunc(results, func(r *apply.Result) bool { return r.State == apply.Partial }) {
		return exitWith(exitRolledBack)
	}
	return nil
}

// withEngine opens the engine, which finishes what an earlier run left, for one step.
func (e *env) withEngine(ctx context.Context, dir string, f func(*apply.Engine) error) error {
	h, err := e.openHost()
	if err != nil {
		return err
	}
	defer h.close()
	engine, err := e.openEngine(ctx, h, dir, nil, nil)
	if err != nil {
		return err
	}
	return errors.Join(f(engine), engine.Close())
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// completeTransactions offers the IDs in one of the states.
func completeTransactions(dir *string, states ...apply.State) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		txs, _, err := apply.History(*dir)
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []string
		for _, t := range txs {
			if slices.Contains(states, t.State) {
				out = append(out, cobra.CompletionWithDesc(t.ID, string(t.State)))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
