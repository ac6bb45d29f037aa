package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/tidemarkdb/tidemark"

// may lists, for a package or a folder of packages ("x/..."), which of our own packages it may
// import. The first entry that matches a package holds. The order is that of the architecture: each
// tier stands on those before it.
var may = []struct {
	of      string
	imports []string
}{
	{everywhere, nil},
	{"hlc", nil},
	{"rpc/metric", nil},
	{"rpc/release", nil},
	{"rpc/metric/prom", []string{"rpc/metric"}},
	{"range/timer", nil},
	{"range/clockhealth", []string{"hlc"}},
	{"range/admission", []string{"rpc/backoff"}},
	{"range/admission/workqueue", nil},
	{"range/tree", nil},
	{"range/timing", nil},

	// One tier: the wire, and the parts of a node that know one partition's bytes. Which may use
	// which inside it is below.
	{"rpc/...", []string{"hlc", "rpc/...", "range/keys", "range/admission"}},
	{"range/keys", []string{"hlc", "rpc/..."}},
	{"range/load", []string{"range/keys"}},
	{"range/engine", []string{"hlc", "range/keys", "range/admission"}},
	{"range/mvcc/...", []string{"hlc", "range/keys", "range/engine", "range/mvcc/vacant"}},
	{"range/raftlog", []string{"hlc", "range/keys", "range/engine"}},
	{"range/group", []string{"hlc", "rpc/...", "range/keys", "range/engine", "range/raftlog"}},
	{"range/host/...", ground},

	{"range/route/lifetime", nil},
	{"range/route/clock", []string{"hlc", "rpc/kvpb", "rpc/wire"}},
	{"range/route/identity", []string{"range/route/lifetime", "rpc/coordpb", "rpc/wire"}},
	{"rpc/backoff", nil},
	{"range/backup/target", []string{"rpc/backoff"}},
	{"range/backup/archive", []string{"hlc", "range/keys"}},
	{"range/route/calltrace", []string{"rpc/kvpb"}},
	{"range/route/nodes", append(ground[:len(ground):len(ground)], "rpc/backoff",
		"range/route/calltrace", "range/route/clock", "range/route/identity", "range/route/lifetime")},
	{"range/route/table", append(ground[:len(ground):len(ground)], "range/route/nodes")},
	{"range/route/follow", append(ground[:len(ground):len(ground)], "rpc/backoff",
		"range/route/clock", "range/route/identity", "range/route/lifetime", "range/route/table")},
	{"range/route", append(ground[:len(ground):len(ground)], "range/route/...")},
	{"txn/committer", append(ground[:len(ground):len(ground)], "range/route/...", "txn")},
	{"txn/...", append(ground[:len(ground):len(ground)], "range/route")},
	// The rooms of a replica that know nothing of the others but what is below them.
	{"range/replica/storage", append(ground[:len(ground):len(ground)], "range/replica/proposal")},
	{"range/replica/spans", ground},
	{"range/replica/command/request", ground},
	{"range/replica/commitwait", ground},
	{"range/replica/leadership", append(ground[:len(ground):len(ground)], "txn",
		"range/replica/proposal", "range/replica/storage")},
	{"range/replica/machine", append(ground[:len(ground):len(ground)], "txn",
		"range/replica/closing", "range/replica/command/...", "range/replica/commitwait",
		"range/replica/concurrency", "range/replica/config", "range/replica/leadership",
		"range/replica/proposal", "range/replica/refusal", "range/replica/storage",
		"range/replica/tscache")},
	{"range/replica/read", append(ground[:len(ground):len(ground)], "txn",
		"range/replica/command/...", "range/replica/commitwait", "range/replica/concurrency",
		"range/replica/config", "range/replica/leadership", "range/replica/machine",
		"range/replica/refusal")},
	{"range/replica/eval", append(ground[:len(ground):len(ground)], "txn",
		"range/replica/command/...", "range/replica/concurrency", "range/replica/config",
		"range/replica/leadership", "range/replica/machine", "range/replica/proposal",
		"range/replica/refusal", "range/replica/reshape", "range/replica/storage")},
	{"range/replica/snapshot", append(ground[:len(ground):len(ground)], "txn",
		"range/replica/storage", "range/replica/spans")},
	{"range/replica/reshape", append(ground[:len(ground):len(ground)], "range/replica/proposal",
		"range/replica/storage")},
	{"range/replica/gc", append(ground[:len(ground):len(ground)], "txn", "range/replica/command/...",
		"range/replica/proposal", "range/replica/storage")},
	{"range/replica/...",
		append(ground[:len(ground):len(ground)], "range/route/...", "txn/...", "range/replica/...")},
	// The rooms of a data node.
	{"range/node/task", nil},
	{"range/node/table", []string{"hlc", "rpc/...", "range/keys", "range/engine", "range/tree",
		"range/node/task"}},
	{"range/node/loadmeter", append(ground[:len(ground):len(ground)], "range/replica",
		"range/replica/command/...", "range/replica/config", "range/replica/machine")},
	{"range/node/hosted", append(ground[:len(ground):len(ground)], "range/replica",
		"range/node/table", "range/node/loadmeter")},
	{"range/node/garbage", append(ground[:len(ground):len(ground)], "range/replica/gc",
		"range/node/task", "range/node/hosted")},
	{"range/node/leadership", append(ground[:len(ground):len(ground)], "range/node/task",
		"range/node/hosted")},
	{"range/node/disks", append(ground[:len(ground):len(ground)], "range/node/task",
		"range/node/hosted", "range/node/leadership")},
	{"range/node/clocks", append(ground[:len(ground):len(ground)], "range/replica",
		"range/replica/command/...", "range/replica/config", "range/node/hosted")},
	{"range/node/spans", append(ground[:len(ground):len(ground)], "range/replica/command/...",
		"range/replica/config", "range/route/calltrace")},
	{"range/node/slowlog", append(ground[:len(ground):len(ground)], "range/replica/command/...",
		"range/replica/config", "range/node/spans")},
	{"range/node/admit", append(ground[:len(ground):len(ground)], "range/replica/command/...",
		"range/replica/config", "range/node/hosted")},
	{"range/node/quotas", append(ground[:len(ground):len(ground)], "range/replica/command",
		"range/node/hosted")},
	{"range/node/splitrecovery", append(ground[:len(ground):len(ground)], "range/replica/...")},
	{"range/node/reports", append(ground[:len(ground):len(ground)], "range/node/task",
		"range/node/table", "range/node/loadmeter", "range/node/hosted")},
	{"range/node/lifecycle", append(ground[:len(ground):len(ground)], "txn", "range/replica/...",
		"range/node/task", "range/node/table", "range/node/hosted", "range/node/leadership",
		"range/node/splitrecovery")},
	{"range/node/...", append(ground[:len(ground):len(ground)], "range/route/...", "txn/...",
		"range/replica/...", "range/node/...")},

	// Backups: what they consist of, how they are read and written, and how they are made. They know
	// no server.
	{"range/backup/manifest", []string{"hlc", "range/keys"}},
	{"range/backup/spread", []string{"range/keys"}},
	{"range/backup/load", append(ground[:len(ground):len(ground)], "range/route/...", "rpc/backoff",
		"range/backup/archive", "range/backup/manifest")},
	{"range/backup/targettest", []string{"range/backup/target"}},
	{"range/backup/catalog", []string{"hlc", "range/keys", "range/backup/archive",
		"range/backup/manifest", "range/backup/target"}},
	{"range/backup/export", append(ground[:len(ground):len(ground)], "range/route/...",
		"range/backup/archive", "range/backup/manifest", "range/backup/target")},
	{"range/backup/changelog", []string{"hlc", "range/keys", "range/backup/archive",
		"range/backup/catalog", "range/backup/job", "range/backup/manifest", "range/backup/spread",
		"range/backup/target"}},
	{"range/backup/job", []string{"hlc", "range/keys", "range/backup/archive",
		"range/backup/catalog", "range/backup/manifest", "range/backup/spread",
		"range/backup/target"}},

	// The core stands on the same Raft machinery as a replica does, and knows nothing of replicas,
	// nodes and clients.
	{"placement/etcdapi/translate", []string{"placement/store/..."}},
	{"placement/etcdapi/backend",
		[]string{"range/keys", "placement/store/...", "placement/etcdapi/translate"}},
	{"placement/etcdapi/authorize", []string{"rpc/coordpb", "placement/store/...",
		"placement/etcdapi/backend", "placement/etcdapi/translate"}},
	{"placement/etcdapi/watches", []string{"range/keys", "placement/store/...",
		"placement/etcdapi/backend", "placement/etcdapi/translate"}},
	{"placement/etcdapi/lockqueue", []string{"range/keys", "placement/store/...",
		"placement/etcdapi/backend", "placement/etcdapi/translate",
		"placement/etcdapi/v3electionpb", "placement/etcdapi/v3lockpb"}},
	{"placement/etcdapi/gateway", []string{"rpc/callspans", "placement/etcdapi/v3electionpb",
		"placement/etcdapi/v3lockpb"}},
	{"placement/etcdapi/...",
		[]string{"rpc/coordpb", "range/keys", "placement/fairshare", "placement/store/...",
			"placement/etcdapi/..."}},
	{"placement/store/watch",
		[]string{"range/keys", "placement/store/spans", "placement/store/storepb"}},
	{"placement/store/lease", []string{"hlc", "placement/store/storepb"}},
	{"placement/store/authority", []string{"placement/store/storepb"}},
	{"placement/fairshare", nil},
	{"placement/store/space", nil},
	{"placement/store/keycount", []string{"range/keys"}},
	{"placement/store/newest", []string{"placement/store/storepb"}},
	// The rooms of the core's store, from the lowest.
	{"placement/store/command", storeTerms},
	{"placement/store/imports", storeTerms},
	{"placement/store/tables", append(storeTerms[:len(storeTerms):len(storeTerms)],
		"range/engine", "placement/store/imports", "placement/store/keycount",
		"placement/store/lease", "placement/store/newest", "placement/store/watch")},
	{"placement/store/snapshot", append(storeTerms[:len(storeTerms):len(storeTerms)],
		"placement/store/tables")},
	{"placement/store/execute", append(storeTerms[:len(storeTerms):len(storeTerms)],
		"placement/fairshare")},
	{"placement/store/reading", append(storeTerms[:len(storeTerms):len(storeTerms)],
		"placement/fairshare", "placement/store/execute", "placement/store/keycount",
		"placement/store/tables")},
	{"placement/store/keeper", append(storeTerms[:len(storeTerms):len(storeTerms)],
		"hlc", "placement/store/execute", "placement/store/lease")},
	{"placement/store/apply", append(storeTerms[:len(storeTerms):len(storeTerms)],
		"range/engine", "placement/store/execute", "placement/store/imports",
		"placement/store/keycount", "placement/store/lease", "placement/store/newest",
		"placement/store/tables", "placement/store/watch")},
	{"placement/store/admission", append(storeTerms[:len(storeTerms):len(storeTerms)],
		"placement/store/execute", "placement/store/lease", "placement/store/space",
		"placement/store/tables")},
	{"placement/store/compaction", append(storeTerms[:len(storeTerms):len(storeTerms)],
		"placement/store/execute", "placement/store/tables")},
	// The rooms of the planner, from the lowest.
	{"placement/planner/words", nil},
	{"placement/planner/rules", nil},
	{"placement/planner", []string{"range/keys", "placement/planner/rules",
		"placement/planner/words"}},
	{"placement/planner/assign", terms},
	{"placement/planner/state", terms},
	{"placement/planner/objective", append(terms[:len(terms):len(terms)],
		"placement/planner/state")},
	{"placement/planner/propose", append(terms[:len(terms):len(terms)],
		"placement/planner/state", "placement/planner/objective")},
	{"placement/planner/explain", append(terms[:len(terms):len(terms)],
		"placement/planner/state", "placement/planner/objective", "placement/planner/propose")},
	// The rooms of the core's server.
	{"placement/server/hint", []string{"rpc/..."}},
	{"placement/server/coreclient", []string{"rpc/...", "placement/server/hint"}},
	{"placement/server/veil", []string{"range/keys", "rpc/..."}},
	{"placement/server/steps", []string{"range/keys", "rpc/...", "placement/server/serverpb"}},
	{"placement/server/meta", coreRecords},
	{"placement/server/authflag", append(coreRecords[:len(coreRecords):len(coreRecords)],
		"placement/server/meta")},
	{"placement/server/upgrade", append(coreRecords[:len(coreRecords):len(coreRecords)],
		"placement/server/meta")},
	{"placement/server/consumer", append(coreRecords[:len(coreRecords):len(coreRecords)], "hlc",
		"placement/server/meta", "placement/server/veil")},
	{"placement/server/table", append(coreRecords[:len(coreRecords):len(coreRecords)],
		"placement/server/meta")},
	{"placement/server/reports", append(coreRecords[:len(coreRecords):len(coreRecords)],
		"placement/server/meta", "placement/server/steps", "placement/server/consumer")},
	{"placement/server/facts", []string{"range/keys", "rpc/...", "placement/planner/...",
		"placement/server/reports", "placement/server/steps"}},
	{"placement/server/keyspaces", append(coreRecords[:len(coreRecords):len(coreRecords)],
		"placement/planner/...", "placement/server/consumer", "placement/server/facts",
		"placement/server/meta", "placement/server/upgrade")},
	{"placement/server/quotas", []string{"range/keys", "rpc/..."}},
	{"placement/server/backups", append(coreRecords[:len(coreRecords):len(coreRecords)], "hlc",
		"placement/server/keyspaces", "placement/server/meta")},
	{"placement/server/operators", append(coreRecords[:len(coreRecords):len(coreRecords)],
		"placement/planner", "placement/server/meta", "placement/server/reports",
		"placement/server/steps", "placement/server/veil")},
	{"placement/server/nodes", append(coreRecords[:len(coreRecords):len(coreRecords)],
		"hlc", "range/group", "placement/server/authflag", "placement/server/meta",
		"placement/server/quotas", "placement/server/reports", "placement/server/steps",
		"placement/server/upgrade")},
	{"placement/server/coordination", append(coreRecords[:len(coreRecords):len(coreRecords)],
		"placement/server/meta", "placement/server/coreclient")},
	{"placement/server/membership/roster", append(coreRecords[:len(coreRecords):len(coreRecords)],
		"range/group")},
	{"placement/server/membership/versions", append(coreRecords[:len(coreRecords):len(coreRecords)],
		"placement/server/membership/roster")},
	{"placement/server/membership", append(coreRecords[:len(coreRecords):len(coreRecords)],
		"range/group", "placement/server/membership/...",
		"placement/server/meta", "placement/server/authflag", "placement/server/upgrade")},
	{"placement/...", append(ground[:len(ground):len(ground)], "placement/...")},

	// The SDK brings no server with it. Only what tests import of it does.
	{"kv/kvtest/...", []string{"kv", "kv/admin", "kv/kvtest/...", "hlc", "rpc/...",
		"deploy/embedded/..."}},
	{"kv/coord", []string{"hlc", "kv", "kv/coord/direct", "rpc/backoff", "rpc/coordpb"}},
	{"kv/coord/direct", []string{"rpc/backoff", "rpc/client", "rpc/coordpb", "rpc/wire"}},
	{"kv/kvprom", []string{"kv", "rpc/metric/..."}},
	// kv knows nothing of its administration.
	{"kv/admin/health", []string{"kv/admin"}},
	{"kv/admin", append(ground[:len(ground):len(ground)], "range/route/...", "txn/...", "kv",
		"kv/internal/...", "range/backup/manifest")},
	{"kv/...", append(ground[:len(ground):len(ground)], "range/route/...", "txn/...", "kv/...")},

	// The one place that wires the parts together.
	{"deploy/certs", nil},
	{"deploy/embedded/memory", nil},
	{"deploy/embedded/buildversion", nil},
	{"deploy/embedded/tracing", nil},
	// The console is a client of its own cluster.
	{"deploy/embedded/console", []string{"kv", "kv/admin/...", "kv/coord"}},
	{"deploy/embedded/...", []string{"hlc", "rpc/...", "range/...", "txn/...",
		"placement/...", "deploy/embedded/..."}},
	// Dashboards and alert rules. They know metrics by name only.
	{"deploy/monitoring/...", []string{"deploy/monitoring"}},
	// What makes the files of a release. It knows the product as files only.
	{"deploy/release", nil},

	{"bench", nil},
	{"bench/proof/process", nil},
	{"bench/proof/fleet", []string{"bench/proof/process", "rpc/...", "range/keys",
		"deploy/embedded/..."}},
	{"bench/proof/reference", []string{"bench/proof/process"}},
	{"bench/proof/calm", []string{"kv"}},
	// Mistakes to build in on purpose. It knows the product as text only.
	{"bench/proof/planted/...", []string{"bench/proof/planted"}},
	{"bench/proof/fakeserver", []string{"hlc", "rpc/...", "range/keys", "txn"}},
	// Checkers. They know histories, and not what made them.
	{"bench/proof/revisions", nil},
	{"bench/proof/driver", []string{"rpc/metric", "bench/proof/history", "bench/proof/calm", "kv",
		"kv/admin", "kv/coord/direct"}},
	{"bench/proof/coordination", []string{"hlc", "bench/proof/driver", "bench/proof/revisions",
		"kv", "kv/coord"}},
	{"bench/proof/workloads", []string{"bench/proof/coordination", "bench/proof/driver",
		"bench/proof/history", "bench/proof/isolation", "kv", "kv/admin"}},
	{"bench/proof/restores", []string{"bench/proof/driver", "bench/proof/workloads", "kv", "kv/admin",
		"range/backup/catalog", "range/backup/manifest", "range/backup/target",
		"deploy/embedded/backup", "placement/etcdapi/etcdfile"}},
	{"bench/proof/sim", []string{"bench/proof/...", "kv", "kv/admin", "kv/kvtest", "hlc", "rpc/...",
		"range/replica/proposal", "range/backup/target", "range/backup/targettest",
		"range/admission/workqueue", "deploy/embedded/..."}},
	{"bench/compare/coordination", []string{"bench/proof/process", "bench/proof/reference",
		"kv/coord"}},
	{"bench/kvtarget", []string{"bench", "kv"}},
	{"bench/proof/faults", []string{"bench/...", "kv", "kv/admin", "kv/kvprom", "hlc", "rpc/...",
		"range/engine", "range/keys", "deploy/certs", "deploy/embedded/..."}},
	{"bench/...", []string{"bench/...", "kv", "kv/admin", "kv/coord/...", "kv/kvprom", "hlc",
		"rpc/...",
		"range/engine", "range/keys", "deploy/certs", "deploy/embedded/..."}},
	{"cmd/tidemark/...", []string{"cmd/tidemark/...", "bench/...", "kv", "kv/admin/...",
		"kv/coord", "kv/kvprom", "hlc", "rpc/authn", "rpc/backoff", "rpc/client", "rpc/coordpb",
		"rpc/wire", "range/keys", "range/backup/...", "placement/etcdapi/etcdfile", "deploy/certs",
		"deploy/embedded/..."}},
}

