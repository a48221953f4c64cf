package top

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
)

// Fed tells a running view that its history has a new shot: Add is called by the view, so that
// nothing else touches the history.
type Fed struct{ Add func() }

// Changed brings new settings.
type Changed struct{ Settings Settings }

type stepped struct{}

// program is the Model as bubbletea sees it.
type program struct {
	*Model
	canvas *canvas
	step   time.Duration
}

// newProgram has bubbletea run a Model on a terminal. Its own frames are for what it wipes: see canvas.
func newProgram(m *Model, out io.Writer, step time.Duration, opts ...tea.ProgramOption) *tea.Program {
	c := &canvas{out: out}
	const wipesPerSecond = 10
	return tea.NewProgram(program{m, c, step}, append(opts, tea.WithOutput(c), tea.WithFPS(wipesPerSecond), tea.WithoutSignalHandler())...)
}

func (p program) Init() tea.Cmd { return nil }

func (p program) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	cmd := p.take(msg)
	if err := p.canvas.Show(p.Render()); err != nil {
		return p, tea.Quit // there is no terminal any more
	}
	return p, cmd
}

func (p program) take(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		p.Resize(msg.Width, msg.Height)
		p.canvas.Clear()
	case Fed:
		msg.Add()
	case Changed:
		p.Set(msg.Settings)
	case stepped:
		p.Step()
		return p.tick()
	case tea.KeyPressMsg:
		was := p.Playing()
		switch msg.String() {
		case "ctrl+z":
			return tea.Suspend
		case "ctrl+l":
			p.canvas.Clear()
		}
		if p.Key(msg.String()) {
			return tea.Quit
		}
		if !was {
			return p.tick()
		}
	}
	return nil
}

// tick waits for the next step while playing.
func (p program) tick() tea.Cmd {
	if !p.Playing() {
		return nil
	}
	return tea.Tick(p.step, func(time.Time) tea.Msg { return stepped{} })
}

func (p program) View() tea.View {
	v := tea.NewView(" ") // the canvas has the frame
	v.AltScreen = true
	return v
}

// Run shows a view on a terminal until ctx ends or a person quits. feed runs beside it and sends what it
// measured; when it fails the view ends with its error. A recording plays a shot per step.
func Run(ctx context.Context, m *Model, in io.Reader, out io.Writer, step time.Duration, feed func(ctx context.Context, send func(tea.Msg)) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p := newProgram(m, out, step, tea.WithContext(ctx), tea.WithInput(in))
	fed := make(chan error, 1)
	go func() {
		err := feed(ctx, p.Send)
		if err != nil {
			p.Quit()
		}
		fed <- err
	}()
	_, err := p.Run()
	stop()
	if ferr := <-fed; ferr != nil && !errors.Is(ferr, context.Canceled) {
		return ferr
	}
	if !errors.Is(err, tea.ErrProgramPanic) && (errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, context.Canceled)) {
		return nil // ctx ended: that is how a signal ends it
	}
	return err
}
