package reference

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// ctl runs etcdctl and returns what it prints.
func ctl(t *testing.T, c *Cluster, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, c.Programs.Etcdctl, append([]string{"--endpoints",
		strings.Join(c.Endpoints(), ",")}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("etcdctl %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// One member answers, is killed, and has kept its data.
func TestOneMember(t *testing.T) {
	c := Test(t, Options{})
	ctl(t, c, "put", "a", "1")
	if err := c.Kill(0); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if got := ctl(t, c, "get", "a", "--print-value-only"); got != "1\n" {
		t.Errorf("a is %q after a restart", got)
	}
}

// Three members are one cluster, which works without one of them.
func TestThreeMembers(t *testing.T) {
	c := Test(t, Options{Members: 3, Args: []string{"--unsafe-no-fsync"}})
	var listed struct{ Members []struct{ Name string } }
	err := json.Unmarshal([]byte(ctl(t, c, "member", "list", "-w", "json")), &listed)
	if err != nil || len(listed.Members) != 3 {
		t.Errorf("%+v, %v", listed, err)
	}
	first, err := c.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Kill(first); err != nil {
		t.Fatal(err)
	}
	if second, err := c.Leader(t.Context()); err != nil || second == first {
		t.Fatalf("member %d leads, %v; member %d did before it was killed", second, err, first)
	}
	ctl(t, c, "put", "a", "1")
	dir := c.options.Dir
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

// The error of a failed start has the reason.
func TestStartFails(t *testing.T) {
	_, err := Start(t.Context(), Options{Args: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("%v; want that the flag is named", err)
	}
}

// Tests that install at the same time get the same programs.
func TestInstallTogether(t *testing.T) {
	cache := t.TempDir()
	var all [3]Programs
	var errs [3]error
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i], errs[i] = Install(t.Context(), cache) })
	}
	wg.Wait()
	for i := range all {
		if errs[i] != nil || all[i] != all[0] {
			t.Errorf("%+v, %v; another got %+v", all[i], errs[i], all[0])
		}
	}
	if _, err := exec.Command(all[0].Etcdutl, "version").Output(); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(cache)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v is left, %v; want the lock and the programs", entries, err)
	}
}

// The client that the project uses, the server and its tools have the same version.
func TestOneVersion(t *testing.T) {
	module, err := moduleDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, err := pinned(filepath.Join(module, "..", "..", "..", "..", "go.mod"),
		"go.etcd.io/etcd/client/v3")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range programs {
		version, err := pinned(filepath.Join(module, "go.mod"), of)
		if err != nil || version != client {
			t.Errorf("%s is %s (%v), and the client %s", of, version, err, client)
		}
	}
}
