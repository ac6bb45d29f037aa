package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/bench/proof/history"
)

// damage is a way to damage stored files.
type damage struct {
	name string
	// suffix and database select the files that are damaged.
	suffix, database string
	do               func(path string) error
	// afterKill: the server is killed, and not stopped, before the damage. So its last writes are
	// only in the WAL of the log.
	afterKill bool
	// fatal: the damage must be noticed, by refused reads or by a server that does not start. Other
	// damage may be noticed later, when the data is needed.
	fatal bool
}

var damages = []damage{
	{name: "flipped byte in a table of the state", suffix: ".sst", database: "state", do: flipByte,
		fatal: true},
	{name: "truncated table of the state", suffix: ".sst", database: "state", do: cutOff,
		fatal: true},
	{name: "flipped byte in a table of the log", suffix: ".sst", database: "log", do: flipByte},
	{name: "flipped byte in the log's WAL", suffix: ".log", database: "log", do: flipEarly,
		afterKill: true},
}

// TestDamage flips one bit, or cuts off the end, in stored files of one kind. The node has the only
// replica of everything. Damage is reported, and no read returns anything that was not written.
func TestDamage(t *testing.T) {
	for _, d := range damages {
		t.Run(strings.ReplaceAll(d.name, " ", "-"), func(t *testing.T) {
			e := newEnvironment(t, 4*time.Minute, fleet.Layout{Cores: 1, Nodes: 1})
			e.start(keyspace, hash, 1)
			store := e.open(keyspace)
			n, size := 6000, 32<<10 // enough data for tables to be written before the server is stopped
			if d.afterKill {
				n, size = 2000, 1<<10
			}
			written := e.writeBulk(store, "stored", n, size)
			node := e.cluster.Nodes[0]
			if d.afterKill {
				e.must(node.Kill(), "kill %s", node.Name)
			} else {
				e.must(node.Stop(30*time.Second), "stop %s", node.Name)
			}
			files, err := filesBelow(node.Dir, d.database, d.suffix)
			e.must(err, "find files")
			if len(files) == 0 {
				e.Fatalf("no %s files of the %s below %s", d.suffix, d.database, node.Dir)
			}
			for _, file := range files {
				e.must(d.do(file), "damage %s", file)
			}

			e.must(node.Start(), "start %s on damaged files", node.Name)
			ctx, cancel := context.WithTimeout(e.ctx, 20*time.Second)
			readyErr := node.WaitReady(ctx)
			cancel()
			outcome := readWhatIsLeft(e.ctx, store, written)
			log := node.Process().LogTail(1 << 20)
			reported := speaksOfDamage(log)
			for line := range strings.Lines(log) {
				if speaksOfDamage(line) {
					e.Logf("the first such line of the log: %s",
						abbreviateLine(strings.TrimSpace(line)))
					break
				}
			}
			e.result("%s (%d files): of %d values %d were read right, %d refused (%d as "+
				"corruption), %d wrong; ready: %v; runs: %v; the log speaks of the damage: %v; "+
				"corruption: %v; other refusals: %v",
				d.name, len(files), len(written), outcome.right, outcome.refused,
				outcome.corruption, outcome.wrong, readyErr == nil, node.Process().Running(),
				reported, outcome.example, outcome.others.one())
			if outcome.wrong > 0 {
				e.Errorf("%d reads returned what was never written: %v", outcome.wrong,
					outcome.wrongs.err())
			}
			if d.fatal && outcome.refused == 0 {
				e.Error("every read succeeded: the damage hit nothing, or went unnoticed")
			}
			if outcome.refused > 0 && !reported && outcome.corruption == 0 {
				e.Error("neither an answer nor the log says that data is damaged")
			}
		})
	}
}

// speaksOfDamage looks for messages about checksums and sizes in a log.
func speaksOfDamage(log string) bool {
	return containsAny(log, []string{"corrupt", "checksum", "crc", "mismatch", "invalid chunk",
		"damaged"})
}

// mostFiles is the number of files that are damaged at most. It is large enough for reads to meet
// the damage, and small enough for most values to stay readable.
const mostFiles = 8

// filesBelow returns the largest files of one database below dir.
func filesBelow(dir, database, suffix string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, suffix) &&
			filepath.Base(filepath.Dir(path)) == database {
			files = append(files, path)
		}
		return err
	})
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(fileSize(b), fileSize(a)) })
	return files[:min(len(files), mostFiles)], err
}

// fileSize returns the size of a file; 0 if it cannot be read.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// flipEarly flips one bit near the beginning of a file. Files may have reserved space at their end,
// but their beginning is in use.
func flipEarly(path string) error {
	return flipAt(path, func(size int) int { return min(size/2, 20_000) })
}

// flipByte flips one bit at a third of a file, where a table has its data.
func flipByte(path string) error { return flipAt(path, func(size int) int { return size / 3 }) }

func flipAt(path string, offset func(size int) int) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(content) == 0 {
		return fmt.Errorf("%s is empty", path)
	}
	content[offset(len(content))] ^= 0x10
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

// left counts the results of reads of damaged data.
type left struct {
	mu                                sync.Mutex
	right, refused, corruption, wrong int
	wrongs, others                    collected
	example                           error
}

// readWhatIsLeft reads every key with a short deadline: damaged data stays damaged.
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
				// The first bad blocks get more time, because Pebble looks for the flipped bit,
				// which takes seconds in a large block. If no read succeeds at all, the other reads
				// get less time.
				patience := 10 * time.Second
				if outcome.nothingAnswers() {
					patience = 100 * time.Millisecond
				}
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

// nothingAnswers returns true once many reads have failed and none has succeeded.
func (l *left) nothingAnswers() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.right == 0 && l.refused >= 64
}

func (l *left) take(key string, found history.State, err error, want history.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.refused++
		if saysCorrupt(err) {
			l.corruption++
			l.example = err
		} else {
			l.others.add(err)
		}
	case found == want:
		l.right++
	default:
		l.wrong++
		l.wrongs.add(errors.New(key + " holds " + abbreviate(found)))
	}
}
