package control

// Replay gives recorded events to a new machine and returns what it decides. Actions are not carried out: what
// became of them is in the recording.
func Replay(c *Config, events []Event) []Decision {
	m := New(c)
	var out []Decision
	for _, e := range events {
		_, d := m.Step(e)
		out = append(out, d...)
	}
	return out
}
