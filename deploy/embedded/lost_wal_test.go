package embedded

import (
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestALogFileThatIsGoneAfterAKill: a server whose newest log file is missing or empty when it is
// started after a kill does not take part as one that never promised anything; it says which file
// it misses and what can be done.
func TestALogFileThatIsGoneAfterAKill(t *testing.T) {
	running := vfs.NewCrashableMem()
	var killed *vfs.MemFS
	synctest.Test(t, func(t *testing.T) {
		kept := vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}
		runOnce(t, running, func() { killed = running.CrashClone(kept) })
	})
	// The node has promised nothing yet; its log is opened in the same way.
	dir := path.Join("dir", RoleCore, "log")
	names, err := killed.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names,
		func(name string) bool { return !strings.HasSuffix(name, ".log") })
	newest := path.Join(dir, slices.Max(names))
	for _, empty := range []bool{false, true} {
		fs := killed.CrashClone(vfs.CrashCloneCfg{})
		if empty {
			f, err := fs.Create(newest, vfs.WriteCategoryUnspecified)
			if err == nil {
				err = f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		} else if err := fs.Remove(newest); err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			s, err := StartServer(t.Context(), onlyServer(fs))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close(t.Context())
			switch err := s.WaitReady(t.Context()); {
			case err == nil:
				t.Errorf("%s, empty %t: the server is ready", newest, empty)
			case !strings.Contains(err.Error(), newest) ||
				!strings.Contains(err.Error(), "keep the directory"):
				t.Errorf("%s, empty %t: %v", newest, empty, err)
			default:
				t.Log(err)
			}
		})
	}
}
