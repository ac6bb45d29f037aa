package group

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/cockroachdb/datadriven"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// threeReplicas is a scenario without a file.
func threeReplicas(t *testing.T) *scenario {
	s := &scenario{t: t, replicas: map[keys.ReplicaID]*scenarioReplica{}, cut: map[[2]uint64]bool{},
		away: map[keys.ReplicaID]bool{}}
	s.do("replicas", "3")
	return s
}

func (s *scenario) do(command string, args ...string) {
	d := &datadriven.TestData{Cmd: command}
	for _, arg := range args {
		d.CmdArgs = append(d.CmdArgs, datadriven.CmdArg{Key: arg})
	}
	s.command(d)
}

// lead makes a replica lead.
func (s *scenario) lead(id keys.ReplicaID) {
	s.replicas[id].group.Campaign()
	s.collect(id)
	s.settle()
}

// tick ticks all replicas and delivers what they send.
func (s *scenario) tick(n int) {
	for range n {
		s.now += 100e6
		for _, id := range s.ids() {
			s.replicas[id].group.Tick(0, nil)
			s.collect(id)
		}
		s.settle()
	}
}

// setTerm restarts a replica in another term.
func (s *scenario) setTerm(id keys.ReplicaID, term uint64) {
	r := s.replicas[id]
	hard, _, err := r.storage.InitialState()
	if err == nil {
		commit := max(hard.GetCommit(), r.index)
		err = r.storage.SetHardState(&raftpb.HardState{Term: &term, Commit: &commit})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.start(id, &scenarioReplica{storage: r.storage, index: r.index, applied: r.applied,
		configuration: r.configuration})
}

// TestFarTermOfAGroup: a replica that has missed more elections than one message may tell of takes
// part again after a while.
func TestFarTermOfAGroup(t *testing.T) {
	const far = 1 << 40
	s := threeReplicas(t)
	s.setTerm(1, far)
	s.setTerm(2, far)
	s.lead(1)
	if l := s.replicas[3].group.Leadership(); l.Term > far {
		t.Fatalf("believed at once: %+v", l)
	}
	s.tick((claimTimeouts + 1) * 10)
	for id, r := range s.replicas {
		if l := r.group.Leadership(); l.Term <= far || l.Leader == 0 {
			t.Errorf("replica %d: %+v", id, l)
		}
	}
	s.lead(3)
	s.tick(30)
	if l := s.replicas[3].group.Leadership(); l.Leader == 0 {
		t.Errorf("%+v", l)
	}
}

// TestForgedFarTerm: a term that is far ahead is not believed for as long as its alleged sender
// says otherwise, however often it comes.
func TestForgedFarTerm(t *testing.T) {
	s := threeReplicas(t)
	s.lead(1)
	for range 20 * 10 {
		for to := keys.ReplicaID(1); to <= 3; to++ {
			for from := uint64(1); from <= 3; from++ {
				for _, kind := range []raftpb.MessageType{raftpb.MsgHeartbeat,
					raftpb.MsgHeartbeatResp, raftpb.MsgPreVoteResp, raftpb.MsgVote} {
					why := s.replicas[to].group.Step(&peerpb.RaftMessage{Group: 7,
						Type: uint32(
							kind,
						), From: from, To: uint64(to), Term: 1 << 40, Reject: true})
					if from == uint64(to) && why != RefusedSender ||
						from != uint64(to) && why != RefusedJump {
						t.Fatalf("%s from %d to %d: %q", kind, from, to, why)
					}
				}
			}
		}
		s.tick(1)
	}
	for id, r := range s.replicas {
		// The followers do not speak to each other, and nothing contradicts what each is told of
		// the other; but they hear their leader.
		if l := r.group.Leadership(); l.Leader != 1 || l.Term != 1 && l.Term != 2 {
			t.Errorf("replica %d: %+v", id, l)
		}
	}
}

// TestLostEntries: a leader that has committed what a replica does not have, and says so for long,
// ends it: it has lost what it acknowledged. One message among those of a leader that knows better
// does not.
func TestLostEntries(t *testing.T) {
	forged := func(to uint64) *peerpb.RaftMessage {
		return &peerpb.RaftMessage{Group: 7, Type: uint32(raftpb.MsgHeartbeat), From: 1, To: to,
			Term: 2, Commit: 50}
	}
	s := threeReplicas(t)
	s.lead(1)
	for range 20 * 10 {
		for to := uint64(2); to <= 3; to++ {
			if why := s.replicas[keys.ReplicaID(to)].group.Step(forged(to)); why != RefusedCommit {
				t.Fatalf("%q", why)
			}
		}
		s.tick(1)
	}
	if err := errors.Join(s.replicas[2].group.Broken(), s.replicas[3].group.Broken()); err != nil {
		t.Fatal(err)
	}
	s.cut[[2]uint64{1, 2}] = true
	for range (lostTimeouts + 1) * 10 {
		s.replicas[2].group.Step(forged(2))
		s.tick(1)
	}
	if s.replicas[2].group.Broken() == nil || s.replicas[3].group.Broken() != nil {
		t.Error(s.replicas[2].group.Broken(), s.replicas[3].group.Broken())
	}
}

// TestImplausibleStorage: a replica that was poisoned does not open, and says what to do; it does
// not end the process.
func TestImplausibleStorage(t *testing.T) {
	conf := &raftpb.ConfState{Voters: []uint64{1, 2, 3}}
	for _, c := range []struct{ hardTerm, commit, lastTerm, last uint64 }{
		{math.MaxUint64 - 1, 1, 1, 1},
		{math.MaxUint64, 1, math.MaxUint64, 1},
		{1, 1, MaxTerm + 1, 1},
		{1, MaxIndex + 1, 1, MaxIndex + 1},
		{1, 1 << 40, 1, 1},
	} {
		storage := raft.NewMemoryStorage()
		if err := errors.Join(storage.ApplySnapshot(
			&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &c.last, Term: &c.lastTerm,
				ConfState: conf}}),
			storage.SetHardState(&raftpb.HardState{Term: &c.hardTerm,
				Commit: &c.commit})); err != nil {
			t.Fatal(err)
		}
		if _, err := New(Config{ID: 7, Self: 1, Storage: storage, Applied: c.last}); !errors.Is(err,
			ErrImplausible) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// FuzzMessages: three replicas take any messages among those that they send each other; none
// panics, and after a restart all of them open, and one leads as soon as nothing is forged any
// more.
func FuzzMessages(f *testing.F) {
	seed := func(messages ...*peerpb.RaftMessage) {
		var data []byte
		for _, m := range messages {
			raw, err := m.MarshalVT()
			if err != nil {
				f.Fatal(err)
			}
			data = append(append(data, byte(len(raw))), raw...)
		}
		f.Add(data)
	}
	for kind := range raftpb.MessageType_name {
		seed(&peerpb.RaftMessage{Type: uint32(kind), From: 1, To: 2, Term: 2, Index: 2, LogTerm: 2,
			Commit: 2, Context: []byte("12345678")},
			&peerpb.RaftMessage{Type: uint32(kind), From: 2, To: 1, Term: 2, Index: 2, LogTerm: 2,
				Context: []byte("12345678")},
			&peerpb.RaftMessage{Type: uint32(kind), From: 2, To: 1, Term: 3, Index: 1, LogTerm: 1,
				Commit: 9, RejectHint: 1, Reject: true})
	}
	seed(&peerpb.RaftMessage{Type: uint32(raftpb.MsgApp), From: 1, To: 2, Term: 2, Index: 2,
		LogTerm: 2, Commit: 3, Entries: []*peerpb.Entry{{Index: 3, Term: 2}}})
	seed(&peerpb.RaftMessage{Type: uint32(raftpb.MsgApp), From: 3, To: 2, Term: 3, Index: 1,
		LogTerm: 1, Entries: []*peerpb.Entry{{Index: 2, Term: 3}}},
		&peerpb.RaftMessage{Type: uint32(raftpb.MsgHeartbeat), From: 3, To: 2, Term: 3, Commit: 3})
	conf, err := proto.Marshal(&raftpb.ConfState{Voters: []uint64{1, 2, 3}})
	if err != nil {
		f.Fatal(err)
	}
	seed(&peerpb.RaftMessage{Type: uint32(raftpb.MsgSnap), From: 1, To: 3, Term: 2,
		Snapshot: &peerpb.SnapshotMeta{Index: 9, Term: 2, ConfState: conf}},
		&peerpb.RaftMessage{Type: uint32(raftpb.MsgHeartbeat), From: 1, To: 3, Term: 2, Commit: 9})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := threeReplicas(t)
		s.lead(1)
		for n := 0; len(data) > 0 && n < 40; n++ {
			size := min(int(data[0]), len(data)-1)
			m := &peerpb.RaftMessage{}
			if m.UnmarshalVTUnsafe(bytes.Clone(data[1:1+size])) == nil && m.Group != 8 {
				id := keys.ReplicaID(m.GetTo())
				if s.replicas[id] == nil {
					id = 1
				}
				s.replicas[id].group.Step(m)
				if n%3 != 0 { // otherwise together with the next one
					s.collect(id)
				}
			}
			data = data[1+size:]
			if n%4 == 3 {
				s.feed(n)
			}
		}
		for n := range 3 {
			s.feed(n)
		}
		for _, id := range s.ids() {
			s.stable(id)
			r := s.replicas[id]
			hard, _, err := r.storage.InitialState()
			if err == nil && hard.GetCommit() < r.index {
				err = r.storage.SetHardState(&raftpb.HardState{Term: hard.Term, Vote: hard.Vote,
					Commit: &r.index})
			}
			if err != nil {
				t.Fatal(err)
			}
			s.wire = nil
			s.start(id, &scenarioReplica{storage: r.storage, applied: r.applied, index: r.index,
				configuration: r.configuration})
		}
		s.now += 10e9
		for range 200 {
			s.now += 100e6
			for _, id := range s.ids() {
				s.replicas[id].group.Tick(0, nil)
				s.collect(id)
			}
			for range 5 {
				s.deliver(nil)
				for _, id := range s.ids() {
					s.stable(id)
				}
			}
			for _, id := range s.ids() {
				if s.replicas[id].group.Leadership().IsLeader {
					return
				}
			}
		}
		text := ""
		for _, id := range s.ids() {
			text += fmt.Sprintf(" %+v", s.replicas[id].group.node.BasicStatus())
		}
		t.Errorf("none leads after a restart:%s", text)
	})
}

// feed goes on with a little of everything.
func (s *scenario) feed(n int) {
	for _, id := range s.ids() {
		r := s.replicas[id]
		if l := r.group.Leadership(); l.IsLeader {
			_ = r.group.Propose(l.Term, [][]byte{{byte(n)}})
			r.group.ReadIndex([]byte{'r', 0, 0, 0, 0, 0, 0, byte(n)})
		}
		s.now += 50e6
		r.group.Tick(0, nil)
		s.collect(id)
	}
	for range 3 {
		s.deliver(nil)
		for _, id := range s.ids() {
			s.stable(id)
		}
	}
}
