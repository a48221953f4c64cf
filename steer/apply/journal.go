package apply

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// journalVersion is the format of the journal. Readers refuse newer ones.
const journalVersion = 1

// The journal is one file of JSON lines, only ever appended to. A line counts when its newline is
// there: a line torn by a crash was never acted on, for each write to the host comes after the
// fsync of the line that announces it.
const (
	journalFile = "journal.jsonl"
	lockFile    = "lock"
	maxJournal  = 64 << 20
	archives    = 3
)

// record is one line.
type record struct {
	V    int       `json:"v"`
	Time time.Time `json:"time"`
	Type string    `json:"type"`
	TX   string    `json:"tx,omitempty"`

	Boot string     `json:"boot_id,omitempty"` // boot
	Plan *plan.Plan `json:"plan,omitempty"`    // begin
	// Pins, of begin, are where the vectors of devices that may be rebuilt were.
	Pins     map[string][]pin `json:"pins,omitempty"`
	By       string           `json:"by,omitempty"`          // begin: who asked for it
	Index    *int             `json:"index,omitempty"`       // write, wrote, skip: the change of the plan
	Value    *knob.Value      `json:"value,omitempty"`       // write: when not the plan's; wrote: read back
	Ref      *knob.Ref        `json:"ref,omitempty"`         // putback
	From     *knob.Value      `json:"from,omitempty"`        // putback: the unasked value
	State    State            `json:"state,omitempty"`       // state
	Why      string           `json:"why,omitempty"`         // state
	Deadline time.Duration    `json:"deadline_ns,omitempty"` // state unconfirmed: since boot
	Left     []Left           `json:"left,omitempty"`        // state partial
	Verdict  *Verdict         `json:"judged,omitempty"`      // state: what was measured before and after
}

// Types of records.
const (
	recBoot    = "boot"    // first line: the boot all others belong to
	recBegin   = "begin"   // a plan is journalled
	recWrite   = "write"   // change Index is about to be written
	recWrote   = "wrote"   // and was: Value is what it reads as
	recSkip    = "skip"    // change Index was refused by the host and never took effect
	recPutBack = "putback" // Ref, unasked, is about to be put back from From to Value
	recUndo    = "undo"    // everything is about to be put back
	recState   = "state"
)

// Transaction is what the journal knows of one.
type Transaction struct {
	ID    string     `json:"id"`
	Begun time.Time  `json:"begun"`
	By    string     `json:"by,omitempty"`   // who began it
	Ended time.Time  `json:"ended,omitzero"` // when the state was reached
	State State      `json:"state"`
	Why   string     `json:"why,omitempty"`
	Plan  *plan.Plan `json:"plan"`
	Left  []Left     `json:"left,omitempty"`
	// Deadline, since boot, of an unconfirmed one.
	Deadline time.Duration `json:"deadline_ns,omitempty"`
	// Verdict is what was measured before and after all changes together; nil where nothing was.
	Verdict *Verdict `json:"judged,omitempty"`

	written  map[int]*knob.Value // changes announced; nil until read back
	putBacks []putBack
	pins     map[string][]pin // by device
}

type putBack struct {
	ref      knob.Ref
	from, to knob.Value
}

// InFlight reports whether it was neither kept nor undone: it runs, waits to be confirmed, or its run died.
func (t *Transaction) InFlight() bool { return !t.finished() }

// finished reports whether nothing is in flight.
func (t *Transaction) finished() bool {
	return t.State == Kept || t.State == RolledBack || t.State == Partial
}

// disk is the journal's file, as far as it can fail.
type disk interface {
	Write(b []byte) (int, error)
	Sync() error
	Truncate(size int64) error
}

type journal struct {
	f    disk
	now  func() time.Time
	size int64 // of the good part
	torn bool  // bytes beyond size may exist
	txs  []*Transaction
}

