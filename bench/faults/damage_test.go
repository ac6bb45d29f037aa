package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/history"
)

// TestDamagedTable flips one byte, and then cuts off the end, of every stored table of a node that has the only replica of
// everything: what is damaged is reported, and no read returns anything but what was written.
func TestDamagedTable(t *testing.T) {
	for _, damage := range []struct {
		name string
		do   func(path string) error
	}{
		{"flipped byte", flipByte},
		{"truncation", cutOff},
	} {
		t.Run(strings.ReplaceAll(damage.name, " ", "-"), func(t *testing.T) {
			e := newEnvironment(t, 4*time.Minute, Layout{Cores: 1, Nodes: 1})
			e.start(keyspace, hash, 1)
			store := e.open(keyspace)
			// Enough for tables to be written before the server is stopped.
			written := e.writeBulk(store, "stored", 6000, 32<<10)
			node := e.cluster.Nodes[0]
			e.must(node.Stop(30*time.Second), "stop %s", node.Name)
			tables, err := tablesBelow(node.Dir)
			e.must(err, "find tables")
			if len(tables) == 0 {
				e.Fatalf("no table files below %s", node.Dir)
			}
			for _, table := range tables {
				e.must(damage.do(table), "damage %s", table)
			}

			e.must(node.Start(), "start %s on damaged tables", node.Name)
			ctx, cancel := context.WithTimeout(e.ctx, 20*time.Second)
			readyErr := node.WaitReady(ctx)
			cancel()
			outcome := readWhatIsLeft(e.ctx, store, written)
			log := node.Process().LogTail(1 << 20)
			reported := strings.Contains(strings.ToLower(log), "corrupt") || strings.Contains(strings.ToLower(log), "checksum")
			e.result("%s in %d tables: of %d values %d were read right, %d refused (%d as corruption), %d wrong; ready: %v; the log speaks of corruption: %v; an error: %v",
				damage.name, len(tables), len(written), outcome.right, outcome.refused, outcome.corruption, outcome.wrong, readyErr == nil, reported, outcome.example)
			if outcome.wrong > 0 {
				e.Errorf("%d reads returned what was never written: %v", outcome.wrong, outcome.wrongs.err())
			}
			if outcome.refused == 0 {
				e.Error("every read succeeded: the damage hit nothing, or went unnoticed")
			}
			if !reported && outcome.corruption == 0 {
				e.Error("neither an answer nor the log says that data is corrupt")
			}
		})
	}
}

// tablesBelow lists the table files of the state, not those of other cores' or logs' making.
func tablesBelow(dir string) ([]string, error) {
	var tables []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".sst") {
			tables = append(tables, path)
		}
		return err
	})
	return tables, err
}

// flipByte changes one bit in the first third of a file, where data blocks are.
func flipByte(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(content) == 0 {
		return fmt.Errorf("%s is empty", path)
	}
	content[len(content)/3] ^= 0x10
	return os.WriteFile(path, content, 0o644)
}

// cutOff removes the last third of a file.
func cutOff(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, info.Size()*2/3)
}

// left is what became of reads of damaged data.
type left struct {
	mu                                sync.Mutex
	right, refused, corruption, wrong int
	wrongs                            collected
	example                           error
}

// readWhatIsLeft reads every key, giving each a moment only: damaged data stays damaged.
func readWhatIsLeft(ctx context.Context, store *Store, want map[string]string) *left {
	outcome := &left{}
	keys := make(chan string, len(want))
	for key := range want {
		keys <- key
	}
	close(keys)
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() {
			for key := range keys {
				// Once it is clear that nothing answers, the rest need not be tried for long.
				patience := 2 * time.Second
				outcome.mu.Lock()
				if outcome.refused > 200 {
					patience = 100 * time.Millisecond
				}
				outcome.mu.Unlock()
				read, cancel := context.WithTimeout(ctx, patience)
				found, err := store.Get(read, key)
				cancel()
				outcome.take(key, found, err, history.Value(want[key]))
			}
		})
	}
	group.Wait()
	return outcome
}

func (l *left) take(key string, found history.State, err error, want history.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.refused++
		if saysCorrupt(err) {
			l.corruption++
		}
		if l.example == nil || (saysCorrupt(err) && !saysCorrupt(l.example)) {
			l.example = err
		}
	case found == want:
		l.right++
	default:
		l.wrong++
		l.wrongs.add(errors.New(key + " holds " + abbreviate(found)))
	}
}
