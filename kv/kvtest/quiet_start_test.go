package kvtest_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// lines keeps what is logged at info and above.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (l *lines) WithGroup(string) slog.Handler                    { return l }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler               { return l }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	text := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { text += fmt.Sprintf(" %s=%v", a.Key, a.Value); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, text)
	return nil
}

// take returns what was logged since the last time.
func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}

// TestStartIsQuiet: what is normal when servers start, stop and start again is no warning, and a
// few lines at info.
func TestStartIsQuiet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := &lines{}
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 3, Latency: latency,
			Logger: slog.New(log), NotReady: true})
		quiet := func(what string, most int) {
			t.Helper()
			ready(t, c)
			time.Sleep(3 * time.Second)
			said := log.take()
			for _, line := range said {
				if !strings.HasPrefix(line, "INFO ") {
					t.Errorf("%s: %s", what, line)
				}
			}
			if len(said) > most {
				t.Errorf("%s: %d lines, which is too many to be read:\n%s", what, len(said),
					strings.Join(said, "\n"))
			}
		}
		// Each server: listening, the core is formed, joined; the core's leader once for each node.
		quiet("a new cluster", 3*4)
		create(t, c.Client(t), "here", kv.Hash(4))
		log.take()
		if err := c.Stop(1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		start(t, c, 1)
		quiet("a server starts again", 4)
		for i := range 3 {
			if err := c.Stop(i); err != nil {
				t.Fatal(err)
			}
		}
		quiet("all stop", 1) // the last one, that no server is left to lead
		for i := range 3 {
			start(t, c, i)
			time.Sleep(3 * time.Second)
		}
		quiet("all start again, one after the other", 3*4)

		if err := c.Stop(2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		missed := 0
		for _, line := range log.take() {
			if strings.HasPrefix(line, "WARN peer is out of reach") && strings.Contains(line,
				c.Endpoints()[2]) {
				missed++
			}
		}
		if missed != 4 {
			t.Errorf("%d lines say that a server is missing; want one of each core member and "+
				"each node that is left", missed)
		}
	})
}