// everywhere is the package that every other one may import.
const everywhere = "range/invariants"

var ground = []string{
	"hlc", "rpc/...", "range/keys", "range/engine", "range/mvcc/...", "range/raftlog",
	"range/group", "range/host/...", "range/timer",
	"range/clockhealth", "range/admission/...", "range/tree", "range/load", "range/timing",
}

// terms are what every room of the planner may use.
var terms = []string{"range/keys", "placement/planner", "placement/planner/rules",
	"placement/planner/words"}

// storeTerms are what every room of the core's store may use.
var storeTerms = []string{"range/keys", "range/group", "placement/store/authority",
	"placement/store/command", "placement/store/storepb", "rpc/release"}

// coreRecords are what a room needs that reads and writes records of the core.
var coreRecords = []string{"range/keys", "rpc/...", "placement/store/...", "placement/server/hint",
	"placement/server/serverpb"}

func matches(pattern, path string) bool {
	if folder, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == folder || strings.HasPrefix(path, folder+"/")
	}
	return pattern == path
}

type listedPackage struct {
	ImportPath, Name, Dir string
	Imports, GoFiles      []string
}

func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Dir,Imports,GoFiles",
		module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var all []listedPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// Imports point one way (docs/architecture.md). Test files are free to reach across.
func TestImports(t *testing.T) {
	for _, p := range listPackages(t) {
		path := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		var rule []string
		known := path == "" // the module's root holds no code
		for _, entry := range may {
			if matches(entry.of, path) {
				rule, known = entry.imports, true
				break
			}
		}
		if !known {
			t.Errorf("%s has no place in the order of imports: give it one in imports_test.go", path)
			continue
		}
	imports:
		for _, imported := range p.Imports {
			ours, ok := strings.CutPrefix(imported, module+"/")
			if ours == everywhere {
				continue
			}
			if !ok {
				if path == "hlc" && strings.Contains(imported, ".") {
					t.Errorf("hlc imports %s; it may import the standard library only", imported)
				}
				continue
			}
			for _, allowed := range rule {
				if matches(allowed, ours) {
					continue imports
				}
			}
			t.Errorf("%s imports %s, which is not below it", path, ours)
		}
	}
}

