package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// slowDisk makes the syncs of a server's logs slow.
type slowDisk struct {
	Server Target
	Takes  time.Duration
}

var _ = register("slow-disk", 12, 15*time.Second, func(d *Dice) slowDisk {
	return slowDisk{d.Server(), d.Between(time.Millisecond, 150*time.Millisecond)}
})

// Begin implements Effect.
func (f slowDisk) Begin(w *World) (string, func() string) {
	server, ok := w.find(f.Server)
	if !ok {
		return absent(f.Server)
	}
	w.Cluster.Disk(server).SetSyncDelay(f.Takes)
	return fmt.Sprintf("syncs of server %d take up to %v", server, f.Takes), func() string {
		w.Cluster.Disk(server).SetSyncDelay(syncDelay)
		return fmt.Sprintf("syncs of server %d are fast again", server)
	}
}

// diskLow makes a server's disk report that it has no free space while writes still succeed. (If
// writes fail for want of space, the storage engine waits with locks held, and a goroutine that
// waits for a lock stops virtual time. Tests in real time cover that case.)
type diskLow struct{ Server Target }

var _ = register("disk-low", 4, 10*time.Second,
	func(d *Dice) diskLow { return diskLow{d.Server()} })

// Begin implements Effect.
func (f diskLow) Begin(w *World) (string, func() string) {
	server, ok := w.find(f.Server)
	if !ok {
		return absent(f.Server)
	}
	w.Cluster.Disk(server).SetLow(true)
	return fmt.Sprintf("the disk of server %d has no free space", server), func() string {
		w.Cluster.Disk(server).SetLow(false)
		return fmt.Sprintf("the disk of server %d has free space", server)
	}
}

// diskError makes operations of a server's disk fail: some operations, or (-1) all later ones. At
// the end the disk is mended, and a server that failed loses its power and starts again.
type diskError struct {
	Server Target
	// Op is the kind of operation that fails.
	Op    string `one:"read write sync"`
	Count int    `least:"-1"`
}

var _ = register("disk-error", 4, 6*time.Second, func(d *Dice) diskError {
	return diskError{d.Server(), []string{"read", "write", "sync"}[d.IntN(3)], d.Of(1, 1, 3, -1)}
})

// Begin implements Effect.
func (f diskError) Begin(w *World) (string, func() string) {
	server, ok := w.find(f.Server)
	op, known := map[string]kvtest.DiskOp{"read": kvtest.DiskRead, "write": kvtest.DiskWrite,
		"sync": kvtest.DiskSync}[f.Op]
	if !ok || !known || w.Cluster.Process(server) == nil {
		return absent(f.Server)
	}
	w.excuse(server)
	w.Cluster.Disk(server).Fail(op, f.Count)
	return fmt.Sprintf("a %s of server %d fails", f.Op, server), func() string {
		w.Cluster.Disk(server).Fail(op, 0)
		did := "it did not matter"
		switch {
		case w.isKeptDown(server):
			w.start(server)
			did = "it did not start, and is started again"
		case w.failedByDisk(server):
			w.kill(50, server)
			w.start(server)
			did = "it had failed, and started again"
		}
		return fmt.Sprintf("the disk of server %d is mended; %s", server, did)
	}
}

// failedByDisk says whether a server, or a replica on it, has failed because of its disk.
func (w *World) failedByDisk(server int) bool {
	p := w.Cluster.Process(server)
	if p == nil {
		return false
	}
	if p.Err() != nil {
		return errors.Is(p.Err(), kvtest.ErrDisk)
	}
	for _, r := range p.Replicas() {
		if errors.Is(r.Failed, kvtest.ErrDisk) {
			return true
		}
	}
	return false
}
