package etcdapi

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
)

// etcd's own program prints the same of both, and ends with the same status.
func TestEtcdctl(t *testing.T) {
	etcd := reference.Test(t, reference.Options{Args: []string{"--unsafe-no-fsync"}})
	ours := serve(t, nil)
	type call struct {
		args  string
		input string
		// onlyStatus: what it prints has ids, sizes or times.
		onlyStatus bool
	}
	snapshot := filepath.Join(t.TempDir(), "snapshot-")
	for _, c := range []call{
		{args: "put a 1"}, {args: "put a 2 --prev-kv"}, {args: "put b 3"}, {args: "get a -w fields"},
		{args: "put a x --lease 7"}, {args: "put nothing --ignore-value"},
		{args: "get a"}, {args: "get a b --count-only -w json", onlyStatus: true},
		{args: "get --prefix a --keys-only"},
		{args: "get --from-key a --order DESCEND --sort-by MODIFY"},
		{args: "get a --rev 2"}, {args: "get a --rev 99"}, {args: "get --prefix= --limit 1 a"},
		{args: "get a z --min-mod-rev 3 --max-create-rev 2"},
		{args: "txn", input: "mod(\"a\") > \"0\"\n\nput c 4\nget c\n\ndel a\n\n"},
		{args: "txn", input: "version(\"a\") = \"9\"\n\nput c 4\n\nget a\nget --prefix b\n\n"},
		{args: "txn", input: "\n\nput c 1\nput c 2\n\n\n"},
		{args: "compaction 2"}, {args: "compaction 2"}, {args: "compaction 99"},
		{args: "get a --rev 1"},
		{args: "lease grant 100", onlyStatus: true}, {args: "lease timetolive 7"},
		{args: "lease revoke 7"}, {args: "lease keep-alive --once 7"},
		{args: "del --prefix a --prev-kv"}, {args: "del zzz"},
		{args: "endpoint health", onlyStatus: true},
		{args: "endpoint status -w table", onlyStatus: true},
		{args: "endpoint status -w json", onlyStatus: true},
		{args: "endpoint hashkv", onlyStatus: true},
		{args: "member list", onlyStatus: true}, {args: "member list -w table", onlyStatus: true},
		{args: "alarm list"}, {args: "alarm disarm"}, {args: "defrag", onlyStatus: true},
		{args: "auth status"}, {args: "downgrade cancel", onlyStatus: true},
		{args: "downgrade validate 1.0", onlyStatus: true},
		{args: "snapshot save " + snapshot + "%s", onlyStatus: true},
	} {
		want, wantStatus := etcdctl(t, etcd.Programs.Etcdctl, etcd.Endpoints()[0], c.args, c.input)
		got, gotStatus := etcdctl(t, etcd.Programs.Etcdctl, ours.address, c.args, c.input)
		if wantStatus != gotStatus || !c.onlyStatus && want != got {
			t.Errorf("etcdctl %s\netcd (status %d):\n%s\nours (status %d):\n%s", c.args, wantStatus, want,
				gotStatus, got)
		}
	}
}

func etcdctl(t *testing.T, program, address, args, input string) (out string, status int) {
	t.Helper()
	if strings.Contains(args, "%s") {
		args = fmt.Sprintf(args, address)
	}
	command := exec.CommandContext(t.Context(), program,
		append([]string{"--endpoints", address}, strings.Fields(args)...)...)
	var both bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &both, &both
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(both.String()) {
		// The client's log has times and addresses, and some formats ids.
		if !strings.HasPrefix(line, "{\"level\"") && !strings.Contains(line, "ID\" :") &&
			!strings.Contains(line, "RaftTerm") {
			lines = append(lines, strings.ReplaceAll(line, address, "ADDRESS"))
		}
	}
	return strings.Join(lines, ""), command.ProcessState.ExitCode()
}