// Nothing below the commands reads flags or the environment, ends the process, or uses what a
// process has only one of: one process can hold a whole cluster.
func TestNothingBelowCommandsIsGlobal(t *testing.T) {
	forbiddenImports := map[string]bool{"flag": true, "github.com/spf13/cobra": true,
		"github.com/spf13/pflag": true}
	forbidden := map[string]bool{
		"os.Args": true, "os.Getenv": true, "os.LookupEnv": true, "os.Environ": true,
		"os.ExpandEnv": true, "os.Exit": true,
		"log.Fatal": true, "log.Fatalf": true, "log.Fatalln": true, "slog.SetDefault": true,
		"signal.Notify": true, "signal.NotifyContext": true,
		"prometheus.MustRegister": true, "prometheus.Register": true,
		"prometheus.DefaultRegisterer": true, "prometheus.DefaultGatherer": true,
		"http.DefaultServeMux": true, "http.Handle": true, "http.HandleFunc": true,
	}
	for _, p := range listPackages(t) {
		switch {
		case p.Name == "main", strings.HasPrefix(p.ImportPath, module+"/cmd/"):
			continue // a program
		case p.ImportPath == module+"/bench/proof/process":
			continue // starts programs, and hands its environment on to them
		}
		for _, name := range p.GoFiles {
			file := filepath.Join(p.Dir, name)
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			files := token.NewFileSet()
			parsed, err := parser.ParseFile(files, file, source, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range parsed.Imports {
				if forbiddenImports[strings.Trim(spec.Path.Value, `"`)] {
					t.Errorf("%s imports %s: flags belong to the commands",
						files.Position(spec.Pos()), spec.Path.Value)
				}
			}
			ast.Inspect(parsed, func(node ast.Node) bool {
				selector, ok := node.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if base, ok := selector.X.(*ast.Ident); ok && forbidden[base.Name+"."+selector.Sel.Name] {
					t.Errorf("%s uses %s.%s: take it from the config", files.Position(node.Pos()),
						base.Name, selector.Sel.Name)
				}
				return true
			})
		}
	}
}
