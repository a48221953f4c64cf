//go:build lab

package hosttest

import (
	"embed"
	"net"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host"
)

// The same scripts on a real driver. This test is made for a guest of the lab, which has
// the device as eth0, 10.77.0.2, and its host as 10.77.0.1:
//
//	CGO_ENABLED=0 go test -c -tags lab -o /tmp/hosttest.test ./internal/host/hosttest
//	go run ./lab/vm boot --kernel 6.12 --nic igb --smp 4 --bin /tmp/hosttest.test \
//	    --cmd 'RXSTEER_NIC=igb hosttest.test -test.v -test.run OnTheDriver'
//
//go:embed testdata/lab
var labScripts embed.FS

func TestScriptOnTheDriver(t *testing.T) {
	name := os.Getenv("RXSTEER_NIC")
	text, err := labScripts.ReadFile("testdata/lab/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	c, err := ethtool.New()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	Run(t, Target{FS: host.OS{}, Ethtool: c, Traffic: traffic}, string(txtar.Parse(text).Comment))
}

// traffic makes the device receive: each datagram to a closed port is answered by ICMP.
func traffic() error {
	for range 20 {
		conn, err := net.Dial("udp", "10.77.0.1:9")
		if err != nil {
			return err
		}
		conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
		conn.Write([]byte("x"))
		conn.Read(make([]byte, 1)) // the answer is an error, or there is none: both end this
		conn.Close()
	}
	return nil
}
