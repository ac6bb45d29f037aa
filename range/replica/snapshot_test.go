package replica

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/snapshot"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
)

// Every truncation and every flipped byte of a snapshot is noticed, and leaves the receiver as it
// was.
func TestSnapshotDamageIsNoticed(t *testing.T) {
	stream, index, term := sampleSnapshot(t)
	r, _, done := benchReplica(t)
	defer done()
	_, before, err := r.Checksum()
	if err != nil {
		t.Fatal(err)
	}
	try := func(data []byte) error {
		staged, err := r.StageSnapshot(context.Background(), index, term, bytes.NewReader(data))
		if err == nil {
			staged.Discard()
		}
		return err
	}
	if err := try(stream); err != nil {
		t.Fatal(err)
	}
	for n := range stream {
		if n%7 == 0 || n < 100 || n > len(stream)-50 {
			if err := try(stream[:n]); !errors.Is(err, snapshot.ErrMalformed) {
				t.Fatalf("cut to %d of %d bytes: %v", n, len(stream), err)
			}
			flipped := bytes.Clone(stream)
			flipped[n] ^= 0x10
			if err := try(flipped); !errors.Is(err, snapshot.ErrMalformed) {
				t.Fatalf("byte %d of %d flipped: %v", n, len(stream), err)
			}
		}
	}
	if err := try(append(bytes.Clone(stream), 0)); !errors.Is(err, snapshot.ErrMalformed) {
		t.Fatalf("a byte behind the end: %v", err)
	}
	broken := errors.New("connection lost")
	if _, err := r.StageSnapshot(context.Background(), index, term,
		iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Fatalf("a broken stream: %v", err)
	}
	if _, err := r.StageSnapshot(context.Background(), index+1, term,
		bytes.NewReader(stream)); !errors.Is(err, snapshot.ErrMalformed) {
		t.Fatalf("announced with another index: %v", err)
	}
	if _, after, err := r.Checksum(); err != nil || after != before {
		t.Fatalf("the receiver has changed: %v", err)
	}
}

