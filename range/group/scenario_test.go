package group

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// A scenario drives three replicas of one group by hand: nothing happens that the file does not
// say. Its clock is in milliseconds, a tick is 100, and the lease is good for 800 from the sending
// of the heartbeat, the promise for 900 from its answer.
type scenario struct {
	t        *testing.T
	now      int64
	replicas map[keys.ReplicaID]*scenarioReplica
	// wire holds messages in flight, oldest first.
	wire []*peerpb.RaftMessage
	// late are those that were held back: they arrive with pass.
	late  []*peerpb.RaftMessage
	cut   map[[2]uint64]bool
	away  map[keys.ReplicaID]bool
	trace strings.Builder
	// tellCommits is that of all replicas.
	tellCommits bool
}

type scenarioReplica struct {
	group   *Group
	storage *scenarioStorage
	// appends wait for stable; applied grows at once.
	appends []*raftpb.Message
	applied []string
	index   uint64
	// configuration is the state machine's.
	configuration Configuration
	founder       bool
}

// scenarioStorage has the configuration of the state machine, and snapshots of what is applied.
type scenarioStorage struct {
	*raft.MemoryStorage
	of *scenarioReplica
}

// InitialState implements raft.Storage.
func (s *scenarioStorage) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	hard, _, err := s.MemoryStorage.InitialState()
	return hard, s.of.configuration.ConfState(), err
}

// Snapshot implements raft.Storage.
func (s *scenarioStorage) Snapshot() (*raftpb.Snapshot, error) {
	index := s.of.index
	term, err := s.Term(index)
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &index, Term: &term,
		ConfState: s.of.configuration.ConfState()}}, err
}

func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{t: t, replicas: map[keys.ReplicaID]*scenarioReplica{},
			cut: map[[2]uint64]bool{}, away: map[keys.ReplicaID]bool{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.trace.Reset()
			s.command(d)
			if s.trace.Len() == 0 {
				return "ok\n"
			}
			return s.trace.String()
		})
	})
}

func (s *scenario) printf(format string, args ...any) {
	fmt.Fprintf(&s.trace, format+"\n", args...)
}

// configuration reads "1:voter 4:learner"; replica n is on host n.
func (s *scenario) configuration(text string) (c Configuration) {
	roles := map[string]Role{"voter": Voter, "learner": Learner, "incoming": Incoming,
		"outgoing": Outgoing, "demoted": Demoted}
	for _, field := range strings.Fields(text) {
		id, role, _ := strings.Cut(field, ":")
		n, err := strconv.Atoi(id)
		if err != nil || roles[role] == 0 {
			s.t.Fatalf("%q is no member", field)
		}
		c.Members = append(c.Members, Member{Replica: keys.ReplicaID(n), Host: uint64(n),
			Role: roles[role]})
	}
	return c
}

func (s *scenario) start(id keys.ReplicaID, r *scenarioReplica) {
	var err error
	r.storage.of = r
	r.group,
		err = New(Config{ID: 7, Self: id, Storage: r.storage, Applied: r.index, ElectionTicks: 10,
		Configuration: r.configuration, Founder: r.founder, TellCommits: s.tellCommits,
		LeaseDuration: 800 * time.Millisecond, PromiseDuration: 900 * time.Millisecond})
	if err != nil {
		s.t.Fatal(err)
	}
	s.replicas[id] = r
}

