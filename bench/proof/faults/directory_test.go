package faults

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

// refusal starts a process that must not serve. The process must end by itself, with an exit code
// other than 0, and print one of the words.
func (e *environment) refusal(what string, s *fleet.Server, words ...string) {
	e.Helper()
	e.must(s.Start(), "start for %s", what)
	p := s.Process()
	code, err := e.exits(p, 30*time.Second)
	log := p.LogTail(4000)
	switch {
	case err != nil:
		ready := s.Ready(e.ctx)
		e.Errorf("%s: the server was not refused: %v; /readyz: %v; its log ends:\n%s", what, err,
			ready, log)
		e.must(p.Kill(), "kill")
	case code == 0:
		e.Errorf("%s: the server ended with exit code 0; its log ends:\n%s", what, log)
	case !containsAny(log, words):
		e.Errorf("%s: the server ended with exit code %d, but says none of %q:\n%s", what, code,
			words, log)
	default:
		e.result("%s: refused, exit code %d: %s", what, code, lastLine(log))
	}
}

func containsAny(text string, words []string) bool {
	for _, word := range words {
		if strings.Contains(strings.ToLower(text), word) {
			return true
		}
	}
	return false
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return abbreviateLine(lines[len(lines)-1])
}

func abbreviateLine(line string) string {
	const longest = 400
	if len(line) > longest {
		return line[:longest] + "…"
	}
	return line
}

// imposter is a server with the directory of one server and the configuration of another one.
func (e *environment) imposter(name, dir string, like *fleet.Server) *fleet.Server {
	e.Helper()
	addresses, err := process.FreeAddresses(2)
	e.must(err, "addresses")
	return &fleet.Server{
		Name: name, Dir: dir, Listen: addresses[0], HTTP: addresses[1], Roles: like.Roles,
		Core:   like.Core,
		Binary: like.Binary, Secret: like.Secret, Log: filepath.Join(e.dir, name+".log"),
	}
}

// TestWrongDirectory starts servers on wrong directories. Each server is refused with a reason. The
// directory does not change, and the cluster keeps working.
func TestWrongDirectory(t *testing.T) {
	e := newEnvironment(t, 5*time.Minute, fleet.Layout{Cores: 1, Nodes: 3})
	e.start(keyspace, hash, 3)
	store := e.open(keyspace)
	written := e.writeBulk(store, "kept", 500, 100)
	core, node, other := e.cluster.Cores[0], e.cluster.Nodes[0], e.cluster.Nodes[1]

	second := e.imposter("second-process", node.Dir, node)
	e.refusal("a second process on the directory of a node", second, "lock", "in use")
	secondCore := e.imposter("second-core", core.Dir, core)
	secondCore.Core, secondCore.Listen = core.Core, core.Listen
	e.refusal("a second process on the directory of the core", secondCore, "lock", "in use",
		"address already")

	// A second cluster, with its own node.
	elsewhere := newEnvironment(t, 3*time.Minute, fleet.Layout{Cores: 1, Nodes: 1})
	elsewhere.start("elsewhere", 1, 1)
	otherNode := elsewhere.cluster.Nodes[0]
	e.must(otherNode.Stop(20*time.Second), "stop the other node")
	stranger := e.imposter("stranger", otherNode.Dir, node)
	e.refusal("the directory of a node of another cluster", stranger, "cluster")
	e.must(otherNode.Start(), "start the other node where it belongs")
	e.waitReady(otherNode)

	// A copy of a running node's directory.
	copied := filepath.Join(e.dir, "copied")
	e.must(other.Stop(20*time.Second), "stop %s", other.Name)
	e.must(os.CopyFS(copied, os.DirFS(other.Dir)), "copy the directory of %s", other.Name)
	e.restart(other)
	// The core cannot distinguish a copy from a node that has moved. So it refuses the copy while
	// the original is alive.
	twin := e.imposter("twin", copied, other)
	e.must(twin.Start(), "start the copy")
	e.wait(30*time.Second, "the copy says why it is refused", func(context.Context) error {
		if log := twin.Process().LogTail(4000); !containsAny(log, []string{"copied", "alive at"}) {
			return fmt.Errorf("its log: %q; /readyz: %w", log, twin.Ready(e.ctx))
		}
		return nil
	})
	e.pass(5 * time.Second)
	if err := twin.Ready(e.ctx); err == nil {
		e.Error("a copy of the directory of a node that runs became ready")
	} else {
		e.result("a copy of the directory of a node that runs: not ready (%v): %s", err,
			lastLine(twin.Process().LogTail(4000)))
	}
	e.mustHave(store, written)
	e.must(twin.Kill(), "kill the copy")

	// Directories of another kind of server.
	e.must(node.Stop(20*time.Second), "stop %s", node.Name)
	crossed := e.imposter("node-as-core", node.Dir, core)
	crossed.Core = crossed.Listen
	e.refusal("the directory of a node, started as a core server", crossed, "core", "node", "role",
		"cluster")
	e.restart(node)

	// A newer format, of the directory and of the databases in it.
	for _, file := range []string{"server.json", "TIDEMARK"} {
		e.must(node.Stop(20*time.Second), "stop %s", node.Name)
		restore := e.raiseVersions(node.Dir, file)
		newer := e.imposter("newer-"+file, node.Dir, node)
		newer.Listen = node.Listen
		e.refusal("a directory of a newer version ("+file+")", newer, "version", "newer", "format")
		restore()
		e.restart(node)
	}

	e.mustHave(store, written)
	e.result("after all refusals the cluster serves what it served: %d values", len(written))
}

func (e *environment) waitReady(s *fleet.Server) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, 30*time.Second)
	defer cancel()
	e.must(s.WaitReady(ctx), "wait")
}

// format finds the number of the format in the files that have it.
var format = regexp.MustCompile(`(?m)("format": *|^tidemark [a-z]+ )[0-9]+`)

// raiseVersions raises the format number in all files with a name below dir. restore undoes the
// change.
func (e *environment) raiseVersions(dir, name string) (restore func()) {
	e.Helper()
	original := make(map[string][]byte)
	e.must(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() != name {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !format.Match(content) {
			return fmt.Errorf("%s names no version: %q", path, content)
		}
		original[path] = content
		return os.WriteFile(path, format.ReplaceAll(content, []byte("${1}9999")), 0o644)
	}), "raise the version in %s below %s", name, dir)
	if len(original) == 0 {
		e.Fatalf("no file %s below %s", name, dir)
	}
	return func() {
		for path, content := range original {
			e.must(os.WriteFile(path, content, 0o644), "restore %s", path)
		}
	}
}
