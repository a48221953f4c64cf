package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/internal/host/reach"
	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/persist"
	"github.com/rxsteer/rxsteer/steer/plan"
)

func persistCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "persist [PLAN]",
		Short: "Make what was changed and kept in this boot survive a reboot",
		Long: `Make what was changed and kept in this boot survive a reboot, a removed and re-added
device, and whoever reconfigures it (ethtool -L): a systemd unit that starts after what
resets queues, makes the settings true again, and does so again when the device or its
link comes back. With PLAN only the changes of that plan, which must have been applied
and kept. Sysctls go to /etc/sysctl.d; where irqbalance is installed and vectors were
moved, a policy script makes it leave those alone.

It refuses to re-apply when driver, kernel release or queue count differ from what was
confirmed, and when the last boot with it was never confirmed healthy: a minute after
the settings are made, carrier, addresses, routes and settings must be there.

--print shows the files and writes none. --remove takes all of them away; what is set
now stays until rxsteer rollback or a reboot.`,
		Example: `  rxsteer apply fix.yaml && rxsteer persist
  rxsteer persist --print
  rxsteer persist --remove`,
		GroupID: groupSteer,
		Args:    cobra.MaximumNArgs(1),
	}
	var dir, root string
	show := c.Flags().Bool("print", false, "show the files; write nothing")
	remove := c.Flags().Bool("remove", false, "take the files away")
	addStateDir(c, &dir)
	addRoot(c, &root)
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case *show && *remove:
			return usage("--print and --remove exclude each other")
		case *remove && len(args) > 0:
			return usage("--remove takes all away: it takes no PLAN")
		case *remove:
			return e.unpersist(root)
		}
		return e.persist(c.Context(), dir, root, first(args), *show)
	}
	return c
}

func addRoot(c *cobra.Command, root *string) {
	c.Flags().StringVar(root, "root", "/", "write below this folder, as of an image of another system")
	if err := c.Flags().MarkHidden("root"); err != nil {
		panic(err) // the flag is the line above
	}
}

func (e *env) persist(ctx context.Context, dir, root, file string, show bool) error {
	h, err := e.openHost()
	if err != nil {
		return err
	}
	defer h.close()
	txs, boot, err := apply.History(dir)
	if err != nil {
		return applyFailure(err)
	}
	if current := e.bootID(); boot != current {
		txs = nil
	}
	var want *plan.Plan
	if file != "" {
		top, err := h.topology()
		if err != nil {
			return err
		}
		if want, err = readPlan(file, top.Online); err != nil {
			return err
		}
	}
	now, err := h.machine.Snapshot(ctx)
	if err != nil {
		return err
	}
	f, err := persist.Make(txs, now, want, func(d string) (map[int]string, error) { return h.queueVectors(ctx, d) }, e.now())
	if err != nil {
		next := []string{"rxsteer history lists what was changed"}
		if errors.Is(err, persist.ErrNothing) {
			next = []string{"rxsteer apply PLAN, or rxsteer trial PLAN, and keep what is better"}
		}
		return &failure{exitFailed, err, next}
	}
	_, err = e.fs.ReadFile("/usr/sbin/irqbalance")
	outputs, err := f.Outputs(executable(), err == nil)
	if err != nil {
		return err
	}
	if show {
		for _, o := range outputs {
			if o.Link != "" {
				fmt.Fprintf(e.stdout, "# %s → %s\n\n", o.Path, o.Link)
				continue
			}
			fmt.Fprintf(e.stdout, "# %s\n%s\n", o.Path, o.Text)
		}
		return nil
	}
	for _, o := range outputs {
		if err := place(root, o); err != nil {
			return applyFailure(fmt.Errorf("persist: %w", err))
		}
	}
	// This boot has it confirmed.
	if err := noteHealth(root, persist.Health{BootID: now.Host.BootID, Healthy: true, Since: e.now().UTC()}); err != nil {
		return applyFailure(fmt.Errorf("persist: %w", err))
	}
	for _, o := range outputs {
		fmt.Fprintln(e.stdout, "wrote "+o.Path)
	}
	return e.systemd(ctx, root, persist.UnitName, true)
}

func (e *env) unpersist(root string) error {
	gone := 0
	for _, p := range persist.All() {
		switch err := os.Remove(filepath.Join(root, p)); {
		case err == nil:
			gone++
			fmt.Fprintln(e.stdout, "removed "+p)
		case !errors.Is(err, fs.ErrNotExist):
			return applyFailure(fmt.Errorf("persist: %w", err))
		}
	}
	if gone == 0 {
		fmt.Fprintln(e.stdout, "Nothing is persisted here.")
		return nil
	}
	return e.systemd(context.Background(), root, persist.UnitName, false)
}

