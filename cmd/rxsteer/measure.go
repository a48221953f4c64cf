package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/steer/diagnose"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// measureFlags are those of every measuring command.
type measureFlags struct {
	duration time.Duration
}

func addMeasure(c *cobra.Command) *measureFlags {
	m := &measureFlags{}
	c.Flags().DurationVar(&m.duration, "for", 10*time.Second, "measure for this `TIME`")
	return m
}

type seen struct {
	report *diagnose.Report
}

func (e *env) look(ctx context.Context, m *measureFlags, names []string) (*seen, error) {
	return nil, fmt.Errorf("x")
}

func (e *env) lookAndPlan(ctx context.Context, m *measureFlags, names []string, g plan.Goal) (*seen, *plan.Plan, error) {
	return nil, nil, fmt.Errorf("x")
}

func writePlan(file string, p *plan.Plan) error { return nil }
