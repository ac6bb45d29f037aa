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

// damage is one way in which a stored file goes bad.
type damage struct {
	name string
	// files are the suffix and the directory of what is damaged.
	suffix, database string
	do               func(path string) error
	// afterKill: the server is killed, and not stopped, before the damage: its last writes are only
	// in the log's WAL.
	afterKill bool
	// fatal: it must be noticed, by reads that are refused or a server that does not start. What is
	// not fatal may be noticed later, when the data is needed.
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

// TestDamage flips one byte, or cuts off the end, in stored files of one sort of a node that has
// the only replica of everything: what is damaged is reported, and no read returns anything but
// what was written.
func TestDamage(t *testing.T) {
	for _, d := range damages {
		t.Run(strings.ReplaceAll(d.name, " ", "-"), func(t *testing.T) {
			e := newEnvironment(t, 4*time.Minute, fleet.Layout{Cores: 1, Nodes: 1})
			e.start(keyspace, hash, 1)
			store := e.open(keyspace)
			n, size := 6000, 32<<10 // enough for tables to be written before the server is stopped
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

// speaksOfDamage looks for the words of checksums and sizes in a log.
func speaksOfDamage(log string) bool {
	return containsAny(log, []string{"corrupt", "checksum", "crc", "mismatch", "invalid chunk",
		"damaged"})
}

// mostFiles is how many files are damaged at most: enough to be met, few enough that most values
// can still be read.
const mostFiles = 8

// filesBelow lists the largest files of one database below dir.
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

// fileSize is 0 for a file that cannot be asked.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// flipEarly changes one bit near the beginning of a file, which is in use however much room was
// reserved behind it.
func flipEarly(path string) error {
	return flipAt(path, func(size int) int { return min(size/2, 20_000) })
}

// flipByte changes one bit in the first third of a file, where a table has its data.
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

// left is what became of reads of damaged data.
type left struct {
	mu                                sync.Mutex
	right, refused, corruption, wrong int
	wrongs, others                    collected
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
				// The first bad blocks get time (Pebble looks for the flipped bit, which takes
				// seconds in a large block); if nothing is answered at all, the rest need not be
				// tried for long.
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

// nothingAnswers is true once many reads failed and none succeeded.
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