// place writes one file so that it is there whole or not at all.
func place(root string, o persist.Output) error {
	name := filepath.Join(root, o.Path)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	temp := name + ".new"
	if o.Link != "" {
		if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(o.Link, temp); err != nil {
			return err
		}
		return os.Rename(temp, name)
	}
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, fs.FileMode(o.Mode))
	if err != nil {
		return err
	}
	_, err = f.WriteString(o.Text)
	if err = errors.Join(err, f.Chmod(fs.FileMode(o.Mode)), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return os.Rename(temp, name)
}

func noteHealth(root string, h persist.Health) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return place(root, persist.Output{Path: persist.HealthFile, Text: string(b) + "\n", Mode: 0o644})
}

func readHealth(root string) (*persist.Health, error) {
	b, err := os.ReadFile(filepath.Join(root, persist.HealthFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var h persist.Health
	if err := json.Unmarshal(b, &h); err != nil {
		return nil, fmt.Errorf("read %s: %w", persist.HealthFile, err)
	}
	return &h, nil
}

// persistRunCommand is what the unit starts.
func persistRunCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:    "persist-run",
		Short:  "Make persisted settings true, now and when a device comes back",
		Long:   "Make persisted settings true, now and when a device or its link comes back. The unit\nthat rxsteer persist writes starts this.",
		Hidden: true,
		Args:   cobra.NoArgs,
	}
	r := &persistRun{e: e}
	addStateDir(c, &r.dir)
	addRoot(c, &r.root)
	c.Flags().BoolVar(&r.once, "once", false, "end when the settings are confirmed healthy")
	c.Flags().DurationVar(&r.healthy, "healthy-after", time.Minute, "confirm after this `TIME`")
	c.RunE = func(c *cobra.Command, _ []string) error { return r.run(c.Context()) }
	return c
}

// persistRun keeps persisted settings true.
type persistRun struct {
	e         *env
	dir, root string
	once      bool
	healthy   time.Duration

	h     *hostRooms
	file  *persist.File
	said  map[string]bool
	begun bool // the first pass of this run is over
}

const (
	persistLook  = time.Second     // between looks at the devices
	persistCalm  = 2 * time.Second // after a device came back: others configure it too
	persistMost  = 5               // re-applications in persistSpan; more is a quarrel
	persistSpan  = 10 * time.Minute
	persistTries = 3 // passes: a change of channels shows what else differs
)

// persistAnew is what to do with a file of persist that cannot be read.
const persistAnew = "use the rxsteer that wrote it, or write it anew: rxsteer persist"

