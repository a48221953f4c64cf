package main

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"golang.org/x/sys/unix"
)

// picture is the run as a person sees it: what was found before and after, from
// a recording of each, and the agent's page of the whole. Chromium looks when
// the traffic has ended, for it would be a part of the load.
type picture struct {
	file     string
	chromium string
	agent    *exec.Cmd
	stderr   strings.Builder
}

// agentAddr is the agent's, in a namespace that nobody else is in.
const agentAddr = "127.0.0.1:9742"

// watch starts the agent whose page is drawn in the end.
func (d *demo) watch(ctx context.Context) (*picture, error) {
	p := &picture{file: d.picture}
	var err error
	if p.chromium, err = exec.LookPath("chromium"); err != nil {
		return nil, fmt.Errorf("draw picture: %w (make picture installs it)", err)
	}
	p.agent = d.rig.receiver.Command(ctx, d.rxsteer, "agent", "--interval", "1s", "--web.listen-address", agentAddr, "--state-dir", d.dir)
	p.agent.Cancel = func() error { return p.agent.Process.Signal(unix.SIGTERM) }
	p.agent.WaitDelay = 5 * time.Second
	p.agent.Stderr = &p.stderr
	if err := p.agent.Start(); err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	return p, nil
}

// stop ends the agent.
func (p *picture) stop() error {
	if err := errors.Join(p.agent.Cancel(), p.agent.Wait()); err != nil {
		return fmt.Errorf("end agent: %w: %s", err, p.stderr.String())
	}
	return nil
}

// keep records what goes on now, and makes a page of it.
func (d *demo) keep(ctx context.Context, name string) error {
	if d.picture == "" {
		return nil
	}
	recording := filepath.Join(d.dir, name+".rxrec")
	if err := d.rxsteerRun(ctx, "record", "-w", recording, "--for", "4s"); err != nil {
		return err
	}
	return d.rxsteerRun(ctx, "report", "--from", recording, "-w", filepath.Join(d.dir, name+".html"))
}

// frame puts the parts beside and below each other.
var frame = template.Must(template.New("").Parse(`<!doctype html><meta charset="utf-8"><style>
body { margin: 0; padding: 12px; width: 1280px; box-sizing: border-box; background: #fff; font: 14px system-ui, "DejaVu Sans", sans-serif; color: #1a1d21 }
div { display: grid; grid-template-columns: 1fr 1fr; gap: 12px } h2 { margin: 0 0 6px; font-size: 17px } img { display: block; width: 100% }
figure { margin: 0; border: 1px solid #d5dae0; border-radius: 6px; padding: 8px; overflow: hidden } figure.all { grid-column: 1 / 3 }
</style><div>
<figure><h2>Before</h2><img src="before.png"></figure><figure><h2>After rxsteer apply</h2><img src="after.png"></figure>
<figure class="all"><h2>The same on the agent's page: before, apply, rollback</h2><img src="cpus.png"><img src="history.png"></figure>
</div>`))

// draw looks at the pages and writes the picture.
func (d *demo) draw(ctx context.Context, p *picture) error {
	d.step("looking at the pages, for %s", p.file)
	page, err := d.rig.receiver.Forward(agentAddr)
	if err != nil {
		return err
	}
	defer page.Close()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(p.chromium), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true),
		// Chromium lives on when the thread that started it ends (Pdeathsig is of the thread, prctl(2)).
		chromedp.ModifyCmdFunc(func(c *exec.Cmd) { c.SysProcAttr = nil }))
	ctx, stop := chromedp.NewExecAllocator(ctx, opts...)
	defer stop()
	ctx, cancel := chromedp.NewContext(ctx)
	defer cancel()
	at := func(name string) string { return filepath.Join(d.dir, name) }
	shot := func(name string, take func(*[]byte) chromedp.Action) chromedp.Action {
		return chromedp.ActionFunc(func(ctx context.Context) error {
			var b []byte
			if err := take(&b).Do(ctx); err != nil {
				return fmt.Errorf("look at %s: %w", name, err)
			}
			return os.WriteFile(name, b, 0o644)
		})
	}
	whole := func(b *[]byte) chromedp.Action { return chromedp.CaptureScreenshot(b) }
	part := func(id string) func(*[]byte) chromedp.Action {
		return func(b *[]byte) chromedp.Action { return chromedp.Screenshot(id, b, chromedp.ByQuery) }
	}
	see := func(width, height int64) chromedp.Action {
		return chromedp.ActionFunc(func(ctx context.Context) error {
			return emulation.SetDeviceMetricsOverride(width, height, 1, false).Do(ctx)
		})
	}
	var steps chromedp.Tasks
	for _, name := range []string{"before", "after"} {
		steps = append(steps, see(600, 560), chromedp.Navigate("file://"+at(name+".html")), chromedp.WaitVisible("#tiles b", chromedp.ByQuery),
			chromedp.Evaluate(`for (const e of document.querySelectorAll("header, #loop")) e.remove()`, nil), shot(at(name+".png"), whole))
	}
	steps = append(steps, see(1230, 900), chromedp.Navigate("http://"+page.Addr().String()+"/"),
		// It draws what is on the screen.
		chromedp.WaitVisible("#heat canvas", chromedp.ByQuery), chromedp.ScrollIntoView("#history", chromedp.ByQuery), chromedp.WaitVisible("#deeds li", chromedp.ByQuery), chromedp.WaitVisible("#trend canvas", chromedp.ByQuery),
		shot(at("cpus.png"), part("#cpus")), shot(at("history.png"), part("#history")))
	html, err := os.Create(at("picture.html"))
	if err != nil {
		return err
	}
	if err := errors.Join(frame.Execute(html, nil), html.Close()); err != nil {
		return err
	}
	steps = append(steps, see(1280, 100), chromedp.Navigate("file://"+at("picture.html")), shot(p.file, func(b *[]byte) chromedp.Action { return chromedp.FullScreenshot(b, 100) }))
	return chromedp.Run(ctx, steps)
}
