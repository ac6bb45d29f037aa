package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/rpc/porttest"
)

// A server is added as a learner, stays one, and votes when it is promoted; a member that is not
// there is not promoted.
func TestCoreLearner(t *testing.T) {
	dir, first, second := t.TempDir(), porttest.Address(t), porttest.Address(t)
	serve(t, "start", "--dir", filepath.Join(dir, "1"), "--listen", first, "--core",
		first).says("tidemark: ready on")
	b := shared{t, map[string]string{endpointsEnv: first}}
	serve(t, "start", "--dir", filepath.Join(dir, "2"), "--listen", second, "--core", first,
		"--roles", "core,node")
	// roles are those of the servers, of which each is listed once.
	roles := func() string {
		t.Helper()
		var roles []string
		for line := range strings.Lines(b.ok("core", "list", "-o", "tsv")) {
			if fields := strings.Split(line, "\t"); fields[1] == first || fields[1] == second {
				roles = append(roles, fields[2])
			}
		}
		return strings.Join(roles, " ")
	}
	awaitRoles(t, "voter candidate", roles)
	b.fails(exit.Failed, "no member", "core", "promote", second)
	got := b.run("", exit.OK, "core", "add", second, "--learner")
	if strings.Contains(got.err, "voters now") {
		t.Errorf("a learner counts as a voter: %s", got.err)
	}
	awaitRoles(t, "voter learner", roles)
	b.ok("core", "add", second, "--learner") // it is one already
	got = b.run("", exit.OK, "core", "promote", second)
	if !strings.Contains(got.err, "2 voters now") {
		t.Errorf("said %q", got.err)
	}
	awaitRoles(t, "voter voter", roles)
	b.ok("core", "promote", "2")
	b.ok("core", "remove", second)
	awaitRoles(t, "voter", roles)
}

func awaitRoles(t *testing.T, want string, roles func() string) {
	t.Helper()
	var got string
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for limit := time.After(time.Minute); ; {
		if got = roles(); got == want {
			return
		}
		select {
		case <-ticker.C:
		case <-limit:
			t.Fatalf("the roles are %q, not %q", got, want)
		}
	}
}
