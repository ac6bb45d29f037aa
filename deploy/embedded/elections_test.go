package embedded

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestElectionTimeoutBesideOffset: leases that are shorter than clocks may be apart are found, and
// the values that are said to be enough are.
func TestElectionTimeoutBesideOffset(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		tick      time.Duration
		ticks     int
		maxOffset time.Duration
		enough    string
	}{
		{0, 0, 0, ""},
		{0, 0, 800 * ms, ""},
		{0, 0, time.Second, "at least 13 ticks"},
		{50 * ms, 3, 0, "at least 7 ticks"},
		{50 * ms, 7, 0, ""},
		{100 * ms, 3, 0, "at least 4 ticks"}, // 300 ms of election timeout, and 180 ms of lease
		{10 * ms, 0, 0, "at least 29 ticks"},
		{10 * ms, 29, 0, ""},
		{10 * ms, 10, 30 * ms, ""},
		{time.Millisecond, 3, 90 * time.Second, "at least 100001 ticks"},
		{time.Nanosecond, 3, 24 * time.Hour, "at least 96000000000001 ticks"},
		{time.Hour, 1 << 62, 0, "longer than can be counted"},
	} {
		err := CheckElections(c.tick, c.ticks, c.maxOffset)
		if (err == nil) != (c.enough == "") ||
			err != nil && !strings.Contains(err.Error(), c.enough) {
			t.Errorf("%s * %d, offset %s: %v; want %q", c.tick, c.ticks, c.maxOffset, err, c.enough)
		}
	}
}

// TestShortElectionTimeoutIsLogged: a server that runs with such values all the same says so when
// it starts.
func TestShortElectionTimeoutIsLogged(t *testing.T) {
	for ticks, told := range map[int]bool{3: true, 10: false} {
		var log bytes.Buffer
		s, err := StartServer(t.Context(), ServerConfig{
			Dir: "/data", FS: vfs.NewMem(), Listen: "127.0.0.1:0",
			Advertise: "127.0.0.1:1", Core: []string{"127.0.0.1:1"},
			Logger: slog.New(slog.NewTextHandler(&log,
				&slog.HandlerOptions{Level: slog.LevelWarn})),
			Tick:          20 * time.Millisecond * time.Duration(ticks),
			ElectionTicks: ticks, MaxOffset: 150 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(log.String(), "maximum clock offset"); got != told {
			t.Errorf("%d ticks: told: %t\n%s", ticks, got, log.String())
		}
	}
}
