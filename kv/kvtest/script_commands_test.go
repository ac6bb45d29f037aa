package kvtest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// commands are what scripts are made of.
var commands map[string]func(s *scene, l *line)

func init() {
	commands = map[string]func(s *scene, l *line){
		// cluster [nodes=3] [cores=1] [separate] [awake] [not-ready] [log=64K] [memtable=256K]
		// [bound=50ms]
		"cluster": (*scene).cluster,

		// client NAME opens a client. The first one has no name, and needs no command.
		"client": func(s *scene, l *line) { s.client(l.word(0)) },
		// open opens a client that may fail.
		"open": (*scene).open,
		// keyspace NAME range|hash=4 [replicas=1] [within=] [client=]
		"keyspace": (*scene).keyspace,
		// keyspaces counts them.
		"keyspaces": (*scene).keyspaces,
		// put KEYSPACE KEY|0..99 VALUE [size=8K] [within=] [client=] [says=] [as=]
		"put": (*scene).put,
		// get KEYSPACE KEY|0..99 [within=] [client=] [says=] [as=]
		"get": (*scene).get,
		// stays and refused are get and put that print something only if the value is another one,
		// or if the disks take the write.
		"stays": func(s *scene, l *line) {
			s.unless(l, fmt.Sprintf("%s = %s\n", l.word(1), l.word(2)), (*scene).get)
		},
		"refused": func(s *scene, l *line) {
			want := ""
			for _, key := range l.keys() {
				want += fmt.Sprintf("put %s: %s\n", key, kv.ErrDiskFull.Error())
			}
			s.unless(l, want, (*scene).put)
		},
		// never KEYSPACE KEY VALUE for=2s [within=] [client=]: how many reads in this time find the
		// value. never-keyspaces N likewise.
		"never":           (*scene).never,
		"never-keyspaces": (*scene).neverKeyspaces,

		// name NAME leader|core-leader|SERVER; name NAME NAME... rest-of nodes|core NAME...: those
		// left.
		"name": (*scene).name,
		// cut FROM... to TO...|others [break]: both ways, servers and clients. slow likewise, by=.
		"cut":  func(s *scene, l *line) { s.links(l, s.c.Network().CutBoth) },
		"slow": (*scene).slow,
		"heal": func(s *scene, _ *line) { s.c.HealAll() },
		"isolate": func(s *scene, l *line) {
			for mode := l.mode(); len(l.words) > 0; l.words = l.words[1:] {
				s.c.Isolate(l.server(l.words[0]), mode)
			}
		},
		"rejoin": each(func(s *scene, i int, _ *line) { s.c.Rejoin(i) }),
		// messages [lose=10] [late=20] [repeat=20] [most=300ms]: of a hundred; without options none
		// is.
		"messages": (*scene).messages,

		// fates says what has become of messages.
		"fates": func(s *scene, _ *line) {
			for _, fate := range []string{"lost", "late", "repeated"} {
				s.print("messages were %s: %v", fate, strings.Contains(s.c.Messages().Trace(),
					": "+fate+"\n"))
			}
		},

		"pause":  each(func(s *scene, i int, _ *line) { s.c.Pause(i) }),
		"resume": each(func(s *scene, i int, _ *line) { s.c.Resume(i) }),
		// suspend is pause, of a machine whose monotonic clock stands still.
		"suspend": each(func(s *scene, i int, _ *line) { s.c.Clock(i).SetSpeed(0); s.c.Pause(i) }),
		"wake":    each(func(s *scene, i int, _ *line) { s.c.Resume(i); s.c.Clock(i).SetSpeed(1) }),
		// crash [unsynced=50] SERVER...: at the same moment.
		"crash": func(s *scene, l *line) {
			s.c.KillAll(l.number("unsynced", 0), l.list(l.words)...)
		},
		// stop SERVER... [failed]: of one that has failed already, whatever that says.
		"stop": func(s *scene, l *line) {
			failed := l.flag("failed")
			for _, i := range l.list(l.words) {
				if err := s.c.Stop(i); err != nil && !failed {
					s.t.Fatal(err)
				}
			}
		},
		// start SERVER... [roles=core] [says=]
		"start": each((*scene).start),
		"restart": each(func(s *scene, i int, l *line) {
			s.c.Kill(i, l.number("unsynced", 0))
			s.start(i, l)
		}),
		"wipe": each(func(s *scene, i int, _ *line) {
			if err := s.c.Wipe(i); err != nil {
				s.t.Fatal(err)
			}
		}),
		// unmount SERVER DIRECTORY, mount SERVER
		"unmount": func(s *scene, l *line) {
			s.mounts[l.word(0)] = unmount(s.t, s.c, l.server(l.word(0)), l.word(1))
		},
		"mount": func(s *scene, l *line) { s.mounts[l.word(0)]() },

		// clock SERVER... offset=2s|jump=1s
		"clock": each((*scene).clock),
		// disk SERVER... low|room|stalled|flows|broken|whole|sync=2s
		"disk": (*scene).disk,

		"wait": func(_ *scene, l *line) { time.Sleep(l.parseDuration(l.word(0))) },
		// await ready [SERVER...]|unready|leading|not-leading|failed|joined SERVER...|equal
		// [because=]
		"await": (*scene).await,
		// ready SERVER... [because=a_part_of_the_reason]
		"ready": each(func(s *scene, i int, l *line) {
			s.print("%s %s", l.words[0], s.because(i, l.options["because"]))
		}),
		// failed SERVER... [says=]: why.
		"failed": each(func(s *scene, i int, l *line) {
			s.print("%s failed: %s", l.words[0], l.failure(s.c.Process(i).Err()))
		}),
		// note-node remembers which node a server is; same-node says whether it is that one still,
		// and how many replicas it has.
		"note-node": each(func(s *scene, i int, _ *line) { s.nodes[i] = s.c.Process(i).NodeID() }),
		"same-node": each(func(s *scene, i int, l *line) {
			p := s.c.Process(i)
			s.print("%s is the same node: %v, with %d replicas", l.words[0],
				p.NodeID() == s.nodes[i], len(p.Replicas()))
		}),
		// leads SERVER...; core-leads SERVER...
		"leads": each(func(s *scene, i int, l *line) {
			s.print("%s leads: %v", l.words[0], s.leads(i))
		}),
		"core-leads": each(func(s *scene, i int, l *line) {
			s.print("%s leads the core: %v", l.words[0], s.c.Process(i).LeadsCore())
		}),
		// never-leads prints something only if the server leads.
		"never-leads": each(func(s *scene, i int, l *line) {
			if s.leads(i) {
				s.print("%s leads", l.words[0])
			}
		}),
		// status SERVER...: which partitions have no leader there.
		"status": each(func(s *scene, i int, _ *line) {
			status := s.c.Process(i).Status()
			s.print("%d partitions have no leader", status.LeaderlessTotal)
			for _, p := range status.Leaderless {
				s.print("%s: %d nodes are silent", p.Keyspace, len(p.SilentNodes))
			}
		}),
		// note-terms remembers which server leads what, in which terms; same-terms [SERVER...] says
		// whether that is still so, as far as these servers know.
		"note-terms": func(s *scene, _ *line) { s.terms = s.led() },
		"same-terms": (*scene).sameTerms,
		// during 1m every=1s, with indented commands.
		"during": func(s *scene, l *line) {
			repeat(l.parseDuration(l.word(0)), l.duration("every", time.Second),
				func() { s.run(l.inner) })
		},
	}
}

