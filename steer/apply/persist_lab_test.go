//go:build lab

package apply

import (
	"os"
	"testing"
)

// TestPlanOnTheDriver writes a plan that changes what the driver of eth0 lets be changed without taking the
// link down, for rxlab persist.
func TestPlanOnTheDriver(t *testing.T) {
	m, err := machine()
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := everythingPlan(t, s, "eth0").YAML()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("RXSTEER_PLAN"), text, 0o644); err != nil {
		t.Fatal(err)
	}
}