// append writes one line and makes it durable.
func (j *journal) append(r record) error {
	r.V, r.Time = journalVersion, j.now().UTC()
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode journal line: %w", err)
	}
	b = append(b, '\n')
	if j.torn {
		if err := j.f.Truncate(j.size); err != nil {
			return fmt.Errorf("write journal: %w", err)
		}
		j.torn = false
	}
	j.torn = true
	if _, err := j.f.Write(b); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	if err := j.f.Sync(); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	j.torn = false
	j.size += int64(len(b))
	return j.take(r)
}

// take applies a record to what is known.
func (j *journal) take(r record) error {
	if r.Type == recBoot {
		return nil
	}
	if r.Type == recBegin {
		if r.Plan == nil || r.TX == "" {
			return errors.New("a transaction begins without a plan")
		}
		j.txs = append(j.txs, &Transaction{ID: r.TX, Begun: r.Time, By: r.By, pins: r.Pins, State: Journalled, Plan: r.Plan, written: map[int]*knob.Value{}})
		return nil
	}
	t := j.find(r.TX)
	if t == nil {
		return fmt.Errorf("transaction %q never began", r.TX)
	}
	index := func() (int, error) {
		if r.Index == nil || *r.Index < 0 || *r.Index >= len(t.Plan.Changes) {
			return 0, fmt.Errorf("%s names no change of transaction %s", r.Type, r.TX)
		}
		return *r.Index, nil
	}
	switch r.Type {
	case recWrite, recWrote, recSkip:
		i, err := index()
		if err != nil {
			return err
		}
		t.State = Applying
		switch r.Type {
		case recWrite, recWrote:
			t.written[i] = r.Value
		case recSkip:
			delete(t.written, i)
		}
	case recPutBack:
		if r.Ref == nil || r.From == nil || r.Value == nil {
			return errors.New("putback without its values")
		}
		t.putBacks = append(t.putBacks, putBack{*r.Ref, *r.From, *r.Value})
	case recUndo:
		t.State, t.Why = Applying, r.Why
	case recState:
		switch r.State {
		case Applying, Unconfirmed, Kept, RolledBack, Partial:
		default:
			return fmt.Errorf("state %q does not exist", r.State)
		}
		t.State, t.Why, t.Deadline, t.Left, t.Ended = r.State, r.Why, r.Deadline, r.Left, r.Time
		if r.Verdict != nil { // a later confirmation or rollback does not judge again
			t.Verdict = r.Verdict
		}
	default:
		return fmt.Errorf("line of type %q is not known", r.Type)
	}
	return nil
}

func (j *journal) find(id string) *Transaction {
	for _, t := range j.txs {
		if t.ID == id {
			return t
		}
	}
	return nil
}

// parse reads a journal's text. It returns the boot it belongs to and the length of its good part;
// an unfinished last line is not an error.
func (j *journal) parse(name string, data []byte) (boot string, err error) {
	for n := 1; len(data) > 0; n++ {
		line, rest, whole := bytes.Cut(data, []byte{'\n'})
		if !whole {
			j.torn = true
			return boot, nil
		}
		var v struct {
			V int `json:"v"`
		}
		if err := json.Unmarshal(line, &v); err != nil {
			return boot, fmt.Errorf("read journal %s:%d: not a journal line: %w", name, n, err)
		}
		if v.V > journalVersion {
			return boot, fmt.Errorf("read journal %s:%d: format %d, this one reads up to %d: %w; use that one to finish or roll back", name, n, v.V, journalVersion, ErrNewer)
		}
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return boot, fmt.Errorf("read journal %s:%d: %w", name, n, err)
		}
		if n == 1 {
			if r.Type != recBoot {
				return boot, fmt.Errorf("read journal %s:1: does not say which boot it belongs to", name)
			}
			boot = r.Boot
		}
		if err := j.take(r); err != nil {
			return boot, fmt.Errorf("read journal %s:%d: %w", name, n, err)
		}
		j.size += int64(len(line)) + 1
		data = rest
	}
	return boot, nil
}

