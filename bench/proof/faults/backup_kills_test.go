package faults

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

var (
	backupKillCount = flag.Int("faults.backup-kills", 12,
		"how often TestBackupKills kills something while a backup or restore is under way, at least")
	backupKillSeed = flag.Uint64("faults.backup-seed", 1, "the seed of its moments and victims")
	backupKillRows = flag.Int("faults.backup-rows", 100_000,
		"how many rows TestBackupKills backs up that do not change")
	backupKillRate = flag.String("faults.backup-rate", "2MiB",
		"how much a server reads in a second for the backups of TestBackupKills")
	backupKillDir = flag.String("faults.backup-target", "",
		"the directory of the backups of TestBackupKills (default: one beside the servers')")
)

// stillKeyspaces is the number of keyspaces with rows that do not change. Each keyspace is a unit
// of a backup.
const stillKeyspaces = 3

// backupChain is the number of backups in a chain before a new chain begins.
const backupChain = 3

// scheduleName is the name of the schedule that makes backups and writes a log all the time.
const scheduleName = "all-the-time"

// TestBackupKills kills servers and commands at random moments, under a load whose contents are
// known at every moment. The kills hit backups, a log that is written all the time, and restores,
// also restores to moments between backups. Each requested backup or restore is completed, or was
// never begun and is repeated. A restore gives the state of the cluster at one moment, not before
// the command began and not after it ended. At the end nothing hidden is left in the cluster, and
// after the deletion of the backups nothing is left in the target.
func TestBackupKills(t *testing.T) {
	limit := 10*time.Minute + time.Duration(*backupKillCount)*2*time.Minute
	e := newEnvironment(t, limit, threeServers())
	shareCore(e.cluster)
	e.start("unused", 1, 3)
	client := e.open("unused").client
	b := &backupKills{environment: e, client: client, admin: admin.New(client),
		random: rand.New(rand.NewPCG(*backupKillSeed, 47)), kills: make(map[string]int),
		usual: make(map[string]time.Duration), dir: *backupKillDir,
		traces: []*trace{newTrace("trace-hash"), newTrace("trace-range")}}
	if b.dir == "" {
		b.dir = filepath.Join(e.dir, "backups")
	}
	e.must(os.MkdirAll(b.dir, 0o777), "make the target")
	b.fill()
	stop := b.load()
	defer stop()
	e.wait(time.Minute, "writes", func(context.Context) error {
		for _, trace := range b.traces {
			if trace.acked.Load() < 2*traceKeys {
				return fmt.Errorf("%s is at step %d", trace.keyspace, trace.acked.Load())
			}
		}
		return nil
	})

	_, err := b.admin.CreateBackupSchedule(b.ctx, admin.BackupSchedule{Name: scheduleName,
		Target: b.target(), Full: time.Hour, Incremental: time.Minute, Log: time.Second})
	e.must(err, "create the schedule")
	e.wait(time.Minute, "the first backup of the schedule", func(ctx context.Context) error {
		s := b.schedule(ctx)
		if s.Last == "" || s.LogAt.IsZero() {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})

	// Nothing is killed in the first round, which measures the usual time of each job.
	for round := 0; !t.Failed(); round++ {
		var chain []backupMade
		for n := range backupChain {
			chain = append(chain, b.backup(round, n))
		}
		b.restore(round, chain[len(chain)-1])
		b.restore(round, b.moment())
		if b.restore(round, chain[b.random.IntN(len(chain))]); b.killed() >= *backupKillCount {
			break
		}
	}
	stop()
	b.clean()
	e.result("seed %d: %d kills (%v) in %d backups and %d restores; %d commands were repeated, "+
		"%d gave up before the job had ended", *backupKillSeed, b.killed(), b.kills, b.backups,
		b.restores, b.repeated, b.gaveUp)
	e.result("%d and %d steps of writes, and %d transfers", b.traces[0].acked.Load(),
		b.traces[1].acked.Load(), b.transfers)
}

// backupKills is the state of the test.
type backupKills struct {
	*environment
	client *kv.Client
	admin  *admin.Client
	random *rand.Rand
	dir    string
	traces []*trace
	still  [stillKeyspaces]digest
	// usual is how long a job of each kind takes without kills.
	usual map[string]time.Duration
	// kills counts the kills by victim. transfers is valid once the load has ended.
	kills                                          map[string]int
	backups, restores, repeated, gaveUp, transfers int
}

// backupMade is a backup, or a moment in the log, with the first and the last step of each trace
// that it may end with.
type backupMade struct {
	id        string
	at        kv.Timestamp
	low, high []int64
}

// of returns the arguments that select the backup or moment.
func (m *backupMade) of() []string {
	if m.id != "" {
		return []string{m.id}
	}
	return []string{"--at", m.at.String()}
}

// moment waits until the log has a moment, and returns it. The moment is the version of a write of
// the client that writes the traces. Writes that were acknowledged before are older; writes that
// begin later are newer.
func (b *backupKills) moment() (made backupMade) {
	b.Helper()
	for _, trace := range b.traces {
		made.low = append(made.low, trace.acked.Load())
	}
	b.wait(time.Minute, "a write", func(ctx context.Context) (err error) {
		made.at, err = b.client.Keyspace("unused").Put(ctx, []byte("now"), nil)
		return err
	})
	for _, trace := range b.traces {
		made.high = append(made.high, trace.begun.Load())
	}
	b.wait(2*time.Minute, "the log", func(ctx context.Context) error {
		if s := b.schedule(ctx); s.LogAt.Less(made.at) {
			return fmt.Errorf("it has changes up to %v, and the moment is %v; %s", s.LogAt, made.at,
				s.LogError)
		}
		return nil
	})
	return made
}

// schedule returns the state of the schedule; its zero value if unknown.
func (b *backupKills) schedule(ctx context.Context) (s admin.BackupScheduleInfo) {
	all, err := b.admin.BackupSchedules(ctx)
	if err == nil && len(all) == 1 {
		return all[0]
	}
	return s
}

func (b *backupKills) killed() (n int) {
	for _, of := range b.kills {
		n += of
	}
	return n
}

func (b *backupKills) target() string { return "file://" + b.dir }

// fill makes the keyspaces.
func (b *backupKills) fill() {
	b.Helper()
	create := func(name string, layout kv.KeyspaceOption) *kv.Keyspace {
		ks, err := b.client.CreateKeyspace(b.ctx, name, layout)
		b.must(err, "create the keyspace %s", name)
		return ks
	}
	create("trace-hash", kv.Hash(4))
	create("trace-range", kv.Range([]byte("key-030"), []byte("key-060")))
	create(moneyKeyspaces[0], kv.Hash(4))
	create(moneyKeyspaces[1], kv.Range([]byte("account-100")))
	for i := range moneyAccounts {
		name, key := moneyAccount(i)
		_, err := b.client.Keyspace(name).Put(b.ctx, key, moneyValue(moneyOpening))
		b.must(err, "open an account")
	}
	for i := range stillKeyspaces {
		layout := kv.Range([]byte("r8"))
		if i == 0 {
			layout = kv.Hash(4)
		}
		ks := create(fmt.Sprintf("still-%d", i), layout)
		rows := func() iter.Seq2[kv.Pair, error] { return still(i, *backupKillRows/stillKeyspaces) }
		_, err := ks.Load(b.ctx, rows)
		b.must(err, "load %s", ks.Name())
		for pair := range rows() {
			b.still[i].add(pair.Key, pair.Value)
		}
	}
}

// load starts the writers; stop ends them.
func (b *backupKills) load() (stop func()) {
	ctx, cancel := context.WithCancel(b.ctx)
	var running sync.WaitGroup
	for _, trace := range b.traces {
		running.Go(func() { trace.run(ctx, b.client) })
	}
	random := rand.New(rand.NewPCG(*backupKillSeed, 48))
	running.Go(func() {
		for ctx.Err() == nil {
			from := random.IntN(moneyAccounts)
			to := (from + 1 + random.IntN(moneyAccounts-1)) % moneyAccounts
			// A transfer that fails has moved everything or nothing, so the sum does not change.
			if moveMoney(ctx, b.client, from, to, 1+random.Uint64N(50)) == nil {
				b.transfers++
			}
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
}

// backup makes the nth backup of a chain.
func (b *backupKills) backup(round, n int) backupMade {
	b.Helper()
	kind, args := "full backup", []string{"backup", "create", b.target(), "--rate", *backupKillRate}
	if n > 0 {
		kind, args = "incremental backup", append(args, "--incremental")
	}
	var made backupMade
	for _, trace := range b.traces {
		made.low = append(made.low, trace.acked.Load())
	}
	made.id = b.job(kind, round > 0, args...).ID
	for _, trace := range b.traces {
		made.high = append(made.high, trace.begun.Load())
	}
	b.backups++
	if _, err := b.command("backup", "verify", b.target(), made.id, "--quiet"); err != nil {
		b.Errorf("the %s %s: %v", kind, made.id, err)
	}
	return made
}

// job runs a command that starts a backup or restore and waits for its end. If kill is set, job
// kills something meanwhile. It returns the job once the job is complete.
func (b *backupKills) job(kind string, kill bool, args ...string) admin.BackupInfo {
	b.Helper()
	before := b.jobs()
	began := time.Now()
	for {
		command, err := process.Start(process.Config{Name: kind, Path: b.cluster.Nodes[0].Binary,
			Args: append(slices.Clone(args), "--endpoints", strings.Join(b.cluster.Endpoints(), ",")),
			Log:  filepath.Join(b.dir+".log", fmt.Sprintf("command-%d.log", time.Now().UnixNano()))})
		b.must(err, "start the command")
		killedIt := false
		for n := 1 + b.random.IntN(2); kill && n > 0; n-- {
			killedIt = b.kill(kind, command) || killedIt
		}
		kill = false // a job that was not begun is repeated without kills
		job, found := b.await(kind, command, before)
		if err := b.ended(command); err != nil && !killedIt {
			b.gaveUp++
			b.Logf("the command of the %s gave up: %v: %s", kind, err, command.LogTail(500))
		}
		if !found {
			b.repeated++
			continue
		}
		if job.State != admin.BackupComplete {
			b.Fatalf("the %s %s is %s: %s", kind, job.ID, job.State, job.Error)
		}
		if b.usual[kind] == 0 {
			b.usual[kind] = time.Since(began)
			b.Logf("a %s takes %v", kind, time.Since(began).Round(time.Millisecond))
		}
		return job
	}
}

// ended waits until a command ends whose job has ended.
func (b *backupKills) ended(command *process.Process) error {
	code, err := b.exits(command, 2*time.Minute)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	return err
}

// await waits until the job of a command is over; false: the command has begun no job.
func (b *backupKills) await(kind string, command *process.Process,
	before map[string]admin.BackupInfo) (job admin.BackupInfo, found bool) {
	b.Helper()
	b.wait(5*time.Minute, "the end of the "+kind, func(context.Context) error {
		runs := command.Running()
		found = false
		for id, one := range b.jobs() {
			if _, known := before[id]; known {
				continue
			}
			if !one.Over() {
				return fmt.Errorf("%s: %s, %d of %d parts, %d failures, the last: %s", id, one.Step,
					one.UnitsDone, one.Units, one.Failures, one.LastFailure)
			}
			job, found = one, true
		}
		if !found && runs {
			return errors.New("the command has begun no job yet")
		}
		return nil
	})
	return job, found
}

// jobs returns the jobs that the core knows.
func (b *backupKills) jobs() map[string]admin.BackupInfo {
	b.Helper()
	all := make(map[string]admin.BackupInfo)
	b.wait(time.Minute, "the list of jobs", func(ctx context.Context) error {
		list, err := b.admin.Backups(ctx)
		for _, one := range list {
			if one.Schedule == "" {
				all[one.ID] = one
			}
		}
		return err
	})
	return all
}

// kill kills something at a random moment of a job, and restarts it if it is a server. It returns
// whether it killed the command. If the command ends earlier, kill kills nothing.
func (b *backupKills) kill(kind string, command *process.Process) (theCommand bool) {
	b.Helper()
	delay := time.Duration(b.random.Int64N(int64(b.usual[kind])))
	victim := []string{"leader", "leader", "server", "server", "all", "command"}[b.random.IntN(6)]
	back := time.Duration(b.random.Int64N(int64(2 * time.Second)))
	server := b.cluster.Nodes[b.random.IntN(len(b.cluster.Nodes))]
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-command.Done():
		return false
	case <-timer.C:
	case <-b.ctx.Done():
		b.Fatal("the test took longer than it may")
	}
	if victim == "leader" {
		if server = b.leader(); server == nil {
			return false
		}
	}
	b.kills[victim]++
	b.Logf("kill %d: %s, %v into a %s or after the kill before; it is back after %v", b.killed(),
		victim, delay.Round(time.Millisecond), kind, back.Round(time.Millisecond))
	switch victim {
	case "command":
		b.must(command.Kill(), "kill the command")
		return true
	case "all":
		b.must(b.cluster.KillAll(), "kill all servers")
		b.pass(back)
		starting, cancel := context.WithTimeout(b.ctx, time.Minute)
		defer cancel()
		b.must(b.cluster.Start(starting), "start all servers")
	default:
		b.must(server.Kill(), "kill %s", server.Name)
		b.pass(back)
		b.restart(server)
	}
	return false
}

// leader returns the server that leads the core; nil if none is known after some seconds.
func (b *backupKills) leader() *fleet.Server {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	core, err := b.admin.Core(ctx)
	if err != nil {
		b.Logf("the core's leader is not known: %v", err)
		return nil
	}
	for _, m := range core.Members {
		for _, s := range b.cluster.Nodes {
			if m.Leader && s.Address() == m.Address {
				return s
			}
		}
	}
	b.Logf("no member of the core leads: %+v", core.Members)
	return nil
}

// restore restores a backup under other names, compares the result, and drops the restored
// keyspaces.
func (b *backupKills) restore(round int, made backupMade) {
	b.Helper()
	b.restores++
	names := append(slices.Clone(moneyKeyspaces[:]), "unused")
	for _, trace := range b.traces {
		names = append(names, trace.keyspace)
	}
	for i := range stillKeyspaces {
		names = append(names, fmt.Sprintf("still-%d", i))
	}
	prefix := fmt.Sprintf("restored-%d-", b.restores)
	args := append([]string{"restore", b.target()}, made.of()...)
	args = append(args, "--keyspaces", strings.Join(names, ","))
	for _, name := range names {
		args = append(args, "--as", name+"="+prefix+name)
	}
	b.job("restore", round > 0, args...)
	if err := b.compare(made, prefix); err != nil {
		b.Errorf("the restore of %v: %v", made.of(), err)
	}
	b.sameRows(made, prefix, "trace-range")
	listed, err := b.command("keyspace", "list", "-o", "tsv")
	b.must(err, "list the keyspaces")
	if strings.Contains(listed, "restore/") {
		b.Errorf("keyspaces are still hidden:\n%s", listed)
	}
	if b.Failed() {
		return // the restored keyspaces are kept for inspection
	}
	for _, name := range names {
		b.must(b.client.DropKeyspace(b.ctx, prefix+name), "drop %s", prefix+name)
	}
}

// rows scans a keyspace.
func (b *backupKills) rows(name string) (map[string]string, error) {
	rows := make(map[string]string)
	for pair, err := range b.client.Keyspace(name).Scan(b.ctx) {
		if err != nil {
			return nil, err
		}
		rows[string(pair.Key)] = string(pair.Value)
	}
	return rows, nil
}

// compare compares restored keyspaces with the contents that they must have at the moment of the
// backup.
func (b *backupKills) compare(made backupMade, prefix string) error {
	var errs []error
	for i, trace := range b.traces {
		rows, err := b.rows(prefix + trace.keyspace)
		if err == nil {
			_, err = trace.moment(rows, made.low[i], made.high[i])
		}
		errs = append(errs, err)
	}
	money, accounts := uint64(0), 0
	for _, name := range moneyKeyspaces {
		rows, err := b.rows(prefix + name)
		errs = append(errs, err)
		for value := range maps.Values(rows) {
			money += binary.BigEndian.Uint64([]byte(value))
			accounts++
		}
	}
	if money != moneyAccounts*moneyOpening || accounts != moneyAccounts {
		errs = append(errs, fmt.Errorf("%d accounts have %d, want %d with %d", accounts, money,
			moneyAccounts, moneyAccounts*moneyOpening))
	}
	for i, want := range b.still {
		var got digest
		name := fmt.Sprintf("%sstill-%d", prefix, i)
		for pair, err := range b.client.Keyspace(name).Scan(b.ctx) {
			if err != nil {
				errs = append(errs, err)
				break
			}
			got.add(pair.Key, pair.Value)
		}
		if got != want {
			errs = append(errs, fmt.Errorf("%s: %+v, want %+v", name, got, want))
		}
	}
	return errors.Join(errs...)
}

// sameRows compares the program's listing of a backup with its listing of the restored keyspace.
func (b *backupKills) sameRows(made backupMade, prefix, keyspace string) {
	b.Helper()
	args := append([]string{"backup", "cat", b.target()}, made.of()...)
	stored, err := b.command(append(args, keyspace)...)
	b.must(err, "print the backup")
	restored, err := b.command("dump", prefix+keyspace, "--quiet")
	b.must(err, "dump the restored keyspace")
	if stored != restored {
		b.Errorf("%s: %v has\n%.300s\nand the restored keyspace\n%.300s", keyspace, made.of(), stored,
			restored)
	}
}

// command runs the program to its end, and returns its output.
func (b *backupKills) command(args ...string) (string, error) {
	if args[0] != "backup" {
		args = append(args, "--endpoints", strings.Join(b.cluster.Endpoints(), ","))
	}
	run := exec.CommandContext(b.ctx, b.cluster.Nodes[0].Binary, args...)
	var said strings.Builder
	run.Stderr = &said
	out, err := run.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	return string(out), err
}

// clean deletes all backups, the newest first, and checks that nothing is left.
func (b *backupKills) clean() {
	b.Helper()
	if verified, err := b.command("backup", "verify", b.target(), "--quiet"); err != nil {
		b.Errorf("verify: %v: %s", err, verified)
	}
	b.wait(time.Minute, "the end of the schedule", func(ctx context.Context) error {
		return b.admin.DeleteBackupSchedule(ctx, scheduleName)
	})
	listed, err := b.command("backup", "list", b.target(), "-o", "tsv")
	b.must(err, "list the backups")
	var ids []string
	for line := range strings.Lines(listed) {
		id, _, _ := strings.Cut(line, "\t")
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range slices.Backward(ids) {
		_, err := b.command("backup", "delete", b.target(), id, "--yes")
		b.must(err, "delete %s", id)
	}
	b.must(filepath.WalkDir(b.dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			b.Errorf("it is still there: %s", path)
		}
		return err
	}), "look at the target")
	for _, name := range append(moneyKeyspaces[:], "trace-hash", "trace-range", "still-0", "unused") {
		left, err := b.client.Keyspace(name).Consumers(b.ctx)
		b.must(err, "list the consumers of %s", name)
		for _, consumer := range left {
			b.Errorf("%s still has the consumer %s", name, consumer.Name)
		}
	}
}