func (s *scenario) command(d *datadriven.TestData) {
	replica := func() (keys.ReplicaID, *scenarioReplica) {
		var id int
		d.ScanArgs(s.t, "r", &id)
		return keys.ReplicaID(id), s.replicas[keys.ReplicaID(id)]
	}
	switch d.Cmd {
	case "replicas":
		n, _ := strconv.Atoi(d.CmdArgs[0].Key)
		s.tellCommits = d.HasArg("tell-commits")
		var voters []uint64
		for i := 1; i <= n; i++ {
			voters = append(voters, uint64(i))
		}
		for _, v := range voters {
			storage := raft.NewMemoryStorage()
			index := uint64(1)
			if err := storage.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
				Index: &index, Term: &index, ConfState: &raftpb.ConfState{Voters: voters}}}); err != nil {
				s.t.Fatal(err)
			}
			s.start(keys.ReplicaID(v), &scenarioReplica{storage: &scenarioStorage{storage, nil}, index: 1,
				configuration: configurationOf(&raftpb.ConfState{Voters: voters})})
		}
	case "newcomer": // a replica that knows nothing yet; founder: it is a voter from the beginning
		id, _ := replica()
		s.start(id, &scenarioReplica{storage: &scenarioStorage{raft.NewMemoryStorage(), nil},
			founder: d.HasArg("founder")})
	case "change": // the configuration, by an entry that the state machine obeys, or refuses
		id, r := replica()
		data := "change: " + d.Input
		if d.HasArg("refused") {
			data = "refused " + data
		}
		if err := r.group.ProposeChange(r.group.Leadership().Term, []byte(data),
			s.configuration(d.Input)); err != nil {
			s.printf("refused: %v", err)
		}
		s.collect(id)
	case "configurations":
		for _, id := range s.ids() {
			s.printf("%s: %s", id, s.replicas[id].group.Configuration())
		}
	case "restart": // what was not stable is gone, and so is what was only in memory
		id, r := replica()
		// As package raftlog does: what was applied is committed, whatever the hard state says.
		hard, _, err := r.storage.InitialState()
		if err == nil && hard.GetCommit() < r.index && !d.HasArg("forgets") {
			err = r.storage.SetHardState(&raftpb.HardState{Term: hard.Term, Vote: hard.Vote,
				Commit: &r.index})
		}
		if err != nil {
			s.t.Fatal(err)
		}
		if d.HasArg("forgets") { // what the state machine had in memory, which was all
			r.applied, r.index = nil, 1
		}
		s.start(id, &scenarioReplica{storage: r.storage, applied: r.applied, index: r.index,
			configuration: r.configuration})
		if d.HasArg("withhold") {
			s.replicas[id].group.WithholdVotes(true)
		}
	case "release-votes":
		_, r := replica()
		r.group.WithholdVotes(false)
	case "averse", "willing":
		_, r := replica()
		r.group.SetLeaderAverse(d.Cmd == "averse")
	case "advance": // the clock alone
		ms, _ := strconv.Atoi(d.CmdArgs[0].Key)
		s.now += int64(ms) * int64(time.Millisecond)
	case "campaign":
		id, r := replica()
		r.group.Campaign()
		s.collect(id)
	case "tick": // all replicas, the clock with them; turns: say how often one asks for its turn
		n, sleepAfter, turns := 1, 5, 0
		if d.HasArg("awake") {
			sleepAfter = 0
		}
		if d.HasArg("n") {
			d.ScanArgs(s.t, "n", &n)
		}
		for range n {
			s.now += 100 * int64(time.Millisecond)
			for _, id := range s.ids() {
				if d.HasArg("only") {
					var only int
					d.ScanArgs(s.t, "only", &only)
					if keys.ReplicaID(only) != id {
						continue
					}
				}
				s.replicas[id].group.Tick(sleepAfter,
					func(id keys.ReplicaID) bool { return s.away[id] })
				s.replicas[id].group.Succeed(s.now, func() bool {
					turns++
					return !d.HasArg("not-its-turn")
				})
				s.collect(id)
			}
			if d.HasArg("settle") {
				s.settle()
			}
		}
		if d.HasArg("turns") {
			s.printf("%d turns", turns)
		}
	case "propose":
		id, r := replica()
		var data [][]byte
		for _, line := range strings.Fields(d.Input) {
			data = append(data, []byte(line))
		}
		term := r.group.Leadership().Term
		if d.HasArg("term") {
			d.ScanArgs(s.t, "term", &term)
		}
		if err := r.group.Propose(term, data); err != nil {
			s.printf("refused: %v", err)
		}
		s.collect(id)
	case "read":
		id, r := replica()
		r.group.ReadIndex([]byte("12345678"))
		s.collect(id)
	case "transfer":
		id, r := replica()
		var to int
		d.ScanArgs(s.t, "to", &to)
		r.group.TransferLeader(r.group.Leadership().Term, keys.ReplicaID(to))
		s.collect(id)
	case "resign":
		id, r := replica()
		var to int
		d.ScanArgs(s.t, "to", &to)
		r.group.Resign(r.group.Leadership().Term, keys.ReplicaID(to))
		s.collect(id)
	case "wake":
		id, r := replica()
		r.group.Wake()
		s.collect(id)
	case "leader-gone":
		id, r := replica()
		r.group.WakeLeaderGone(10)
		s.collect(id)
	case "process-gone": // that of the leader, as the host of a replica sees it
		_, r := replica()
		r.group.LeaderGone()
	case "cut", "heal":
		var from, to int
		d.ScanArgs(s.t, "from", &from)
		d.ScanArgs(s.t, "to", &to)
		s.cut[[2]uint64{uint64(from), uint64(to)}] = d.Cmd == "cut"
	case "away", "back": // what the host knows of a replica's host
		id, _ := replica()
		s.away[id] = d.Cmd == "away"
		for _, other := range s.ids() {
			if g := s.replicas[other].group; d.Cmd == "back" && g.SleepsWithout(id) {
				g.Wake()
				s.collect(other)
			}
		}
	case "deliver": // one step of the network: what is in flight now
		s.deliver(d)
	case "hold": // what is in flight from one to another of a type, until pass
		var from, to int
		var kind string
		d.ScanArgs(s.t, "from", &from)
		d.ScanArgs(s.t, "to", &to)
		d.ScanArgs(s.t, "type", &kind)
		held := len(s.late)
		s.wire = slices.DeleteFunc(s.wire, func(m *peerpb.RaftMessage) bool {
			hold := m.GetFrom() == uint64(from) && m.GetTo() == uint64(to) &&
				raftpb.MessageType(m.GetType()).String() == kind
			if hold {
				s.late = append(s.late, m)
			}
			return hold
		})
		s.printf("held %d", len(s.late)-held)
	// messages that were held back arrive, and are taken in before the replica does anything about
	// them; succeed: also before it looks what to do about a leader that is gone
	case "pass":
		id, r := replica()
		for _, line := range strings.Split(d.Input, "\n") {
			i := slices.IndexFunc(s.late, func(m *peerpb.RaftMessage) bool {
				return m.GetTo() == uint64(id) &&
					line == fmt.Sprintf("%d %s", m.GetFrom(), raftpb.MessageType(m.GetType()))
			})
			if i < 0 {
				s.t.Fatalf("no %s for %s was held back", line, id)
			}
			r.group.Step(s.late[i])
			s.late = slices.Delete(s.late, i, i+1)
		}
		if d.HasArg("succeed") {
			r.group.Succeed(s.now, func() bool { return true })
		}
		s.collect(id)
	case "drop":
		s.printf("dropped %d", len(s.wire))
		s.wire = nil
	case "appends": // what waits for the disk of one replica
		_, r := replica()
		for _, m := range r.appends {
			text := fmt.Sprintf("entries=%d responses=%d", len(m.Entries), len(m.Responses))
			if m.Term != nil {
				text += fmt.Sprintf(" term=%d vote=%d commit=%d", m.GetTerm(), m.GetVote(),
					m.GetCommit())
			}
			s.printf("%s", text)
		}
	case "stable": // what waits for the disk of one replica is synced
		id, _ := replica()
		s.stable(id)
	case "settle": // deliver and sync until nothing is left
		s.settle()
	case "show":
		for _, id := range s.ids() {
			r := s.replicas[id]
			l := r.group.Leadership()
			role := "follows"
			if l.IsLeader {
				role = "leads"
			}
			term, lease := r.group.Lease().Valid(s.now)
			extra := ""
			if r.group.Asleep() {
				extra = " asleep"
			}
			if lease {
				extra += fmt.Sprintf(" lease(term %d)", term)
			}
			s.printf("%s: %s %s term=%d applied=%v%s", id, role, l.Leader, l.Term, r.applied, extra)
		}
	case "lease":
		id, r := replica()
		_, ok := r.group.Lease().Valid(s.now)
		if ok && d.HasArg("left") {
			s.printf("%s: %s", id, r.group.Lease().Left(s.now))
			return
		}
		s.printf("%s: %v", id, ok)
	case "wire":
		for _, m := range s.wire {
			s.printf("%s", describe(m))
		}
	default:
		s.t.Fatalf("unknown command %s", d.Cmd)
	}
}