// each runs f for each of a command's servers, whose name is then the first word.
func each(f func(s *scene, server int, l *line)) func(*scene, *line) {
	return func(s *scene, l *line) {
		for words := l.words; len(words) > 0; words = words[1:] {
			for _, i := range l.list(words[:1]) {
				l.words = words
				f(s, i, l)
			}
		}
	}
}

func (s *scene) cluster(l *line) {
	log, memtable, limit, awake := l.number("log", 0), l.number("memtable", 0),
		l.duration("bound", 0), l.flag("awake")
	s.c = kvtest.Start(s.t, kvtest.Options{
		Nodes: l.number("nodes", 3), Cores: l.number("cores", 1), Separate: l.flag("separate"),
		NotReady: l.flag("not-ready"), Latency: latency,
		Configure: func(server int, c *embedded.ServerConfig) {
			if s.coreAlone[server] {
				c.Roles = []string{embedded.RoleCore}
			}
			if awake {
				c.SleepAfter = -1
			}
			if log > 0 {
				c.RetainLogBytes = int64(log)
			}
			if memtable > 0 {
				c.MemTableBytes = uint64(memtable)
			}
			if limit > 0 {
				c.MaxOffset = limit
			}
		},
	})
}

// failure is what a script prints of an error: its kinds, and what it says, if the script expects
// that (says=a_part). With as=kind it prints no other kind beside that one; with as=any it does not
// matter which error it is.
func (l *line) failure(err error) string {
	var kinds []string
	for _, kind := range []error{kv.ErrNoQuorum, kv.ErrDiskFull, kv.ErrNotFound, kv.ErrCorruption,
		kv.ErrOutcomeUnknown, datadir.ErrUnusable, kvtest.ErrDisk} {
		if errors.Is(err, kind) {
			kinds = append(kinds, kind.Error())
		}
	}
	switch as := strings.ReplaceAll(l.options["as"], "_", " "); {
	case as == "any":
		return "fails"
	case slices.Contains(kinds, as):
		kinds = []string{as}
	}
	if len(kinds) == 0 && errors.Is(err, context.DeadlineExceeded) {
		kinds = append(kinds, "timed out")
	}
	if says, expected := l.options["says"]; expected {
		if says = strings.ReplaceAll(says, "_", " "); !strings.Contains(err.Error(), says) {
			return err.Error()
		}
		kinds = append(kinds, "..."+says+"...")
	}
	if len(kinds) == 0 {
		return err.Error()
	}
	return strings.Join(kinds, ", ")
}

