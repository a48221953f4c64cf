package top

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rxsteer/rxsteer/collector"
)

// Options of a view; they do not change while it runs.
type Options struct {
	Host      string
	Devices   []string // shown, none: all
	Color     bool
	UTF8      bool
	Recording bool           // nothing new comes
	Zone      *time.Location // of clock times; nil means local
}

// Settings is what is set, side by side: Values[i][j] is setting i of device j, "" none.
type Settings struct {
	Devices []string
	Labels  []string
	Values  [][]string
}

// Panel is what the lower part of the screen shows.
type Panel int

const (
	Findings Panel = iota
	Elephants
	Set
	panels
)

var panelNames = [panels]string{"findings", "elephants", "settings"}

// order is a way to sort queues.
type order struct {
	name string
	less func(a, b *Queue) int // the one that hurts more first
}

var orders = []order{
	{"time", func(a, b *Queue) int {
		return cmp.Or(cmp.Compare(math.Round(100*b.Time), math.Round(100*a.Time)), cmp.Compare(math.Round(b.PPS/100), math.Round(a.PPS/100)))
	}},
	{"packets", func(a, b *Queue) int { return cmp.Compare(b.PPS, a.PPS) }},
	{"ns/packet", func(a, b *Queue) int { return cmp.Compare(b.PerPacket, a.PerPacket) }},
	{"p99", func(a, b *Queue) int { return cmp.Compare(b.P99, a.P99) }},
	{"full", func(a, b *Queue) int { return cmp.Compare(b.Full, a.Full) }},
	{"drops", func(a, b *Queue) int { return cmp.Compare(b.Drops, a.Drops) }},
	{"name", func(a, b *Queue) int { return 0 }},
	{"cpu", func(a, b *Queue) int { return cmp.Compare(a.CPU, b.CPU) }},
}

// identity of a row, which the cursor follows.
type identity struct {
	netns  uint64
	device string
	rx     int
	napi   uint32
	nth    int
	cpu    int
}

func (q *Queue) identity() identity {
	id := identity{netns: q.Netns, device: q.Device, rx: q.RX, nth: q.Nth, cpu: q.backlogCPU()}
	if q.RX < 0 {
		id.napi = q.NAPI
	}
	return id
}

// Model is the state of the view. Its methods are for one goroutine.
type Model struct {
	opts          Options
	history       History
	width, height int
	settings      Settings

	at       int // number of the shot shown while not following
	follow   bool
	playing  bool // through a recording
	order    int
	reverse  bool
	filter   string
	typing   bool
	device   string // "" all
	netns    uint64 // 0 all
	panel    Panel
	zoom     bool
	scroll   int // of the zoomed panel
	help     bool
	selected identity
	chosen   bool // a row was selected by a person
}

// New is a view of a history: at its end, following it where it grows.
func New(opts Options, history History) *Model {
	if opts.Zone == nil {
		opts.Zone = time.Local
	}
	m := &Model{opts: opts, history: history, width: 80, height: 24, follow: !opts.Recording}
	_, m.at = history.Bounds()
	return m
}

// Resize takes the terminal's columns and rows.
func (m *Model) Resize(width, height int) { m.width, m.height = width, height }

// Set takes what is set now.
func (m *Model) Set(s Settings) { m.settings = s }

// Playing says that Step wants to be called once per interval.
func (m *Model) Playing() bool { return m.playing }

// Step goes one shot on while playing, and stops at the end.
func (m *Model) Step() {
	if _, newest := m.history.Bounds(); m.playing && m.at < newest {
		m.at++
	} else {
		m.playing = false
	}
}

// Shot is the one shown, nil before the first.
func (m *Model) Shot() *Shot {
	oldest, newest := m.history.Bounds()
	if newest < oldest {
		return nil
	}
	return m.history.At(m.position())
}

func (m *Model) position() int {
	oldest, newest := m.history.Bounds()
	if m.follow {
		return newest
	}
	return min(max(m.at, oldest), newest)
}

// Key takes a key by its name ("q", "left", "space", as bubbletea names them) and says whether to quit.
func (m *Model) Key(k string) (quit bool) {
	if k == "ctrl+c" {
		return true
	}
	if m.typing {
		m.typed(k)
		return false
	}
	if m.help {
		m.help = false
		return k == "q"
	}
	switch k {
	case "q":
		if m.zoom {
			m.zoom = false
			return false
		}
		return true
	case "?", "f1":
		m.help = true
	case "space", " ", "p":
		m.pause()
	case "left", "h":
		m.move(-1)
	case "right", "l":
		m.move(1)
	case "[", "shift+left":
		m.move(-10)
	case "]", "shift+right":
		m.move(10)
	case "home", "g":
		m.follow, m.playing = false, false
		m.at, _ = m.history.Bounds()
	case "end", "G":
		m.playing = false
		m.follow = !m.opts.Recording
		_, m.at = m.history.Bounds()
	case "up", "k":
		m.point(-1)
	case "down", "j":
		m.point(1)
	case "pgup":
		m.point(-10)
	case "pgdown":
		m.point(10)
	case "s":
		m.order, m.reverse = (m.order+1)%len(orders), false
	case "S":
		m.order, m.reverse = (m.order+len(orders)-1)%len(orders), false
	case "r":
		m.reverse = !m.reverse
	case "/":
		m.typing = true
	case "d":
		m.device = next(m.devices(), m.device)
	case "n":
		m.nextNamespace()
	case "tab":
		m.panel, m.scroll = (m.panel+1)%panels, 0
	case "shift+tab":
		m.panel, m.scroll = (m.panel+panels-1)%panels, 0
	case "enter", "z":
		m.zoom, m.scroll = !m.zoom, 0
	case "esc":
		switch {
		case m.zoom:
			m.zoom = false
		default:
			m.filter, m.device, m.netns, m.chosen = "", "", 0, false
		}
	}
	return false
}