// What is installed survives a crash at once, and what is only staged leaves nothing behind.
func TestSnapshotSurvivesCrash(t *testing.T) {
	stream, index, term := sampleSnapshot(t)
	fs := vfs.NewCrashableMem()
	node := &Node{Node: config.Node{Clock: hlc.NewClock(nil, nil)}}
	if err := node.Prepare(); err != nil {
		t.Fatal(err)
	}
	defer node.Pool.Close()
	defer node.Long.Close()
	open := func(fs vfs.FS) (*Replica, func()) {
		state, err := engine.OpenState(engine.Options{FS: fs, Dir: "state"})
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(Config{Partition: testPartition(1), ReplicaID: 1, State: state,
			Group: &instantGroup{}, Node: node})
		if err != nil {
			t.Fatal(err)
		}
		return r, func() {
			r.Close()
			state.Close()
		}
	}
	r, done := open(fs)
	staged, err := r.StageSnapshot(context.Background(), index, term, bytes.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	between := fs.CrashClone(vfs.CrashCloneCfg{})
	if err := staged.Install(); err != nil {
		t.Fatal(err)
	}
	after := fs.CrashClone(vfs.CrashCloneCfg{})
	_, want, err := r.Checksum()
	if err != nil {
		t.Fatal(err)
	}
	done()

	r, done = open(between)
	if got, _ := r.Applied(); got != 0 {
		t.Fatalf("applied index %d after a crash before the installation", got)
	}
	if names, err := between.List("state/ingest"); err != nil || len(names) > 0 {
		t.Fatalf("left behind: %v %v", names, err)
	}
	done()

	r, done = open(after)
	defer done()
	if got, _ := r.Applied(); got != index {
		t.Fatalf("applied index %d after a crash behind the installation of %d", got, index)
	}
	if _, got, err := r.Checksum(); err != nil || got != want {
		t.Fatalf("the state differs after the crash: %v", err)
	}
}

// Destroy removes a partition for good, and nothing of its neighbours.
func TestDestroy(t *testing.T) {
	fs := vfs.NewCrashableMem()
	c := newTestCluster(t, 1, config.Limits{})
	defer c.close()
	state, err := engine.OpenState(engine.Options{FS: fs, Dir: "state"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { state.Close() }()
	open := func(id uint64, start, end byte) *Replica {
		p := testPartition(1)
		p.Id, p.Start, p.End = id, append(keys.KeyspacePrefix(7), start),
			append(keys.KeyspacePrefix(7), end)
		r, err := New(Config{Partition: p, ReplicaID: 1, State: state, Group: c.members[0],
			Node: c.members[0].node})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	gone := open(100, 'f', 'm')
	var neighbours []*Replica
	var sums []uint64
	for _, r := range []*Replica{open(99, 'a', 'f'), open(101, 'm', 'z')} {
		_, sum, err := r.Checksum()
		if err != nil {
			t.Fatal(err)
		}
		neighbours, sums = append(neighbours, r), append(sums, sum)
	}
	b := state.NewBatch()
	goneKey := keys.DataKey(append(keys.KeyspacePrefix(7), "gone"...))
	for _, key := range [][]byte{keys.AppendTimestamp(goneKey, hlc.Timestamp{Wall: 5}),
		keys.AnchorKey(append(keys.KeyspacePrefix(7), 'g'), "a record of some kind")} {
		if err := b.Set(key, []byte("what is in it does not matter"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := state.Commit(b); err != nil {
		t.Fatal(err)
	}
	b.Close()
	what, err := gone.Gone()
	if err != nil {
		t.Fatal(err)
	}
	if err := storage.Destroy(context.Background(), state, what); err != nil {
		t.Fatal(err)
	}
	after := fs.CrashClone(vfs.CrashCloneCfg{})
	for i, r := range neighbours {
		if _, sum, err := r.Checksum(); err != nil || sum != sums[i] {
			t.Fatalf("partition %s has changed: %v", r.ID(), err)
		}
		r.Close()
	}
	crashed, err := engine.OpenState(engine.Options{FS: after, Dir: "state"})
	if err != nil {
		t.Fatal(err)
	}
	defer crashed.Close()
	for _, span := range storage.Spans(100, keys.PartitionSpan(gone.Descriptor())) {
		i, err := crashed.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		if i.SeekGE(span.Start) && storage.Contains(span, i.Key()) {
			t.Errorf("%s is still there", keys.PrettyState(i.Key()))
		}
		i.Close()
	}
}

// fullFS has no room for tables that are to be ingested once so many bytes of them are written.
type fullFS struct {
	vfs.FS
	left *atomic.Int64
}

func (s fullFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, category)
	if err == nil && strings.Contains(name, "ingest") {
		return fullFile{f, s}, nil
	}
	return f, err
}

type fullFile struct {
	vfs.File
	fs fullFS
}

func (f fullFile) Write(p []byte) (int, error) {
	if f.fs.left.Add(-int64(len(p))) < 0 {
		return 0, syscall.ENOSPC
	}
	return f.File.Write(p)
}

// fullDisk is full when its test says so.
type fullDisk struct {
	config.Alone
	full *bool
}

func (d fullDisk) DiskFull() bool { return *d.full }

// A snapshot for which there is no room is refused: it does not wait for what nothing but itself
// may be able to give back, and leaves nothing behind.
func TestSnapshotWithoutRoom(t *testing.T) {
	stream, index, term := sampleSnapshot(t)
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		var room atomic.Int64
		var full bool
		node := &Node{Node: config.Node{Clock: hlc.NewClock(nil, nil),
			Disks: fullDisk{full: &full}}}
		if err := node.Prepare(); err != nil {
			t.Fatal(err)
		}
		defer node.Pool.Close()
		defer node.Long.Close()
		state, err := engine.OpenState(engine.Options{FS: fullFS{mem, &room}, Dir: "state"})
		if err != nil {
			t.Fatal(err)
		}
		defer state.Close()
		r, err := New(Config{Partition: testPartition(1), ReplicaID: 1, State: state,
			Group: &instantGroup{}, Node: node})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		try := func() error {
			staged, err := r.StageSnapshot(context.Background(), index, term, bytes.NewReader(stream))
			if err == nil {
				staged.Discard()
			}
			if names, err := mem.List("state/ingest"); err != nil || len(names) > 0 {
				t.Errorf("left behind: %v %v", names, err)
			}
			return err
		}
		room.Store(1 << 30)
		if err := try(); err != nil {
			t.Fatal(err)
		}
		needed := 1<<30 - room.Load()
		for _, part := range []int64{0, needed / 4, needed / 2, needed - 1} {
			room.Store(part)
			if err := try(); !errors.Is(err, engine.ErrNoRoom) {
				t.Errorf("room for %d of %d bytes: %v", part, needed, err)
			}
		}
		room.Store(needed)
		full = true
		if err := try(); !errors.Is(err, engine.ErrNoRoom) || room.Load() < needed/2 {
			t.Errorf("what is left is for others: %v, %d of %d left", err, room.Load(), needed)
		}
		full = false
		room.Store(needed)
		if err := try(); err != nil {
			t.Errorf("enough room again: %v", err)
		}
	})
}