func describe(m *peerpb.RaftMessage) string {
	kind := raftpb.MessageType(m.GetType()).String()
	if m.GetWake() {
		kind = "wake"
	}
	if m.GetSleep() {
		kind += "(sleep)"
	}
	text := fmt.Sprintf("%d->%d %s term=%d", m.GetFrom(), m.GetTo(), kind, m.GetTerm())
	if n := len(m.GetEntries()); n > 0 {
		text += fmt.Sprintf(" entries=%d", n)
	}
	return text
}

func (s *scenario) ids() []keys.ReplicaID {
	var ids []keys.ReplicaID
	for id := range s.replicas {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	return ids
}

// collect takes what a replica wants done.
func (s *scenario) collect(id keys.ReplicaID) {
	r := s.replicas[id]
	var out Output
	for r.group.Ready(s.now, &out) {
		s.wire = append(s.wire, out.Messages...)
		for _, m := range out.Snapshots {
			// The state is what it is when it is sent, which may be later than Raft knows.
			snap, err := r.storage.Snapshot()
			if err != nil {
				s.t.Fatal(err)
			}
			sent := outbound(7, &raftpb.Message{Snapshot: snap})
			m.Snapshot = sent.Snapshot
			s.wire = append(s.wire, m)
		}
		if l := out.Leadership; l != nil && l.IsLeader {
			s.printf("%s leads at term %d", id, l.Term)
		}
		for _, read := range out.Reads {
			s.printf("%s may read at index %d", id, read.Index)
		}
		if out.Append != nil {
			r.appends = append(r.appends, out.Append)
			if snap := out.Append.GetSnapshot(); snap.GetMetadata().GetIndex() > 0 {
				r.configuration = configurationOf(snap.GetMetadata().GetConfState())
				r.group.Installed(r.configuration)
			}
		}
		if m := out.Apply; m != nil {
			for _, e := range m.Entries {
				if e.GetIndex() != r.index+1 {
					s.t.Fatalf("%s applies %d after %d", id, e.GetIndex(), r.index)
				}
				r.index = e.GetIndex()
				if e.GetType() == raftpb.EntryConfChangeV2 {
					s.applyChange(r, e)
				} else if len(e.GetData()) > 0 {
					r.applied = append(r.applied, string(e.GetData()))
				}
			}
			for _, resp := range m.Responses {
				if err := r.group.StepLocal(resp); err != nil {
					s.t.Fatal(err)
				}
			}
		}
	}
}

// applyChange applies a change as the state machine does.
func (s *scenario) applyChange(r *scenarioReplica, e *raftpb.Entry) {
	data, err := DecodeChange(e)
	if err != nil {
		s.t.Fatal(err)
	}
	r.applied = append(r.applied, fmt.Sprintf("%q", data))
	text, obeyed := strings.CutPrefix(string(data), "change: ")
	if !obeyed {
		return
	}
	r.configuration = s.configuration(text)
	if err := r.group.Changed(e, r.configuration); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scenario) stable(id keys.ReplicaID) {
	r := s.replicas[id]
	appends := r.appends
	r.appends = nil
	for _, m := range appends {
		if m.Term != nil {
			if err := r.storage.SetHardState(&raftpb.HardState{Term: m.Term, Vote: m.Vote,
				Commit: m.Commit}); err != nil {
				s.t.Fatal(err)
			}
		}
		if snap := m.GetSnapshot(); snap.GetMetadata().GetIndex() > 0 {
			if err := r.storage.ApplySnapshot(snap); err != nil {
				s.t.Fatal(err)
			}
			r.index = snap.GetMetadata().GetIndex()
		}
		if err := r.storage.Append(m.Entries); err != nil {
			s.t.Fatal(err)
		}
		for _, resp := range m.Responses {
			if keys.ReplicaID(resp.GetTo()) == id {
				if err := r.group.StepLocal(resp); err != nil {
					s.t.Fatal(err)
				}
			} else {
				s.wire = append(s.wire, r.group.Outgoing(resp))
			}
		}
	}
	s.collect(id)
}

func (s *scenario) deliver(d *datadriven.TestData) {
	wire := s.wire
	s.wire = nil
	for _, m := range wire {
		if s.cut[[2]uint64{m.GetFrom(), m.GetTo()}] {
			continue
		}
		to := s.replicas[keys.ReplicaID(m.GetTo())]
		if to == nil {
			continue // it is not there yet
		}
		if why := to.group.Step(m); why != "" {
			s.printf("%d refuses %s: %s", m.GetTo(), describe(m), why)
		}
		s.collect(keys.ReplicaID(m.GetTo()))
		if m.GetSnapshot() != nil {
			s.replicas[keys.ReplicaID(m.GetFrom())].group.SnapshotSent(keys.ReplicaID(m.GetTo()), true)
			s.collect(keys.ReplicaID(m.GetFrom()))
		}
	}
}

func (s *scenario) settle() {
	for range 100 {
		busy := len(s.wire) > 0
		s.deliver(nil)
		for _, id := range s.ids() {
			busy = busy || len(s.replicas[id].appends) > 0
			s.stable(id)
		}
		if !busy {
			return
		}
	}
	s.t.Fatal("the group does not come to rest")
}