// persistChecks is what doctor says of what is persisted.
func (e *env) persistChecks() []check {
	text, err := e.fs.ReadFile(persist.PlanFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c := check{Area: areaState, Name: persist.PlanFile}
	var f *persist.File
	if err == nil {
		f, err = persist.Parse(persist.PlanFile, text)
	}
	if err != nil {
		c.Why, c.Lost, c.Grant = err.Error(), "what was persisted is not made true at the next boot", persistAnew
		return []check{c}
	}
	c.Name, c.OK = fmt.Sprintf("%s: %s", c.Name, plural(len(f.Plan.Changes), "setting")), true
	return []check{c}
}

func (r *persistRun) run(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(r.root, persist.PlanFile))
	if err != nil {
		return &failure{exitFailed, fmt.Errorf("persist: %w", err), []string{"rxsteer persist writes it"}}
	}
	if r.file, err = persist.Parse(persist.PlanFile, text); err != nil {
		return &failure{exitRolledBack, err, []string{persistAnew}}
	}
	health, err := readHealth(r.root)
	if err != nil {
		return &failure{exitFailed, fmt.Errorf("persist: %w", err), nil}
	}
	boot := r.e.bootID()
	if err := health.May(boot); err != nil {
		return &failure{exitRolledBack, fmt.Errorf("persist: %w", err), nil}
	}
	if r.h, err = r.e.openHost(); err != nil {
		return err
	}
	defer r.h.close()
	r.said = map[string]bool{}
	done := health != nil && health.BootID == boot && health.Healthy // a restart in a healthy boot
	if !done {
		if err := noteHealth(r.root, persist.Health{BootID: boot, Since: r.e.now().UTC()}); err != nil {
			return applyFailure(fmt.Errorf("persist: note that this boot is not confirmed yet: %w", err))
		}
	}
	var applied []time.Time
	seen := ""
	for {
		if now := r.epoch(); now != seen {
			if seen != "" && !pause(ctx, persistCalm) {
				return nil
			}
			applied = slices.DeleteFunc(applied, func(t time.Time) bool { return time.Since(t) > persistSpan })
			if len(applied) >= persistMost {
				return &failure{exitRolledBack, fmt.Errorf("persist: %d times in %v somebody else reset the device: it is left to them", persistMost, persistSpan), []string{"rxsteer status names other owners"}}
			}
			again, err := r.apply(ctx)
			switch {
			case errors.Is(err, apply.ErrLocked):
				r.say(err)
				if !pause(ctx, persistCalm) {
					return nil
				}
				continue
			case err != nil:
				return err
			}
			r.begun = true
			if again > 0 {
				applied = append(applied, time.Now())
			}
			seen = r.epoch() // our own changes are no reason to look again
			if !done {
				if done, err = r.confirm(ctx, boot); err != nil {
					return err
				}
			}
			if r.once && done {
				return nil
			}
		}
		if !pause(ctx, persistLook) {
			return nil
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// say tells the log what it was not told yet.
func (r *persistRun) say(what error) {
	if s := what.Error(); !r.said[s] {
		r.said[s] = true
		fmt.Fprintln(r.e.stderr, "rxsteer: "+s)
	}
}

// epoch changes when a device comes, goes, loses its link or gets other queues.
func (r *persistRun) epoch() string {
	var out strings.Builder
	host := reach.Host{FS: r.e.fs}
	for _, d := range r.file.Plan.Identity.Devices {
		out.WriteString(d.Name + " " + host.Epoch(d.Name) + "\n")
	}
	return out.String()
}

// apply makes the settings true and returns how many were not.
func (r *persistRun) apply(ctx context.Context) (n int, err error) {
	vectors := func(d string) (map[int]string, error) { return r.h.queueVectors(ctx, d) }
	var moved error
	for range persistTries {
		now, err := r.h.machine.Snapshot(ctx)
		if err != nil {
			return n, err
		}
		p, left := r.file.Again(now, vectors)
		for _, l := range left {
			r.say(fmt.Errorf("persist: left out: %w", l))
		}
		if len(p.Changes) == 0 {
			if !slices.ContainsFunc(left, func(err error) bool { return errors.Is(err, persist.ErrDiffers) }) {
				return n, nil
			}
			if errs := errors.Join(left...); n == 0 && !r.begun { // later it may become again what was confirmed
				return n, &failure{exitRolledBack, fmt.Errorf("persist: nothing was applied: %w", errs), []string{"look at it, apply and confirm it here, then: rxsteer persist"}}
			}
			return n, nil
		}
		engine, err := r.e.openEngine(ctx, r.h, r.dir, nil, nil)
		if err != nil {
			return n, err
		}
		// What takes the link down was confirmed once with it; here it is confirmed when the link is back.
		res, err := engine.Apply(ctx, p, apply.Options{Allow: []plan.Risk{plan.Reorder, plan.Pause, plan.Flap}, ConfirmWithin: 10 * time.Minute, By: "persist",
			Begun: func(id string) error { return r.e.startWatcher(r.dir, id) }})
		if err == nil && res.State == apply.Unconfirmed {
			_, err = engine.Confirm(res.ID)
		} else if err == nil && res.State != apply.Planned {
			err = fmt.Errorf("persist: it was %s: %s", res.State, res.Why)
		}
		err = errors.Join(err, engine.Close())
		if errors.Is(err, apply.ErrIdentity) || errors.Is(err, apply.ErrStale) {
			// The device changed between the look and the plan, and nothing was written: look again when that is over.
			r.say(err)
			if moved = err; !pause(ctx, persistCalm) {
				return n, nil
			}
			continue
		}
		if moved = nil; err != nil {
			return n, applyFailure(err)
		}
		n += len(p.Changes)
		for _, s := range res.Steps {
			fmt.Fprintf(r.e.stderr, "rxsteer: persist: %s: %s → %s: %s\n", s.Ref, shown(s.From), shown(s.To), s.Outcome)
		}
	}
	return n, applyFailure(moved)
}

// confirm notes this boot as healthy when, after a while, what was connected still is and the settings
// hold. Devices that are not there yet keep it waiting.
func (r *persistRun) confirm(ctx context.Context, boot string) (done bool, err error) {
	var names []string
	for _, d := range r.file.Plan.Identity.Devices {
		names = append(names, d.Name)
	}
	host := reach.Host{FS: r.e.fs}
	before, err := host.State(names...)
	if err != nil {
		return false, err
	}
	for _, d := range names {
		if _, there := before.Links[d]; !there {
			return false, nil
		}
	}
	if !pause(ctx, r.healthy) {
		return false, nil
	}
	after, err := host.State(names...)
	if err != nil {
		return false, err
	}
	for _, d := range names {
		if lost := reach.Lost(before, after, d); lost != "" {
			return false, &failure{exitFailed, fmt.Errorf("persist: this boot is not healthy: %s", lost), []string{"rxsteer rollback --original puts everything back"}}
		}
	}
	now, err := r.h.machine.Snapshot(ctx)
	if err != nil {
		return false, err
	}
	if p, _ := r.file.Again(now, func(d string) (map[int]string, error) { return r.h.queueVectors(ctx, d) }); len(p.Changes) > 0 {
		r.say(fmt.Errorf("persist: somebody else changed %s since: it is left to them", p.Changes[0].Ref()))
	}
	return true, noteHealth(r.root, persist.Health{BootID: boot, Healthy: true, Since: r.e.now().UTC()})
}
