package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestPageOfALiveAgent: a real agent under real traffic, looked at by real Chromium; the page draws
// live data, sees the agent go and come back, and its profile has the receive path in it.
func TestPageOfALiveAgent(t *testing.T) {
	r := newRig(t)
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs chromium")
	}
	defer r.stream(t)()
	begin := func(addr string) (string, *exec.Cmd) {
		cmd := r.b.Command(t.Context(), "rxsteer", "agent", "--web.listen-address", addr, "--interval", "1s", "--state-dir", r.dir)
		url, _ := startAgent(t, cmd)
		return url, cmd
	}
	url, agent := begin("127.0.0.1:0")

	addr := strings.TrimPrefix(url, "http://")
	page, err := r.b.Forward(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 900), chromedp.ModifyCmdFunc(unbound), chromedp.Flag("disable-dev-shm-usage", true))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), opts...)
	defer stop()
	ctx, cancel := chromedp.NewContext(ctx)
	defer cancel()
	ctx, done := context.WithTimeout(ctx, 5*time.Minute)
	defer done()
	until := func(what, expr string) {
		t.Helper()
		var ok bool
		for !ok {
			if err := chromedp.Run(ctx, chromedp.Evaluate(expr, &ok)); ctx.Err() != nil {
				t.Fatalf("%s: %v %v", what, ctx.Err(), err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	if err := chromedp.Run(ctx, chromedp.Navigate("http://"+page.Addr().String()+"/"), chromedp.Evaluate(`document.getElementById("queues").scrollIntoView({behavior: "instant"})`, nil)); err != nil {
		t.Fatal(err)
	}
	until("b0 in the table of queues", `[...document.querySelectorAll("#queue-table tbody tr")].some(r => r.dataset.key.startsWith("b0 ") && parseFloat(r.children[4].textContent) > 0)`)
	until("settings of b0", `document.getElementById("setting-table") !== null && [...document.querySelectorAll("#host")].some(h => h.textContent.length > 3)`)

	if err := agent.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := agent.Wait(); err != nil {
		t.Fatalf("the agent with a viewer does not end well: %v", err)
	}
	until("the loss of the agent", `document.body.classList.contains("lost")`)
	begin(addr)
	until("the agent's return", `!document.body.classList.contains("lost") && document.getElementById("status").textContent.startsWith("live")`)

	if err := chromedp.Run(ctx, chromedp.Evaluate(`document.getElementById("take").click()`, nil)); err != nil {
		t.Fatal(err)
	}
	until("a flame graph", `document.querySelector("#flame img")?.naturalWidth > 0 && decodeURIComponent(document.querySelector("#flame img").src).includes("receive softirq by queue") || document.getElementById("taking").textContent.length > 30`)
	var said string
	var shot []byte
	if err := chromedp.Run(ctx, chromedp.Text("#taking", &said, chromedp.ByID), chromedp.FullScreenshot(&shot, 100)); err != nil {
		t.Fatal(err)
	}
	if said != "" {
		t.Errorf("the profile: %s", said)
	}
	dir := filepath.Join("..", "..", "bin", "screenshots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "page-live.png"), shot, 0o644); err != nil {
		t.Fatal(err)
	}
}

// unbound lets Chromium live on when the thread that started it ends, as threads that were in a namespace do: chromedp
// asks for the contrary (Pdeathsig is of the thread, prctl(2)).
func unbound(c *exec.Cmd) { c.SysProcAttr = nil }
