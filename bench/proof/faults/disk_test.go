package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
)

// diskMegabytes is more than the space that a server keeps free by default.
const diskMegabytes = 1024

// TestDiskFull fills the disk of one data node, and then of all three. Reads go on. Writes fail
// with an error that names the reason, and succeed again without help when there is space. No
// acknowledged write is lost.
func TestDiskFull(t *testing.T) {
	if !*enabled {
		t.Skip("fault tests run with -faults (make faults)")
	}
	where, err := os.MkdirTemp(*scratch, "tidemark-disks-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(where); err != nil {
			t.Error(err)
		}
	})
	var disks []*fleet.Disk
	for i := range 3 {
		disk, err := fleet.MountDisk(where, fmt.Sprintf("disk%d", i+1), diskMegabytes)
		if errors.Is(err, fleet.ErrNoMount) {
			t.Skipf("no small disks: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		disks = append(disks, disk)
		t.Cleanup(func() {
			if err := disk.Unmount(); err != nil {
				t.Error(err)
			}
		})
	}
	layout := sixProcesses()
	layout.NodeDir = func(i int) string { return disks[i].Dir + "/data" }
	e := newEnvironment(t, 6*time.Minute, layout)
	e.start(keyspace, hash, 3)
	store := e.open(keyspace)
	load := steadyLoad(store)
	load.Timeout = 5 * time.Second
	load.Start(e.ctx)
	defer load.Stop()
	e.pass(2 * time.Second)

	e.must(disks[0].Fill(), "fill the disk of %s", e.cluster.Nodes[0].Name)
	e.pass(5 * time.Second)
	one := e.tryEveryPartition(store)
	e.result("disk of one node full (%s): reads answered %d of %d; writes answered %d, said "+
		"that the disk is full %d, said something else %d %v",
		disks[0].Kind, one.reads, hash, one.writes, one.full, one.other, one.otherErrors.err())
	if one.reads < hash {
		e.Errorf("reads stopped: %v", one.readErrors.err())
	}
	if one.other > 0 {
		e.Errorf("writes failed without saying that the disk is full: %v", one.otherErrors.err())
	}

	for _, disk := range disks[1:] {
		e.must(disk.Fill(), "fill all disks")
	}
	e.wait(20*time.Second, "every write says that the disk is full", func(context.Context) error {
		if all := e.tryEveryPartition(store); all.full < hash {
			return fmt.Errorf("%d writes succeeded, %d said that the disk is full, %d something "+
				"else: %w", all.writes, all.full, all.other, all.otherErrors.err())
		}
		return nil
	})
	all := e.tryEveryPartition(store)
	e.result("disks of all nodes full: reads answered %d of %d; writes said that the disk is "+
		"full %d", all.reads, hash, all.full)
	if all.reads < hash {
		e.Errorf("reads stopped: %v", all.readErrors.err())
	}
	for _, s := range e.cluster.Nodes {
		if !s.Process().Running() {
			e.Errorf("%s ended when its disk was full: exit code %d", s.Name,
				s.Process().ExitCode())
		}
	}

	begin := time.Now()
	for _, disk := range disks {
		e.must(disk.MakeRoom(), "make room")
	}
	e.wait(30*time.Second, "every partition can be written again", func(context.Context) error {
		if all := e.tryEveryPartition(store); all.writes < hash {
			return fmt.Errorf("%d of %d can: %w", all.writes, hash, all.otherErrors.err())
		}
		return nil
	})
	e.result("writes went on %v after room was made", time.Since(begin).Round(time.Millisecond))
	e.check(load)
}

// tried has the results of a read and a write of every partition.
type tried struct {
	mu                         sync.Mutex
	reads, writes, full, other int
	readErrors, otherErrors    collected
}

func (e *environment) tryEveryPartition(store *Store) *tried {
	result := &tried{}
	var group sync.WaitGroup
	for _, key := range fleet.PartitionKeys(hash) {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(e.ctx, 4*time.Second)
			defer cancel()
			_, readErr := store.Get(ctx, key)
			ctx, cancel = context.WithTimeout(e.ctx, 4*time.Second)
			defer cancel()
			writeErr := store.Put(ctx, key, "x")
			result.mu.Lock()
			defer result.mu.Unlock()
			if readErr == nil {
				result.reads++
			} else {
				result.readErrors.add(readErr)
			}
			switch {
			case writeErr == nil:
				result.writes++
			case saysDiskFull(writeErr):
				result.full++
			default:
				result.other++
				result.otherErrors.add(writeErr)
			}
		})
	}
	group.Wait()
	return result
}

// TestDisk tests the small disk itself.
func TestDisk(t *testing.T) {
	if !*enabled {
		t.Skip("fault tests run with -faults (make faults)")
	}
	where := t.TempDir()
	disk, err := fleet.MountDisk(where, "disk", 32)
	if errors.Is(err, fleet.ErrNoMount) {
		t.Skipf("no small disks: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := disk.Unmount(); err != nil {
			t.Error(err)
		}
	}()
	if err := disk.Fill(); err != nil {
		t.Fatal(err)
	}
	t.Log(disk.Kind)
	file := disk.Dir + "/file"
	if err := os.WriteFile(file, make([]byte, 64<<10), 0o644); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write to the full disk: %v", err)
	}
	if err := disk.MakeRoom(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, make([]byte, 64<<10), 0o644); err != nil {
		t.Errorf("a write after room was made: %v", err)
	}
}
