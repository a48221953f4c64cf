package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/rxsteer/rxsteer/internal/capture"
	"github.com/rxsteer/rxsteer/internal/toeplitz"
)

func udp(port uint16) capture.Packet {
	return capture.Packet{Class: "udp4", FlowType: "udp4", Protocol: 17, Src: netip.AddrPortFrom(netip.MustParseAddr("10.9.0.1"), port), Dst: netip.MustParseAddrPort("10.9.1.1:5000")}
}

func setting() Setting {
	return Setting{Queues: 4, Table: 128, Key: toeplitz.MicrosoftKey, Fields: "sdfn"}
}

func result(t *testing.T, s *Simulation) *Result {
	t.Helper()
	r, err := s.Result(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*Load{"default": &r.Default, "best": &r.Best} {
		var sum uint64
		for _, n := range l.Packets {
			sum += n
		}
		if sum != r.Packets {
			t.Errorf("%s table: %d packets in queues of %d", name, sum, r.Packets)
		}
		if got := float64(slices.Max(l.Packets)) / float64(max(r.Packets, 1)); l.Share < got-1e-9 || l.Share > got+1e-9 {
			t.Errorf("%s table: busiest share %.3f, the queues say %.3f", name, l.Share, got)
		}
	}
	if r.Best.Share > r.Default.Share || r.Best.Share < r.Bound-1e-9 {
		t.Errorf("best %.3f, default %.3f, bound %.3f", r.Best.Share, r.Default.Share, r.Bound)
	}
	return r
}

func TestManyFlowsCanBeSpread(t *testing.T) {
	s := New(setting())
	rnd := rand.New(rand.NewPCG(1, 2))
	want := make([]uint64, 4)
	for range 200 {
		p, n := udp(uint16(1024+rnd.IntN(60000))), 1+rnd.IntN(100)
		h, _ := toeplitz.Hash(toeplitz.MicrosoftKey, toeplitz.Flow{Src: p.Src.Addr(), Dst: p.Dst.Addr(), SrcPort: p.Src.Port(), DstPort: p.Dst.Port()}, toeplitz.None)
		want[toeplitz.Bucket(h, 128)%4] += uint64(n)
		for range n {
			s.Add(p, 100)
		}
	}
	r := result(t, s)
	if !slices.Equal(r.Default.Packets, want) {
		t.Errorf("queues in turn get %v, want %v", r.Default.Packets, want)
	}
	if r.Best.Share > 0.26 || r.Default.Share < 0.26 || r.Moves == 0 {
		t.Errorf("share of the busiest queue %.3f, was %.3f, %d moves; want a fair quarter", r.Best.Share, r.Default.Share, r.Moves)
	}
	if r.Bytes != 100*r.Packets || len(r.Top) != topFlows || r.Top[0].Packets < r.Top[1].Packets || r.Top[0].Elephant {
		t.Errorf("%d bytes of %d packets, top %+v", r.Bytes, r.Packets, r.Top)
	}
}

func TestElephantIsTheBound(t *testing.T) {
	s := New(setting())
	for i := range 1000 {
		s.Add(udp(7777), 1000)
		s.Add(udp(uint16(1024+i)), 100)
	}
	r := result(t, s)
	if r.Best.Share < 0.5 || r.Best.Share > 0.51 || !r.Top[0].Elephant || r.Top[0].Source.Port() != 7777 || r.Top[1].Elephant {
		t.Errorf("busiest %.3f, top %+v", r.Best.Share, r.Top[:2])
	}
}

func TestFieldsDecideWhatIsToldApart(t *testing.T) {
	for fields, want := range map[string]int{"sdfn": 4, "sd": 1, "n": 1, "f": 4, "sfn": 4} {
		x := setting()
		x.Fields = fields
		s := New(x)
		for port := range 500 {
			s.Add(udp(uint16(1024+port)), 100)
		}
		used := 0
		for _, n := range result(t, s).Default.Packets {
			if n > 0 {
				used++
			}
		}
		if used != want {
			t.Errorf("%s: %d queues used, want %d", fields, used, want)
		}
	}
}

func TestWhatCannotBeSpread(t *testing.T) {
	s := New(setting())
	for i := range 100 {
		s.Add(capture.Packet{Class: "pppoe"}, 100)
		s.Add(capture.Packet{}, 60)
		s.Add(udp(uint16(1024+i)), 100)
		f := udp(0)
		f.Class, f.FlowType = "fragment", "ip4"
		s.Add(f, 1500)
	}
	r := result(t, s)
	if r.Unhashed != 200 || r.Best.Busiest != 0 || r.Best.Share != 0.5 {
		t.Errorf("%d unhashed, queue %d gets %.3f: want 200 and half in queue 0", r.Unhashed, r.Best.Busiest, r.Best.Share)
	}
	var classes []string
	for _, c := range r.Classes {
		classes = append(classes, fmt.Sprint(c.Class, c.Packets))
	}
	slices.Sort(classes)
	if want := []string{"fragment100", "pppoe100", "udp4100", "unreadable100"}; !slices.Equal(classes, want) {
		t.Errorf("classes %v, want %v", classes, want)
	}
	if r := result(t, New(setting())); r.Packets != 0 || r.Best.Share != 0 {
		t.Errorf("of no packets: %+v", r)
	}
}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	for name, change := range map[string]func(*Setting){
		"no queues": func(s *Setting) { s.Queues = 0 }, "small table": func(s *Setting) { s.Table = 3 }, "huge table": func(s *Setting) { s.Table = MaxTable + 1 },
		"no key": func(s *Setting) { s.Key = nil }, "letter": func(s *Setting) { s.Fields = "sdx" }, "twice": func(s *Setting) { s.Fields = "ss" },
	} {
		s := setting()
		change(&s)
		if s.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := setting().Check(); err != nil {
		t.Error(err)
	}
}
