package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
)

// TestCoordinationSpaceComesBack fills the small disk of one core member through the etcd API,
// until puts are refused. Then keys are deleted and history is compacted: first a part of the keys,
// so that much data must be rewritten, and then all keys. The space is freed, the alarm ends, and
// puts succeed again, while all servers keep running.
func TestCoordinationSpaceComesBack(t *testing.T) {
	const (
		megabytes  = 700
		valueBytes = 1_300_000
	)
	where := smallDisks(t)
	disk := smallDisk(t, where, "core1", megabytes)
	e := newEnvironment(t, 8*time.Minute, fleet.Layout{Cores: 3, Configure: func(i int, s *fleet.Server) {
		s.Roles = "core,node"
		s.Flags = append(s.Flags, "--log-level", "info")
		if i == 0 {
			s.Dir = disk.Dir + "/data"
		}
	}})
	e.must(e.cluster.Start(e.ctx), "start the core")
	c := e.coordinate().Etcd()

	random := rand.NewChaCha8([32]byte{1})
	value := make([]byte, valueBytes)
	put := func(key string, limit time.Duration) error {
		ctx, cancel := context.WithTimeout(e.ctx, limit)
		defer cancel()
		_, err := c.Put(ctx, key, string(value))
		return err
	}
	fill := func(prefix string) (n int) {
		for ; ; n++ {
			if _, err := random.Read(value); err != nil {
				t.Fatal(err)
			}
			err := put(fmt.Sprintf("%s/%06d", prefix, n), 20*time.Second)
			if errors.Is(err, rpctypes.ErrNoSpace) {
				break
			}
			e.must(err, "put %d", n)
			if n*valueBytes > megabytes<<20 {
				t.Fatal("no alarm was raised though the values are larger than the disk")
			}
		}
		e.result("refused after %d MB; %s", n*valueBytes/1_000_000, e.coordinationSizes(c))
		return n
	}
	goesOn := func(revision int64) {
		t.Helper()
		began := time.Now()
		_, err := c.Compact(e.ctx, revision, clientv3.WithCompactPhysical())
		e.must(err, "compact")
		e.wait(2*time.Minute, "the alarm ends", func(ctx context.Context) error {
			alarms, err := c.AlarmList(ctx)
			if err == nil && len(alarms.Alarms) > 0 {
				err = fmt.Errorf("%v", alarms.Alarms)
			}
			return err
		})
		e.must(put("next", 20*time.Second), "put after the alarm")
		e.result("the alarm ended %v after the compaction; %s",
			time.Since(began).Round(time.Millisecond), e.coordinationSizes(c))
	}

	// Delete every second key, in all parts of the store.
	n := fill("first")
	var revision int64
	for i := 0; i < n; i += 2 {
		deleted, err := c.Delete(e.ctx, fmt.Sprintf("first/%06d", i))
		e.must(err, "delete")
		revision = deleted.Header.Revision
	}
	goesOn(revision)

	fill("second")
	deleted, err := c.Delete(e.ctx, "", clientv3.WithFromKey())
	e.must(err, "delete all keys")
	goesOn(deleted.Header.Revision)
	for _, s := range e.cluster.Cores {
		_, err := c.Defragment(e.ctx, s.Address())
		e.must(err, "defragment %s", s.Name)
		status, err := c.Status(e.ctx, s.Address())
		e.must(err, "ask %s", s.Name)
		if status.DbSize > 8<<20 {
			t.Errorf("the store of %s takes %d bytes after all was deleted", s.Name, status.DbSize)
		}
	}
}

// coordinationSizes describes the size of each member's store.
func (e *environment) coordinationSizes(c *clientv3.Client) (text string) {
	for _, s := range e.cluster.Cores {
		ctx, cancel := context.WithTimeout(e.ctx, 5*time.Second)
		status, err := c.Status(ctx, s.Address())
		cancel()
		if err != nil {
			text += fmt.Sprintf("%s: %v; ", s.Name, err)
			continue
		}
		text += fmt.Sprintf("%s: %d bytes, %d in use, %v; ", s.Name, status.DbSize,
			status.DbSizeInUse, status.Errors)
	}
	return text
}

// smallDisks makes the directory for a test's disks. It is removed when the test ends.
func smallDisks(t *testing.T) string {
	t.Helper()
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
	return where
}

// smallDisk mounts a disk until the test ends. The test is skipped if no disk can be mounted.
func smallDisk(t *testing.T, where, name string, megabytes int) *fleet.Disk {
	t.Helper()
	disk, err := fleet.MountDisk(where, name, megabytes)
	if errors.Is(err, fleet.ErrNoMount) {
		t.Skipf("no small disks: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return disk
}