func (s *scene) open(l *line) {
	ctx, cancel := l.context()
	defer cancel()
	client, err := s.c.Open(ctx)
	if err != nil {
		s.print("open: %s", l.failure(err))
		return
	}
	_ = client.Close()
}

func (s *scene) keyspace(l *line) {
	ctx, cancel := l.context()
	defer cancel()
	layout := kv.Hash(l.number("hash", 4))
	if l.flag("range") {
		layout = kv.Range()
	}
	options := []kv.KeyspaceOption{layout}
	if n := l.number("replicas", 0); n > 0 {
		options = append(options, kv.Replicas(n))
	}
	if _, err := l.client().CreateKeyspace(ctx, l.word(0), options...); err != nil {
		s.print("keyspace %s: %s", l.word(0), l.failure(err))
	}
}

func (s *scene) keyspaces(l *line) {
	ctx, cancel := l.context()
	defer cancel()
	all, err := admin.New(l.client().Client).Keyspaces(ctx)
	if err != nil {
		s.print("keyspaces: %s", l.failure(err))
		return
	}
	s.print("%d keyspaces", len(all))
}

// keys are one key, or those of a range of numbers such as 0..99.
func (l *line) keys() (all []string) {
	from, to, several := strings.Cut(l.word(1), "..")
	if !several {
		return []string{from}
	}
	first, err := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	if err := errors.Join(err, err2); err != nil {
		l.s.t.Fatalf("%q: %v", l.text, err)
	}
	for i := first; i <= last; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

func (s *scene) put(l *line) {
	value := l.word(2) + strings.Repeat(" ", l.number("size", 0))
	for _, key := range l.keys() {
		ctx, cancel := l.context()
		if _, err := l.keyspace().Put(ctx, []byte(key), []byte(value)); err != nil {
			s.print("put %s: %s", key, l.failure(err))
		}
		cancel()
	}
}

// get prints one line for all keys, if all have the same value.
func (s *scene) get(l *line) {
	found := make(map[string]bool)
	what := ""
	for _, key := range l.keys() {
		ctx, cancel := l.context()
		pair, err := l.keyspace().Get(ctx, []byte(key))
		cancel()
		if what = "= " + strings.TrimSpace(string(pair.Value)); err != nil {
			what = "is " + l.failure(err)
		}
		if found[what] = true; len(found) > 1 {
			s.print("%s %s", key, what)
		}
	}
	if len(found) == 1 {
		s.print("%s %s", l.word(1), what)
	}
}

func (s *scene) never(l *line) {
	key, value, n := l.word(1), l.word(2), 0
	repeat(l.duration("for", time.Second), 0, func() {
		ctx, cancel := l.context()
		defer cancel()
		if pair, err := l.keyspace().Get(ctx, []byte(key)); err == nil &&
			string(pair.Value) == value {
			n++
		}
	})
	s.print("%s = %s: %d times", key, value, n)
}

func (s *scene) neverKeyspaces(l *line) {
	n := 0
	repeat(l.duration("for", time.Second), 0, func() {
		ctx, cancel := l.context()
		defer cancel()
		if all, err := admin.New(l.client().Client).Keyspaces(ctx); err == nil &&
			fmt.Sprint(len(all)) == l.word(0) {
			n++
		}
	})
	s.print("%s keyspaces: %d times", l.word(0), n)
}

// unless runs a command and forgets what it prints if that is as wanted.
func (s *scene) unless(l *line, want string, run func(*scene, *line)) {
	before := s.printed.String()
	s.printed.Reset()
	run(s, l)
	got := s.printed.String()
	s.printed.Reset()
	s.printed.WriteString(before)
	if got != want {
		s.printed.WriteString(got)
	}
}

func (s *scene) name(l *line) {
	names, of, rest := l.words[:len(l.words)-1], l.words[len(l.words)-1], []string(nil)
	for i, w := range l.words {
		if w == "rest-of" {
			names, of, rest = l.words[:i], l.word(i+1), l.words[i+2:]
		}
	}
	var servers []int
	switch {
	case rest != nil:
		taken := l.list(rest)
		for _, i := range l.list([]string{of}) {
			if i != taken[0] {
				servers = append(servers, i)
			}
		}
	case of == "leader":
		servers = []int{leaderOf(s.t, s.c)}
	case of == "core-leader":
		servers = []int{s.coreLeader()}
	default:
		servers = []int{l.server(of)}
	}
	for i, name := range names {
		s.servers[name] = servers[i]
	}
}

func (s *scene) start(server int, l *line) {
	s.coreAlone[server] = s.coreAlone[server] || l.options["roles"] == "core"
	err := s.c.Run(server)
	if err != nil || l.options["says"] != "" {
		if err == nil {
			err = errors.New("it starts")
		}
		s.print("start %s: %s", l.words[0], l.failure(err))
	}
}

func (s *scene) clock(server int, l *line) {
	if d, given := l.options["offset"]; given {
		s.c.Clock(server).SetOffset(l.parseDuration(d))
	}
	if d, given := l.options["jump"]; given {
		s.c.Clock(server).Jump(l.parseDuration(d))
	}
}

func (s *scene) disk(l *line) {
	low, room, stalled, flows := l.flag("low"), l.flag("room"), l.flag("stalled"), l.flag("flows")
	broken, whole := l.flag("broken"), l.flag("whole")
	_, sync := l.options["sync"]
	for _, i := range l.list(l.words) {
		if low || room {
			s.c.Disk(i).SetLow(low)
		}
		if stalled || flows {
			s.c.Disk(i).SetStalled(stalled)
		}
		if broken || whole {
			s.c.Disk(i).SetBroken(broken)
		}
		if sync {
			takes := l.duration("sync", 0)
			s.c.Disk(i).SetSyncTimes(takes, takes)
		}
	}
}

// leadership is a partition and the server that leads it.
type leadership struct {
	partition uint64
	server    int
}

// led are the terms of the partitions' leaders, as they know them.
func (s *scene) led() map[leadership]uint64 {
	found := make(map[leadership]uint64)
	for i := range s.c.Servers() {
		if p := s.c.Process(i); p != nil {
			for _, r := range p.Replicas() {
				if r.Leads {
					found[leadership{r.Partition, i}] = r.Term
				}
			}
		}
	}
	return found
}

func (s *scene) sameTerms(l *line) {
	before, now, servers := maps.Clone(s.terms), s.led(), l.list(l.words)
	if len(servers) > 0 {
		elsewhere := func(of leadership, _ uint64) bool {
			return !slices.Contains(servers, of.server)
		}
		maps.DeleteFunc(before, elsewhere)
		maps.DeleteFunc(now, elsewhere)
	}
	s.print("the same leaders and terms: %v", maps.Equal(before, now))
}
