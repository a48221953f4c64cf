package record

import (
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
)

// Version is the schema of the file. It grows when a frame changes meaning; new fields do not
// count. Readers refuse newer ones.
const Version = 1

// Format is how every recording begins.
const Format = "rxsteer recording"

// Header says what a recording is of.
type Header struct {
	Version  int           `json:"version"`
	Program  string        `json:"program"` // version of the rxsteer that wrote it
	Host     knob.Identity `json:"host"`
	Name     string        `json:"name,omitempty"` // of the host
	Started  time.Time     `json:"started"`
	Interval time.Duration `json:"interval_ns"`
	Level    int           `json:"level"`              // that was asked for
	Overhead float64       `json:"overhead,omitempty"` // budget: a share of each CPU's time, 0 unlimited
	Devices  []string      `json:"devices,omitempty"`  // asked for, none: all
}

// State is what the host was and what was set at a moment. Slices and what pointers point to are
// shared: do not change them.
type State struct {
	At       time.Time      `json:"at"`
	NICs     []nic.NIC      `json:"nics"`
	Topology *topo.Topology `json:"topology"`
	Snapshot *knob.Snapshot `json:"snapshot"`
}

// End closes a whole recording.
type End struct {
	At      time.Time `json:"at"`
	Samples int       `json:"samples"`
}

// frame is one line of the file.
type frame struct {
	Format string            `json:"format,omitempty"`
	Header *Header           `json:"header,omitempty"`
	State  *State            `json:"state,omitempty"`
	Sample *collector.Sample `json:"sample,omitempty"`
	// Instances stand for NAPI.Pointer of each of the sample's NAPIs: addresses of the kernel do
	// not leave the host, what tells two NAPIs apart and their order does.
	Instances []uint64 `json:"instances,omitempty"`
	End       *End     `json:"end,omitempty"`
}