// typed takes a key of the filter's line.
func (m *Model) typed(k string) {
	switch k {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		_, n := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-n]
	case "ctrl+u":
		m.filter = ""
	case "space":
		m.filter += " "
	default:
		if r, n := utf8.DecodeRuneInString(k); n == len(k) && unicode.IsPrint(r) && len(m.filter) < 60 {
			m.filter += k
		}
	}
}

func (m *Model) pause() {
	if m.opts.Recording {
		oldest, newest := m.history.Bounds()
		if m.playing = !m.playing; m.playing && m.at >= newest {
			m.at = oldest
		}
		return
	}
	m.at = m.position()
	m.follow = !m.follow
}

func (m *Model) move(by int) {
	m.at = m.position() + by
	m.follow, m.playing = false, false
	m.at = m.position()
}

// point moves the cursor, or scrolls the zoomed panel.
func (m *Model) point(by int) {
	if m.zoom {
		m.scroll = max(0, m.scroll+by)
		return
	}
	rows := m.rows()
	if len(rows) == 0 {
		return
	}
	i := 0
	if m.chosen {
		i = min(max(m.cursor(rows)+by, 0), len(rows)-1)
	} else if by < 0 {
		i = len(rows) - 1
	}
	m.selected, m.chosen = rows[i].identity(), true
}

func (m *Model) cursor(rows []Queue) int {
	return max(0, slices.IndexFunc(rows, func(q Queue) bool { return q.identity() == m.selected }))
}

// next is the one after now in a list, "" after the last.
func next(list []string, now string) string {
	i := slices.Index(list, now) + 1
	if i >= len(list) {
		return ""
	}
	return list[i]
}

// devices are those with rows now.
func (m *Model) devices() []string {
	var out []string
	if s := m.Shot(); s != nil {
		for i := range s.Queues {
			if d := s.Queues[i].Device; m.shown(&s.Queues[i]) && !slices.Contains(out, d) {
				out = append(out, d)
			}
		}
	}
	return out
}

// shown says whether a row is of the interfaces that the command line asked for.
func (m *Model) shown(q *Queue) bool {
	return len(m.opts.Devices) == 0 || slices.Contains(m.opts.Devices, q.Device) && !q.Foreign
}

func (m *Model) nextNamespace() {
	s := m.Shot()
	if s == nil {
		return
	}
	var all []uint64
	for i := range s.Queues {
		if n := s.Queues[i].Netns; n != 0 && !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	i := slices.Index(all, m.netns) + 1
	m.netns = 0
	if i < len(all) {
		m.netns = all[i]
	}
}

// rows are the queues of the shot that pass the filters, in order.
func (m *Model) rows() []Queue {
	s := m.Shot()
	if s == nil {
		return nil
	}
	var out []Queue
	want := strings.ToLower(m.filter)
	for i := range s.Queues {
		q := &s.Queues[i]
		switch {
		case !m.shown(q), m.device != "" && q.Device != m.device, m.netns != 0 && q.Netns != m.netns:
			continue
		case want != "" && !strings.Contains(strings.ToLower(q.filterText()), want):
			continue
		}
		out = append(out, *q)
	}
	less := orders[m.order].less
	slices.SortStableFunc(out, func(a, b Queue) int {
		if m.reverse {
			return cmp.Or(less(&b, &a), byName(b, a))
		}
		return cmp.Or(less(&a, &b), byName(a, b))
	})
	return out
}

// filterText is what the filter looks in: "eth0 rx 3 cpu 5 irq 28 node 0".
func (q *Queue) filterText() string {
	t := q.name()
	for _, x := range []struct {
		what string
		n    int
	}{{"cpu", q.CPU}, {"irq", q.IRQ}, {"node", q.Node}} {
		if x.n >= 0 {
			t += " " + x.what + " " + strconv.Itoa(x.n)
		}
	}
	return t
}

// name of a row: "eth0 rx 3", "eth0 napi 257", "tap0 #1", "backlog cpu 2".
func (q *Queue) name() string {
	switch {
	case q.Device == collector.Backlog:
		return "backlog cpu " + strconv.Itoa(q.CPU)
	case q.RX >= 0:
		return q.Device + " rx " + strconv.Itoa(q.RX)
	case q.NAPI != 0:
		return q.Device + " napi " + strconv.FormatUint(uint64(q.NAPI), 10)
	}
	return q.Device + " #" + strconv.Itoa(q.Nth)
}