// History reads the transactions of a journal folder without locking it, oldest first, and the
// boot they belong to. A folder without a journal has none.
func History(dir string) ([]Transaction, string, error) {
	if dir == "" {
		dir = DefaultDir
	}
	name := filepath.Join(dir, journalFile)
	data, err := readJournal(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	var j journal
	boot, err := j.parse(name, data)
	var out []Transaction
	for _, t := range j.txs {
		out = append(out, *t)
	}
	return out, boot, err
}

func readJournal(name string) ([]byte, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	if st.Size() > maxJournal {
		return nil, fmt.Errorf("read journal %s: %d bytes: more than any boot's (%d); move it away", name, st.Size(), maxJournal)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	return data, nil
}

// remote are file systems a journal must not lie on: they can vanish with the very link a
// transaction changes, or outlive the boot (include/uapi/linux/magic.h).
var remote = map[int64]string{
	0x6969: "nfs", 0x517b: "smb", 0xff534d42: "cifs", 0xfe534d42: "smb3", 0x00c36400: "ceph",
	0x5346414f: "afs", 0x01021997: "9p", 0x65735546: "fuse", 0x73757245: "coda",
}

// open locks the folder and reads its journal for one boot.
func openJournal(dir, boot string, now func() time.Time, wrap func(disk) disk) (_ *journal, unlock func() error, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("open journal: %w", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err == nil {
		if name, bad := remote[int64(uint32(st.Type))]; bad {
			return nil, nil, fmt.Errorf("open journal: %s is on %s: it must be on a local file system (%s)", dir, name, DefaultDir)
		}
	}
	lock, err := acquire(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	name := filepath.Join(dir, journalFile)
	j := &journal{now: now}
	var own unix.Stat_t
	if err := unix.Stat(name, &own); err == nil && own.Uid != 0 && int(own.Uid) != os.Geteuid() {
		return nil, nil, fmt.Errorf("open journal: %s belongs to uid %d: what it says is not acted on; move it away", name, own.Uid)
	}
	data, err := readJournal(name)
	fresh := errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.Contains(data, []byte{'\n'})
	if err != nil && !fresh {
		return nil, nil, err
	}
	if !fresh {
		was, err := j.parse(name, data)
		if err != nil {
			return nil, nil, err
		}
		if was != boot { // what it lists died with that boot
			if err := archive(dir, was); err != nil {
				return nil, nil, fmt.Errorf("open journal: %w", err)
			}
			j, fresh = &journal{now: now}, true
		}
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("open journal: %w", err)
	}
	j.f = f
	if wrap != nil {
		j.f = wrap(f)
	}
	closeAll := func() error { return errors.Join(f.Close(), lock.Close()) }
	if fresh {
		j.torn = true // whatever half a line may be there
		if err := j.append(record{Type: recBoot, Boot: boot}); err != nil {
			closeAll()
			return nil, nil, err
		}
		if err := syncDir(dir); err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("open journal: %w", err)
		}
	}
	return j, closeAll, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// archive moves the journal of another boot aside and drops all but the newest few.
func archive(dir, boot string) error {
	clean := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r == '-' {
			return r
		}
		return -1
	}, boot)
	if err := os.Rename(filepath.Join(dir, journalFile), filepath.Join(dir, "journal."+clean+".old")); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "journal.*.old"))
	if err != nil {
		return err
	}
	age := func(name string) time.Time {
		st, err := os.Stat(name)
		if err != nil {
			return time.Time{}
		}
		return st.ModTime()
	}
	slices.SortFunc(old, func(a, b string) int { return age(b).Compare(age(a)) })
	for _, name := range old[min(len(old), archives):] {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return syncDir(dir)
}

// acquire takes the lock of a folder; it is held by the open file and dies with the process.
func acquire(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		b := make([]byte, 32)
		n, _ := f.ReadAt(b, 0)
		f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		if pid, perr := strconv.Atoi(strings.TrimSpace(string(b[:n]))); perr == nil {
			return nil, fmt.Errorf("lock %s: %w (pid %d): wait for it or stop it", name, ErrLocked, pid)
		}
		return nil, fmt.Errorf("lock %s: %w: wait for it or stop it", name, ErrLocked)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}
