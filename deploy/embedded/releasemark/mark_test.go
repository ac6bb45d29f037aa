package releasemark

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A level is on disk before it is reported, and a gate opens only for a level that is on disk as
// active. A write that fails changes nothing, and is tried again when the core says so again.
func TestDiskFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var disk []Levels
		broken := errors.New("no disk")
		fails, changes := true, 0
		var m *Mark
		gate := release.Gate{Level: 2}
		m, err := New(Config{Supported: release.Range{Min: 1, Max: 2}, Kept: Levels{1, 1},
			Save: func(l Levels) error {
				if r := m.Report(); r.Noted >= 2 && l.Active < 2 || m.Active().Allows(gate) {
					t.Errorf("before the disk has it: %v", r)
				}
				if fails {
					return broken
				}
				disk = append(disk, l)
				return nil
			},
			Changed: func() { changes++ },
			Logger:  slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); m.Run(ctx) }()
		coming := &clusterpb.ClusterLevel{Active: 1, Coming: 2}
		m.Learn(coming)
		synctest.Wait()
		if r := m.Report(); r.Noted != 1 || len(disk) > 0 {
			t.Errorf("noted without a disk: %v", r)
		}
		fails = false
		m.Learn(coming)
		synctest.Wait()
		if r := m.Report(); r.Noted != 2 || r.Active != 1 || m.Active().Allows(gate) {
			t.Errorf("coming: %v", r)
		}
		for _, l := range []*clusterpb.ClusterLevel{{Active: 2, Coming: 2}, {Active: 1, Coming: 1}, nil,
			{Active: 3, Coming: 3}, {Active: 2, Coming: 3}} {
			m.Learn(l)
			synctest.Wait()
		}
		if r := m.Report(); r.Noted != 2 || r.Active != 2 || !m.Active().Allows(gate) || changes != 2 ||
			len(disk) != 2 || disk[1] != (Levels{2, 2}) {
			t.Errorf("active: %v, %d changes, disk %v", r, changes, disk)
		}
		cancel()
		<-done
		m.Close()
	})
}

// A directory is opened by the programs that support both levels that it has noted.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		program release.Range
		kept    Levels
		joined  bool
		want    string
	}{
		{release.Range{Min: 0, Max: 1}, Levels{0, 0}, true, ""},
		{release.Range{Min: 0, Max: 1}, Levels{1, 0}, true, ""},
		{release.Range{Min: 0, Max: 1}, Levels{2, 1}, true, "was finalised"},
		{release.Range{Min: 1, Max: 2}, Levels{2, 1}, true, ""},
		{release.Range{Min: 2, Max: 3}, Levels{2, 1}, true, "more than one release apart"},
		{release.Range{Min: 1, Max: 2}, Levels{1, 0}, true, "more than one release apart"},
		{release.Range{Min: 1, Max: 2}, Levels{0, 0}, true, ""}, // the core knows
		{release.Range{Min: 1, Max: 2}, Levels{0, 0}, false, ""},
	} {
		err := Check(c.program, c.kept, c.joined)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v with %v: %v", c.program, c.kept, err)
		}
	}
}
