package embedded

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

const onlyAddress = "127.0.0.1:7400"

// onlyServer is the configuration of a cluster of one server.
func onlyServer(fs vfs.FS) ServerConfig {
	network := memnet.New()
	return ServerConfig{
		FS: fs, Dir: "dir", Listen: onlyAddress, Core: []string{onlyAddress},
		Roles: []string{RoleCore, RoleNode}, CacheBytes: 1 << 20, MemTableBytes: 1 << 20,
		NewListener: network.Listen, Dial: network.Dialer("127.0.0.1"),
	}
}

// runOnce starts a server, waits until it is ready, calls then, and closes it.
func runOnce(t *testing.T, fs vfs.FS, then func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := StartServer(ctx, onlyServer(fs))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WaitReady(ctx); err != nil {
		t.Error(err)
	}
	then()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

// logsOf says what a server with such a configuration makes of a directory that it finds.
func logsOf(t *testing.T, c ServerConfig) error {
	t.Helper()
	d, err := datadir.Open(c.FS, c.Dir, func() uint64 { return 7 })
	if err != nil {
		t.Fatal(err)
	}
	err = d.MustHaveLogs(c.Roles)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return err
}

// A log that is gone is noticed, whatever else is gone; and what was never there is not missed.
func TestALogThatIsGoneSaysWhatToDo(t *testing.T) {
	whole := vfs.NewCrashableMem()
	synctest.Test(t, func(t *testing.T) { runOnce(t, whole, func() {}) })
	// What an earlier version wrote has no word of the core.
	earlier := func(t *testing.T, fs *vfs.MemFS) {
		d, err := datadir.Open(fs, "dir", func() uint64 { return 7 })
		if err != nil {
			t.Fatal(err)
		}
		d.ID.Core = false
		if err := errors.Join(d.Save(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(paths ...string) func(*testing.T, *vfs.MemFS) {
		return func(t *testing.T, fs *vfs.MemFS) {
			for _, path := range paths {
				if err := fs.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	// All files of the database but the one that says whose the directory is.
	emptied := func(t *testing.T, fs *vfs.MemFS) {
		names, err := fs.List("dir/node/log")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if name != "TIDEMARK" {
				gone(fs.PathJoin("dir/node/log", name))(t, fs)
			}
		}
	}
	core, node, both := []string{RoleCore}, []string{RoleNode}, []string{RoleNode, RoleCore}
	for name, c := range map[string]struct {
		roles   []string
		changes []func(*testing.T, *vfs.MemFS)
		// Empty: the directory is taken.
		log, advice string
	}{
		"nothing": {both, nil, "", ""},
		"a node's log": {node,
			[]func(*testing.T, *vfs.MemFS){gone("dir/node/log")}, "dir/node/log",
			"start with an empty one"},
		"all of a node": {node,
			[]func(*testing.T, *vfs.MemFS){gone("dir/node")}, "dir/node/log",
			"start with an empty one"},
		"what a node's log holds": {node, []func(*testing.T, *vfs.MemFS){emptied},
			"dir/node/log", "start with an empty one"},
		"a node's log, beside the core": {both,
			[]func(*testing.T, *vfs.MemFS){gone("dir/node/log")}, "dir/node/log", "--roles core"},
		"a node's log, for the core alone": {core,
			[]func(*testing.T, *vfs.MemFS){gone("dir/node/log")}, "", ""},
		"the core's log": {core,
			[]func(*testing.T, *vfs.MemFS){gone("dir/core/log")}, "dir/core/log",
			"core replace"},
		"all of the core": {both,
			[]func(*testing.T, *vfs.MemFS){gone("dir/core")}, "dir/core/log", "core replace"},
		"everything": {both,
			[]func(*testing.T, *vfs.MemFS){gone("dir/core", "dir/node")}, "dir/core/log",
			"core replace"},
		"the states": {both,
			[]func(*testing.T, *vfs.MemFS){gone("dir/core/state", "dir/node/state")}, "", ""},
		"an earlier version's core's log": {both,
			[]func(*testing.T, *vfs.MemFS){earlier, gone("dir/core/log")}, "dir/core/log",
			"core replace"},
		"all of an earlier version's node": {both,
			[]func(*testing.T, *vfs.MemFS){earlier, gone("dir/node")}, "dir/node/log",
			"--roles core"},
		"nothing of an earlier version": {both, []func(*testing.T, *vfs.MemFS){earlier}, "",
			""},
		"a core's directory that is made anew": {both,
			[]func(*testing.T, *vfs.MemFS){gone("dir/core", "dir/node", "dir/server.json")}, "",
			""},
	} {
		t.Run(name, func(t *testing.T) {
			config := onlyServer(whole.CrashClone(vfs.CrashCloneCfg{}))
			config.Roles = c.roles
			for _, change := range c.changes {
				change(t, config.FS.(*vfs.MemFS))
			}
			switch err := logsOf(t, config); {
			case err == nil && c.log == "":
			case err == nil, c.log == "":
				t.Errorf("%v", err)
			default:
				text := err.Error()
				if !errors.Is(err, datadir.ErrUnusable) || !strings.Contains(text, c.log) ||
					!strings.Contains(text, c.advice) || strings.Contains(text, "\n") {
					t.Error(text)
				}
			}
		})
	}
}

// Wherever power fails during a server's first start, nothing is missed at the next one.
func TestAFirstStartThatIsCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewCrashableMem()
		var steps atomic.Int64
		var ready atomic.Bool
		fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsRead || ready.Load() {
				return nil
			}
			step := steps.Add(1)
			for _, percent := range []int{0, 50, 100} {
				left := vfs.CrashCloneCfg{UnsyncedDataPercent: percent,
					RNG: rand.New(rand.NewPCG(uint64(step), 1))}
				config := onlyServer(disk.CrashClone(left))
				if err := logsOf(t, config); err != nil {
					t.Errorf("step %d, a change of %s: %v", step, op.Path, err)
				}
			}
			return nil
		}))
		runOnce(t, fs, func() { ready.Store(true) })
		if n := steps.Load(); n < 100 {
			t.Errorf("only %d steps were seen", n)
		}
	})
}
