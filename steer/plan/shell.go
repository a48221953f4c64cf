package plan

import (
	"fmt"
	"strings"
)

// Shell is the plan as the script a person would run: "sh plan.sh" applies it, "sh plan.sh undo"
// takes it back in reverse order. It holds none of apply's checks but the boot's.
func (p *Plan) Shell() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#!/bin/sh\n# rxsteer plan, goal %s, made on kernel %s.\n", p.Goal, p.Identity.Kernel)
	for _, r := range p.Reasons {
		fmt.Fprintf(&b, "# %s\n", oneLine(r))
	}
	if len(p.Changes) == 0 {
		b.WriteString("# No changes.\n")
		return b.String()
	}
	b.WriteString("set -e\n")
	if p.Identity.BootID != "" {
		fmt.Fprintf(&b, "[ \"$(cat /proc/sys/kernel/random/boot_id)\" = %s ] || { echo 'this plan was made for another boot' >&2; exit 1; }\n", p.Identity.BootID)
	}
	b.WriteString("if [ \"$1\" = undo ]; then\n")
	for i := len(p.Changes) - 1; i >= 0; i-- {
		fmt.Fprintf(&b, "  %s\n", indent(p.Changes[i].Undo))
	}
	b.WriteString("  exit 0\nfi\n")
	for _, c := range p.Changes {
		fmt.Fprintf(&b, "# %s %s: %s -> %s (%s; risk %s)\n# %s\n%s\n", c.Knob, c.Target, word(c.From.String()), word(c.To.String()), ids(c), c.Risk, oneLine(c.Why), c.Command)
	}
	return b.String()
}

func ids(c Change) string {
	var out []string
	for _, f := range c.Findings {
		out = append(out, string(f))
	}
	return strings.Join(out, " ")
}

func word(s string) string {
	if s == "" {
		return "off"
	}
	return s
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func indent(s string) string { return strings.ReplaceAll(s, "\n", "\n  ") }
